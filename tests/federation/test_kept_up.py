"""How often a process that dies is started again."""

import sys
from pathlib import Path

import pytest

from federation import kept_up
from federation.kept_up import MAX_STARTS, KeptUp, ServerLife
from federation.processes import Child

ENDS = [sys.executable, "-c", "pass"]


class Moment(Child):
    """A process that has ended as soon as it is started."""

    n_starts = 0

    def start(self) -> None:
        self.n_starts += 1

    @property
    def is_running(self) -> bool:
        return False


def dies_until_given_up(watched: KeptUp) -> None:
    for _ in range(MAX_STARTS - 1):
        watched.look()
        watched.start()
    watched.look()
    assert watched.is_given_up


def test_process_that_was_given_up_is_started_again_after_a_round(tmp_path: Path) -> None:
    child = Moment("zone-a", ENDS, tmp_path / "log", {})
    watched = KeptUp(child)
    watched.start()
    dies_until_given_up(watched)
    assert watched.look() == ""
    assert child.n_starts == MAX_STARTS
    watched.note_round()
    assert not watched.is_given_up


def test_server_app_is_hung_once_its_run_is_over_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(kept_up.time, "monotonic", lambda: now)
    server = ServerLife()
    server.submit(7)
    server.note({"kind": "start", "flower_run": "7", "pid": 11})
    assert server.pid == 11
    assert not server.is_hung(True)
    now += 14.0
    assert not server.is_hung(True)
    assert not server.is_hung(False)  # the SuperLink hears of it again
    now += 14.0
    assert not server.is_hung(True)
    now += 15.0
    assert server.is_hung(True)
    server.submit(8)
    assert not server.is_hung(True)
    assert server.pid == 0
