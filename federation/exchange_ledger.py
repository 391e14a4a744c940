"""Who holds what was offloaded: without it nobody could tell a true notice from an invented one.

Shapes: E replicas, Z zones, N cells, one for each replica and row of an instance in its zone.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from federation.exchange_parts import NO_ROWS, rows_of
from marl_sched.cluster.exchange import Outbox
from marl_sched.cluster.kernels import posts
from marl_sched.cluster.kernels.messages import FROM, INSTANCE_ROW, REPLICA
from marl_sched.errors import ExchangeError

Cells = NDArray[np.generic]

_LEAST_ROWS = 1024
_NAMES = {posts.OFFLOADS: "offloads", posts.NOTICES: "notices", posts.SETTLEMENTS: "settlements"}
_REASONS = {
    posts.OFFLOADED: "was offloaded before",
    posts.NOT_HELD: "was never offloaded from there to this zone",
    posts.ENDED: "has ended before",
    posts.CREDITED: "has that credit already",
}


class Ledger:
    """The offloaded instances of one episode, by zone that sent them, replica, and row there.

    An instance is sent away once, for good; its end is told once; of the credit for it, one is
    given, taken back when its machine dies, and given anew when it starts again.
    """

    def __init__(self, n_zones: int, n_replicas: int) -> None:
        """Start an episode."""
        self._n_replicas = n_replicas
        self._n_rows = np.zeros(n_zones, np.int64)
        self._starts = np.zeros(n_zones, np.int64)
        self._holder: Cells = np.zeros(0, np.int16)
        self._has_ended: Cells = np.zeros(0, np.int8)
        self._credit: Cells = np.zeros(0, np.int8)

    @property
    def n_bytes(self) -> int:
        """Bytes kept for instances."""
        return self._holder.nbytes + self._has_ended.nbytes + self._credit.nbytes

    def check(self, outbox: Outbox) -> None:
        """Check one outbox against what all zones have posted before it; takes nothing down.

        Its rows must be within bounds.

        Raises:
            ExchangeError: An instance is offloaded again, or its end or its credit is told by a
                zone that does not hold it, or more often than it can be.
        """
        rows = rows_of(outbox)
        if rows is None:
            return
        fault, part, at = self._first_untrue(rows)
        while fault == posts.NO_ROOM:
            self._make_room(outbox, at + 1)
            fault, part, at = self._first_untrue(rows)
        if fault != posts.RIGHT:
            name, row = _NAMES[part], rows[part - posts.OFFLOADS][at]
            raise ExchangeError(
                f"{name} row {at}: instance {row[INSTANCE_ROW]:.0f} of replica "
                f"{row[REPLICA]:.0f} {_REASONS[fault]}"
            )

    def enter(self, outboxes: Iterable[Outbox]) -> None:
        """Take down checked outboxes, those of all zones in one exchange."""
        for outbox in outboxes:
            rows = rows_of(outbox)
            if rows is not None:
                posts.enter(rows, self._books)

    def load_kernels(self) -> None:
        """Load the kernels, compiled if need be."""
        self._first_untrue(NO_ROWS)
        posts.enter(NO_ROWS, self._books)

    @property
    def _books(self) -> posts.Books:
        return self._starts, self._n_rows, self._holder, self._has_ended, self._credit

    def _first_untrue(self, rows: posts.Rows) -> posts.Fault:
        return posts.first_untrue(rows, self._books)

    def _make_room(self, outbox: Outbox, n_rows: int) -> None:
        """Make room for instances up to a row of the zone that offloads them."""
        zone = int(outbox.offloads[0, FROM])
        had, started = self._n_rows, self._starts
        has = int(had[zone])
        self._n_rows = had.copy()
        self._n_rows[zone] = max(n_rows, has + has // 2, _LEAST_ROWS)
        ends = self._n_replicas * np.cumsum(self._n_rows)
        self._starts = ends - self._n_replicas * self._n_rows

        def moved(old: Cells, fill: int) -> Cells:
            new = np.full(int(ends[-1]), fill, old.dtype)
            for start, end, n_old, at in zip(self._starts, ends, had, started, strict=True):
                shape = (self._n_replicas, int(n_old))
                kept = old[at : at + self._n_replicas * n_old].reshape(shape)
                new[start:end].reshape(self._n_replicas, -1)[:, :n_old] = kept
            return new

        self._holder = moved(self._holder, posts.NOBODY)
        self._has_ended = moved(self._has_ended, 0)
        self._credit = moved(self._credit, 0)
