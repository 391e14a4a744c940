"""A trained network made smaller: whole hidden units are taken out, nothing is masked.

`fold` takes out what never had an influence: the network computes the same, but for rounding.
`shrink` takes out more, one unit at a time, always the one whose absence the others can make up
for best: the optimal brain surgeon (Hassibi and Stork 1993) on whole units, as in Frantar and
Alistarh 2022 (arXiv 2208.11580). With C the covariance of a layer's recorded activations and w_j
what unit j adds to the next layer's inputs, its absence costs

    w_j' G w_j / [C^-1]_jj     once every other unit k takes over  -[C^-1]_kj / [C^-1]_jj  w_j

where G = E[g g'] and g is the gradient of the outputs that count with respect to the next layer's
inputs. A unit that never changes costs nothing, nor does one of two that are alike. Mean inputs of
the next layer are kept by its bias.
Shapes: D decisions, n recorded rows, I inputs, H hidden units, O outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import Architecture, Weights
from marl_sched.agents.learned import LearnedPolicy
from marl_sched.observation import LIMIT

Float = NDArray[np.float64]

_TINY = 1e-30
_RIDGE = 1e-6
"""Added to C, as a share of its mean diagonal: units that never change have no variance."""


@dataclass(frozen=True)
class Layer:
    """An affine layer: weight (I, O) and bias (O,)."""

    weight: Float
    bias: Float


@dataclass(frozen=True)
class Rows:
    """Recorded inputs of a network.

    Attributes:
        inputs: (n, I) candidates with their context.
        weight: (n,) how much a candidate counts; more than 0.
        context: (D, K) contexts, a row a decision.
    """

    inputs: NDArray[np.float32]
    weight: NDArray[np.float64]
    context: NDArray[np.float32]


def prune_policy(policy: LearnedPolicy, rows: Rows, keep: float) -> LearnedPolicy:
    """Return a policy whose network has fewer hidden units.

    Args:
        policy: Any that scores candidates.
        rows: What it was asked, unmasked candidates only, as the network sees them.
        keep: Share of every hidden layer's units that is left, rounded up; with 1 only what has no
            influence goes.
    """
    architecture, weights = policy.architecture, policy.weights()
    names = ["first", *(f"hidden.{n}" for n in range(len(architecture.hidden) - 1)), "head"]
    n_quantiles = architecture.n_quantiles
    is_mean = policy.cvar_alpha == 1.0
    counts = np.full((n_quantiles, 1), 1 / n_quantiles) if is_mean else np.eye(n_quantiles)
    scoring = _pruned(_layers(weights, names), (rows.inputs, rows.weight), keep, counts)
    smaller = _named(scoring, names)
    hidden = tuple(layer.bias.size for layer in scoring[:-1])
    value_hidden = architecture.value_hidden
    if architecture.has_prior:
        parts = ["value", "value_head"]
        contexts = (rows.context, np.ones(len(rows.context)))
        value = _pruned(_layers(weights, parts), contexts, keep, np.eye(n_quantiles))
        smaller |= _named(value, parts)
        value_hidden = value[0].bias.size
    return _like(policy, replace(architecture, hidden=hidden, value_hidden=value_hidden), smaller)


def _like(policy: LearnedPolicy, architecture: Architecture, weights: Weights) -> LearnedPolicy:
    return LearnedPolicy(
        policy.layout,
        architecture,
        weights,
        policy.cvar_alpha,
        policy.prior,
        policy.gate_margin,
    )


def _layers(weights: Mapping[str, NDArray[np.float32]], names: Sequence[str]) -> list[Layer]:
    return [
        Layer(weights[f"{name}.weight"].astype(np.float64), weights[f"{name}.bias"].astype(float))
        for name in names
    ]


def _named(layers: Sequence[Layer], names: Sequence[str]) -> Weights:
    found: Weights = {}
    for name, layer in zip(names, layers, strict=True):
        found[f"{name}.weight"] = layer.weight.astype(np.float32)
        found[f"{name}.bias"] = layer.bias.astype(np.float32)
    return found


def _pruned(
    layers: Sequence[Layer], rows: tuple[NDArray[np.float32], Float], keep: float, counts: Float
) -> list[Layer]:
    """Fold, then shrink to the share that is to be left."""
    sizes = [ceil(keep * layer.bias.size) for layer in layers[:-1]]
    inputs, weight = rows
    return shrink(fold(layers), (inputs.astype(np.float64), weight), sizes, counts)


def fold(layers: Sequence[Layer]) -> list[Layer]:
    """Take out hidden units without influence; what is computed stays the same for all inputs.

    They are those that nothing is made of, that no observation can activate (features lie in
    [-LIMIT, LIMIT]), that are constant, or whose incoming weights are another unit's too. One unit
    of a layer always stays.
    """
    found = list(layers)
    bound = np.full(layers[0].weight.shape[0], LIMIT)
    low = -bound
    for number in range(len(found) - 1):
        found[number : number + 2] = _folded(found[number], found[number + 1], low, bound)
        bound = np.maximum(_highest(found[number], low, bound), 0.0)
        low = np.zeros_like(bound)
    for number in reversed(range(len(found) - 2)):  # what fed only units that are gone
        has_influence = np.abs(found[number + 1].weight).sum(axis=1) > 0
        found[number : number + 2] = _without(found[number], found[number + 1], has_influence)
    return found


def _folded(layer: Layer, following: Layer, low: Float, high: Float) -> tuple[Layer, Layer]:
    is_constant = ~layer.weight.any(axis=0)
    constant = np.where(is_constant, np.maximum(layer.bias, 0.0), 0.0)
    outgoing = following.weight.copy()
    bias = following.bias + constant @ outgoing
    is_active = (_highest(layer, low, high) > 0) & outgoing.any(axis=1) & ~is_constant
    columns = np.vstack([layer.weight, layer.bias]).T  # (H, I + 1)
    first: dict[bytes, int] = {}
    for unit in np.flatnonzero(is_active):
        twin = first.setdefault(columns[unit].tobytes(), int(unit))
        if twin != unit:
            outgoing[twin] += outgoing[unit]
            is_active[unit] = False
    outgoing[is_constant] = 0.0  # it is in the bias now
    return _without(layer, Layer(outgoing, bias), is_active)


def _highest(layer: Layer, low: Float, high: Float) -> Float:
    """Return (H,) bounds of a layer's outputs for inputs between (I,) bounds."""
    ends = np.maximum(layer.weight * low[:, None], layer.weight * high[:, None])
    highest: Float = layer.bias + ends.sum(axis=0)
    return highest


