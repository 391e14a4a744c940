"""What a terminal says of the events of a federated run."""

from collections.abc import Callable
from typing import Any

Event = dict[str, Any]


def describe_event(event: Event, how_to_start: Callable[[str], str] | None = None) -> str:
    """Return what is said of an event; empty: nothing.

    Args:
        event: The event; `federation.events` has the kinds.
        how_to_start: Returns the command that starts a zone's process; None: nobody has to.
    """
    if event["kind"] == "missing":
        return _missing(event, how_to_start)
    line = _LINES.get(event["kind"])
    return "" if line is None else line(event)


def _missing(event: Event, how_to_start: Callable[[str], str] | None) -> str:
    lines = []
    for zone in event["zones"]:
        why = event["why"][zone]
        lines.append(f"going on without {zone}: {why}")
        if how_to_start is not None and why.startswith("no process"):
            lines.append(f"to start it: {how_to_start(zone)}")
    return "\n".join(lines)


def _zones(event: Event) -> str:
    changes = [f"{zone} is added" for zone in event["added"]]
    changes += [f"{zone} leaves" for zone in event["removed"]]
    return f"other zones from round {event['round']} on: {', '.join(changes)}"


_LINES: dict[str, Callable[[Event], str]] = {
    "waiting": lambda e: f"waiting for {', '.join(e['zones'])} (up to {e['wait_s']:g} s)",
    "joined": lambda e: f"zone {e['zone']} is there",
    "left": lambda e: f"zone {e['zone']} has left",
    "lost": lambda e: (
        f"lost zone {e['zone']} in round {e['round']}: {e['reason']}; the round is run again "
        "without it"
    ),
    "zones": _zones,
    "config": lambda e: f"{e['problem']}; the run goes on as it was",
    "refused": lambda e: f"refused a node: {e['reason']}",
    "problem": lambda e: f"zone {e['zone']}: {e['problem']}",
    "died": lambda e: f"{e['process']} died: {e['how']}",
    "again": lambda e: f"the ServerApp is started again from the last checkpoint: {e['reason']}",
}
