"""Figures of a run from lines that were made up, so that all can be computed by hand."""

from typing import Any

import pytest

from marl_sched.errors import RunError
from marl_sched.scaling.measured import COORDINATOR, CurvePoint, Measured
from marl_sched.scaling.measurement import Lines, Subject, measure

SUBJECT = Subject("weak-0002-federated", ("a", "b"), n_machines=6, n_steps=100)
VALIDATED = 2


def zone_line(number: int, name: str, **changes: float) -> dict[str, Any]:
    """Return a line of timing.jsonl: zone a works 8 s of a round of 12 s, zone b 10 s."""
    is_a = name == "a"
    return {
        "round": number,
        "attempt": 1,
        "zone": name,
        "round_s": 12.0,
        "aggregation_s": 0.25,
        "server_cpu_s": 3.0 * number,
        "bytes_down": 1000,
        "zone_s": 8.0 if is_a else 10.0,
        "validation_s": 2.0 if number == VALIDATED + 1 else 0.0,
        "exchange_s": 3.0 if is_a else 2.0,
        "peer_wait_s": 2.0 if is_a else 1.0,
        "exchange_bytes": 400 if is_a else 500,
        "save_s": 0.5,
        "process_cpu_s": (4.0 if is_a else 6.0) * number,
        "process_peak_mib": 300.0 if is_a else 320.0,
        **changes,
    }


def seen(number: int, at_s: float) -> dict[str, Any]:
    return {
        "kind": "round",
        "round": number,
        "time": at_s,
        "load_average": 1.5,
        "probe_s": 0.001 * number,
        "cpu_s": {"superlink": 0.5 * number, "superexec": 0.1 * number, "serverapp": 99.0},
        "peak_mib": {"superlink": 180.0, "superexec": 120.0, "serverapp": 140.0},
    }


def lines_of(
    rounds: int, processes: list[dict[str, Any]], timing: list[dict[str, Any]] | None = None
) -> Lines:
    numbers = range(1, rounds + 1)
    made = [zone_line(number, name) for number in numbers for name in ("a", "b")]
    metrics: list[dict[str, Any]] = [
        {"kind": "train", "round": number, "zone": name, "n_decisions": 500 * number + extra}
        for number in numbers
        for name, extra in (("a", 0), ("b", 100))
    ]
    metrics += [
        {"kind": "validation", "round": number, "objective": objective}
        for number, objective in ((VALIDATED, 0.75), (4, 0.5))
        if number <= rounds
    ]
    return Lines(timing=timing or made, metrics=metrics, processes=processes)


START = {"kind": "start"}


def unbroken(rounds: int) -> list[dict[str, Any]]:
    return [START, *(seen(number, 13.0 * number) for number in range(1, rounds + 1))]


def test_first_round_and_rounds_that_score_are_not_timed() -> None:
    found = measure(SUBJECT, lines_of(4, unbroken(4)))
    assert found.n_timed == 2  # 2 and 4; 3 scores the weights of 2
    assert found.n_decisions == ((1000 + 1100) + (2000 + 2100)) / 2


def test_seconds_of_a_round_are_split_without_rest() -> None:
    found = measure(SUBJECT, lines_of(2, unbroken(2)))
    assert found.seconds == pytest.approx(13.0)
    assert found.split_s == pytest.approx(
        {
            "training": 9.0 - 2.5 - 0.5,  # mean zone, less its exchange and saving
            "waiting": 1.5 + 1.0,  # for posts, and for zone b after the last window
            "transport": 1.0 + 12.0 - 10.0 - 0.25,  # of the exchange, and of weights
            "aggregation": 0.25,
            "saving": 0.5 + 1.0,  # zones' states, and what lies between two rounds
        }
    )
    assert sum(found.split_s.values()) == pytest.approx(found.seconds)


def test_cpu_seconds_are_differences_of_counters() -> None:
    found = measure(SUBJECT, lines_of(2, unbroken(2)))
    assert found.zone_cpu_s == pytest.approx(4.0 + 6.0)
    assert found.coordinator_cpu_s == pytest.approx(
        {"serverapp": 3.0, "superlink": 0.5, "superexec": 0.1}
    )
    assert found.cpu_s == pytest.approx(13.6)
    assert found.cpu_per_1000(found.cpu_s) == pytest.approx(1000 * 13.6 / 2100)
    assert found.probe_s == pytest.approx(0.002)


def test_memory_and_bytes_are_those_of_the_processes() -> None:
    processes = [*unbroken(2), {"kind": "end", "bytes": 9000}]
    found = measure(SUBJECT, lines_of(2, processes))
    assert found.zone_mib == 310.0
    assert found.coordinator_mib == {"serverapp": 140.0, "superlink": 180.0, "superexec": 120.0}
    assert (found.exchange_bytes, found.network_bytes) == (900.0, 1000.0)
    assert found.weight_bytes == 4500.0  # of two rounds


def test_round_after_a_restart_is_not_timed() -> None:
    processes = [START, seen(1, 10.0), START, seen(2, 50.0), seen(3, 60.0), seen(4, 71.0)]
    found = measure(SUBJECT, lines_of(4, processes))
    assert found.n_timed == 1
    assert found.seconds == pytest.approx(11.0)


def test_round_that_lost_a_zone_is_not_timed() -> None:
    timing = [zone_line(n, name, attempt=2 if n == 2 else 1) for n in (1, 2) for name in ("a", "b")]
    with pytest.raises(RunError, match="no round that could be timed"):
        measure(SUBJECT, lines_of(2, unbroken(2), timing))


def test_round_without_one_of_the_zones_is_not_timed() -> None:
    timing = [zone_line(1, "a"), zone_line(1, "b"), zone_line(2, "a")]
    with pytest.raises(RunError, match="no round that could be timed"):
        measure(SUBJECT, lines_of(2, unbroken(2), timing))


def test_round_that_was_run_again_counts_as_it_was_last() -> None:
    again = [zone_line(2, name, round_s=11.0) for name in ("a", "b")]
    timing = [zone_line(n, name) for n in (1, 2) for name in ("a", "b")] + again
    found = measure(SUBJECT, lines_of(2, unbroken(2), timing))
    assert found.split_s["saving"] == pytest.approx(0.5 + 2.0)


def test_curve_counts_decisions_and_seconds_without_scoring() -> None:
    found = measure(SUBJECT, lines_of(4, unbroken(4)))
    first = 500 + 600 + 1000 + 1100
    assert found.curve == [
        CurvePoint(2, first, 24.0, 0.75),
        CurvePoint(4, first + 1500 + 1600 + 2000 + 2100, 48.0 - 2.0, 0.5),
    ]


def test_figures_survive_json() -> None:
    found = measure(SUBJECT, lines_of(4, unbroken(4)))
    assert Measured.of_json(found.as_json()) == found
    by_role = found.as_json()["cpu_s_per_1000_decisions"]
    assert by_role["zones"] + by_role["coordinator"] == pytest.approx(by_role["all"])
    assert set(found.coordinator_cpu_s) == set(COORDINATOR)
