"""A node score with a weight a resource: kube-scheduler's NodeResourcesFit, weighed by a network.

The policy that learned schedulers for Kubernetes put into its scoring: from the context one weight
in [0, 1] a resource, then LeastAllocated with these weights; offloads by the rule that all fixed
rules share.
Shapes: B rows, C candidates, M machines, R resources, K context features, F candidate features.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import Architecture, Float, Weights
from marl_sched.agents.heuristics import FitCheck, or_offload
from marl_sched.agents.offload import PeerFormula
from marl_sched.agents.scoring import context_of
from marl_sched.observation import Layout, Observation

_LEAST_SUM = 1e-6
"""Keeps a score finite where all weights vanish."""


class ResourceScorer:
    """Weighs resources in a context, scores machines by the weights, and chooses."""

    def __init__(self, layout: Layout, architecture: Architecture, flat: Float) -> None:
        """Weigh by the parameters in `flat` (P,), also after they have changed in place."""
        self._architecture = architecture
        self._views = architecture.views(flat)
        self._n_resources = len(layout.resources)
        self._free_after = layout.candidate_indices("free_share_after")
        self._size = layout.candidate_indices("relative_size")
        self._fits, self._peers = FitCheck(layout), PeerFormula(layout)

    def outputs(self, context: Float) -> tuple[Float, Float]:
        """Return means and log standard deviations of the logits of the weights, each (B, R)."""
        views, x = self._views, context
        layers = ("first", *(f"hidden.{n}" for n in range(len(self._architecture.hidden) - 1)))
        for name in layers:
            x = np.maximum(x @ views[f"{name}.weight"] + views[f"{name}.bias"], 0.0)
        values: Float = x @ views["head.weight"] + views["head.bias"]  # (B, 2 R)
        return values[:, : self._n_resources], values[:, self._n_resources :]

    def choose(self, observation: Observation, logits: Float) -> NDArray[np.int64]:
        """Return (B,) unmasked candidates by resource weights sigmoid(logits), (B, R)."""
        machines = observation.candidates[:, : observation.n_machines]
        scores = self._least_allocated(machines, _sigmoid(logits))
        scores = np.where(self._fits.allowed(observation), scores, -np.inf)
        return or_offload(observation, scores, self._peers)

    def extended(self, observation: Observation) -> Observation:
        """Return the observation: nothing is added."""
        return observation

    def quantiles(self, candidates: Float, context: Float) -> tuple[Float, Float]:
        """Return the scores of candidates (C, F) in a context (K,), as (C, 1) and as (C,)."""
        weights = _sigmoid(self.outputs(context[None])[0])
        scores = self._least_allocated(candidates[None], weights)[0]
        return scores[:, None], scores

    def _least_allocated(self, candidates: Float, weights: Float) -> Float:
        """Return (B, C): the weighted mean of the free shares there would be, (B, R) weights.

        As kube-scheduler does, a resource that a machine does not have is left out.
        """
        free = np.maximum(candidates[:, :, self._free_after], 0.0)  # (B, C, R)
        weighing = np.where(candidates[:, :, self._size] > 0.0, weights[:, None, :], 0.0)
        scores: Float = (weighing * free).sum(axis=-1) / (weighing.sum(axis=-1) + _LEAST_SUM)
        return scores


class ResourceWeightPolicy:
    """Takes the machine with the best node score by the weights that its network means.

    Attributes:
        layout: Layout of the observations it was trained on.
        architecture: Sizes of its network.
        scorer: What it judges with.
        explored: Rows that it decided at random: none.
    """

    def __init__(
        self,
        layout: Layout,
        architecture: Architecture,
        weights: Mapping[str, NDArray[np.float32]],
    ) -> None:
        """Build the policy on a copy of the weights.

        Raises:
            CheckpointError: The weights are of another architecture.
        """
        self.layout, self.architecture = layout, architecture
        self._flat = architecture.flatten(weights)
        self.scorer = ResourceScorer(layout, architecture, self._flat)
        self.explored = np.zeros(0, np.int64)

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        """Do nothing: there is no state and no chance."""

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) unmasked candidates."""
        means, _ = self.scorer.outputs(context_of(observation))
        return self.scorer.choose(observation, means)

    def weights(self) -> Weights:
        """Return a copy of the network's parameters by name."""
        return {name: view.copy() for name, view in self.architecture.views(self._flat).items()}


def _sigmoid(logits: Float) -> Float:
    positive: Float = 0.5 * (1.0 + np.tanh(0.5 * logits))
    return positive
