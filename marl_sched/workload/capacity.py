"""What a zone's machines can hold: the yardstick of offered load and of what fits at all.

Shapes: M machines, K distinct machine shapes, R resources.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from marl_sched.config import Experiment, Zone


@dataclass(frozen=True)
class ZoneCapacity:
    """One zone's machines, absent or down ones included.

    Attributes:
        allocatable: (R,) total of capacity - reserved.
        background: (R,) mean use by online services, in total.
        mean_speed: Mean over the machines, without jitter.
        shapes: (K, R) allocatable less mean background use, in whole units, a row a machine kind.
    """

    allocatable: NDArray[np.float64]
    background: NDArray[np.float64]
    mean_speed: float
    shapes: NDArray[np.float64]

    @classmethod
    def of(cls, experiment: Experiment, zone: Zone) -> Self:
        """Measure a zone of an experiment."""
        resources = experiment.resources
        counts = np.array([group.count for group in zone.machines], float)
        installed = np.array([[g.capacity[r] for r in resources] for g in zone.machines], float)
        reserved = np.array([[g.reserved.get(r, 0) for r in resources] for g in zone.machines])
        mean_use = zone.background.mean if zone.background is not None else {}
        used = installed * np.array([mean_use.get(resource, 0.0) for resource in resources])
        allocatable = installed - reserved
        speeds = np.array([group.speed for group in zone.machines])
        return cls(
            allocatable=counts @ allocatable,
            background=counts @ used,
            mean_speed=float(counts @ speeds / counts.sum()),
            shapes=np.unique(np.floor(np.maximum(allocatable - used, 0.0)), axis=0),
        )

    def fits(self, request: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which requests (T, R) at least one machine could hold: (T,) bool."""
        held = np.all(request[:, None, :] <= self.shapes[None], axis=2)  # (T, K)
        result: NDArray[np.bool_] = np.any(held, axis=1)
        return result

    @property
    def background_load(self) -> NDArray[np.float64]:
        """(R,) mean background use over allocatable; 0 for a resource the zone does not have."""
        return _over(self.background, self.allocatable)

    def work_load(
        self, work: NDArray[np.float64], horizon_s: float, shared: bool = True
    ) -> NDArray[np.float64]:
        """Return requested work as a share of the capacity at the zone's mean speed.

        Work on a resource that the zone does not have is no load of this zone: it is for its peers.

        Args:
            work: (..., R) request x seconds at speed 1, summed.
            horizon_s: Time over which it is offered.
            shared: True: over all allocatable capacity. False: over what background use leaves.
        """
        available = self.allocatable if shared else self.allocatable - self.background
        offered = np.where(self.allocatable > 0, work, 0.0)
        with np.errstate(divide="ignore"):
            return _over(offered, np.maximum(available, 0.0)) / (self.mean_speed * horizon_s)


def _over(amount: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return amount / whole, 0 where there is no amount, whatever the whole."""
    return np.divide(amount, whole, out=np.zeros_like(amount), where=amount > 0)
