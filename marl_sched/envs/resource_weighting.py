"""How much each resource's part of the imbalance counts in the outcome reward of a zone.

The objective is the sum of the resources' standard deviations s_r between machines, so that equal
weights are its own exchange rate, and the default. Weights that adapt lean away from it on purpose:

    adaptive           w_r ~ s_r      sum w_r ds_r is half the change of the sum of variances: the
                                      resource that varies most, where there is most to gain, leads
    adaptive-inverse   w_r ~ 1 / s_r  sum w_r ds_r is the change of the sum of log s_r: a tenth less
                                      of a small deviation counts as a tenth less of a large one

Either is scaled to a mean of 1 over the resources that count, so that `reward.imbalance` keeps its
meaning. Shapes: E replicas, R resources.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.config import Experiment
from marl_sched.errors import CheckpointError

Array = NDArray[np.float64]

MEMORY = 1_000
"""Window boundaries after which an observation counts 1/e of a new one; before, all count alike."""
LEAST_DEVIATION = 0.01
"""Standard deviations below one percent of utilization count as one percent."""


class ResourceWeighting:
    """The weights of one zone; those that adapt follow what the zone itself has seen.

    Attributes:
        counted: (R,) bool, resources whose imbalance counts.
        weights: (R,), 0 where it does not count, else with a mean of 1.
    """

    def __init__(self, experiment: Experiment) -> None:
        """Begin with the configured weights, or with equal ones where they adapt."""
        reward, objective = experiment.reward, experiment.objective
        names = experiment.resources
        self.counted = np.array([name in objective.imbalance_resources for name in names])
        self._kind = reward.resource_weighting
        self._first = self._scaled(np.array([reward.resource_weights.get(r, 1.0) for r in names]))
        self.reset()

    @property
    def adapts(self) -> bool:
        """Whether there is anything to remember."""
        return self._kind != "fixed"

    def reset(self) -> None:
        """Forget everything."""
        self._variance = np.zeros(len(self.counted))
        self._n_seen = 0
        self.weights = self._first

    def observe(self, moments: Array) -> None:
        """Take in a window boundary: (E, R, 3) count, sum and sum of squares of utilization."""
        if not self.adapts:
            return
        count = np.maximum(moments[:, :, 0], 1.0)
        mean = moments[:, :, 1] / count
        variance = np.maximum(moments[:, :, 2] / count - mean * mean, 0.0).mean(axis=0)  # (R,)
        self._n_seen += 1
        share = 1.0 / min(self._n_seen, MEMORY)
        self._variance = self._variance + share * (variance - self._variance)
        self._weigh()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what `load_state` goes on from; empty for weights that are fixed."""
        if not self.adapts:
            return {}
        return {"variance": self._variance.copy(), "n_seen": np.array(self._n_seen, np.int64)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned.

        Raises:
            CheckpointError: It is of other resources, or of no running variance.
        """
        if not self.adapts:
            return
        variance, n_seen = state.get("variance"), state.get("n_seen")
        if variance is None or n_seen is None or variance.shape != self._variance.shape:
            shape = None if variance is None else variance.shape
            raise CheckpointError(
                f"running variance of the resources: {shape}, expected {self._variance.shape}"
            )
        self._variance, self._n_seen = variance.astype(np.float64), int(n_seen)
        self.weights = self._first
        if self._n_seen:
            self._weigh()

    def _weigh(self) -> None:
        deviation = np.maximum(np.sqrt(self._variance), LEAST_DEVIATION)
        self.weights = self._scaled(deviation if self._kind == "adaptive" else 1.0 / deviation)

    def _scaled(self, weights: Array) -> Array:
        weights = np.where(self.counted, weights, 0.0)
        total = weights.sum()
        scaled: Array = weights * (self.counted.sum() / total) if total else weights
        return scaled
