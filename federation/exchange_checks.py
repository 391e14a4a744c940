"""Whether an outbox may reach another zone: what a zone that goes by the rules could have sent.

The simulator's kernels trust what they read: a replica, a row or a request out of range would be
an access outside an array, a NaN or a time in the past would spoil a peer's books for good.

Shapes: E replicas, R resources, D columns of a digest, K rows.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from federation.exchange_ledger import Ledger
from federation.exchange_parts import NO_ROWS, NOTHING, as_read, rows_as_read
from federation.exchange_plan import Place
from marl_sched.cluster.exchange import Outbox
from marl_sched.cluster.kernels import messages as m
from marl_sched.cluster.kernels import posts
from marl_sched.cluster.kernels.digest import N_DIGEST_AMOUNTS, N_PLAIN_DIGEST
from marl_sched.cluster.machines import build_machines
from marl_sched.cluster.model import N_SHAPES
from marl_sched.config import MICROSECONDS, Experiment
from marl_sched.errors import ExchangeError
from zones.exchange_codec import ROWS

Array = NDArray[np.float64]

_EXACT = 2.0**53
"""Integers up to here are exact as float64."""
_INT32 = 2**31 - 1
_LARGEST = 1e15
"""Bound of amounts that have no bound of their own."""
_DUST = 1e-6
"""How far below zero a sum of floats may be whose parts have been taken off again."""
_LARGEST_REWARD = 1e12
_MOST_USE = 1000.0
"""Real use of an instance, over the largest machine's capacity."""

_HEAD = ("replica", "to", "from", "sequence", "instance", "time")
_NAMES = {
    "offloads": (
        *_HEAD,
        *("ready", "work", "priority", "class", "restarts", "hops", "transfer", "reference"),
        *("mean", "sigma", "latest wait", "latest finish", "failed creations", "task"),
    ),
    "notices": (*_HEAD, "failed"),
    "settlements": (*_HEAD, "reward", "sign"),
}
_REAL = {"reference", "mean", "sigma", "reward"}
"""Columns that are not integers; of offloads, use and known use are not either."""
_OFFLOADS, _NOTICES = 0, 1
"""Places in ROWS."""


