"""The candidate network without torch: its architecture, first weights, and a fast scorer.

Shapes: B rows, C candidates, F candidate features, K context (instance + zone) features,
N quantiles, P parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.kernels.scoring import score_candidates
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError
from marl_sched.observation import Layout, Observation

Float = NDArray[np.float32]
Weights = dict[str, Float]

HEAD_NAMES = ("head.weight", "head.bias")
"""The last layer: what `personal_head` keeps in its zone."""

_HEAD_SCALE = 0.1
"""Small first values: the bootstrap starts near 0, not at noise."""


@dataclass(frozen=True)
class Architecture:
    """Sizes of the network: one MLP that scores a candidate within its context."""

    n_candidate_features: int
    n_context_features: int
    hidden: tuple[int, ...]
    n_quantiles: int

    @classmethod
    def of(cls, layout: Layout, agent: Agent) -> "Architecture":
        """Return the architecture for a layout of observations."""
        n_context = len(layout.instance) + len(layout.zone)
        return cls(len(layout.candidate), n_context, tuple(agent.hidden), agent.n_quantiles)

    @cached_property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters, in the order of the flat vector.

        Weights are (inputs, outputs). The first layer's inputs are the candidate's features, then
        the context's: W x + C c is one matrix, so that the context's part can be computed once.
        """
        sizes = (self.n_candidate_features + self.n_context_features, *self.hidden)
        shapes: dict[str, tuple[int, ...]] = {}
        for number, (n_in, n_out) in enumerate(pairwise(sizes)):
            name = "first" if number == 0 else f"hidden.{number - 1}"
            shapes |= {f"{name}.weight": (n_in, n_out), f"{name}.bias": (n_out,)}
        return shapes | {
            "head.weight": (sizes[-1], self.n_quantiles),
            "head.bias": (self.n_quantiles,),
        }

    @cached_property
    def n_parameters(self) -> int:
        """P: length of the flat vector."""
        return sum(prod(shape) for shape in self.parameter_shapes.values())

    def views(self, flat: Float) -> Weights:
        """Return the parameters as views into a flat vector."""
        views: Weights = {}
        start = 0
        for name, shape in self.parameter_shapes.items():
            views[name] = flat[start : start + prod(shape)].reshape(shape)
            start += prod(shape)
        return views

    def flatten(self, weights: Mapping[str, Float]) -> Float:
        """Return checked weights as one vector, copied: (P,) float32."""
        self.check(weights)
        return np.concatenate([weights[name].ravel() for name in self.parameter_shapes])

    def check(self, weights: Mapping[str, Float], where: str = "weights") -> None:
        """Check names, shapes, dtypes and that all is finite.

        Raises:
            CheckpointError: Something differs; the message names it, what came and what may.
        """
        shapes = self.parameter_shapes
        if set(weights) != set(shapes):
            raise CheckpointError(f"{where}: tensors {sorted(weights)}, expected {sorted(shapes)}")
        for name, shape in shapes.items():
            tensor = weights[name]
            if tensor.shape != shape:
                raise CheckpointError(f"{where}: {name} has shape {tensor.shape}, expected {shape}")
            if tensor.dtype != np.float32:
                raise CheckpointError(f"{where}: {name} is {tensor.dtype}, expected float32")
            if not np.isfinite(tensor).all():
                raise CheckpointError(f"{where}: {name} is not finite, expected finite numbers")


def initial_weights(architecture: Architecture, generator: np.random.Generator) -> Weights:
    """Draw the first weights: He et al. 2015 for rectified layers, a small head, no biases."""
    weights: Weights = {}
    for name, shape in architecture.parameter_shapes.items():
        if name.endswith(".bias"):
            weights[name] = np.zeros(shape, np.float32)
            continue
        deviation = (
            _HEAD_SCALE * shape[0] ** -0.5 if name == "head.weight" else (2 / shape[0]) ** 0.5
        )
        weights[name] = (deviation * generator.standard_normal(shape)).astype(np.float32)
    return weights


