"""The candidate network's forward pass, one row at a time.

A row's result does not depend on the batch it stands in, unlike that of a BLAS product, and masked
candidates cost nothing.
Shapes: B rows, C candidates, F candidate features, K context features, H first hidden units,
P parameters, O output columns.
"""

import numpy as np
from numpy.typing import NDArray

from marl_sched.kernel_cache import inner, kernel

_ZERO = np.float32(0)
_ONE = np.float32(1)

Float = NDArray[np.float32]


@inner
def _affine(x: Float, weight: Float, bias: Float, out: Float) -> None:
    """Write bias + x @ weight; four inputs a pass, so that `out` is loaded and stored less."""
    n_in = x.shape[0]
    n_out = out.shape[0]
    for o in range(n_out):
        out[o] = bias[o]
    n_fours = n_in // 4 * 4
    for i in range(0, n_fours, 4):
        a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
        if a != _ZERO or b != _ZERO or c != _ZERO or d != _ZERO:
            for o in range(n_out):
                out[o] += (a * weight[i, o] + b * weight[i + 1, o]) + (
                    c * weight[i + 2, o] + d * weight[i + 3, o]
                )
    for i in range(n_fours, n_in):
        for o in range(n_out):
            out[o] += x[i] * weight[i, o]


@inner
def _rectify(x: Float) -> None:
    for i in range(x.shape[0]):
        x[i] = max(x[i], _ZERO)


@kernel
def score_candidates(  # noqa: PLR0913  # a kernel takes arrays, not objects
    flat: Float,
    hidden: NDArray[np.int64],
    head_weight: Float,
    head_bias: Float,
    tail: Float,
    prior_scale: np.float32,
    prior_column: int,
    candidates: Float,
    context: Float,
    mask: NDArray[np.bool_],
    scores: Float,
) -> None:
    """Write the score of every candidate, -inf where it is masked.

    Args:
        flat: (P,), all parameters in the order of `Architecture.parameter_shapes`.
        hidden: (n_layers,), units of the hidden layers.
        head_weight: (last hidden, O), the last layer; its mean over quantiles makes O = 1.
        head_bias: (1, O), or (B, O) where it holds the value of every row's context.
        tail: (O,), weights of the outputs once they are sorted from worst to best.
        prior_scale: Share of the prior's score; 0 without a prior.
        prior_column: The prior's score among the candidate's features.
        candidates: (B, C, F).
        context: (B, K).
        mask: (B, C).
        scores: (B, C), written.
    """
    n_rows, n_candidates, n_features = candidates.shape
    n_inputs = n_features + context.shape[1]
    first = hidden[0]
    weight = flat[: n_inputs * first].reshape(n_inputs, first)
    bias = flat[n_inputs * first : (n_inputs + 1) * first]
    base = np.empty(first, np.float32)
    buffers = np.empty((2, hidden.max()), np.float32)
    output = np.empty(head_bias.shape[1], np.float32)
    for row in range(n_rows):
        _affine(context[row], weight[n_features:], bias, base)  # the context's part, once a row
        shift = head_bias[row if head_bias.shape[0] > 1 else 0]
        for candidate in range(n_candidates):
            if not mask[row, candidate]:
                scores[row, candidate] = -np.inf
                continue
            x = buffers[0, :first]
            _affine(candidates[row, candidate], weight[:n_features], base, x)
            _rectify(x)
            start = (n_inputs + 1) * first
            for layer in range(1, hidden.shape[0]):
                n_in, n_out = hidden[layer - 1], hidden[layer]
                middle = start + n_in * n_out
                y = buffers[layer % 2, :n_out]
                _affine(
                    x, flat[start:middle].reshape(n_in, n_out), flat[middle : middle + n_out], y
                )
                _rectify(y)
                x = y
                start = middle + n_out
            _affine(x, head_weight, shift, output)
            score = _tail_mean(output, tail)
            if prior_scale > _ZERO:
                score += prior_scale * candidates[row, candidate, prior_column]
            scores[row, candidate] = score


@kernel
def _tail_mean(output: Float, tail: Float) -> np.float32:
    if output.shape[0] > 1:
        output.sort()
    total = _ZERO
    for i in range(output.shape[0]):
        # Past the tail a weight is 0; skipping it keeps an infinite best quantile out of the sum.
        if tail[i] > _ZERO:
            total += tail[i] * output[i]
    return total


@kernel
def gate_choices(
    scores: Float, candidates: Float, column: int, margin: np.float32, actions: NDArray[np.int64]
) -> None:
    """Write the best candidate where it beats the prior's choice by a margin, else that choice.

    Args:
        scores: (B, C), -inf where masked.
        candidates: (B, C, F).
        column: The feature that is 1 at the prior's choice.
        margin: Gain that a deviation must exceed; scores that are not numbers never do.
        actions: (B,), written.
    """
    for row in range(scores.shape[0]):
        best = 0
        choice = 0
        for candidate in range(scores.shape[1]):
            if scores[row, candidate] > scores[row, best]:
                best = candidate
            if candidates[row, candidate, column] == _ONE:
                choice = candidate
        actions[row] = best if scores[row, best] - scores[row, choice] > margin else choice


@kernel
def context_values(
    context: Float,
    weight: Float,
    bias: Float,
    head_weight: Float,
    head_bias: Float,
    values: Float,
) -> None:
    """Write the value of every row's context, whatever is chosen there: one hidden layer.

    Args:
        context: (B, K).
        weight: (K, V), V hidden units.
        bias: (V,).
        head_weight: (V, N).
        head_bias: (N,).
        values: (B, N), written.
    """
    x = np.empty(bias.shape[0], np.float32)
    for row in range(context.shape[0]):
        _affine(context[row], weight, bias, x)
        _rectify(x)
        _affine(x, head_weight, head_bias, values[row])
