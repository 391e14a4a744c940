"""Bounds for waits of gRPC that have none of their own: one thread cancels what is overdue."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Deadlines:
    """Cancels what takes longer than it may, until `close`."""

    def __init__(self) -> None:
        """Start the watch."""
        self._ends: dict[object, tuple[float, Callable[[], object]]] = {}
        self._changed = threading.Condition()
        self._wakes_at = 0.0
        self._is_closed = False
        self._watch = threading.Thread(target=self._run, name="deadlines", daemon=True)
        self._watch.start()

    @contextmanager
    def within(self, seconds: float, cancel: Callable[[], object]) -> Iterator[None]:
        """Call `cancel` from another thread if the block takes longer than `seconds`."""
        key, end = object(), time.monotonic() + seconds
        with self._changed:
            self._ends[key] = (end, cancel)
            if end < self._wakes_at:  # else the watch will look again in time: it sleeps on
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._ends.pop(key, None)

    def close(self) -> None:
        """End the watch."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._watch.join()

    def _run(self) -> None:
        while (overdue := self._next_overdue()) is not None:
            overdue()

    def _next_overdue(self) -> Callable[[], object] | None:
        """Wait for something that is overdue and take it out; None at the close."""
        with self._changed:
            while not self._is_closed:
                now = time.monotonic()
                for key, (end, cancel) in self._ends.items():
                    if end <= now:
                        del self._ends[key]
                        return cancel
                self._wakes_at = min((end for end, _ in self._ends.values()), default=math.inf)
                self._changed.wait(None if self._wakes_at == math.inf else self._wakes_at - now)
        return None
