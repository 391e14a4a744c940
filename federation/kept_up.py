"""What a supervisor keeps going: a process that is started again, a run that is submitted again.

Both a bounded number of times without a committed round in between, with a pause that doubles.
"""

import time
from dataclasses import dataclass

from federation.events import Event
from federation.processes import Child

MAX_STARTS = 5
"""Starts of one process without a committed round in between."""
_PAUSE_S = 1.0
"""Before the second start; doubled with every other."""
_ASK_S = 2.0
"""Time between two questions to the SuperLink after a run that does not begin."""
_HUNG_S = 15.0
"""How long a ServerApp may be at work that the SuperLink has given up."""


class KeptUp:
    """A process that is started again when it dies."""

    def __init__(self, child: Child) -> None:
        """Keep a process up that was not started yet."""
        self.child = child
        self.is_given_up = False
        """Whether it has died so often that it is left alone."""
        self._n_starts = 0
        self._start_at: float | None = None

    @property
    def is_started(self) -> bool:
        """Whether it was ever started."""
        return self._n_starts > 0

    def start(self) -> None:
        """Start it.

        Raises:
            RunError: It cannot be started.
        """
        self.child.start()
        self._n_starts += 1
        self._start_at = None

    def look(self) -> str:
        """Start it again if it has died and its pause is over.

        Returns:
            How it has died, once; else nothing.

        Raises:
            RunError: It cannot be started.
        """
        now = time.monotonic()
        if self.child.is_running or self.is_given_up:
            return ""
        if self._start_at is None:
            self.child.sweep()
            self.is_given_up = self._n_starts >= MAX_STARTS
            self._start_at = now + _pause_s(self._n_starts)
            return self.child.describe_end()
        if now >= self._start_at:
            self.start()
        return ""

    def note_round(self) -> None:
        """Note that a round was committed: earlier deaths are forgotten."""
        self._n_starts = min(self._n_starts, 1)
        self.is_given_up = False


@dataclass
class ServerLife:
    """The ServerApp as the supervisor knows it.

    Attributes:
        flower_run: The run that it was submitted as; None: it has to be submitted.
        submitted: When that was.
        submit_at: When it may be submitted again.
        ask_at: When the SuperLink is to be asked for it, while it has not begun.
        is_started: It has said that it has begun.
        pid: Its process, once it has begun; 0 before.
        over_since: When the SuperLink was first found to call the run over while it is at work.
        has_ended: It has said that it ends.
        error: Why, or why it was given up before.
        n_starts: Submissions since the last committed round.
    """

    flower_run: int | None = None
    submitted: float = 0.0
    submit_at: float = 0.0
    ask_at: float = 0.0
    is_started: bool = False
    pid: int = 0
    over_since: float | None = None
    has_ended: bool = False
    error: str = ""
    n_starts: int = 0

    def submit(self, flower_run: int) -> None:
        """Note that it was submitted."""
        self.flower_run = flower_run
        self.submitted = time.monotonic()
        self.ask_at = self.submitted + _ASK_S
        self.is_started = self.has_ended = False
        self.pid, self.over_since = 0, None
        self.error = ""
        self.n_starts += 1

    def asked(self) -> None:
        """Note that the SuperLink was asked for it."""
        self.ask_at = time.monotonic() + _ASK_S

    def note(self, event: Event) -> None:
        """Take what it says."""
        if event["kind"] == "round":
            self.n_starts = min(self.n_starts, 1)
        elif event["kind"] == "start":
            self.is_started = event["flower_run"] == str(self.flower_run)
            self.pid = int(event["pid"]) if self.is_started else 0
        elif event["kind"] == "end":
            self.has_ended = True
            self.error = str(event["error"])

    def is_hung(self, is_over: bool) -> bool:
        """Note whether the SuperLink calls the run over; return whether it has for too long.

        Flower gives a ServerApp up that it does not hear of; one that lives ends by itself then.
        """
        now = time.monotonic()
        self.over_since = (self.over_since or now) if is_over else None
        return self.over_since is not None and now - self.over_since >= _HUNG_S

    def forget(self, reason: str) -> None:
        """Note that it is over, and is to be submitted again."""
        self.flower_run = None
        self.error = reason
        self.submit_at = time.monotonic() + _pause_s(self.n_starts)


def _pause_s(n_starts: int) -> float:
    return _PAUSE_S * 2.0 ** max(n_starts - 1, 0)
