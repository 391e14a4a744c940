"""What the terminal says of a federated run."""

import pytest

from marl_sched.commands.event_lines import describe_event

WHY = {"a": "no process of it is there", "b": "its process is there but not ready: no trace"}


def test_zone_without_a_process_is_told_with_what_starts_it() -> None:
    event = {"kind": "missing", "zones": ["a", "b"], "why": WHY}
    assert describe_event(event, lambda zone: f"start {zone}").splitlines() == [
        "going on without a: no process of it is there",
        "to start it: start a",
        "going on without b: its process is there but not ready: no trace",
    ]


def test_where_zones_are_started_for_the_user_no_command_is_told() -> None:
    event = {"kind": "missing", "zones": ["a"], "why": WHY}
    assert describe_event(event) == "going on without a: no process of it is there"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"kind": "zones", "round": 4, "added": ["d", "e"], "removed": ["a"]},
            "other zones from round 4 on: d is added, e is added, a leaves",
        ),
        (
            {"kind": "config", "problem": "my.yaml: seed = 2, but the run has 1"},
            "my.yaml: seed = 2, but the run has 1; the run goes on as it was",
        ),
        ({"kind": "waiting", "zones": ["a"], "wait_s": 60.0}, "waiting for a (up to 60 s)"),
        ({"kind": "start", "pid": 1}, ""),
        ({"kind": "round", "round_number": 1}, ""),
    ],
)
def test_event_is_told_in_a_line(event: dict[str, object], line: str) -> None:
    assert describe_event(event) == line
