"""An exchange that knows how long its zone has been in it."""

import time

from marl_sched.cluster.exchange import Exchange, Outbox


class TimedExchange:
    """Passes everything on and adds up the time that it takes.

    Called from one thread.
    """

    def __init__(self, exchange: Exchange) -> None:
        """Time an exchange."""
        self._exchange = exchange
        self.seconds = 0.0
        """Wall time since the start in `post` and `collect`: waits for peers, and transport."""

    @property
    def zone_names(self) -> tuple[str, ...]:
        """Names of all members, sorted."""
        return self._exchange.zone_names

    def post(self, outbox: Outbox) -> None:
        """Hand in an outbox; see Exchange."""
        start = time.perf_counter()
        try:
            self._exchange.post(outbox)
        finally:
            self.seconds += time.perf_counter() - start

    def collect(self, zone: str, step: int) -> list[Outbox]:
        """Wait for all outboxes of a step; see Exchange."""
        start = time.perf_counter()
        try:
            return self._exchange.collect(zone, step)
        finally:
            self.seconds += time.perf_counter() - start
