import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_files import RunFiles

from dashboard.run_reader import RunReader
from marl_sched.config import dump_config


@pytest.fixture
def run(tmp_path: Path) -> RunFiles:
    return RunFiles(tmp_path / "run")


@pytest.fixture
def reader(run: RunFiles) -> RunReader:
    return RunReader(run.folder)


def read(reader: RunReader) -> dict[str, Any]:
    """Return the sections that have changed."""
    return {
        name: None if encoded is None else json.loads(encoded)
        for name, encoded in reader.poll().items()
    }


def test_a_run_that_is_not_there_is_waited_for(run: RunFiles, reader: RunReader) -> None:
    assert read(reader)["run"]["state"] == "waiting"
    run.create()
    found = read(reader)
    assert found["run"]["state"] == "running"
    assert found["run"]["name"] == "made-up"
    assert found["run"]["n_rounds"] == 4
    assert [(z["name"], z["n_machines"]) for z in found["zones"]] == [
        ("zone_0", 8),
        ("zone_1", 8),
        ("zone_2", 8),
    ]


def test_only_zones_with_a_new_view_are_sent(run: RunFiles, reader: RunReader) -> None:
    run.create()
    for zone in run.zones:
        run.show(zone)
    assert {name for name in read(reader) if name.startswith("zone:")} == {
        "zone:zone_0",
        "zone:zone_1",
        "zone:zone_2",
    }
    assert read(reader) == {}
    view = run.show("zone_1", n_waiting=17)
    found = read(reader)
    assert set(found) == {"zone:zone_1"}
    shown = found["zone:zone_1"]
    assert shown["n_waiting"] == 17
    by_resource = list(zip(*view.machines.utilization, strict=True))
    assert shown["utilization"] == [[round(1000 * share) for share in row] for row in by_resource]
    assert shown["decision"]["candidates"][0]["is_chosen"]


def test_age_goes_by_the_clock_of_this_host(run: RunFiles, reader: RunReader) -> None:
    """Zones on other hosts have clocks of their own."""
    run.create()
    run.show("zone_0", time=7.5)
    written = (run.folder / "live" / "zone_0.json").stat().st_mtime
    sent = read(reader)["zone:zone_0"]
    assert sent["came"] == pytest.approx(written, abs=0.01)
    assert sent["time"] == 7.5
    assert reader.last_change == pytest.approx(written, abs=0.01)


def test_many_quantiles_are_thinned_with_their_ends(run: RunFiles, reader: RunReader) -> None:
    run.create()
    view = run.view("zone_0")
    assert view.decision is not None
    taus = [(i + 0.5) / 200 for i in range(200)]
    quantiles = [float(i) for i in range(200)]
    candidates = [
        one.model_copy(update={"quantiles": quantiles}) for one in view.decision.candidates
    ]
    decision = view.decision.model_copy(update={"taus": taus, "candidates": candidates})
    run.show("zone_0", decision=decision)
    sent = read(reader)["zone:zone_0"]["decision"]
    assert len(sent["taus"]) == len(sent["candidates"][0]["quantiles"]) == 33
    assert sent["candidates"][0]["quantiles"][0] == 0
    assert sent["candidates"][0]["quantiles"][-1] == 199


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"format": 1', "the text"),
        (b"", "the text"),
        (b'{"format": 2}', "format"),
        (b"x" * (300 << 10), "expected at most 262144 bytes"),
    ],
)
def test_a_broken_view_keeps_the_one_before_and_is_named(
    run: RunFiles, reader: RunReader, content: bytes, problem: str
) -> None:
    run.create()
    run.show("zone_0", n_waiting=5)
    read(reader)
    (run.folder / "live" / "zone_0.json").write_bytes(content)
    found = read(reader)
    assert "zone:zone_0" not in found
    (one,) = found["run"]["problems"]
    assert one["file"] == "live/zone_0.json"
    assert problem in one["problem"]
    run.show("zone_0", n_waiting=6)
    found = read(reader)
    assert found["zone:zone_0"]["n_waiting"] == 6
    assert found["run"]["problems"] == []