class OutboxCheck:
    """Checks the outboxes of one attempt."""

    def __init__(
        self, experiment: Experiment, members: Iterable[str], max_rows: int, max_instances: int
    ) -> None:
        """Create a check.

        Args:
            experiment: What all zones run.
            members: Zones that take part.
            max_rows: Most rows of one kind in one outbox.
            max_instances: Most instances of a zone in one replica.
        """
        self._zones = sorted(experiment.zone_names)
        self._is_member = np.isin(self._zones, list(members))  # (Z,)
        self._max_rows = max_rows
        self._n_resources = experiment.n_resources
        self._window_us = experiment.window_us
        self._max_hops = experiment.cluster.max_hops
        capacities = [build_machines(experiment, zone).capacity for zone in experiment.zones]
        self._largest = np.concatenate(capacities).max(axis=0).astype(np.float64)  # (R,)
        transfer_s = (
            experiment.cluster.offload_base_s
            + experiment.cluster.offload_s_per_gib * self._largest[1] / 1024
        )
        self._max_transfer_us = float(np.ceil(transfer_s * MICROSECONDS)) + 1
        self._names = {
            **_NAMES,
            "offloads": (
                *_NAMES["offloads"],
                *(f"request of {name}" for name in experiment.resources),
                *(f"use of {name}" for name in experiment.resources),
                *(f"known use of {name}" for name in experiment.resources),
            ),
        }
        self._bounds = self._lasting_bounds(experiment, max_instances)  # (3, 2, columns)
        self._is_real = np.zeros((len(ROWS), self._bounds.shape[2]), np.bool_)
        for kind, name in enumerate(ROWS):
            columns = self._names[name]
            self._is_real[kind, : len(columns)] = [_is_real(column) for column in columns]
        self._rules = np.array([-_DUST, _LARGEST]), self._bounds, self._is_real, self._is_member
        self._index = {name: index for index, name in enumerate(self._zones)}
        n_digest = N_PLAIN_DIGEST + (N_DIGEST_AMOUNTS + N_SHAPES) * self._n_resources
        self._n_digest = n_digest

    def check(self, zone: str, outbox: Outbox, place: Place) -> None:
        """Check the outbox that a zone posts at a place of the plan.

        Raises:
            ExchangeError: It is not one that a zone could have made by the rules; says what.
        """
        if outbox.zone != zone:
            raise ExchangeError(f"the outbox of {outbox.zone!r}, expected its own")
        self._check_shapes(outbox, place.n_replicas)
        index = self._index[zone]
        self._set_bounds(index, place)
        digests = NOTHING if outbox.digests is None else as_read(outbox.digests).reshape(-1)
        amounts = as_read(outbox.moments).reshape(-1), digests
        fault = posts.first_fault(amounts, rows_as_read(outbox), self._rules, index)
        if fault[0] != posts.RIGHT:
            raise ExchangeError(self._reason(outbox, *fault))

    def _check_shapes(self, outbox: Outbox, n_replicas: int) -> None:
        self._require_shape("moments", outbox.moments, (n_replicas, self._n_resources, 3))
        if outbox.digests is not None:
            self._require_shape("digests", outbox.digests, (n_replicas, self._n_digest))
        for name, columns in self._names.items():
            rows = getattr(outbox, name)
            if rows.ndim != 2 or rows.shape[1] != len(columns):
                self._require_shape(name, rows, (None, len(columns)))
            if len(rows) > self._max_rows:
                raise ExchangeError(f"{len(rows)} {name}, expected at most {self._max_rows}")

    def _require_shape(self, name: str, array: Array, shape: tuple[int | None, ...]) -> None:
        if array.shape != shape:
            raise ExchangeError(f"{name} of shape {array.shape}, expected {shape}")

    def _reason(self, outbox: Outbox, fault: int, part: int, at: int) -> str:
        """Return what is wrong, in words."""
        if fault == posts.AMOUNT:
            name = "moments" if part == posts.MOMENTS else "digests"
            value = getattr(outbox, name).reshape(-1)[at]
            return f"{name} hold {value:g}, expected 0 to {_LARGEST:g}"
        kind = part - posts.OFFLOADS
        name = ROWS[kind]
        row, column = divmod(at, len(self._names[name]))
        if fault == posts.ADDRESS:
            return f"{name} row {row}: it is for no other member, or has no sign"
        low, high = self._bounds[kind, :, column]
        number = "" if self._is_real[kind, column] else "an integer "
        return (
            f"{name} row {row}: {self._names[name][column]} = "
            f"{getattr(outbox, name)[row, column]:.17g}, expected {number}from {low:.17g} to "
            f"{high:.17g}"
        )

    def _set_bounds(self, zone: int, place: Place) -> None:
        """Set what depends on who posts, and when."""
        low, high = self._bounds[:, 0], self._bounds[:, 1]  # (3, columns)
        high[:, m.REPLICA] = place.n_replicas - 1
        self._bounds[:, :, m.FROM] = zone
        low[:, m.TIME], high[:, m.TIME] = place.from_us, place.to_us
        high[_OFFLOADS, m.TIME] += self._max_transfer_us
        high[_OFFLOADS, m.O_READY] = place.to_us
        # What only passed through is reported on one window later a hop.
        first_us = place.from_us - (self._max_hops - 1) * self._window_us
        low[_NOTICES, m.TIME] = max(0, first_us)

    def _lasting_bounds(self, experiment: Experiment, max_instances: int) -> Array:
        """Return what does not change from step to step: (3, 2, columns), lowest and highest."""
        now = (0.0, 0.0)  # set by _set_bounds
        zones = (0, len(self._zones) - 1)
        head = [now, zones, now, (0, _EXACT), (0, max_instances - 1), now]
        pairs = {
            "offloads": [*head, now, *self._offload_bounds(experiment)],
            "notices": [*head, (0, 1)],
            "settlements": [*head, (-_LARGEST_REWARD, _LARGEST_REWARD), (-1, 1)],
        }
        bounds = np.zeros((len(ROWS), 2, max(len(columns) for columns in pairs.values())))
        for kind, name in enumerate(ROWS):
            bounds[kind, :, : len(pairs[name])] = np.array(pairs[name], np.float64).T
        return bounds

    def _offload_bounds(self, experiment: Experiment) -> list[tuple[float, float]]:
        """Return the bounds of an offload's columns from `work` on, in their order."""
        cluster = experiment.cluster
        use = [(0.0, _MOST_USE * max(1.0, largest)) for largest in self._largest]
        return [
            (1, _EXACT),  # work
            (-_INT32 - 1, _INT32),  # priority
            (-_INT32 - 1, _INT32),  # class
            (0, cluster.max_restarts),
            (1, cluster.max_hops),
            (0, cluster.max_hops * self._max_transfer_us),
            (1e-9, _LARGEST),  # reference: it is divided by
            (0, _LARGEST),  # mean
            (0, _LARGEST),  # sigma
            (0, _EXACT),  # latest wait
            (0, _EXACT),  # latest finish
            (0, _INT32),  # failed creations
            (0, _INT32),  # task
            *[(0, largest) for largest in self._largest],
            *use,
            *use,
        ]


def _is_real(column: str) -> bool:
    return column in _REAL or column.startswith(("use of ", "known use of "))


def load_kernels() -> None:
    """Load the kernels of checks and ledger, compiled if need be: not in the middle of a round."""
    bounds = np.zeros((len(ROWS), 2, 1))
    is_real, is_member = np.zeros((len(ROWS), 1), np.bool_), np.zeros(1, np.bool_)
    rules = np.zeros(2), bounds, is_real, is_member
    posts.first_fault((NOTHING, NOTHING), NO_ROWS, rules, 0)
    Ledger(1, 1).load_kernels()
