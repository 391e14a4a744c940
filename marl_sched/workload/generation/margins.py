"""One quantity's distribution, as a function of a standard normal score.

A draw is `margin.at(z)` of a standard normal z: quantities whose scores are correlated are so
themselves, whatever their distributions (a Gaussian copula, or NORTA: Cario and Nelson 1997).
Shapes: K knots; values of any shape.
"""

import math
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from marl_sched.workload.table import Float

SCORES = np.linspace(-4.0, 4.0, 81)
"""Where the curves are given: the quantiles 3e-5, ..., 0.5, ..., 1 - 3e-5."""
LAST_SCORE = 9.0
"""The score up to which the last value of a discrete margin reaches: no draw is above."""
_EXACT, _TAIL_KNOTS = 20, 48
_FINE = np.linspace(-LAST_SCORE, LAST_SCORE, 18_001)
_FINE_CDF = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in _FINE.tolist()])


class Margin(BaseModel):
    """A quantile function of normal scores.

    Kinds: `steps` takes values[k] for scores in (scores[k - 1], scores[k]]; `integers` is like it,
    but takes all integers between two values, by log interpolation; `linear` and `log` interpolate
    between values at SCORES (`scores` is left out) and keep the end values beyond.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["steps", "integers", "linear", "log"]
    values: tuple[float, ...]
    scores: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> "Margin":
        is_curve = self.kind in ("linear", "log")
        expected = len(SCORES) if is_curve else len(self.scores)
        if not self.values or len(self.values) != expected or (is_curve and self.scores):
            raise ValueError(
                f"{self.kind} of {len(self.values)} values and {len(self.scores)} scores, expected "
                + (f"{len(SCORES)} and none" if is_curve else "as many of each, at least one")
            )
        if any(a > b for a, b in zip(self.scores, self.scores[1:], strict=False)):
            raise ValueError("scores descend, expected them in order")
        if self.kind in ("log", "integers") and min(self.values) <= 0:
            raise ValueError(f"{self.kind} of {min(self.values)}, expected values > 0")
        return self

    def at(self, z: Float) -> Float:
        """Return the values at the scores z, in the shape of z."""
        values = np.array(self.values)
        if self.kind == "steps":
            return np.asarray(values[np.searchsorted(np.array(self.scores[:-1]), z)])
        if self.kind == "linear":
            return np.asarray(np.interp(z, SCORES, values))
        if self.kind == "log":
            return np.asarray(np.exp(np.interp(z, SCORES, np.log(values))))
        inner = np.exp(np.interp(z, np.array(self.scores), np.log(values)))
        return np.asarray(np.ceil(inner - 1e-9))


def normal_cdf(z: Float) -> Float:
    """Return P(Z <= z), to 1e-7."""
    return np.asarray(np.interp(z, _FINE, _FINE_CDF))


def normal_score(share: Float) -> Float:
    """Return the z at which P(Z <= z) is the share; at most LAST_SCORE in size."""
    return np.asarray(np.interp(share, _FINE_CDF, _FINE))


def steps_margin(values: Float, weights: Float) -> Margin:
    """Return the discrete margin of ascending, distinct values (K,) of some weights (K,)."""
    kept = weights > 1e-7 * weights.sum()
    return Margin(
        kind="steps", values=_short(values[kept]), scores=_upper_scores(weights[kept].cumsum())
    )


def integers_margin(values: Float, weights: Float, exact: tuple[int, ...] = ()) -> Margin:
    """Return a margin of positive integers: up to 20 as they are, above by 48 knots.

    Args:
        values: (K,) ascending, distinct.
        weights: (K,).
        exact: More integers that are knots.
    """
    above = np.geomspace(_EXACT, max(values[-1], _EXACT + 1), _TAIL_KNOTS + 1)[1:]
    knots = np.unique(np.concatenate([np.arange(1, _EXACT + 1), np.round(above), exact]))
    knots = knots[(knots >= values[0]) & (knots <= values[-1])]
    reached = np.concatenate([[0.0], weights.cumsum()])[np.searchsorted(values, knots, "right")]
    return Margin(kind="integers", values=_short(knots), scores=_upper_scores(reached))


def curve_margin(kind: Literal["linear", "log"], values: Float, weights: Float) -> Margin:
    """Return the curve through the quantiles of a sample (K,) with weights (K,)."""
    quantiles = weighted_quantiles(values, weights, normal_cdf(SCORES))
    return Margin(kind=kind, values=_short(quantiles))


def weighted_quantiles(values: Float, weights: Float, shares: Float) -> Float:
    """Return the smallest values below or at which the given shares of the weight lie."""
    order = np.argsort(values, kind="stable")
    reached = weights[order].cumsum()
    rows = np.searchsorted(reached, shares * reached[-1] * (1.0 - 1e-12))
    return np.asarray(values[order][np.minimum(rows, len(values) - 1)])


def average_ranks(values: Float) -> Float:
    """Return each value's rank, in (0, 1); equal values share the middle of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(((counts.cumsum() - counts / 2.0) / len(values))[inverse])


def rank_correlation(columns: Float) -> Float:
    """Return Spearman's correlations (C, C) of the columns (N, C); 0 for a constant one."""
    ranks = np.column_stack([average_ranks(column) for column in columns.T]) - 0.5
    size = np.sqrt((ranks**2).sum(axis=0))
    result = ranks.T @ ranks / np.maximum(np.outer(size, size), 1e-300)
    np.fill_diagonal(result, 1.0)
    return np.asarray(result)


def _upper_scores(reached: Float) -> tuple[float, ...]:
    scores = np.round(normal_score(reached / reached[-1]), 4)
    return (*scores[:-1].tolist(), LAST_SCORE)


def _short(values: Float) -> tuple[float, ...]:
    return tuple(float(f"{value:.5g}") for value in values)
