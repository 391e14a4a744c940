import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from zone_double import (
    FIRST,
    LIMITS,
    ZONES,
    Fault,
    Killed,
    experiment_of,
    run_doubles,
    written,
)

from federation.round_driver import Stopped
from federation.session import RoundDone, Session
from marl_sched.config import Experiment, Zone, load_config
from marl_sched.errors import CheckpointError, ConfigError, RunError
from marl_sched.run_folder import RunFolder
from zones.records import NetworkPair, RoundReport


def lines(path: Path, kind: str) -> list[dict[str, object]]:
    text = (path / "metrics.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def raising(error: Exception) -> Fault:
    def fault(report: RoundReport) -> RoundReport:
        raise error

    return fault


def with_nan(report: RoundReport) -> RoundReport:
    assert report.weights is not None
    online = {name: tensor.copy() for name, tensor in report.weights.online.items()}
    online["first.weight"][1, 2] = np.nan
    return replace(report, weights=NetworkPair(online, report.weights.ema))


def after(round_number: int) -> Callable[[RoundDone], None]:
    def progress(event: RoundDone) -> None:
        if event.round_number == round_number:
            raise Killed

    return progress


def test_weights_are_the_mean_of_the_zones_weighted_by_decisions(tmp_path: Path) -> None:
    run_doubles(tmp_path / "run", experiment_of("training.rounds=1"))
    committed = RunFolder.resume(tmp_path / "run", experiment_of("training.rounds=1")).committed
    step = (10 * 0.11 + 20 * 0.21 + 30 * 0.31) / 60
    assert committed is not None
    for name, first in FIRST.items():
        np.testing.assert_allclose(committed.online[name], first + step, rtol=1e-6)
        np.testing.assert_allclose(committed.ema[name], first + step / 2, rtol=1e-6)
        assert committed.online[name].dtype == np.float32


def test_metrics_have_a_line_a_round_and_zone_and_no_clock(tmp_path: Path) -> None:
    run_doubles(tmp_path / "run", experiment_of())
    trained = lines(tmp_path / "run", "train")
    assert [(line["round"], line["zone"]) for line in trained] == [
        (number, zone) for number in (1, 2, 3, 4) for zone in ZONES
    ]
    assert set(trained[0]) == {"kind", "round", "attempt", "zone", "n_decisions", "loss"}


def test_averaged_weights_are_validated_and_the_last_round_always(tmp_path: Path) -> None:
    run_doubles(tmp_path / "run", experiment_of("training.rounds=5"))
    validations = lines(tmp_path / "run", "validation")
    assert [line["round"] for line in validations] == [2, 4, 5]
    # The double's weights only grow, and so does its objective: the first is the best.
    assert [line["is_best"] for line in validations] == [True, False, False]


def test_last_weights_are_published_when_nothing_is_validated(tmp_path: Path) -> None:
    experiment = experiment_of("training.validation_episodes=0")
    run_doubles(tmp_path / "run", experiment)
    committed = RunFolder.resume(tmp_path / "run", experiment).committed
    assert committed is not None
    with np.load(tmp_path / "run" / "checkpoints" / "best.npz") as best:
        np.testing.assert_array_equal(best["head.bias"], committed.ema["head.bias"])
    assert lines(tmp_path / "run", "validation") == []


def test_zones_in_any_order_write_the_same_bytes(tmp_path: Path) -> None:
    run_doubles(tmp_path / "a", experiment_of())
    run_doubles(tmp_path / "b", experiment_of(), order=("zone_2", "zone_0", "zone_1"))
    assert written(tmp_path / "a") == written(tmp_path / "b")


def test_round_is_run_again_without_a_zone_that_raises(tmp_path: Path) -> None:
    faults = {("zone_1", 2): raising(ValueError("out of luck"))}
    events = run_doubles(tmp_path / "run", experiment_of(), faults=faults)
    trained = lines(tmp_path / "run", "train")
    assert [(line["zone"], line["attempt"]) for line in trained if line["round"] == 2] == [
        ("zone_0", 2),
        ("zone_2", 2),
    ]
    assert {line["zone"] for line in trained if line["round"] == 3} == {"zone_0", "zone_2"}
    assert events[1].lost == {"zone_1": "ValueError: out of luck"}
    assert lines(tmp_path / "run", "lost") == [
        {"kind": "lost", "round": 2, "zone": "zone_1", "reason": "ValueError: out of luck"}
    ]


def test_zone_lost_in_the_last_validation_does_not_lose_the_run(tmp_path: Path) -> None:
    faults = {("zone_1", 5): raising(ValueError("late"))}
    run_doubles(tmp_path / "run", experiment_of(), faults=faults)
    assert lines(tmp_path / "run", "validation")[-1]["zones"] == ["zone_0", "zone_2"]


def test_validation_by_fewer_zones_is_never_the_best(tmp_path: Path) -> None:
    # Two zones' sum is lower than three zones' in the double, but it is another game.
    faults = {("zone_2", 4): raising(ValueError("gone"))}
    run_doubles(tmp_path / "run", experiment_of(), faults=faults)
    validations = lines(tmp_path / "run", "validation")
    assert [(len(line["zones"]), line["is_best"]) for line in validations] == [  # type: ignore[arg-type]
        (3, True),
        (2, False),
    ]


def test_run_ends_when_fewer_zones_than_the_quorum_are_left(tmp_path: Path) -> None:
    faults = {("zone_1", 2): raising(ValueError("out of luck"))}
    with pytest.raises(RunError, match=r"2 zones are left.*quorum = 3.*zone_1: ValueError: out of"):
        run_doubles(tmp_path / "run", experiment_of("federation.quorum=3"), faults=faults)


def test_fault_that_every_zone_would_repeat_ends_the_run_at_once(tmp_path: Path) -> None:
    faults = {("zone_1", 1): raising(ConfigError("workload.path = 'x', expected a file"))}
    with pytest.raises(RunError, match=r"zone_1: workload\.path = 'x', expected a file"):
        run_doubles(tmp_path / "run", experiment_of(), faults=faults)


def test_zone_elsewhere_cannot_end_the_run_by_its_word(tmp_path: Path) -> None:
    faults = {("zone_1", 2): raising(ConfigError("every zone has this"))}
    limits = replace(LIMITS, is_fatal=False)
    events = run_doubles(tmp_path / "run", experiment_of(), faults=faults, limits=limits)
    assert events[1].lost == {"zone_1": "every zone has this"}
    assert events[-1].round_number == events[-1].n_rounds


def test_update_with_nan_is_refused_by_name_and_the_zone_left_out(tmp_path: Path) -> None:
    events = run_doubles(tmp_path / "run", experiment_of(), faults={("zone_2", 1): with_nan})
    assert "zone_2: first.weight (online) holds nan" in events[0].lost["zone_2"]
    committed = RunFolder.resume(tmp_path / "run", experiment_of()).committed
    assert committed is not None
    assert committed.members == ("zone_0", "zone_1")
    assert all(np.isfinite(tensor).all() for tensor in committed.online.values())


def test_zone_with_other_metrics_than_the_rest_is_left_out(tmp_path: Path) -> None:
    def odd(report: RoundReport) -> RoundReport:
        return replace(report, metrics={"lost": 1.0})

    events = run_doubles(tmp_path / "run", experiment_of(), faults={("zone_0", 1): odd})
    assert "metrics lack 'metrics.loss'" in events[0].lost["zone_0"]


def test_zone_with_more_validation_sums_than_the_rest_is_left_out(tmp_path: Path) -> None:
    def odd(report: RoundReport) -> RoundReport:
        assert report.validation is not None
        wide = {key: np.repeat(sums, 7, axis=1) for key, sums in report.validation.items()}
        return replace(report, validation=wide)

    events = run_doubles(tmp_path / "run", experiment_of(), faults={("zone_1", 3): odd})
    lost = {zone: reason for event in events for zone, reason in event.lost.items()}
    assert list(lost) == ["zone_1"]
    assert "zone_1: metrics lack 'validation." in lost["zone_1"]
    assert events[-1].round_number == events[-1].n_rounds


def test_zone_whose_validation_cannot_be_scored_is_left_out(tmp_path: Path) -> None:
    def bare(report: RoundReport) -> RoundReport:
        return replace(report, validation={"other": np.ones((2, 1))})

    events = run_doubles(tmp_path / "run", experiment_of(), faults={("zone_0", 3): bare})
    lost = {zone: reason for event in events for zone, reason in event.lost.items()}
    assert list(lost) == ["zone_0"]
    assert "zone_0: validation" in lost["zone_0"]


def test_zone_that_hangs_is_lost_at_the_deadline(tmp_path: Path) -> None:
    release = threading.Event()

    def hang(report: RoundReport) -> RoundReport:
        release.wait(20.0)
        return report

    def progress(event: RoundDone) -> None:
        release.set()

    events = run_doubles(
        tmp_path / "run",
        experiment_of("training.rounds=1"),
        faults={("zone_1", 1): hang},
        limits=replace(LIMITS, deadline_s=0.3, abort_s=0.3),
        progress=progress,
    )
    # The others waited for it in the exchange: they were silent too, but are not to blame.
    assert list(events[0].lost) == ["zone_1"]
    assert "no reply within 0.3 s (federation.deadline_s)" in events[0].lost["zone_1"]
    assert [line["zone"] for line in lines(tmp_path / "run", "train")] == ["zone_0", "zone_2"]


def test_stop_ends_the_run_after_the_last_whole_round(tmp_path: Path) -> None:
    stop = threading.Event()

    def progress(event: RoundDone) -> None:
        if event.round_number == 2:
            stop.set()

    with pytest.raises(Stopped):
        run_doubles(
            tmp_path / "run",
            experiment_of(),
            progress=progress,
            change=lambda session: replace(session, stop=stop),
        )
    committed = RunFolder.resume(tmp_path / "run", experiment_of()).committed
    assert committed is not None
    assert committed.round_number == 2


@pytest.mark.parametrize("round_number", [1, 2, 3, 4])
def test_killed_run_resumed_writes_the_same_bytes(tmp_path: Path, round_number: int) -> None:
    run_doubles(tmp_path / "whole", experiment_of())
    with pytest.raises(Killed):
        run_doubles(tmp_path / "killed", experiment_of(), progress=after(round_number))
    run_doubles(tmp_path / "killed", experiment_of(), resume=True)
    assert written(tmp_path / "killed") == written(tmp_path / "whole")


@pytest.mark.parametrize("n_writes", range(1, 8))
def test_run_killed_in_any_write_and_resumed_writes_the_same_bytes(
    tmp_path: Path, n_writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_doubles(tmp_path / "whole", experiment_of())
    replace_file = Path.replace
    writes = 0

    def killed_at_the_last(self: Path, target: Path) -> Path:
        nonlocal writes
        writes += 1
        if writes == n_writes:
            raise Killed
        return replace_file(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed_at_the_last)
        with pytest.raises(Killed):
            run_doubles(tmp_path / "killed", experiment_of())
    # At the first write the folder's configuration is not there: it is not a run yet.
    run_doubles(tmp_path / "killed", experiment_of(), resume=n_writes > 1)
    assert written(tmp_path / "killed") == written(tmp_path / "whole")


def test_resume_passes_over_a_half_written_checkpoint(tmp_path: Path) -> None:
    run_doubles(tmp_path / "whole", experiment_of())
    with pytest.raises(Killed):
        run_doubles(tmp_path / "killed", experiment_of(), progress=after(3))
    newest = tmp_path / "killed" / "checkpoints" / "round-00003.npz"
    newest.write_bytes(newest.read_bytes()[:200])
    run_doubles(tmp_path / "killed", experiment_of(), resume=True)
    assert written(tmp_path / "killed") == written(tmp_path / "whole")


def test_resume_without_a_whole_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run_doubles(tmp_path / "run", experiment_of(), progress=after(1))
    only = tmp_path / "run" / "checkpoints" / "round-00001.npz"
    only.write_bytes(b"not ours")
    with pytest.raises(CheckpointError, match=r"round-00001\.npz: no checkpoint .* is whole"):
        run_doubles(tmp_path / "run", experiment_of(), resume=True)


def test_finished_run_resumed_changes_nothing(tmp_path: Path) -> None:
    run_doubles(tmp_path / "run", experiment_of())
    before = written(tmp_path / "run")
    assert run_doubles(tmp_path / "run", experiment_of(), resume=True) == []
    assert written(tmp_path / "run") == before


def with_zones(*names: str, quorum: int = 1) -> Experiment:
    """The experiment with some of its zones.

    New zones are not waited for; a quorum of all makes sure that they are there.
    """
    whole = experiment_of(f"federation.quorum={quorum}")
    zones = [zone for zone in whole.zones if zone.name in names]
    return whole.model_copy(update={"zones": zones})


TWO, THREE = with_zones("zone_0", "zone_1"), with_zones(*ZONES, quorum=3)
ALL, SOME, ONE = with_zones(*ZONES), with_zones("zone_1", "zone_2"), with_zones("zone_2")


def changing(*experiments: Experiment | None) -> Callable[[Session], Session]:
    """Return what lets a run have these experiments, one a round from its first on."""
    left = [*experiments]

    def renew(session: Session) -> Session | None:
        experiment = left.pop(0) if left else None
        return None if experiment is None else replace(session, experiment=experiment)

    return lambda session: replace(session, renew=renew)


def members(path: Path) -> dict[object, list[object]]:
    found: dict[object, list[object]] = {}
    for line in lines(path, "train"):
        found.setdefault(line["round"], []).append(line["zone"])
    return found


def test_zones_join_and_leave_between_rounds_by_the_configuration(tmp_path: Path) -> None:
    run_doubles(tmp_path / "run", TWO, change=changing(None, None, THREE, SOME))
    assert members(tmp_path / "run") == {
        1: ["zone_0", "zone_1"],
        2: ["zone_0", "zone_1"],
        3: ["zone_0", "zone_1", "zone_2"],
        4: ["zone_1", "zone_2"],
    }
    assert lines(tmp_path / "run", "zones") == [
        {"kind": "zones", "round": 3, "added": ["zone_2"], "removed": []},
        {"kind": "zones", "round": 4, "added": [], "removed": ["zone_0"]},
    ]
    assert load_config(tmp_path / "run" / "config.yaml") == SOME


def test_line_of_a_change_is_the_first_of_its_round(tmp_path: Path) -> None:
    run_doubles(tmp_path / "run", TWO, change=changing(None, None, THREE))
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    of_round = [line for line in map(json.loads, text.splitlines()) if line["round"] == 3]
    assert [line["kind"] for line in of_round] == ["zones", "train", "train", "train"]


def test_configuration_of_the_folder_is_that_of_the_last_committed_round(tmp_path: Path) -> None:
    config = tmp_path / "run" / "config.yaml"
    with pytest.raises(Killed):
        run_doubles(tmp_path / "run", ALL, change=changing(None, None, SOME), progress=after(2))
    assert load_config(config) == ALL
    with pytest.raises(Killed):
        run_doubles(tmp_path / "run", SOME, resume=True, progress=after(3))
    assert load_config(config) == SOME


def test_best_policy_of_other_zones_counts_no_more(tmp_path: Path) -> None:
    # The double's objective only grows: among equal zones the first validation is the best.
    run_doubles(tmp_path / "run", ALL, change=changing(None, None, None, SOME))
    validations = lines(tmp_path / "run", "validation")
    assert [(line["round"], line["is_best"]) for line in validations] == [(2, True), (4, True)]


@pytest.mark.parametrize("round_number", [1, 2, 3, 4])
def test_run_with_a_change_killed_and_resumed_writes_the_same_bytes(
    tmp_path: Path, round_number: int
) -> None:
    wanted = [None, ALL, ALL, SOME, ONE]  # by round
    run_doubles(tmp_path / "whole", ALL, change=changing(None, None, SOME, ONE))
    changes = changing(None, None, SOME, ONE)
    with pytest.raises(Killed):
        run_doubles(tmp_path / "killed", ALL, change=changes, progress=after(round_number))
    begins_with = wanted[min(round_number + 1, 4)]
    assert begins_with is not None
    later = changing(None, *wanted[round_number + 2 :])
    run_doubles(tmp_path / "killed", begins_with, resume=True, change=later)
    assert written(tmp_path / "killed") == written(tmp_path / "whole")
    assert load_config(tmp_path / "killed" / "config.yaml") == ONE


@pytest.mark.parametrize("n_writes", range(4, 8))
def test_run_killed_while_it_commits_a_change_writes_the_same_bytes(
    tmp_path: Path, n_writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_doubles(tmp_path / "whole", ALL, change=changing(None, None, SOME))
    replace_file = Path.replace
    writes: list[str] = []

    def killed_at_the_last(self: Path, target: Path) -> Path:
        writes.append(target.name)
        if len(writes) == n_writes:
            raise Killed
        return replace_file(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed_at_the_last)
        with pytest.raises(Killed):
            run_doubles(tmp_path / "killed", ALL, change=changing(None, None, SOME))
    run_doubles(tmp_path / "killed", SOME, resume=True)
    assert written(tmp_path / "killed") == written(tmp_path / "whole")
    assert load_config(tmp_path / "killed" / "config.yaml") == SOME


def test_change_that_is_taken_back_before_a_round_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run_doubles(tmp_path / "run", ALL, progress=after(2))
    run_doubles(tmp_path / "run", SOME, resume=True, change=changing(ALL))
    assert members(tmp_path / "run")[4] == list(ZONES)
    assert lines(tmp_path / "run", "zones") == []
    assert load_config(tmp_path / "run" / "config.yaml") == ALL


def test_change_of_the_zones_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, object]]] = []
    changes = changing(None, THREE)

    def change(session: Session) -> Session:
        return replace(changes(session), note=lambda kind, what: told.append((kind, dict(what))))

    run_doubles(tmp_path / "run", TWO, change=change)
    expected = {"round": 2, "added": ("zone_2",), "removed": ()}
    assert ("zones", expected) in told


def test_run_ends_when_too_few_zones_of_a_change_are_there(tmp_path: Path) -> None:
    alone = with_zones("zone_0", quorum=2).model_copy(
        update={"zones": [TWO.zones[0], _absent("zone_8"), _absent("zone_9")]}
    )
    with pytest.raises(RunError, match=r"1 zones are left.*quorum = 2.*zone_8: no process of it"):
        run_doubles(tmp_path / "run", TWO, change=changing(None, alone))


def _absent(name: str) -> Zone:
    return TWO.zones[0].model_copy(update={"name": name})
