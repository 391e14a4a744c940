"""Progress of long work, on stderr."""

import sys
import time
from collections.abc import Callable
from threading import Lock
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

_PERIOD_S = 10.0


class Progress:
    """A bar on a terminal; elsewhere a plain line at most every ten seconds.

    `advance` fits callbacks of the library and may be called from any thread:

        with Progress("evaluate", total=len(episodes), unit="episodes") as progress:
            evaluate(..., on_episode=progress.advance)
    """

    def __init__(
        self,
        what: str,
        total: int,
        unit: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up a bar.

        Args:
            what: What is going on, one or two words.
            total: Number of steps.
            unit: What a step is, in the plural.
            stream: Where to write; stderr by default.
            clock: Seconds on any steady clock.
        """
        self._what, self._total, self._unit = what, total, unit
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._lock = Lock()
        self._done = 0
        self._start = self._last = clock()
        self._said: int | None = None
        self._bar = _bar(self._stream) if self._stream.isatty() else None

    def __enter__(self) -> Self:
        """Show the bar, if there is a terminal."""
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total, unit=self._unit, note="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the bar as it stands; close lines with a last one."""
        if self._bar is not None:
            self._bar.stop()
        elif self._said not in (None, self._done) and error is None:
            self._say("")

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count finished steps; `note` says how it goes (`loss 0.31`)."""
        with self._lock:
            self._done += steps
            if self._bar is not None:
                self._bar.update(self._task, advance=steps, note=note)
            elif self._clock() - self._last >= _PERIOD_S:
                self._last = self._clock()
                self._say(note)

    def _say(self, note: str) -> None:
        self._said = self._done
        words = f"{self._what}: {self._done}/{self._total} {self._unit}"
        elapsed = f"{self._clock() - self._start:.0f} s"
        print(", ".join(filter(None, (words, elapsed, note))), file=self._stream, flush=True)


def _bar(stream: TextIO) -> Bar:
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}"),
        console=Console(file=stream),
    )
