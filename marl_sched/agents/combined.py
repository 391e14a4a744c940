"""Several policies that correct one rule, as one policy: their corrections added up.

Policies that learned from different signals err in different places (an average of networks:
Hansen and Salamon 1990). Side by side their hidden layers are one wider network of the same form,
so that what is made here is a policy like any other.
Shapes: F candidate and K context features, H hidden units of one layer, N quantiles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from marl_sched.agents.architecture import Float, Weights
from marl_sched.agents.learned import LearnedPolicy
from marl_sched.agents.prior import Prior
from marl_sched.errors import CheckpointError


def combined(
    policies: Sequence[LearnedPolicy],
    shares: Sequence[float],
    prior_weights: Mapping[str, float],
    gate_margin: float,
) -> LearnedPolicy:
    """Return the policy whose correction is the sum of the policies' own, each times its share.

    The shares of the rule's score in a candidate's value add up likewise. The value of the context
    is the first policy's: it is equal for all candidates and decides nothing.

    Args:
        policies: Those to combine; alike in what they see, in depth, quantiles and risk.
        shares: Of each.
        prior_weights: Of the rule they correct.
        gate_margin: Gain over the rule's choice that another candidate must promise.

    Raises:
        CheckpointError: A policy corrects no rule, or they are not alike.
    """
    _check_alike(policies)
    first = policies[0]
    parts = [policy.architecture for policy in policies]
    scales = [part.prior_scale * share for part, share in zip(parts, shares, strict=True)]
    architecture = replace(
        parts[0],
        hidden=tuple(sum(units) for units in zip(*(part.hidden for part in parts), strict=True)),
        prior_scale=float(sum(scales)),
    )
    weights = _side_by_side([policy.weights() for policy in policies], shares)
    prior = Prior(first.layout, prior_weights)
    return LearnedPolicy(
        first.layout, architecture, weights, first.cvar_alpha, prior, float(gate_margin)
    )


def _check_alike(policies: Sequence[LearnedPolicy]) -> None:
    def kind(policy: LearnedPolicy) -> dict[str, object]:
        one = policy.architecture
        return {
            "columns": policy.layout.resources,
            "layers": len(one.hidden),
            "n_quantiles": one.n_quantiles,
            "cvar_alpha": policy.cvar_alpha,
        }

    expected = kind(policies[0])
    for number, policy in enumerate(policies):
        if policy.prior is None:
            raise CheckpointError(
                f"policy {number}: prior = none, expected one that corrects a rule"
            )
        for key, value in kind(policy).items():
            if value != expected[key]:
                raise CheckpointError(
                    f"policy {number}: {key} = {value}, expected {expected[key]}, as the first has"
                )


def _side_by_side(parts: Sequence[Weights], shares: Sequence[float]) -> Weights:
    """Return one network's weights: the same inputs, no connection between the parts."""
    weights = dict(parts[0])
    for name in parts[0]:
        tensors = [part[name] for part in parts]
        if name in ("first.weight", "first.bias") or name.endswith(".bias"):
            weights[name] = np.concatenate(tensors, axis=-1)
        if name.startswith("hidden.") and name.endswith(".weight"):
            weights[name] = _block_diagonal(tensors)
    heads = [
        {name: part[name] * np.float32(share) for name in ("head.weight", "head.bias")}
        for part, share in zip(parts, shares, strict=True)
    ]
    weights["head.weight"] = np.concatenate([head["head.weight"] for head in heads])
    weights["head.bias"] = np.sum([head["head.bias"] for head in heads], axis=0, dtype=np.float32)
    for name in ("value.weight", "value.bias", "value_head.weight", "value_head.bias"):
        weights[name] = parts[0][name]
    return weights


def _block_diagonal(blocks: Sequence[Float]) -> Float:
    n_rows, n_columns = np.sum([block.shape for block in blocks], axis=0)
    whole = np.zeros((n_rows, n_columns), np.float32)
    row = column = 0
    for block in blocks:
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whole