def test_a_view_of_another_zone_is_refused(run: RunFiles, reader: RunReader) -> None:
    run.create()
    run.show("zone_0")
    shutil.copy(run.folder / "live" / "zone_0.json", run.folder / "live" / "zone_1.json")
    found = read(reader)
    assert "zone:zone_1" not in found
    assert [one["file"] for one in found["run"]["problems"]] == ["live/zone_1.json"]


def test_a_view_that_is_taken_away_is_gone(run: RunFiles, reader: RunReader) -> None:
    run.create()
    run.show("zone_0")
    read(reader)
    (run.folder / "live" / "zone_0.json").unlink()
    assert read(reader)["zone:zone_0"] is None


def test_a_zone_that_the_configuration_lacks_is_not_shown(run: RunFiles, reader: RunReader) -> None:
    run.create()
    view = run.view("zone_0").model_copy(update={"zone": "other"})
    (run.folder / "live").mkdir()
    (run.folder / "live" / "other.json").write_bytes(view.encoded())
    assert "zone:other" not in read(reader)


def test_a_zone_that_is_added_to_the_configuration_is_shown(
    run: RunFiles, reader: RunReader
) -> None:
    run.create()
    read(reader)
    zones = [*run.experiment.zones, run.experiment.zones[0].model_copy(update={"name": "new"})]
    run.experiment = run.experiment.model_copy(update={"zones": zones})
    run.create()
    run.show("new")
    found = read(reader)
    assert [zone["name"] for zone in found["zones"]][-1] == "new"
    assert "zone:new" in found


def test_rounds_tell_members_attempts_and_who_was_lost(run: RunFiles, reader: RunReader) -> None:
    run.create()
    run.round(1)
    run.lose(2, "zone_1", "no reply within 60 s")
    run.round(2, ["zone_0", "zone_2"], attempt=2, reward=-1.0)
    newest, first = read(reader)["rounds"]
    assert newest["round"] == 2
    assert newest["attempt"] == 2
    assert newest["members"] == ["zone_0", "zone_2"]
    assert newest["lost"] == [{"zone": "zone_1", "reason": "no reply within 60 s"}]
    assert newest["n_decisions"] == 2400
    assert newest["mean_reward"] == -1.0
    assert newest["seconds"] == 4.0
    assert newest["bytes"] == 320_000
    assert first["lost"] == []


def test_mean_reward_weighs_zones_by_their_decisions(run: RunFiles, reader: RunReader) -> None:
    run.create()
    for zone, n_decisions, reward in (("zone_0", 100, -1.0), ("zone_1", 300, -3.0)):
        line = {"kind": "train", "round": 1, "attempt": 1, "zone": zone}
        run.append("metrics.jsonl", line | {"n_decisions": n_decisions, "mean_reward": reward})
    assert read(reader)["rounds"][0]["mean_reward"] == -2.5


def test_a_resumed_run_does_not_count_rounds_twice(run: RunFiles, reader: RunReader) -> None:
    run.create()
    run.round(1)
    run.round(2)
    read(reader)
    kept = (run.folder / "metrics.jsonl").read_text().splitlines(keepends=True)[:3]
    replacement = run.folder / "metrics.new"
    replacement.write_text("".join(kept))
    replacement.replace(run.folder / "metrics.jsonl")
    run.round(2, reward=-9.0)
    rounds = read(reader)["rounds"]
    assert [one["round"] for one in rounds] == [2, 1]
    assert rounds[0]["mean_reward"] == -9.0
    assert rounds[0]["n_decisions"] == 3600


