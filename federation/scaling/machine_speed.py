"""How fast the machine is while a federation runs on it.

On a shared machine a CPU second is not always worth the same: other processes take caches, memory
and turns. The same small piece of work, done again and again beside the run, says by how much.
"""

import threading
import time
from typing import Self

import numpy as np

_N_VALUES = 1 << 16
_N_LOOPS = 30_000
_PERIOD_S = 1.0
_END_S = 5.0


class SpeedProbe:
    """Does a fixed piece of work of some milliseconds once a second, in a thread of its own."""

    def __init__(self) -> None:
        """Prepare the work: numbers in an order that caches do not foresee."""
        draw = np.random.default_rng(1)
        self._values = draw.random(_N_VALUES)
        self._order = draw.permutation(_N_VALUES)
        self._lock = threading.Lock()
        self._taken: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._probe, name="speed-probe", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._stop.set()
        self._thread.join(_END_S)

    def take(self) -> float | None:
        """Return the mean CPU seconds of the work since the last call; None: it was not done."""
        with self._lock:
            taken, self._taken = self._taken, []
        return sum(taken) / len(taken) if taken else None

    def _probe(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            start = time.thread_time()
            self._work()
            taken = time.thread_time() - start
            with self._lock:
                self._taken.append(taken)

    def _work(self) -> float:
        """Read memory here and there, and interpret Python: what zones do as well."""
        total = 0.0
        for _ in range(8):
            total += float(self._values[self._order].sum())
        for number in range(_N_LOOPS):
            total += number & 7
        return total
