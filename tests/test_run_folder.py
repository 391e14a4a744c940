import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from marl_sched.agents.storage import write_arrays
from marl_sched.config import Experiment, load_config
from marl_sched.errors import CheckpointError, RunError
from marl_sched.run_folder import Checkpoint, RunFolder

ROOT = Path(__file__).parents[1]
WEIGHTS = {"w": np.arange(3, dtype=np.float32)}


def base(*overrides: str) -> Experiment:
    return load_config(ROOT / "configs" / "base.yaml", overrides)


def test_folder_that_exists_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(RunError, match="exists already"):
        RunFolder.create(tmp_path, base())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("precious")
    with pytest.raises(RunError, match="exists already"):
        RunFolder.create(tmp_path / "run", base())


def test_empty_folder_is_used(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path, base()).config_path.exists()


def test_folder_that_does_not_exist_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run to resume"):
        RunFolder.resume(tmp_path / "none", base())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.rounds=7", r"training\.rounds = 20, but .* given 7"),
        ("zones[1].load=0.5", r"zones\[1\]\.load = null, but .* given 0\.5"),
        ("agent.hidden=[8]", r"agent\.hidden = \[64, 64\], but .* given \[8\]"),
    ],
)
def test_resume_of_another_configuration_names_the_key(
    tmp_path: Path, override: str, message: str
) -> None:
    RunFolder.create(tmp_path / "run", base("training.rounds=20", "agent.hidden=[64, 64]"))
    with pytest.raises(RunError, match=message):
        RunFolder.resume(
            tmp_path / "run", base("training.rounds=20", "agent.hidden=[64, 64]", override)
        )


def test_resume_cuts_off_lines_that_no_checkpoint_knows_of(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", base())
    folder.append_metrics([{"round": 1}])
    folder.save_checkpoint(Checkpoint(1, WEIGHTS, WEIGHTS, members=("zone_0",)))
    folder.append_metrics([{"round": 2}])
    with folder.metrics_path.open("a") as file:
        file.write('{"round": 3, "half')
    resumed = RunFolder.resume(tmp_path / "run", base())
    assert [json.loads(line) for line in folder.metrics_path.read_text().splitlines()] == [
        {"round": 1}
    ]
    assert resumed.committed is not None
    assert resumed.committed.members == ("zone_0",)
    np.testing.assert_array_equal(resumed.committed.online["w"], WEIGHTS["w"])


def test_resume_refuses_metrics_shorter_than_the_checkpoint_says(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", base())
    folder.append_metrics([{"round": 1}, {"round": 1}])
    folder.save_checkpoint(Checkpoint(1, WEIGHTS, WEIGHTS))
    folder.metrics_path.write_text('{"round": 1}\n{"round"')
    with pytest.raises(CheckpointError, match="1 whole lines, expected at least the 2"):
        RunFolder.resume(tmp_path / "run", base())


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", base())
    for number in (1, 2, 3, 4):
        folder.save_checkpoint(Checkpoint(number, WEIGHTS, WEIGHTS))
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["round-00003.npz", "round-00004.npz"]


def test_numbers_json_has_no_word_for_become_null(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", base())
    folder.append_metrics([{"loss": float("nan"), "round": 1}])
    assert folder.metrics_path.read_text() == '{"loss": null, "round": 1}\n'


def test_policy_of_every_zone_is_the_published_one(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", base())
    with pytest.raises(CheckpointError, match="no round was validated yet"):
        folder.policy_paths(["a"])
    folder.save_checkpoint(Checkpoint(2, {}, {}, best={"round": 1}))
    assert folder.policy_paths(["a"]) == {"a": folder.zone_path("a") / "policy-00001.npz"}
    folder.best_path.write_bytes(b"")
    assert folder.policy_paths(["a", "b"]) == {"a": folder.best_path, "b": folder.best_path}


def make_run(path: Path) -> RunFolder:
    """Return a run of two committed rounds."""
    folder = RunFolder.create(path, base())
    for number in (1, 2):
        folder.save_checkpoint(Checkpoint(number, WEIGHTS, WEIGHTS))
    return folder


def test_checkpoint_with_foreign_metadata_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_run(tmp_path / "run")
    path = folder.best_path.with_name("round-00002.npz")
    write_arrays(path, "checkpoint", {"round": "two"}, {})
    resumed = RunFolder.resume(tmp_path / "run", base())
    assert resumed.committed is not None
    assert resumed.committed.round_number == 1
    assert "round-00002.npz: not a checkpoint of a run" in caplog.text


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"v": WEIGHTS["w"]}, r"online has the tensors \['w'\], expected \['v'\]"),
        ({"w": np.zeros((3, 1), np.float32)}, r"online/w is float32 \(3,\), expected .*\(3, 1\)"),
    ],
)
def test_checkpoint_of_another_architecture_is_named(
    tmp_path: Path, expected: dict[str, NDArray[np.float32]], message: str
) -> None:
    folder = make_run(tmp_path / "run")
    folder.check_committed(WEIGHTS)
    with pytest.raises(CheckpointError, match=rf"round-00002\.npz: {message}"):
        folder.check_committed(expected)


def test_checkpoint_that_is_not_finite_is_named(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", base())
    broken = {"w": np.full(3, np.nan, np.float32)}
    folder.save_checkpoint(Checkpoint(1, WEIGHTS, broken))
    with pytest.raises(CheckpointError, match=r"round-00001\.npz: ema/w: expected finite numbers"):
        folder.check_committed(WEIGHTS)


def test_run_of_a_configuration_is_known_by_every_field(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    assert RunFolder(tmp_path / "run").is_of(base())
    assert not RunFolder(tmp_path / "run").is_of(base("seed=9"))
    assert not RunFolder(tmp_path / "none").is_of(base())
