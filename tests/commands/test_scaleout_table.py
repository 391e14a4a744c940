"""What `scaleout` prints, and what it is called with."""

import io

import pytest
from rich.console import Console

from marl_sched.commands.scaleout_table import print_study
from marl_sched.scaling.cases import Case, Variant
from marl_sched.scaling.measured import SPLIT, CurvePoint, Measured
from marl_sched.scaling.study import Study


def run_of(n_zones: int) -> Measured:
    """Return a run of 4,000 decisions a zone in 2 s, 0.1 CPU s per 1,000 of them."""
    return Measured(
        name="run",
        n_zones=n_zones,
        n_machines=10 * n_zones,
        n_steps=100,
        n_timed=3,
        n_decisions=4000.0 * n_zones,
        seconds=2.0,
        split_s=dict(zip(SPLIT, (1.0, 0.5, 0.25, 0.05, 0.2), strict=True)),
        zone_cpu_s=0.4 * n_zones,
        coordinator_cpu_s={"serverapp": 0.04 * n_zones, "superlink": 0.03, "superexec": 0.01},
        network_bytes=1e6,
        weight_bytes=2.5e6 * n_zones,
        exchange_bytes=7e6,
        zone_mib=301.4,
        coordinator_mib={"serverapp": 140.0, "superlink": 180.0, "superexec": 120.0},
        load_average=1.0,
        probe_s=0.005,
        curve=[CurvePoint(2, 8000, 4.0, 0.6), CurvePoint(4, 16_000, 8.0, 0.5)],
        baseline=0.8,
    )


def study_of(*sizes: int) -> Study:
    return Study("weak", {Case("weak", n): run_of(n) for n in sizes}, 2)


def lines_of(capsys: pytest.CaptureFixture[str], study: Study, *larger: int) -> list[str]:
    print_study(study, study.project(larger) if larger else None)
    return capsys.readouterr().out.splitlines()


def test_tables_say_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split() for line in lines_of(capsys, study_of(1, 2))]
    two = [line for line in lines if line[:2] == ["2", "federated"]]
    costs, seconds, sizes, objective = two
    # machines, rounds, decisions, a second (all, a zone), CPU s per 1,000 (zones, coordinator, all)
    assert costs[2:] == [
        "20",
        "3",
        "8,000",
        "4,000",
        "2,000",
        "0.100",
        "0.015",
        "0.115",
        "0.92",
        "5.00",
    ]
    assert seconds[2:] == ["2.00", "1.00", "0.50", "0.25", "0.05", "0.20"]
    assert sizes[2:] == ["5.00", "7.00", "301", "140", "180", "120"]
    assert objective[2:] == ["0.8", "16,000", "0.5", "0.625", "8.0", "0.5", "0.625"]


def test_growth_and_notes_are_below_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(lines_of(capsys, study_of(2, 8)))
    # (3.2 + 0.36) / 32 over (0.8 + 0.12) / 8
    assert "at 8 zones over those at 2: 0.967" in text
    assert "as quick in all runs: 0.967" in text
    assert "note: This machine has 2 cores" in text


def test_projection_gives_its_terms_and_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(lines_of(capsys, study_of(1, 2, 4), 16, 1000))
    assert "fitted to 1, 2, 4 zones" in text
    assert "zones = 0.1 x decisions" in text
    assert "error at 4 zones when fitted to 1, 2: cpu_s_per_1000_decisions" in text
    assert "250 times the largest measured one" in text


def test_two_sizes_say_that_the_error_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert any("not known" in line for line in lines_of(capsys, study_of(1, 2), 16))


def test_terminal_gets_a_word_a_line() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=120, force_terminal=True, color_system=None)
    variants: tuple[Variant, ...] = ("federated", "alone", "central")
    study = Study("weak", {Case("weak", 2, variant): run_of(2) for variant in variants}, 2)
    print_study(study, study.project([16]), console)
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 120
    assert any(
        line.split()[:2] == ["2", "central"] and line.split()[-2] == "0.92" for line in lines
    )
    assert "…" not in screen.getvalue()
