"""How weights travel: one float32 array and the names and shapes of its tensors.

One array instead of one a tensor halves Flower's overhead. Here too is said, tensor by tensor, what
is shared between zones and what stays: of all a learner holds (online network, moving average,
target, optimizer, replay) only tensors of the online network and of its moving average travel, and
of these those that `shared_names` returns.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import HEAD_NAMES
from marl_sched.config import Experiment
from zones.records import Weights


@dataclass(frozen=True)
class WeightSpec:
    """Names and shapes of the tensors in a packed array, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, weights: Weights) -> "WeightSpec":
        """Return the spec of a network."""
        return cls(tuple(weights), tuple(tensor.shape for tensor in weights.values()))

    @property
    def n_values(self) -> int:
        """P: numbers in the packed array."""
        return sum(prod(shape) for shape in self.shapes)

    def name_at(self, index: int) -> str:
        """Return the tensor that holds a position of the packed array."""
        for name, shape in zip(self.names, self.shapes, strict=True):
            index -= prod(shape)
            if index < 0:
                return name
        raise IndexError(f"position beyond the {self.n_values} values of the array")

    def shapes_as_text(self) -> list[str]:
        """Return the shapes as `64x50`, the form that a message carries."""
        return ["x".join(map(str, shape)) for shape in self.shapes]


def pack(weights: Weights, spec: WeightSpec) -> NDArray[np.float32]:
    """Return the tensors of `spec` as one array, (P,) float32."""
    packed = np.empty(spec.n_values, dtype=np.float32)
    start = 0
    for name in spec.names:
        values = weights[name].ravel()
        packed[start : start + len(values)] = values
        start += len(values)
    return packed


def unpack(packed: NDArray[np.float32], spec: WeightSpec) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a packed array, (P,) float32, by name."""
    if packed.shape != (spec.n_values,):
        raise ValueError(f"packed weights of shape {packed.shape}, expected ({spec.n_values},)")
    weights: dict[str, NDArray[np.float32]] = {}
    start = 0
    for name, shape in zip(spec.names, spec.shapes, strict=True):
        end = start + prod(shape)
        weights[name] = packed[start:end].reshape(shape).copy()
        start = end
    return weights


def shared_names(names: Iterable[str], experiment: Experiment) -> tuple[str, ...]:
    """Return the tensors that are averaged; the others stay with their zone."""
    if experiment.federation.strategy == "none":
        return ()
    if not experiment.agent.personal_head:
        return tuple(names)
    return tuple(name for name in names if name not in HEAD_NAMES)


def select(weights: Weights, names: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    """Return the named tensors."""
    return {name: weights[name] for name in names}
