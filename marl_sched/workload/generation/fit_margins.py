"""Fit what a class of tasks is drawn from: raked margins, correlated scores, matched curves.

Shapes: K classes, V published values, B bins, C columns, N samples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from marl_sched.workload.generation.margins import (
    SCORES,
    Margin,
    average_ranks,
    normal_cdf,
    normal_score,
    rank_correlation,
    weighted_quantiles,
)
from marl_sched.workload.table import Float, Int

_SAMPLES = 40_000
_ROUNDS = 12
_MATCH_ROUNDS, _STEP, _DECAY = 24, 0.8, 0.9
_FURTHEST = float(np.log(8.0))
"""A curve of means is within this factor of the quantiles of its instances, in logarithms."""
_PRIOR = 1e-5
"""Share of a class that is spread evenly over all bins: none is ruled out by the hour."""


@dataclass(frozen=True)
class Histogram:
    """A published quantity: ascending values (V,) and how often each was seen (V,)."""

    values: Float
    counts: Float

    def shares(self) -> Float:
        """Return (V,) summing to 1."""
        return np.asarray(self.counts / self.counts.sum())

    def continuous(self, step: float) -> "Histogram":
        """Spread every value over its measuring step, so that quantiles move in less than it."""
        offset = (np.arange(5) - 2.0) / 5.0 * step
        values = np.maximum(self.values[:, None] + offset, 0.0)
        return Histogram(values.ravel(), np.repeat(self.counts / 5.0, 5))


def rake(published: Histogram, values: Float, task_class: Int, class_share: Float) -> Float:
    """Return each class's distribution (K, V) over the published values.

    The hour's table of classes by bins of values is fitted to both published margins, the classes'
    shares and the histogram, by iterative proportional fitting (Deming and Stephan 1940): it keeps
    the hour's odds ratios, so what large tasks have in common, and meets the margins exactly.

    Args:
        published: The histogram to meet, as a mixture of the classes.
        values: (N,) of the hour, in the histogram's unit.
        task_class: (N,).
        class_share: (K,) published shares of the classes, in the histogram's weighting.
    """
    n_classes = len(class_share)
    edges = _bin_edges(published)
    to_bin = np.searchsorted(edges, published.values, side="right")  # (V,)
    n_bins = len(edges) + 1
    seen = np.searchsorted(edges, values, side="right")
    cells = np.bincount(task_class * n_bins + seen, minlength=n_classes * n_bins)
    table = cells.reshape(n_classes, n_bins)
    target = np.bincount(to_bin, published.shares(), n_bins)
    table = table / table.sum(axis=1, keepdims=True) + _PRIOR * (target > 0)
    for _ in range(500):
        table *= (class_share / table.sum(axis=1))[:, None]
        table *= target / np.maximum(table.sum(axis=0), 1e-300)
    within = published.shares() / np.maximum(target[to_bin], 1e-300)  # (V,)
    result = table[:, to_bin] * within
    return np.asarray(result / result.sum(axis=1, keepdims=True))


def latent_correlation(columns: Float, margins: list[Margin]) -> Float:
    """Return the correlation (C, C) of scores whose columns have the ranks' correlations.

    Scores of discrete columns must be correlated more than the columns: in each round the
    difference is added, and the matrix brought back to a correlation matrix.

    Args:
        columns: (N, C) as measured.
        margins: C margins, to be drawn from.
    """
    target = rank_correlation(columns)
    scores = np.column_stack([normal_score(average_ranks(column)) for column in columns.T])
    latent = _to_correlation(np.nan_to_num(np.asarray(np.corrcoef(scores.T))))
    normals = np.random.default_rng(0).standard_normal((_SAMPLES, len(margins)))
    for _ in range(_ROUNDS):
        drawn = normals @ np.linalg.cholesky(latent).T
        sampled = np.column_stack([m.at(z) for m, z in zip(margins, drawn.T, strict=True)])
        latent = _to_correlation(latent + 0.7 * (target - rank_correlation(sampled)))
    return latent


def match_curve(
    start: Margin,
    target: Histogram,
    expand: Callable[[Margin], Float],
    smallest: float,
) -> tuple[Margin, float]:
    """Return a curve of task means whose instances are distributed as wanted, and how far off.

    How far: the mean size of the logarithm of a quantile over the wanted one, from 10% to 99%.

    In each round every point of the curve is multiplied by a power of the wanted quantile over the
    one that the expanded instances have there, a lower one each time; the best round counts.

    Args:
        start: A first curve, of kind `log`.
        target: The wanted distribution of instances.
        expand: Draws instances (N,), equally weighted by task, from a curve.
        smallest: Floor of the curve's values.
    """
    shares = normal_cdf(SCORES)
    wanted = np.log(np.maximum(weighted_quantiles(target.values, target.counts, shares), smallest))
    is_judged = (shares >= 0.1) & (shares <= 0.99)

    def off(curve: Float) -> Float:
        instances = expand(_log_margin(curve))
        found = weighted_quantiles(instances, np.ones(len(instances)), shares)
        return np.asarray(wanted - np.log(np.maximum(found, smallest)))

    curve = best = np.log(np.array(start.values))
    least = np.inf
    for number in range(_MATCH_ROUNDS):
        error = off(curve)
        size = float(np.abs(error[is_judged]).mean())
        if size < least:
            best, least = curve, size
        # what the spread within tasks makes of the lowest means may miss the target at any curve
        curve = curve + _STEP * _DECAY**number * error
        curve = np.clip(curve, wanted - _FURTHEST, wanted + _FURTHEST)
        curve = _ascending_from_middle(np.maximum(curve, np.log(smallest)))
    return _log_margin(best), least


def alike_factors(mixings: list[Float], weights: Float, wanted: Float) -> Float:
    """Return the share (C,) of each independent normal's variance that a job's tasks share.

    Column i's scores then have the correlation sum_j L_ij^2 share_j within jobs, solved row by row
    for the mean of the classes' L (the first C rows of each).

    Args:
        mixings: K matrices (C_k, C_k), C_k at most C.
        weights: (K,) of the classes.
        wanted: (C,) correlation within jobs of each column.
    """
    squares = np.zeros((len(wanted), len(wanted)))
    total = np.zeros((len(wanted), 1))
    for matrix, weight in zip(mixings, weights, strict=True):
        n = len(matrix)
        squares[:n, :n] += weight * matrix**2
        total[:n] += weight
    squares /= total
    share = np.zeros(len(wanted))
    for row in range(len(wanted)):
        missing = wanted[row] - squares[row, :row] @ share[:row]
        share[row] = np.clip(missing / squares[row, row], 0.0, 0.98)
    return share


def within_jobs(column: Float, job: Int) -> float:
    """Return the correlation of ranks between two tasks of one job, all jobs weighing the same."""
    z = average_ranks(column) - 0.5
    n = np.bincount(job)
    several = n > 1
    sums, squares = np.bincount(job, z)[several], np.bincount(job, z**2)[several]
    n = n[several]
    pairs = ((sums**2 - squares) / (n * (n - 1.0))).sum()
    return float(np.clip(pairs / max(float((squares / n).sum()), 1e-12), 0.0, 0.98))


def _log_margin(curve: Float) -> Margin:
    return Margin(kind="log", values=tuple(float(f"{value:.5g}") for value in np.exp(curve)))


def _ascending_from_middle(curve: Float) -> Float:
    """Return the curve made ascending: what lies on the wrong side of the next inner point moves.

    The middle is what can always be met; a tail that cannot must not push it away.
    """
    middle = len(curve) // 2
    low = np.minimum.accumulate(curve[: middle + 1][::-1])[::-1]
    return np.concatenate([low, np.maximum.accumulate(curve[middle:])[1:]])


def _bin_edges(published: Histogram) -> Float:
    """Return edges between bins: every 2% of the histogram, finer in its tail."""
    shares = np.concatenate([np.arange(0.02, 0.99, 0.02), [0.99, 0.995, 0.998]])
    return np.unique(weighted_quantiles(published.values, published.counts, shares))


def _to_correlation(matrix: Float) -> Float:
    """Return the nearest correlation matrix by clipping eigenvalues."""
    symmetric = np.clip((matrix + matrix.T) / 2.0, -0.98, 0.98)
    np.fill_diagonal(symmetric, 1.0)
    values, vectors = np.linalg.eigh(symmetric)
    positive = (vectors * np.maximum(values, 1e-3)) @ vectors.T
    size = np.sqrt(np.diag(positive))
    return np.asarray(positive / np.outer(size, size))