def test_a_run_that_begins_anew_in_the_same_folder_shows_nothing_old(
    run: RunFiles, reader: RunReader
) -> None:
    run.create()
    run.round(1)
    run.validation(1, 0.5)
    run.show("zone_0")
    read(reader)
    shutil.rmtree(run.folder)
    found = read(reader)
    assert found["run"]["state"] == "waiting"
    assert found["rounds"] == []
    assert found["zone:zone_0"] is None
    run.create()
    found = read(reader)
    assert found["run"]["state"] == "running"
    assert found["run"]["round"] == 0


def test_half_written_and_broken_lines_are_shown_as_far_as_whole(
    run: RunFiles, reader: RunReader
) -> None:
    run.create()
    run.round(1)
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('nonsense\n{"kind": "train", "round": 2, "zo')
    found = read(reader)
    assert [one["round"] for one in found["rounds"]] == [1]
    (problem,) = found["run"]["problems"]
    assert problem == {"file": "metrics.jsonl", "problem": "1 broken lines are left out"}


HOSTILE = [
    {"kind": "train", "round": 1, "zone": 7},
    {"kind": "train", "round": "1", "zone": "a"},
    {"kind": "train", "round": -1, "zone": "a"},
    {"kind": "train", "round": 1, "zone": "a", "n_decisions": "x", "mean_reward": []},
    {"kind": "train", "round": 2, "zone": "a", "n_decisions": -5, "mean_reward": float("nan")},
    {"kind": "train", "round": 3, "zone": "a", "n_decisions": 10**400},
    {"kind": "validation", "round": 1, "zones": "abc", "objective": float("inf")},
    {"kind": "validation", "round": 1, "zones": [1, None], "objective": True},
    {"kind": "lost", "round": 1, "zone": "<img src=x>", "reason": ["x"]},
    {"kind": ["train"], "round": 1},
    {"round": 1},
]


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl", "federation/events.jsonl"])
def test_lines_of_any_content_can_be_sent(run: RunFiles, reader: RunReader, name: str) -> None:
    run.create()
    run.append(name, *HOSTILE)
    read(reader)  # encodes with allow_nan=False


@pytest.mark.parametrize(
    "content",
    ['{"rows": 1, "ratios": [1, {}]}', "[]", "{", '{"ratios": [{"policy": "learned"}]}', "{}"],
)
def test_an_evaluation_that_is_none_is_passed_over(
    run: RunFiles, reader: RunReader, content: str
) -> None:
    run.create()
    (run.folder / "evaluation.json").write_text(content)
    assert read(reader)["comparison"]["basis"] == "validation"


def test_a_configuration_of_another_version_is_shown_as_far_as_it_goes(
    run: RunFiles, reader: RunReader
) -> None:
    run.create()
    text = dump_config(run.experiment).replace("seed:", "seeed:")
    (run.folder / "config.yaml").write_text(text)
    found = read(reader)
    assert found["run"]["name"] == "made-up"
    assert len(found["zones"]) == 3
    (problem,) = found["run"]["problems"]
    assert "seeed" in problem["problem"]
    assert reader.config_text is None


def test_an_unreadable_configuration_leaves_the_rest(run: RunFiles, reader: RunReader) -> None:
    run.create()
    (run.folder / "config.yaml").write_bytes(b"zones: [\xff")
    run.show("zone_2")
    run.round(1, ["zone_0"])
    found = read(reader)
    assert [zone["name"] for zone in found["zones"]] == ["zone_0", "zone_2"]
    assert found["run"]["state"] == "running"


@pytest.mark.parametrize("name", ["metrics.jsonl", "live", "evaluation.json", "config.yaml"])
def test_a_folder_or_file_in_the_wrong_place_is_named(
    run: RunFiles, reader: RunReader, name: str
) -> None:
    run.create()
    (run.folder / name).unlink(missing_ok=True)
    if name == "live":
        (run.folder / name).write_text("")
        assert read(reader)["run"]["problems"] == []
        return
    (run.folder / name).mkdir()
    assert [one["file"] for one in read(reader)["run"]["problems"]] == [name]


