"""One zone in E replicas: a thin object around the state arrays and their kernels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.kernels import messages, window
from marl_sched.cluster.kernels.clone import clone_rows
from marl_sched.cluster.kernels.digest import N_DIGEST_AMOUNTS, N_PLAIN_DIGEST
from marl_sched.cluster.kernels.placement import MASKED
from marl_sched.cluster.machines import Machines, build_machines
from marl_sched.cluster.model import N_FACT_BLOCKS, N_PLAIN_FACTS, N_SHAPES, State
from marl_sched.cluster.state import EpisodeInput, empty_state, fill_state, grow_arrays
from marl_sched.config import Experiment, Zone
from marl_sched.errors import PlacementError

Array = NDArray[np.float64]

_OF_ALL_REPLICAS = (
    "parameters",
    "capacity",
    "reserved",
    "has",
    "per_unit",
    "per_asked",
    "peer_zone",
)
"""Arrays of the state without an axis of replicas."""


class ZoneSimulator:
    """The machines, the queue and the books of one zone, for E independent replicas.

    A window is played by `advance` and `decide` in turn until no replica needs a decision; then
    `end_window` and the `collect_*` methods give what the exchange carries, the `deliver_*` methods
    take what it brought, and `open_window` starts the next one.
    """

    def __init__(self, experiment: Experiment, zone: Zone, n_replicas: int) -> None:
        """Prepare the zone's machines; `reset` makes the state."""
        self.experiment = experiment
        self.zone = zone
        self.n_replicas = n_replicas
        self.machines: Machines = build_machines(experiment, zone)
        names = sorted(experiment.zone_names)
        self.zone_index = names.index(zone.name)
        self.peers = [name for name in names if name != zone.name]
        self.state: State
        self._until_us = 0
        self._deaths = 0

    @property
    def n_machines(self) -> int:
        """M."""
        return len(self.machines.speed)

    def reset(self, inputs: Sequence[EpisodeInput]) -> None:
        """Start an episode in every replica, one input each."""
        self.clear()
        self.state = empty_state(self.experiment, self.machines, self.zone_index, inputs)
        fill_state(self.state, self.zone, self.machines, inputs)
        self._until_us = 0

    def clear(self) -> None:
        """Let go of the state, megabytes of it; until the next `reset` there is none."""
        vars(self).pop("state", None)

    def open_window(self) -> NDArray[np.int64]:
        """Open the next window and return the replicas that need a decision."""
        self._until_us += self.experiment.window_us
        window.open_window(self.state)
        return self.advance(np.arange(self.n_replicas, dtype=np.int64))

    @property
    def until_us(self) -> int:
        """End of the window that is open."""
        return self._until_us

    @property
    def deaths(self) -> int:
        """Instances that died with their machines in the last advance."""
        return self._deaths

    def advance(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Advance the replicas rows (B,) and return those of them that need a decision."""
        rows = rows.copy()
        kept, self._deaths = window.advance_rows(self.state, rows, self._until_us)
        return rows[:kept]

    def decide(
        self, rows: NDArray[np.int64], actions: NDArray[np.int64]
    ) -> tuple[Array, NDArray[np.int64]]:
        """Carry out one action per replica.

        Args:
            rows: (B,) replicas that need a decision.
            actions: (B,) machine, or M + peer.

        Returns:
            facts (B, F) of starts and failed creations, outcomes (B,) of placement.py.

        Raises:
            PlacementError: An action is masked; the other replicas' actions were carried out.
        """
        n_resources = self.state.capacity.shape[1]
        facts = np.empty((len(rows), N_PLAIN_FACTS + N_FACT_BLOCKS * n_resources))
        outcomes = np.empty(len(rows), np.int64)
        if not window.decide_rows(self.state, rows, actions, facts, outcomes):
            at = int(np.argmax(outcomes == MASKED))
            raise PlacementError(
                f"zone {self.zone.name}, replica {rows[at]}: action {actions[at]} is masked; "
                f"expected an unmasked candidate below {self.n_machines + len(self.peers)}"
            )
        return facts, outcomes

    def end_window(self) -> Array:
        """Close the window and return the moments (E, R, 3) of utilization at its end."""
        moments = np.empty((self.n_replicas, self.state.capacity.shape[1], 3))
        window.end_window(self.state, moments)
        return moments

    def collect_offloads(self) -> Array:
        """Return the offloads of this window, a row each (kernels/messages.py)."""
        n_columns = messages.N_OFFLOAD + 3 * self.state.capacity.shape[1]
        out = np.empty((int(self.state.zone["sent_size"].sum()), n_columns))
        window.collect_offloads(self.state, out)
        return out

    def collect_notices(self) -> Array:
        """Return the finish notices of this window, a row each."""
        out = np.empty((int(self.state.zone["notice_size"].sum()), messages.N_NOTICE))
        window.collect_notices(self.state, out)
        return out

    def collect_digests(self) -> Array:
        """Return the digests (E, D) as of now."""
        n_resources = self.state.capacity.shape[1]
        n_columns = N_PLAIN_DIGEST + (N_DIGEST_AMOUNTS + N_SHAPES) * n_resources
        out = np.empty((self.n_replicas, n_columns))
        window.collect_digests(self.state, out)
        return out

    def deliver_offloads(self, rows: Array) -> None:
        """Take the offloads that peers sent, in order of (time, zone, sequence)."""
        if not len(rows):
            return
        order = np.lexsort(
            (rows[:, messages.SEQUENCE], rows[:, messages.FROM], rows[:, messages.TIME])
        )
        counts = np.bincount(rows[:, messages.REPLICA].astype(np.int64), minlength=self.n_replicas)
        arrays = self.state._asdict()
        self.clear()
        grow_arrays(arrays, counts)
        self.state = State(**arrays)
        window.deliver_offloads(self.state, rows[order])

    def deliver_notices(self, rows: Array) -> None:
        """Take the finish notices that peers sent, in order of (time, zone, sequence)."""
        if len(rows):
            order = np.lexsort(
                (rows[:, messages.SEQUENCE], rows[:, messages.FROM], rows[:, messages.TIME])
            )
            window.deliver_notices(self.state, rows[order])

    def deliver_digest(self, peer: str, digests: Array) -> None:
        """Take a peer's digests (E, D)."""
        window.deliver_digest(self.state, self.peers.index(peer), digests)

    def finish_episode(self) -> tuple[NDArray[np.int64], Array]:
        """Score what has not finished; return replicas (K,), facts (K, F) of unplaced offloads."""
        count = window.count_unplaced(self.state)
        replicas = np.empty(count, np.int64)
        n_resources = self.state.capacity.shape[1]
        facts = np.zeros((count, N_PLAIN_FACTS + N_FACT_BLOCKS * n_resources))
        window.finish_episode(self.state)
        window.write_unplaced(self.state, replicas, facts)
        return replicas, facts

    def copy_replica(self, source: int, target: int) -> None:
        """Make a replica an exact copy of another, for what-if play."""
        for name, array in self.state._asdict().items():
            if name not in _OF_ALL_REPLICAS:
                array[target] = array[source]

    def clone(
        self,
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        settled: NDArray[np.int64] | None = None,
    ) -> None:
        """Make replicas play on exactly as others would: `copy_replica` of many pairs at once.

        Only rows in use are copied.

        Args:
            sources: (B,) replicas, none of them a target.
            targets: (B,) replicas, all different.
            settled: (B,) for pairs that play the same episode: finished jobs below this number are
                equal in both already. These, and the histograms, are left out.

        Raises:
            ValueError: A target stands twice or is a source too.
        """
        if len(np.unique(targets)) < len(targets) or np.isin(targets, sources).any():
            raise ValueError(f"targets {targets} of sources {sources}, expected others, once each")
        if settled is None:
            settled = np.full(len(sources), -1, np.int64)
        clone_rows(self.state, sources, targets, settled)
