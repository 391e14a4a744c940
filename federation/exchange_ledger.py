"""Who holds what was offloaded: without it nobody could tell a true notice from an invented one.

Shapes: E replicas, N rows of instances in the zone that sent them, K rows of a message.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.exchange import Outbox
from marl_sched.cluster.kernels.messages import FROM, INSTANCE_ROW, REPLICA, S_SIGN, TO
from marl_sched.errors import ExchangeError

Array = NDArray[np.float64]
Int = NDArray[np.int64]

_NOBODY = -1
_LEAST_ROWS = 1024


class Ledger:
    """The offloaded instances of one episode, by replica, zone that sent them, and row there.

    An instance is sent away once, for good; its end is told once; of the credit for it, one is
    given, taken back when its machine dies, and given anew when it starts again.
    """

    def __init__(self, n_zones: int, n_replicas: int) -> None:
        """Start an episode."""
        self._n_replicas = n_replicas
        self._holder = [np.full((n_replicas, 0), _NOBODY, np.int16) for _ in range(n_zones)]
        self._has_ended = [np.zeros((n_replicas, 0), np.bool_) for _ in range(n_zones)]
        self._credit = [np.zeros((n_replicas, 0), np.int8) for _ in range(n_zones)]

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (*self._holder, *self._has_ended, *self._credit)
        return sum(array.nbytes for array in arrays)

    def check(self, outbox: Outbox) -> None:
        """Check one outbox against what all zones have posted before it; changes nothing.

        Raises:
            ExchangeError: An instance is offloaded again, or its end or its credit is told by a
                zone that does not hold it, or more often than it can be.
        """
        for ids in _split("offloads", outbox.offloads, FROM):
            self._check_offloads(ids)
        for ids in _split("notices", outbox.notices, TO):
            self._check_held(ids)
            self._check_ends(ids)
        for ids in _split("settlements", outbox.settlements, TO):
            self._check_held(ids)
            self._check_credit(ids)

    def enter(self, outboxes: Iterable[Outbox]) -> None:
        """Take down checked outboxes, those of all zones in one exchange."""
        for outbox in outboxes:
            for ids in _split("offloads", outbox.offloads, FROM):
                self._make_room(ids.owner, int(ids.row.max()) + 1)
                self._holder[ids.owner][ids.replica, ids.row] = ids.rows[:, TO]
            for ids in _split("notices", outbox.notices, TO):
                self._has_ended[ids.owner][ids.replica, ids.row] = True
            for ids in _split("settlements", outbox.settlements, TO):
                credit = self._credit[ids.owner]
                np.add.at(credit, (ids.replica, ids.row), ids.rows[:, S_SIGN].astype(np.int8))

    def _check_offloads(self, ids: "_Ids") -> None:
        holder = self._holder[ids.owner]
        is_old = ids.row < holder.shape[1]
        is_old[is_old] = holder[ids.replica[is_old], ids.row[is_old]] != _NOBODY
        ids.refuse(is_old | ids.repeats(), "was offloaded before")

    def _check_held(self, ids: "_Ids") -> None:
        holder = self._holder[ids.owner]
        is_held = ids.row < holder.shape[1]
        senders = ids.rows[is_held, FROM]
        is_held[is_held] = holder[ids.replica[is_held], ids.row[is_held]] == senders
        ids.refuse(~is_held, "was never offloaded from there to this zone")

    def _check_ends(self, ids: "_Ids") -> None:
        has_ended = self._has_ended[ids.owner][ids.replica, ids.row]
        ids.refuse(has_ended | ids.repeats(), "has ended before")

    def _check_credit(self, ids: "_Ids") -> None:
        after = self._credit[ids.owner][ids.replica, ids.row] + ids.totals(ids.rows[:, S_SIGN])
        ids.refuse((after < 0) | (after > 1), "has that credit already")

    def _make_room(self, zone: int, n_rows: int) -> None:
        has = self._holder[zone].shape[1]
        if n_rows <= has:
            return
        more = (self._n_replicas, max(n_rows, has + has // 2, _LEAST_ROWS) - has)
        self._holder[zone] = np.hstack([self._holder[zone], np.full(more, _NOBODY, np.int16)])
        self._has_ended[zone] = np.hstack([self._has_ended[zone], np.zeros(more, np.bool_)])
        self._credit[zone] = np.hstack([self._credit[zone], np.zeros(more, np.int8)])


@dataclass(frozen=True)
class _Ids:
    """The instances that rows (K, columns) of a message are about, all of one owner.

    Attributes:
        name: Of the part of the outbox.
        rows: The rows.
        owner: Zone that offloaded the instances.
        replica: (K,).
        row: (K,) row of the instance in its owner's zone.
    """

    name: str
    rows: Array
    owner: int
    replica: Int
    row: Int

    def _keys(self) -> Int:
        return self.replica * (int(self.row.max()) + 1) + self.row

    def repeats(self) -> NDArray[np.bool_]:
        """Return which instances (K,) stand for the second time or more."""
        keys = self._keys()
        repeats = np.zeros(len(keys), np.bool_)
        if len(set(keys.tolist())) < len(keys):
            repeats[:] = True
            repeats[np.unique(keys, return_index=True)[1]] = False
        return repeats

    def totals(self, values: Array) -> Array:
        """Return for each row the sum of the values (K,) of all rows of its instance."""
        keys = self._keys()
        if len(set(keys.tolist())) == len(keys):
            return values
        _, group = np.unique(keys, return_inverse=True)
        return np.asarray(np.bincount(group, values)[group], np.float64)

    def refuse(self, wrong: NDArray[np.bool_], reason: str) -> None:
        """Raise for the first row that is wrong."""
        if wrong.any():
            at = int(np.argmax(wrong))
            instance = f"instance {self.row[at]} of replica {self.replica[at]}"
            raise ExchangeError(f"{self.name} row {at}: {instance} {reason}")


def _split(name: str, rows: Array, owner: int) -> Iterator[_Ids]:
    """Split rows by the zone that owns their instances; `owner` is its column."""
    if not len(rows):
        return
    zones = set(rows[:, owner].tolist())
    for zone in zones:
        mine = rows if len(zones) == 1 else rows[rows[:, owner] == zone]
        replica = mine[:, REPLICA].astype(np.int64)
        yield _Ids(name, mine, int(zone), replica, mine[:, INSTANCE_ROW].astype(np.int64))
