"""What a deployed run says of itself: one JSON object a line, for whoever watches.

The ServerApp writes, the supervisor follows. A line is written in one piece, so that a reader never
sees a part of one that counts.

    start    pid, flower_run          a ServerApp has begun
    waiting  zones, wait_s            for zones that are not there
    missing  zones, why by zone       the run goes on without them
    zones    round, added, removed    the run goes on with other zones from that round on
    config   problem                  a change of the configuration that cannot be made
    joined   zone, epoch              a node is a zone from now on
    left     zone                     its node is gone
    lost     zone, round, reason      it was lost in a round: the attempt is void
    refused  node, reason             a node is not wanted
    problem  zone, problem            a node cannot be what it was told to be
    round    the fields of RoundDone  a round was committed, or the last validation was
    end      outcome, error           finished, failed (no other try would help), broken (may help)
"""

import errno
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marl_sched.files import naming

Event = dict[str, Any]

PRIVATE = "federation"
"""Folder of a run for what is of this host only: logs, keys, the SuperLink's database."""
EVENTS = "events.jsonl"
"""The file of the events in that folder."""


class EventLog:
    """Adds events to a file."""

    def __init__(self, path: Path) -> None:
        """Write to a file; its folder exists."""
        self._path = path

    def write(self, kind: str, what: Mapping[str, Any]) -> None:
        """Add an event.

        Raises:
            OSError: It cannot be written.
        """
        line = json.dumps({"time": round(time.time(), 3), "kind": kind, **what}) + "\n"
        with naming(self._path), self._path.open("ab+", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # what a full disk has left of an event
                    line = "\n" + line
            content = line.encode()
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class EventReader:
    """Follows a file that others add to."""

    def __init__(self, path: Path) -> None:
        """Begin at the present end of a file, which need not exist."""
        self._path = path
        self._position = path.stat().st_size if path.exists() else 0

    def new(self) -> list[Event]:
        """Return the events that were added since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._position:  # somebody has deleted or emptied it
                self._position = 0
            file.seek(self._position)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._position += len(whole)
        return [event for line in whole.splitlines() if (event := _event(line)) is not None]


def _event(line: bytes) -> Event | None:
    """Return the event of a line; None of one that a killed process has left half-written."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None