class Scorer:
    """Scores candidates by the mean, or the CVaR, of their quantile values.

    For the plain mean the head's columns are averaged beforehand: one output instead of N, exact.
    """

    def __init__(self, architecture: Architecture, flat: Float, cvar_alpha: float) -> None:
        """Score with the parameters in `flat` (P,); call `refresh` after changing them in place."""
        self._architecture = architecture
        self._flat = flat
        self._hidden = np.array(architecture.hidden, np.int64)
        self._is_mean = cvar_alpha == 1.0
        self._cvar_alpha = cvar_alpha
        self._tail = tail_weights(1 if self._is_mean else architecture.n_quantiles, cvar_alpha)
        self.refresh()

    def refresh(self) -> None:
        """Fold the head again."""
        views = self._architecture.views(self._flat)
        weight, bias = views["head.weight"], views["head.bias"]
        if self._is_mean:
            weight = weight.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
            bias = bias.mean(keepdims=True, dtype=np.float64).astype(np.float32)
        self._head = (weight, bias)

    def scores(self, candidates: Float, context: Float, mask: NDArray[np.bool_]) -> Float:
        """Return (B, C) scores, -inf where masked.

        Args:
            candidates: (B, C, F).
            context: (B, K).
            mask: (B, C), True where the candidate may be picked.

        Raises:
            ValueError: Wrong shapes, or a row without an unmasked candidate.
        """
        architecture = self._architecture
        n_rows, n_candidates, n_features = candidates.shape
        expected = (architecture.n_candidate_features, (n_rows, architecture.n_context_features))
        # The kernel does not check bounds: a wrong width would read past the rows.
        if (n_features, context.shape) != expected or mask.shape != (n_rows, n_candidates):
            raise ValueError(
                f"candidates {candidates.shape}, context {context.shape}, mask {mask.shape}: "
                f"expected (B, C, {expected[0]}), (B, {architecture.n_context_features}), (B, C)"
            )
        if not mask.any(axis=1).all():
            raise ValueError("a row has no unmasked candidate, expected at least one in each")
        scores = np.empty((n_rows, n_candidates), np.float32)
        score_candidates(
            self._flat,
            self._hidden,
            *self._head,
            self._tail,
            np.ascontiguousarray(candidates, np.float32),
            np.ascontiguousarray(context, np.float32),
            np.ascontiguousarray(mask),
            scores,
        )
        return scores

    def choose(
        self, candidates: Float, context: Float, mask: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Return (B,) the best unmasked candidate of every row; arguments as of `scores`."""
        best: NDArray[np.int64] = self.scores(candidates, context, mask).argmax(axis=1)
        return best

    def quantiles(self, candidates: Float, context: Float) -> tuple[Float, Float]:
        """Return what stands behind the scores of one row, for those who want to see it.

        Args:
            candidates: (C, F).
            context: (K,).

        Returns:
            (C, N) quantile values, and (C,) the scores that follow from them, but for rounding.
        """
        architecture = self._architecture
        views = architecture.views(self._flat)
        shared = np.broadcast_to(context, (len(candidates), len(context)))
        x = np.concatenate([candidates, shared], axis=1)  # (C, F + K)
        layers = ("first", *(f"hidden.{number}" for number in range(len(architecture.hidden) - 1)))
        for name in layers:
            x = np.maximum(x @ views[f"{name}.weight"] + views[f"{name}.bias"], 0.0)
        values: Float = x @ views["head.weight"] + views["head.bias"]  # (C, N)
        tail = tail_weights(architecture.n_quantiles, self._cvar_alpha)
        return values, np.sort(values, axis=1) @ tail


def tail_weights(n_quantiles: int, cvar_alpha: float) -> Float:
    """Return (N,) weights of the sorted quantile values whose sum is the CVaR.

    The mean of the worst alpha share: full weight for each whole 1 / N of it, the rest in part.
    """
    in_tail = np.clip(cvar_alpha * n_quantiles - np.arange(n_quantiles), 0.0, 1.0)
    tail: Float = (in_tail / in_tail.sum()).astype(np.float32)
    return tail


def context_of(observation: Observation) -> Float:
    """Return the context every candidate of a row shares: (B, K), instance then zone."""
    return np.concatenate([observation.instance, observation.zone], axis=1)