def test_a_run_is_finished_after_its_last_validation(run: RunFiles, reader: RunReader) -> None:
    run.create()
    for number in range(1, 5):
        run.round(number)
        assert read(reader)["run"]["state"] == "running"
    run.validation(4, 0.4)
    assert read(reader)["run"]["state"] == "finished"


def test_a_failed_federation_says_why_and_runs_again_once_restarted(
    run: RunFiles, reader: RunReader
) -> None:
    run.create()
    run.event("end", outcome="failed", error="1 zones are left, expected at least 2")
    found = read(reader)["run"]
    assert (found["state"], found["detail"]) == ("failed", "1 zones are left, expected at least 2")
    run.event("start", pid=2, flower_run="1")
    assert read(reader)["run"]["state"] == "running"
    run.event("end", outcome="finished", error="")
    assert read(reader)["run"]["state"] == "finished"


def test_events_come_newest_first_and_bounded(run: RunFiles, reader: RunReader) -> None:
    run.create()
    for epoch in range(300):
        run.event("joined", zone="zone_0", epoch=epoch)
    events = read(reader)["events"]
    assert len(events) == 120
    assert events[0]["epoch"] == 299


def test_curves_of_a_long_run_are_thinned_and_keep_their_extremes(
    run: RunFiles, reader: RunReader
) -> None:
    run.create()
    values = [1.0 + (i * 7919 % 1000) / 1000 for i in range(3000)]
    values[1234] = 0.01
    lines = [
        {"kind": "validation", "round": i, "zones": ["zone_0"], "objective": value}
        for i, value in enumerate(values)
    ]
    run.append("metrics.jsonl", *lines)
    objective = read(reader)["curves"]["objective"]
    assert len(objective) <= 240
    assert [1234, 0.01, False] in objective
    assert objective[0][0] == 0
    assert objective[-1][0] == 2999


def test_comparison_rests_on_validations_of_all_zones_only(
    run: RunFiles, reader: RunReader
) -> None:
    """With fewer zones it is another game."""
    run.create()
    run.validation(1, 0.8)
    fewer = {"kind": "validation", "round": 2, "zones": ["zone_0"], "objective": 0.1}
    run.append("metrics.jsonl", fewer)
    reader.baseline = {"state": "ready", "metrics": {"objective": 1.6, "cost_per_hour": 0.0}}
    found = read(reader)["comparison"]
    assert (found["basis"], found["round"], found["n_episodes"]) == ("validation", 1, 2)
    assert found["rows"][0] == {
        "metric": "objective",
        "learned": 0.8,
        "baseline": 1.6,
        "ratio": 0.5,
    }
    cost = next(row for row in found["rows"] if row["metric"] == "cost_per_hour")
    assert cost["ratio"] is None
    assert found["validation_objective"] == 1.6


def test_measured_ratios_take_the_place_of_validations(run: RunFiles, reader: RunReader) -> None:
    run.create()
    run.validation(1, 0.8)
    run.evaluate(ratio=0.951)
    found = read(reader)
    assert found["run"]["state"] == "finished"
    assert found["comparison"]["basis"] == "evaluation"
    assert found["comparison"]["n_episodes"] == 20
    assert found["comparison"]["rows"][0] == {
        "metric": "objective",
        "ratio": 0.951,
        "low": pytest.approx(0.931),
        "high": pytest.approx(0.971),
    }
    assert reader.has_evaluation


def test_reading_changes_nothing_in_the_run(run: RunFiles, reader: RunReader) -> None:
    run.create()
    run.round(1)
    run.show("zone_0")
    before = {p: p.stat().st_mtime_ns for p in run.folder.rglob("*")}
    read(reader)
    assert {p: p.stat().st_mtime_ns for p in run.folder.rglob("*")} == before


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "live/zone_0.json"])
def test_a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for(
    run: RunFiles, reader: RunReader, name: str
) -> None:
    run.show("zone_0")
    path = run.folder / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    problems = read(reader)["run"]["problems"]
    said = {one["file"]: one["problem"] for one in problems}
    assert said[name].endswith("expected a regular file")
