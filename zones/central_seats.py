"""The seats of zones that one worker plays: each takes its order, the first one has it carried out.

To the federation nothing differs: every zone is a member with a thread, orders and replies of its
own. The thread of the first member works, the others wait for what it found.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from marl_sched.errors import ExchangeAborted
from zones.central_worker import Reports
from zones.records import NetworkPair, RoundOrder, RoundReport

_WAIT_S = 60.0
"""How much longer than a round may take the others wait for it."""


class Central(Protocol):
    """The worker of all zones."""

    def train_round(self, weights: NetworkPair, order: RoundOrder) -> Reports:
        """Train all zones."""

    def validate(self, weights: NetworkPair, order: RoundOrder) -> Reports:
        """Score all zones."""


class SharedWork:
    """One worker's answers, handed out to the seats that wait for them."""

    def __init__(self, worker: Central, deadline_s: float) -> None:
        """Share a worker whose orders take at most so many seconds."""
        self._worker = worker
        self._limit_s = deadline_s + _WAIT_S
        self._changed = threading.Condition()
        self._order: RoundOrder | None = None
        self._reports: Reports | None = None

    def train(self, zone: str, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        """Return a zone's report of a round."""
        return self._take(zone, order, lambda: self._worker.train_round(weights, order))

    def validate(self, zone: str, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        """Return a zone's report of a validation."""
        return self._take(zone, order, lambda: self._worker.validate(weights, order))

    def _take(self, zone: str, order: RoundOrder, work: Callable[[], Reports]) -> RoundReport:
        """Do the work, in the first member's thread, or wait for it; return the zone's part.

        Raises:
            ExchangeAborted: The thread that works has failed, and says itself why.
        """
        if zone == order.members[0]:
            reports: Reports | None = None
            try:
                reports = work()
            finally:
                with self._changed:
                    self._order, self._reports = _of_all(order), reports
                    self._changed.notify_all()
            return reports[zone]
        with self._changed:
            is_there = self._changed.wait_for(
                lambda: self._order == _of_all(order), timeout=self._limit_s
            )
            if not is_there or self._reports is None:
                raise ExchangeAborted(f"{order.members[0]}, which works for all zones, has failed")
            return self._reports[zone]


class CentralSeat:
    """A zone that one worker plays together with others.

    Attributes:
        zone_name: The zone.
    """

    def __init__(self, zone_name: str, shared: SharedWork) -> None:
        """Seat a zone."""
        self.zone_name = zone_name
        self._shared = shared

    def train_round(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        """Report a round of this zone; see `CentralWorker.train_round`."""
        return self._shared.train(self.zone_name, weights, order)

    def validate(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        """Report a validation of this zone; see `CentralWorker.validate`."""
        return self._shared.validate(self.zone_name, weights, order)


def _of_all(order: RoundOrder) -> RoundOrder:
    """Return an order without what only one zone is told."""
    return RoundOrder(order.round_number, order.attempt, order.members)
