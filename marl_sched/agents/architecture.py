"""The candidate network without torch: its architecture and first weights.

Shapes: F candidate features, K context (instance + zone) features, N quantiles, P parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.prior import PRIOR_COLUMNS
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError
from marl_sched.observation import Layout

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
