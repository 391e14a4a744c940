"""Whole runs with real zones: two zones of three machines, episodes of a minute."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from zone_double import ROOT, Killed, written

from federation import local_run
from federation.local_run import RunResult, train
from federation.session import RoundDone
from marl_sched.agents.learned import load_policy
from marl_sched.config import Experiment, load_config
from marl_sched.errors import CheckpointError, RunError
from marl_sched.observation import Layout
from marl_sched.run_folder import RunFolder
from zones.records import NetworkPair, RoundOrder, RoundReport
from zones.worker import ZoneWorker

MACHINES = "machines: [{count: 3, capacity: {cpu_milli: 64000, memory_mib: 131072}}]"
EAST, WEST = f"{{name: east, {MACHINES}}}", f"{{name: west, load: 0.9, {MACHINES}}}"


def experiment_of(*overrides: str, zones: tuple[str, ...] = (EAST, WEST)) -> Experiment:
    settings = (
        f"zones=[{', '.join(zones)}]",
        "episode={horizon_s: 60.0, drain_s: 60.0}",
        "training={replicas: 2, rounds: 2, validation_episodes: 2, validate_every: 1}",
        "agent={hidden: [8], n_quantiles: 4, warmup_decisions: 20, batch_size: 16, "
        "decisions_per_update: 8, replay_mib: 1}",
    )
    return load_config(ROOT / "configs" / "base.yaml", (*settings, *overrides))


def metrics(path: Path, kind: str) -> list[dict[str, object]]:
    text = (path / "metrics.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def threads_of_zones() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("zone-")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    path = tmp_path_factory.mktemp("whole") / "run"
    train(experiment_of(), path)
    return path


def test_run_trains_validates_and_publishes(whole: Path) -> None:
    result = train(experiment_of(), whole, resume=True)
    validations = metrics(whole, "validation")
    objectives = [line["objective"] for line in validations]
    assert [line["round"] for line in validations] == [1, 2]
    assert result == RunResult(
        whole, 2, True, 1 + objectives.index(min(objectives)), min(objectives)
    )
    policy = load_policy(whole / "checkpoints" / "best.npz", Layout(("cpu_milli", "memory_mib")))
    assert all(np.isfinite(tensor).all() for tensor in policy.weights().values())
    assert all(line["updates"] > 0 for line in metrics(whole, "train"))  # type: ignore[operator]


def test_two_runs_of_one_seed_write_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    train(experiment_of(), tmp_path / "run")
    assert written(tmp_path / "run") == written(whole)
    states = [path.relative_to(whole) for path in whole.rglob("state-*.npz")]
    assert len(states) == 4
    for state in states:
        assert (tmp_path / "run" / state).read_bytes() == (whole / state).read_bytes()


def test_another_seed_gives_other_weights(whole: Path, tmp_path: Path) -> None:
    train(experiment_of("seed=2", "training.rounds=1"), tmp_path / "run")
    one, other = metrics(tmp_path / "run", "train")[0], metrics(whole, "train")[0]
    assert one["loss"] != other["loss"]


def test_zones_in_another_order_write_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    train(experiment_of(zones=(WEST, EAST)), tmp_path / "run")
    assert written(tmp_path / "run") == written(whole)


def test_killed_run_resumed_writes_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    def kill(event: RoundDone) -> None:
        raise Killed

    with pytest.raises(Killed):
        train(experiment_of(), tmp_path / "run", progress=kill)
    assert not threads_of_zones()
    train(experiment_of(), tmp_path / "run", resume=True)
    assert written(tmp_path / "run") == written(whole)


def test_interrupt_in_the_middle_of_a_round_leaves_the_last_whole_one(
    whole: Path, tmp_path: Path
) -> None:
    stop = threading.Event()
    n_ticks = 0

    def tick(share: float) -> None:
        nonlocal n_ticks
        n_ticks += 1
        if n_ticks == 40:  # in the middle of the second round
            stop.set()

    result = train(experiment_of(), tmp_path / "run", tick=tick, stop=stop)
    assert (result.rounds, result.is_finished) == (1, False)
    assert not threads_of_zones()
    result = train(experiment_of(), tmp_path / "run", resume=True)
    assert result.is_finished
    assert written(tmp_path / "run") == written(whole)


def test_keyboard_interrupt_ends_all_threads(tmp_path: Path) -> None:
    class PressedStop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(experiment_of(), tmp_path / "run", stop=PressedStop())
    assert not threads_of_zones()


def test_zone_that_fails_in_the_middle_of_an_episode_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(ZoneWorker):
        def train_round(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
            if (self.zone_name, order.round_number) == ("west", 2):
                self._tick = self._fail
            return super().train_round(weights, order)

        def _fail(self, share: float) -> None:
            if share > 0.5:
                raise MemoryError("no more")

    monkeypatch.setattr(local_run, "ZoneWorker", Failing)
    events: list[RoundDone] = []
    result = train(experiment_of(), tmp_path / "run", progress=events.append)
    assert result.is_finished
    assert events[1].lost == {"west": "MemoryError: no more"}
    last = metrics(tmp_path / "run", "train")[-1]
    assert (last["zone"], last["round"], last["attempt"]) == ("east", 2, 2)
    # Alone it has nobody to send anything to.
    assert last["offload_rate"] == 0.0
    assert not threads_of_zones()


def test_run_ends_with_one_line_when_the_quorum_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(ZoneWorker):
        def _train(self, round_number: int) -> tuple[int, dict[str, float]]:
            raise ZeroDivisionError("by zero")

    monkeypatch.setattr(local_run, "ZoneWorker", Failing)
    with pytest.raises(RunError, match=r"0 zones are left.*east: ZeroDivisionError: by zero"):
        train(experiment_of(), tmp_path / "run")
    assert not threads_of_zones()


@pytest.mark.parametrize("override", ["federation.strategy=none", "agent.personal_head=true"])
def test_zones_with_tensors_of_their_own_keep_their_own_policies(
    tmp_path: Path, override: str
) -> None:
    experiment = experiment_of(override)
    result = train(experiment, tmp_path / "run")
    folder = RunFolder.resume(tmp_path / "run", experiment)
    paths = folder.policy_paths(experiment.zone_names)
    layout = Layout(tuple(experiment.resources))
    heads = [load_policy(path, layout).weights()["head.weight"] for path in paths.values()]
    assert len(heads) == 2
    assert not np.array_equal(*heads)
    assert result.best_round > 0


def test_resume_without_a_zones_state_is_refused(tmp_path: Path) -> None:
    def kill(event: RoundDone) -> None:
        raise Killed

    with pytest.raises(Killed):
        train(experiment_of(), tmp_path / "run", progress=kill)
    (tmp_path / "run" / "checkpoints" / "zones" / "west" / "state-00001.npz").unlink()
    with pytest.raises(CheckpointError, match=r"west.state-00001\.npz: no such file"):
        train(experiment_of(), tmp_path / "run", resume=True)


def test_folder_that_exists_is_refused(whole: Path) -> None:
    before = written(whole)
    with pytest.raises(RunError, match="exists already"):
        train(experiment_of(), whole)
    assert written(whole) == before
