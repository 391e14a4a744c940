"""The exchange: everything zones tell each other inside an episode, at window boundaries.

Every zone posts one outbox a step and collects what all zones posted in that step. Whoever hosts
the zones, in one thread, in many or in many processes, a zone gets the same outboxes in the same
order (by zone name), so that its trajectory is the same.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marl_sched.errors import ExchangeAborted, ExchangeError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Outbox:
    """What one zone tells the others at the end of one window, for all E replicas.

    The rows of offloads, notices and settlements are laid out in kernels/messages.py.

    Attributes:
        zone: Name of the sender.
        step: Number of the exchange within the episode, from 0.
        offloads: (K, N_OFFLOAD + 3 R).
        notices: (K, N_NOTICE).
        settlements: (K, N_SETTLEMENT).
        digests: (E, D), None where no digest is due.
        moments: (E, R, 3) count, sum and sum of squares of utilization.
    """

    zone: str
    step: int
    offloads: Array
    notices: Array
    settlements: Array
    digests: Array | None
    moments: Array


class Exchange(Protocol):
    """Carries outboxes between zones; a step is complete when every zone has posted."""

    @property
    def zone_names(self) -> tuple[str, ...]:
        """Names of all members, sorted."""
        ...

    def post(self, outbox: Outbox) -> None:
        """Hand in the outbox of one zone and step.

        Raises:
            ExchangeAborted: A member has left.
            ExchangeError: The zone is no member, or has posted this step before.
        """
        ...

    def collect(self, zone: str, step: int) -> list[Outbox]:
        """Wait for all outboxes of a step and return them in the order of the zones' names.

        Raises:
            ExchangeAborted: A member has left, or did not post within the time limit.
        """
        ...


class LocalExchange:
    """The exchange within one process: a barrier that can be aborted."""

    def __init__(self, zone_names: Iterable[str], timeout_s: float = 600.0) -> None:
        """Serve the zones named.

        `collect` waits at most `timeout_s` for the slowest of them, then aborts for everybody.
        """
        self._names = tuple(sorted(zone_names))
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._posted: dict[int, dict[str, Outbox]] = {}
        self._to_collect: dict[int, set[str]] = {}
        self._aborted: str | None = None
        self._attempt = 0

    @property
    def zone_names(self) -> tuple[str, ...]:
        """Names of all members, sorted."""
        return self._names

    def post(self, outbox: Outbox) -> None:
        """Hand in the outbox of one zone and step; see Exchange."""
        with self._changed:
            self._raise_if_aborted()
            posted = self._posted.setdefault(outbox.step, {})
            if outbox.zone not in self._names or outbox.zone in posted:
                raise ExchangeError(
                    f"zone {outbox.zone}, step {outbox.step}: posted twice or not one of "
                    f"{', '.join(self._names)}"
                )
            posted[outbox.zone] = outbox
            if len(posted) == len(self._names):
                self._to_collect[outbox.step] = set(self._names)
                self._changed.notify_all()

    def collect(self, zone: str, step: int) -> list[Outbox]:
        """Wait for all outboxes of a step; see Exchange."""
        end = time.monotonic() + self._timeout_s
        with self._changed:
            attempt = self._attempt
            while zone not in self._to_collect.get(step, ()) or attempt != self._attempt:
                self._raise_if_aborted()
                if attempt != self._attempt:
                    raise ExchangeAborted(f"step {step}: a new attempt has begun")
                remaining_s = end - time.monotonic()
                if remaining_s <= 0:
                    missing = set(self._names) - set(self._posted.get(step, ()))
                    self.abort(
                        f"step {step}: no word of {', '.join(sorted(missing))} for "
                        f"{self._timeout_s:g} s"
                    )
                else:
                    self._changed.wait(remaining_s)
            self._raise_if_aborted()
            posted = self._posted[step]
            self._to_collect[step].remove(zone)
            if not self._to_collect[step]:
                del self._to_collect[step], self._posted[step]
            return [posted[name] for name in self._names]

    def abort(self, reason: str) -> None:
        """Make every present and later call raise ExchangeAborted, until `restart`."""
        with self._changed:
            self._aborted = self._aborted or reason
            self._changed.notify_all()

    def restart(self, zone_names: Iterable[str]) -> None:
        """Forget everything and serve the zones named, for a new attempt."""
        with self._changed:
            self._names = tuple(sorted(zone_names))
            self._posted.clear()
            self._to_collect.clear()
            self._aborted = None
            self._attempt += 1
            self._changed.notify_all()

    def _raise_if_aborted(self) -> None:
        if self._aborted is not None:
            raise ExchangeAborted(self._aborted)
