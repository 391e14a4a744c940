"""Runs side by side: equal decisions, equal seconds, what a machine cannot show, the file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from marl_sched.scaling.cases import Case, Variant
from marl_sched.scaling.measured import SPLIT, CurvePoint, Measured
from marl_sched.scaling.plots import plot_study
from marl_sched.scaling.study import Study, equal_objectives


def run_of(n_zones: int, *curve: tuple[int, float, float]) -> Measured:
    """Return a run with a curve of (decisions, seconds, objective)."""
    return Measured(
        name="run",
        n_zones=n_zones,
        n_machines=4,
        n_steps=100,
        n_timed=2,
        n_decisions=1000.0 * n_zones,
        seconds=2.0,
        split_s=dict.fromkeys(SPLIT, 0.4),
        zone_cpu_s=1.0 * n_zones,
        coordinator_cpu_s={"serverapp": 0.1 * n_zones**2, "superlink": 0.0, "superexec": 0.0},
        network_bytes=1000.0,
        weight_bytes=2000.0,
        exchange_bytes=500.0 * n_zones,
        zone_mib=300.0,
        coordinator_mib={"serverapp": 100.0, "superlink": 180.0, "superexec": 120.0},
        load_average=1.0,
        curve=[CurvePoint(number, *point) for number, point in enumerate(curve, 1)],
        baseline=2.0,
    )


RUNS = {
    Case("weak", 2): run_of(2, (100, 10.0, 3.0), (200, 30.0, 1.0)),
    Case("weak", 2, "central"): run_of(1, (80, 5.0, 4.0), (160, 15.0, 2.0)),
}


def test_objectives_are_compared_where_all_runs_have_come() -> None:
    federated, central = equal_objectives(RUNS)
    assert (federated.n_decisions, federated.seconds) == (160, 15.0)
    assert federated.at_decisions == pytest.approx(3.0 - 2.0 * 60 / 100)
    assert federated.at_seconds == pytest.approx(3.0 - 2.0 * 5 / 20)
    assert (central.at_decisions, central.at_seconds) == (2.0, 2.0)
    assert federated.over_baseline(federated.at_seconds) == pytest.approx(1.25)


def test_no_objective_before_the_first_validation() -> None:
    quick = {
        Case("weak", 2): RUNS[Case("weak", 2)],
        Case("weak", 2, "alone"): run_of(2, (50, 9, 1)),
    }
    federated, alone = equal_objectives(quick)
    assert (federated.at_decisions, federated.at_seconds) == (None, None)
    assert alone.at_decisions == 1


def test_sizes_are_compared_each_for_itself() -> None:
    runs = {**RUNS, Case("weak", 4): run_of(4, (10, 1.0, 9.0))}
    assert [row.n_decisions for row in equal_objectives(runs)] == [160, 160, 10]


def test_growth_is_that_of_cpu_seconds_per_decision() -> None:
    runs = {Case("weak", n): run_of(n) for n in (1, 2, 8)}
    growth = Study("weak", runs, 2).cpu_growth
    # (8 + 6.4) / 8 over (2 + 0.4) / 2
    assert growth == pytest.approx(1.8 / 1.2)
    assert Study("weak", {Case("weak", 8): run_of(8)}, 2).cpu_growth is None


def test_growth_at_equal_speed_takes_off_what_a_slow_machine_adds() -> None:
    runs = {Case("weak", 2): replace(run_of(2), probe_s=0.004)}
    runs[Case("weak", 8)] = replace(run_of(8), probe_s=0.005)
    study = Study("weak", runs, 2)
    assert study.cpu_growth == pytest.approx(1.5)
    assert study.cpu_growth_at_equal_speed == pytest.approx(1.5 * 4 / 5)
    slow = study.at_equal_speed[1]
    assert slow.zone_cpu_s == pytest.approx(8.0 * 4 / 5)
    assert slow.coordinator_cpu_s["serverapp"] == pytest.approx(6.4 * 4 / 5)
    runs[Case("weak", 4)] = run_of(4)
    assert Study("weak", runs, 2).cpu_growth_at_equal_speed is None  # not known of all runs


def test_study_says_which_sizes_have_more_processes_than_cores() -> None:
    runs = {Case("weak", n): run_of(n) for n in (1, 2, 8)}
    said = " ".join(Study("weak", runs, 2).caveats())
    assert "This machine has 2 cores; with 2 and 8 zones" in said
    assert "turns" not in " ".join(Study("weak", runs, 64).caveats())


def test_study_says_that_the_machine_was_busy_and_zones_were_lost() -> None:
    run = replace(run_of(1), load_average=9.0, n_lost=1, n_timed=1, notes=["load 0.7, not 0.8"])
    said = " ".join(Study("weak", {Case("weak", 1): run}, 4).caveats())
    for words in ("up to 9.0", "1 zones were lost", "one round timed", "load 0.7, not 0.8"):
        assert words in said


def test_file_holds_every_run_and_the_projection(tmp_path: Path) -> None:
    runs = {Case("weak", n): run_of(n, (100, 10.0, 3.0)) for n in (1, 2, 4)}
    study = Study("weak", runs, 2)
    content = json.loads(study.save(tmp_path, study.project([16, 64])).read_text())
    assert [run["case"]["name"] for run in content["runs"]][2] == "weak-0004-federated"
    assert [size["n_zones"] for size in content["projection"]["sizes"]] == [16, 64]
    assert content["projection"]["held_out"]["n_zones"] == 4


def test_one_size_is_too_few_to_project_from() -> None:
    assert Study("weak", {Case("weak", 2): run_of(2)}, 2).project([16]) is None


def test_plots_are_drawn_with_and_without_rivals_and_curves(tmp_path: Path) -> None:
    variants: tuple[Variant, ...] = ("federated", "alone", "central")
    runs = {Case("weak", 2, v): run_of(2, (100, 10.0, 3.0), (200, 30.0, 1.0)) for v in variants}
    runs |= {Case("weak", n): run_of(n) for n in (1, 4)}
    study = Study("weak", runs, 2)
    for path in plot_study(study, study.project([16, 1000]), tmp_path):
        assert path.stat().st_size > 10_000
    bare = Study("weak", {Case("weak", 1): run_of(1)}, 2)
    assert [path.name for path in plot_study(bare, None, tmp_path)] == ["scaleout.png"]
