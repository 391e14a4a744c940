"""What must not harm a run: a full disk, a second process."""

from pathlib import Path

import pytest
from zone_double import ROOT, written

from federation.local_run import train
from marl_sched.config import Experiment, load_config
from marl_sched.errors import RunError
from marl_sched.files import alone_in
from zones import state
from zones.state import Arrays

MACHINES = "machines: [{count: 3, capacity: {cpu_milli: 64000, memory_mib: 131072}}]"
SETTINGS = (
    f"zones=[{{name: east, {MACHINES}}}, {{name: west, {MACHINES}}}]",
    "episode={horizon_s: 60.0, drain_s: 60.0}",
    "training={replicas: 2, rounds: 2, validation_episodes: 2, validate_every: 1}",
    "agent={hidden: [8], n_quantiles: 4, warmup_decisions: 20, batch_size: 16, "
    "decisions_per_update: 8, replay_mib: 1}",
)


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return load_config(ROOT / "configs" / "base.yaml", SETTINGS)


@pytest.fixture(scope="module")
def whole(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run"
    train(experiment, path)
    return path


def test_full_disk_ends_the_run_with_every_zone_in_it(
    experiment: Experiment, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = state.save_state

    def save_until_full(path: Path, zone: str, round_number: int, arrays: Arrays) -> None:
        if (zone, round_number) == ("west", 2):
            raise OSError(28, "No space left on device", str(path))
        save(path, zone, round_number, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(state, "save_state", save_until_full)
        with pytest.raises(RunError, match=r"west: .*No space left on device.*state-00002\.npz"):
            train(experiment, tmp_path / "run")
    train(experiment, tmp_path / "run", resume=True)
    assert written(tmp_path / "run") == written(whole)


def test_second_process_is_kept_out(experiment: Experiment, whole: Path) -> None:
    before = written(whole)
    with alone_in(whole), pytest.raises(RunError, match="another process is at work there"):
        train(experiment, whole, resume=True)
    assert written(whole) == before


def test_resume_of_nothing_makes_nothing(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="none: cannot be opened"):
        train(experiment, tmp_path / "none", resume=True)
    assert not list(tmp_path.iterdir())
