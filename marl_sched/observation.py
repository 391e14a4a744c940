"""What an agent sees: the record and the names of its columns.

Shapes: B rows (one decision each), M machines of the zone, Z - 1 peers, C = M + Z - 1 candidates,
R resources. Machines and peers share one feature vector, so that one network can score both; a
column that has no meaning for a kind of candidate is 0 there. A resource that a machine or peer
does not have counts as one unit of which none is free: its columns are 0, and free_share_after is
below 0 for an instance that asks for it. Means and standard deviations are over the machines that
have the resource. All features are float32 and lie in [-LIMIT, LIMIT]. Columns per resource are
named `NAME:RESOURCE`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

LIMIT = 10.0
"""Bound of every feature."""

# Columns and what they mean; docs/observation.md is written from them.
_CANDIDATE_PER_RESOURCE = {
    "free_share": "free over capacity; peer: by its digest, less what was sent since",
    "free_share_after": "the same once the instance is there",
    "utilization": "real use over capacity, now; peer: its mean, by its digest",
    "utilization_after": "with the type's mean use added; peer: 0",
    "utilization_mean": "moving average over about a minute; peer: 0",
    "utilization_sd": "moving standard deviation over about a minute; peer: its zone's std",
    "imbalance_change": "change of the zone's std of utilization x machines; peer: 0",
    "relative_size": "capacity over the largest machine of the zone; peer: over the zone's total",
}
_CANDIDATE = {
    "is_machine": "1 of a machine of the zone, else 0",
    "is_peer": "1 of a peer zone, else 0",
    "speed": "relative to the reference machine; peer: mean by its digest",
    "price": "price per hour; peer: mean by its digest",
    "alignment": "Tetris: request . free, both as shares of capacity; peer: 0",
    "allocation_gap": "std over resources of the allocated share after; peer: 0",
    "expected_duration": "expected duration over the known mean (interference, speed)",
    "expected_late": "1 if the start there would be late (transfer time), else 0",
    "expected_slack": "time to the finish limit left after the expected finish, over the mean",
    "running": "log1p of running instances; peer: log1p of its queue",
    "takes_largest_slot": "1 if the zone's largest free slot shrinks",
    "cost": "price x largest share of the machine (peer: of its largest) x expected_duration",
    "digest_age": "peer: age of its digest over the digest period",
    "sent_share": "peer: cpu sent there since its digest over its allocatable cpu",
    "transfer": "peer: transfer time over the known mean",
    "fits_largest_slot": "peer: 1 if the instance fits the digest's largest free slot",
}
_INSTANCE_PER_RESOURCE = {
    "request": "request over the largest machine of the zone",
    "use": "the type's mean use over the request",
}
_INSTANCE = {
    "mean": "log1p of the known mean duration in s, over 5",
    "sigma": "known sigma of the lognormal duration",
    "waited": "time since ready over the known mean",
    "late_slack": "time to the latest start over the known mean",
    "finish_slack": "time to the finish limit over the known mean",
    "hops_left": "offloads it may still make",
    "restarts": "deaths with its machine so far",
    "group": "log1p of instances of the same task still waiting",
    "job_left": "log1p of tasks of the job not yet finished",
    "priority": "its priority; higher goes first",
}
_ZONE_PER_RESOURCE = {
    "zone_free_share": "free over capacity, all machines that are up",
    "zone_utilization": "mean over machines",
    "zone_imbalance": "std over machines",
    "queue_share": "requests of ready instances over the zone's allocatable",
}
_ZONE = {
    "queue": "log1p of ready instances",
    "set_aside": "log1p of tasks that fit nowhere",
    "machines_up": "log1p of machines that take placements, over 5",
    "machine_choices": "share of machines that are unmasked",
    "peer_choices": "share of peers that are unmasked",
    "arrivals": "log1p of instances a minute that become ready, moving average over about a minute",
}

COLUMNS = {
    "instance": (_INSTANCE, _INSTANCE_PER_RESOURCE),
    "candidates": (_CANDIDATE, _CANDIDATE_PER_RESOURCE),
    "zone": (_ZONE, _ZONE_PER_RESOURCE),
}
"""Of every array of an observation: plain columns, then those per resource, by name."""


@dataclass(frozen=True)
class Layout:
    """Names of the observation's columns for a list of resources."""

    resources: tuple[str, ...]

    @cached_property
    def candidate(self) -> tuple[str, ...]:
        """Columns of a candidate (machine or peer)."""
        return _columns(_CANDIDATE, _CANDIDATE_PER_RESOURCE, self.resources)

    @cached_property
    def instance(self) -> tuple[str, ...]:
        """Columns of the instance at the head of the queue."""
        return _columns(_INSTANCE, _INSTANCE_PER_RESOURCE, self.resources)

    @cached_property
    def zone(self) -> tuple[str, ...]:
        """Columns of the zone as a whole."""
        return _columns(_ZONE, _ZONE_PER_RESOURCE, self.resources)

    def candidate_index(self, name: str) -> int:
        """Return the column of a candidate feature, e.g. `free_share:cpu_milli`."""
        return self.candidate.index(name)

    def candidate_indices(self, name: str) -> list[int]:
        """Return the columns of a per-resource candidate feature, in the order of the resources."""
        return [self.candidate_index(f"{name}:{resource}") for resource in self.resources]

    @property
    def fit_columns(self) -> NDArray[np.int64]:
        """(2, R) columns of the free shares of a candidate, before and after: what tells a fit."""
        names = ("free_share", "free_share_after")
        return np.array([self.candidate_indices(name) for name in names], np.int64)


def _columns(
    plain: Mapping[str, str], per_resource: Mapping[str, str], resources: tuple[str, ...]
) -> tuple[str, ...]:
    return (*plain, *(f"{name}:{resource}" for name in per_resource for resource in resources))


@dataclass
class Observation:
    """A batch of decisions of one zone. The arrays may be reused by the next step: copy to keep.

    Attributes:
        replica: (B,) int64, the replica each row belongs to.
        decision: (B,) int64, number of the decision within its replica's episode, from 0.
        instance: (B, I) float32.
        candidates: (B, C, F) float32, machines first, then the peers in the order of the zones.
        zone: (B, Z) float32.
        mask: (B, C) bool, True where the candidate may be picked; every row has at least one True.
        n_machines: M, so that candidates[:, :M] are machines.
    """

    replica: NDArray[np.int64]
    decision: NDArray[np.int64]
    instance: NDArray[np.float32]
    candidates: NDArray[np.float32]
    zone: NDArray[np.float32]
    mask: NDArray[np.bool_]
    n_machines: int

    def __len__(self) -> int:
        """Return B, the number of decisions."""
        return len(self.replica)

    def take(self, rows: NDArray[np.int64]) -> "Observation":
        """Return a copy of some decisions, by row."""
        return Observation(
            replica=self.replica[rows],
            decision=self.decision[rows],
            instance=self.instance[rows],
            candidates=self.candidates[rows],
            zone=self.zone[rows],
            mask=self.mask[rows],
            n_machines=self.n_machines,
        )


@dataclass(frozen=True)
class Settlements:
    """Rewards that became known, K of them; several for one decision add up.

    Attributes:
        replica: (K,) int64.
        decision: (K,) int64, the number of the decision within its replica's episode.
        reward: (K,) float64.
    """

    replica: NDArray[np.int64]
    decision: NDArray[np.int64]
    reward: NDArray[np.float64]