def _without(layer: Layer, following: Layer, is_kept: NDArray[np.bool_]) -> tuple[Layer, Layer]:
    """Return two layers with some of the units between them; with none left, a dead one stays."""
    if not is_kept.any():
        is_kept = np.arange(is_kept.size) == 0
        layer = Layer(np.zeros_like(layer.weight), np.zeros_like(layer.bias))
    return (
        Layer(layer.weight[:, is_kept], layer.bias[is_kept]),
        Layer(following.weight[is_kept], following.bias),
    )


def shrink(
    layers: Sequence[Layer], rows: tuple[Float, Float], sizes: Sequence[int], counts: Float
) -> list[Layer]:
    """Take hidden units out, layer by layer, until no layer has more than its size.

    Args:
        layers: The network.
        rows: (n, I) recorded inputs, and (n,) how much each counts.
        sizes: Units that are left of every hidden layer, at least 1.
        counts: (O, J) weights of the network's outputs in what counts of them.
    """
    found = list(layers)
    inputs, weight = rows[0], rows[1] / rows[1].sum()
    scale = np.sqrt(weight)[:, None]
    weighing = _sensitivities(layers, inputs, weight, counts)
    whole = own = inputs  # activations of the network as it was, and as it is by now
    for number, size in enumerate(sizes):
        layer, following = found[number], layers[number + 1]
        whole, own = _activated(layers[number], whole), _activated(layer, own)
        target = whole @ following.weight  # (n, O)
        kept, outgoing = _surgery(
            scale * (own - weight @ own),
            following.weight,
            scale * (target - weight @ target),
            size,
            weighing[number],
        )
        own = own[:, kept]
        bias = following.bias + weight @ target - weight @ own @ outgoing
        found[number] = Layer(layer.weight[:, kept], layer.bias[kept])
        found[number + 1] = Layer(outgoing, bias)
    return found


def _activated(layer: Layer, inputs: Float) -> Float:
    return np.maximum(inputs @ layer.weight + layer.bias, 0.0)


def _sensitivities(
    layers: Sequence[Layer], inputs: Float, weight: Float, counts: Float
) -> list[Float]:
    """Return G (O, O) of the inputs of every layer but the first."""
    active = []
    for layer in layers[:-1]:
        inputs = _activated(layer, inputs)
        active.append(inputs > 0)
    found = [counts @ counts.T]
    gradients = [np.broadcast_to(column, (len(inputs), len(column))) for column in counts.T]
    for layer, is_active in zip(layers[:0:-1], active[:0:-1], strict=False):
        gradients = [(gradient @ layer.weight.T) * is_active for gradient in gradients]
        found.insert(0, np.sum([g.T @ (weight[:, None] * g) for g in gradients], axis=0))
    return found


def _surgery(
    activations: Float, outgoing: Float, target: Float, size: int, weighing: Float
) -> tuple[NDArray[np.int64], Float]:
    """Return which units stay, and what they add to the next layer's inputs then.

    Args:
        activations: (n, H), less their mean, times the root of how much a row counts.
        outgoing: (H, O).
        target: (n, O), in the same way: what is to be approximated by `activations @ outgoing`.
        size: Units that stay, at most.
        weighing: (O, O) G.
    """
    covariance = activations.T @ activations
    ridge = _RIDGE * max(float(covariance.trace()) / len(covariance), _TINY)
    inverse = np.linalg.inv(covariance + ridge * np.eye(len(covariance)))
    # Earlier layers are other than they were: first what all units together can make up for.
    missed = activations.T @ (target - activations @ outgoing)
    weight = outgoing + inverse @ missed
    kept = np.arange(len(weight))
    while len(kept) > size:
        left = weight[kept]
        loss = np.einsum("ho,ho->h", left @ weighing, left) / inverse[kept, kept]
        unit = kept[loss.argmin()]
        share = inverse[:, unit] / inverse[unit, unit]
        weight = weight - np.outer(share, weight[unit])
        inverse = inverse - np.outer(share, inverse[unit])
        kept = kept[kept != unit]
    return kept, weight[kept]
