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

from marl_sched.agents.kernels.scoring import context_values, gate_choices, score_candidates
from marl_sched.agents.prior import PRIOR_COLUMNS, Prior
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
    """Sizes of the network: one MLP that scores a candidate within its context.

    With a prior the quantile values are Q(c) = v(g) + f(c, g) + prior_scale d(c): f is that MLP, v
    a smaller one over the context g alone, d the column `prior_gap` of the candidate c. A change of
    all candidates' values, as the load makes it, is then learnt by v and leaves the choice alone.

    Attributes:
        n_candidate_features: F, with the prior's columns where there is one.
        n_context_features: K.
        hidden: Units of the hidden layers of f.
        n_quantiles: N.
        value_hidden: Hidden units of v; 0: there is no prior, and no v.
        prior_scale: Share of the prior's score.
    """

    n_candidate_features: int
    n_context_features: int
    hidden: tuple[int, ...]
    n_quantiles: int
    value_hidden: int = 0
    prior_scale: float = 0.0

    @classmethod
    def of(cls, layout: Layout, agent: Agent) -> "Architecture":
        """Return the architecture for a layout of observations."""
        n_context = len(layout.instance) + len(layout.zone)
        n_features, hidden = len(layout.candidate), tuple(agent.hidden)
        if not agent.has_prior:
            return cls(n_features, n_context, hidden, agent.quantile_count)
        return cls(
            n_features + len(PRIOR_COLUMNS),
            n_context,
            hidden,
            agent.quantile_count,
            agent.value_hidden,
            agent.prior_scale,
        )

    @property
    def n_inputs(self) -> int:
        """F + K."""
        return self.n_candidate_features + self.n_context_features

    @property
    def has_prior(self) -> bool:
        """Whether the network corrects a prior."""
        return self.value_hidden > 0

    @property
    def prior_column(self) -> int:
        """Where `prior_gap` is among a candidate's features; `is_prior_choice` is next to it."""
        return self.n_candidate_features - len(PRIOR_COLUMNS)

    @cached_property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters, in the order of the flat vector.

        Weights are (inputs, outputs). The first layer's inputs are the candidate's features, then
        the context's: W x + C c is one matrix, so that the context's part can be computed once.
        """
        sizes = (self.n_inputs, *self.hidden)
        shapes: dict[str, tuple[int, ...]] = {}
        for number, (n_in, n_out) in enumerate(pairwise(sizes)):
            name = "first" if number == 0 else f"hidden.{number - 1}"
            shapes |= {f"{name}.weight": (n_in, n_out), f"{name}.bias": (n_out,)}
        shapes |= {
            "head.weight": (sizes[-1], self.n_quantiles),
            "head.bias": (self.n_quantiles,),
        }
        if not self.has_prior:
            return shapes
        return shapes | {
            "value.weight": (self.n_context_features, self.value_hidden),
            "value.bias": (self.value_hidden,),
            "value_head.weight": (self.value_hidden, self.n_quantiles),
            "value_head.bias": (self.n_quantiles,),
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
    """Draw the first weights: He et al. 2015 for rectified layers, a small head, no biases.

    What corrects a prior starts from a head of zeros: it plays the prior.
    """
    weights: Weights = {}
    for name, shape in architecture.parameter_shapes.items():
        if name.endswith(".bias") or (architecture.has_prior and name == "head.weight"):
            weights[name] = np.zeros(shape, np.float32)
            continue
        deviation = (
            _HEAD_SCALE * shape[0] ** -0.5
            if name.endswith("head.weight")
            else (2 / shape[0]) ** 0.5
        )
        weights[name] = (deviation * generator.standard_normal(shape)).astype(np.float32)
    return weights


class Scorer:
    """Scores candidates by the mean, or the CVaR, of their quantile values, and chooses.

    For the plain mean the head's columns are averaged beforehand: one output instead of N, exact.
    The value of the context is equal for all candidates of a row and is left out then.
    """

    def __init__(
        self,
        architecture: Architecture,
        flat: Float,
        cvar_alpha: float,
        prior: Prior | None = None,
        margin: float = 0.0,
    ) -> None:
        """Score with the parameters in `flat` (P,); call `refresh` after changing them in place.

        Args:
            architecture: The network's.
            flat: (P,).
            cvar_alpha: Share of the worst returns that count.
            prior: What the network corrects.
            margin: Gain over the prior's choice that another candidate must promise.

        Raises:
            ValueError: A prior for a network without one, or none for one with it.
        """
        if architecture.has_prior != (prior is not None):
            raise ValueError(f"prior {prior}: the network's has_prior is {architecture.has_prior}")
        self._architecture = architecture
        self._flat = flat
        self._views = architecture.views(flat)
        self._hidden = np.array(architecture.hidden, np.int64)
        self._is_mean = cvar_alpha == 1.0
        self._cvar_alpha = cvar_alpha
        self._tail = tail_weights(1 if self._is_mean else architecture.n_quantiles, cvar_alpha)
        self._prior, self._margin = prior, np.float32(margin)
        self._prior_scale = np.float32(architecture.prior_scale)
        self.refresh()

    def refresh(self) -> None:
        """Fold the head again."""
        weight, bias = self._views["head.weight"], self._views["head.bias"]
        if self._is_mean:
            weight = weight.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
            bias = bias.mean(keepdims=True, dtype=np.float64).astype(np.float32)
        self._head = (weight, bias[None])

    def extended(self, observation: Observation) -> Observation:
        """Return the observation with the columns that the network sees: the prior's too."""
        return observation if self._prior is None else self._prior.extend(observation)

    def scores(self, candidates: Float, context: Float, mask: NDArray[np.bool_]) -> Float:
        """Return (B, C) scores, -inf where masked.

        Args:
            candidates: (B, C, F), extended.
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
        context = np.ascontiguousarray(context, np.float32)
        weight, bias = self._head
        if architecture.has_prior and not self._is_mean:
            bias = bias + self._values(context)
        scores = np.empty((n_rows, n_candidates), np.float32)
        score_candidates(
            self._flat,
            self._hidden,
            weight,
            bias,
            self._tail,
            self._prior_scale,
            architecture.prior_column if architecture.has_prior else 0,
            np.ascontiguousarray(candidates, np.float32),
            context,
            np.ascontiguousarray(mask),
            scores,
        )
        return scores

    def pick(self, scores: Float, candidates: Float) -> NDArray[np.int64]:
        """Return (B,) the candidates that scores (B, C) of `candidates` (B, C, F) decide for.

        The best; with a prior only where it beats the prior's choice by the margin, else that.
        """
        if self._prior is None:
            best: NDArray[np.int64] = scores.argmax(axis=1)
            return best
        actions = np.empty(len(scores), np.int64)
        column = self._architecture.prior_column + 1
        gate_choices(scores, candidates, column, self._margin, actions)
        return actions

    def choose(
        self, candidates: Float, context: Float, mask: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Return (B,) an unmasked candidate of every row; arguments as of `scores`."""
        return self.pick(self.scores(candidates, context, mask), candidates)

    def prior_choices(self, candidates: Float) -> NDArray[np.int64] | None:
        """Return (B,) the prior's choices among extended candidates (B, C, F), if there is one."""
        if self._prior is None:
            return None
        choices: NDArray[np.int64] = candidates[:, :, self._architecture.prior_column + 1].argmax(1)
        return choices

    def quantiles(self, candidates: Float, context: Float) -> tuple[Float, Float]:
        """Return what stands behind the scores of one row, for those who want to see it.

        Args:
            candidates: (C, F), extended.
            context: (K,).

        Returns:
            (C, N) quantile values, and (C,) their means or CVaRs. Scores are these, but for
            rounding and, with a prior, for the mean of the context's value.
        """
        architecture, views = self._architecture, self._views
        shared = np.broadcast_to(context, (len(candidates), len(context)))
        x = np.concatenate([candidates, shared], axis=1)  # (C, F + K)
        layers = ("first", *(f"hidden.{number}" for number in range(len(architecture.hidden) - 1)))
        for name in layers:
            x = np.maximum(x @ views[f"{name}.weight"] + views[f"{name}.bias"], 0.0)
        values: Float = x @ views["head.weight"] + views["head.bias"]  # (C, N)
        if architecture.has_prior:
            gap = candidates[:, architecture.prior_column, None]  # (C, 1)
            values = values + self._values(context[None]) + self._prior_scale * gap
        tail = tail_weights(architecture.n_quantiles, self._cvar_alpha)
        return values, np.sort(values, axis=1) @ tail

    def _values(self, context: Float) -> Float:
        """Return (B, N) the value of contexts (B, K)."""
        values = np.empty((len(context), self._architecture.n_quantiles), np.float32)
        value, head = (
            (self._views[f"{name}.weight"], self._views[f"{name}.bias"])
            for name in ("value", "value_head")
        )
        context_values(context, *value, *head, values)
        return values


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
