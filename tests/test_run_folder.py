import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from marl_sched.agents.storage import write_arrays
from marl_sched.config import Experiment, dump_config, load_config
from marl_sched.errors import CheckpointError, RunError
from marl_sched.files import alone_in
from marl_sched.run_folder import Checkpoint, RunFolder, require_new

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


def test_folder_of_a_run_without_a_committed_round_is_used_anew(tmp_path: Path) -> None:
    failed = RunFolder.create(tmp_path / "run", base())
    failed.append_metrics([{"kind": "lost", "round": 1, "zone": "zone_0", "reason": "why"}])
    failed.append_timing([{"round": 1}])
    failed.zone_path("zone_0").mkdir(parents=True)
    require_new(tmp_path / "run", base())
    folder = RunFolder.create(tmp_path / "run", base())
    assert folder.committed is None
    assert folder.metrics_path.read_text() == ""
    assert folder.timing_path.read_text() == ""
    assert RunFolder.resume(tmp_path / "run", base()).committed is None


def test_folder_with_a_committed_round_is_never_used_anew(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", base())
    folder.save_checkpoint(Checkpoint(1, WEIGHTS, WEIGHTS))
    (tmp_path / "run" / "checkpoints" / "round-00001.npz").write_bytes(b"broken")
    with pytest.raises(RunError, match="give another folder, or --resume to go on"):
        RunFolder.create(tmp_path / "run", base())


def test_folder_of_another_run_without_a_round_says_what_to_do(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", base())
    with pytest.raises(RunError, match="not of this configuration; delete it or give another"):
        require_new(tmp_path / "run", base("seed=9"))
    assert RunFolder(tmp_path / "run").is_of(base())


def test_folder_without_a_round_in_which_somebody_is_at_work_is_left_alone(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", base())
    folder.append_metrics([{"kind": "lost"}])
    with (
        alone_in(tmp_path / "run"),
        pytest.raises(RunError, match="another process is at work there"),
    ):
        RunFolder.create(tmp_path / "run", base())
    assert folder.metrics_path.read_text() == '{"kind": "lost"}\n'


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


def test_named_pipe_in_the_place_of_the_configuration_is_not_waited_for(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "run" / "config.yaml").unlink()
    os.mkfifo(tmp_path / "run" / "config.yaml")
    raised: list[str] = []

    def resume() -> None:
        with pytest.raises(RunError) as error:
            RunFolder.resume(tmp_path / "run", base())
        raised.append(str(error.value))

    waiting = threading.Thread(target=resume, daemon=True)
    waiting.start()
    waiting.join(20.0)
    assert ["not a regular file" in line for line in raised] == [True]


def test_run_of_a_configuration_is_known_by_every_field(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    assert RunFolder(tmp_path / "run").is_of(base())
    assert not RunFolder(tmp_path / "run").is_of(base("seed=9"))
    assert not RunFolder(tmp_path / "none").is_of(base())


def with_zones(*names: str) -> Experiment:
    whole = base()
    first = whole.zones[0]
    zones = [first.model_copy(update={"name": name}) for name in names]
    return whole.model_copy(update={"zones": zones})


def test_resume_with_other_zones_says_which_and_leaves_the_configuration(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", with_zones("a", "b", "c"))
    folder = RunFolder.resume(tmp_path / "run", with_zones("d", "b", "e"))
    change = folder.zone_change(with_zones("d", "b", "e"))
    assert (change.added, change.removed) == (("d", "e"), ("a", "c"))
    assert RunFolder(tmp_path / "run").is_of(with_zones("a", "b", "c"))
    assert not folder.zone_change(with_zones("c", "b", "a"))


def test_zone_that_stays_must_stay_as_it_is(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", with_zones("a", "b"))
    other = with_zones("b", "c")
    changed = other.zones[0].model_copy(update={"load": 0.25})
    other = other.model_copy(update={"zones": [changed, other.zones[1]]})
    with pytest.raises(
        RunError, match=r"zones\[0\]\.load = .*, but the run to resume is given 0\.25"
    ):
        RunFolder.resume(tmp_path / "run", other)


def test_configuration_becomes_that_of_the_committed_round(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", with_zones("a", "b"))
    config = dump_config(with_zones("a", "b", "c"))
    folder.save_checkpoint(Checkpoint(1, WEIGHTS, WEIGHTS, config=config))
    assert folder.config_path.read_text() == config
    assert not folder.zone_change(with_zones("a", "b", "c"))


def test_commit_that_was_killed_before_the_configuration_is_finished_by_resume(
    tmp_path: Path,
) -> None:
    folder = RunFolder.create(tmp_path / "run", with_zones("a", "b"))
    before = folder.config_path.read_bytes()
    config = dump_config(with_zones("a", "b", "c"))
    folder.save_checkpoint(Checkpoint(1, WEIGHTS, WEIGHTS, config=config))
    folder.config_path.write_bytes(before)  # as if it had been killed in between
    resumed = RunFolder.resume(tmp_path / "run", with_zones("a", "b", "c"))
    assert not resumed.zone_change(with_zones("a", "b", "c"))
    assert resumed.config_path.read_text() == config


def test_run_that_was_begun_before_a_setting_was_there_goes_on(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", base())
    lines = folder.config_path.read_text().splitlines(keepends=True)
    before = [line for line in lines if "quantiles_tolerance" not in line]
    assert len(before) == len(lines) - 1
    folder.config_path.write_text("".join(before))
    RunFolder.resume(tmp_path / "run", base())
    with pytest.raises(RunError, match=r"agent\.quantiles_tolerance = 0\.01, but .* 0\.5"):
        RunFolder.resume(tmp_path / "run", base("agent.quantiles_tolerance=0.5"))
