"""Quantities of a trace as weighted samples, with the quantiles that are published of traces.

Shapes: K distinct values.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from marl_sched.workload.table import Float

QUANTILES = {
    "p10": 0.1,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p99.9": 0.999,
}
"""Share of the sample that lies at or below each quantile."""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Sample:
    """Values and how much of the sample lies at or below each.

    Attributes:
        unit: Of the values; empty for counts and ratios.
        values: (K,) distinct, ascending, at least one.
        reached: (K,) share of the weight at or below each; the last is 1.
        mean: Weighted.
    """

    unit: str
    values: Float
    reached: Float
    mean: float

    @classmethod
    def of(cls, values: ArrayLike, weights: ArrayLike | None = None, unit: str = "") -> Self:
        """Collect values (N,), N > 0, of some weights (N,) > 0; default: all alike."""
        distinct, inverse = np.unique(np.asarray(values, float), return_inverse=True)
        weight = np.bincount(inverse, None if weights is None else np.asarray(weights, float))
        reached = weight.cumsum()
        return cls(unit, distinct, reached / reached[-1], float(weight @ distinct / reached[-1]))

    @property
    def largest(self) -> float:
        """Largest value."""
        return float(self.values[-1])

    def quantile(self, share: float) -> float:
        """Return the smallest value at or below which at least this share of the weight lies."""
        row = int(np.searchsorted(self.reached, share - _ROUNDING))
        return float(self.values[min(row, len(self.values) - 1)])

    def as_json(self) -> dict[str, float | str]:
        """Return unit, mean, quantiles and maximum."""
        quantiles = {name: self.quantile(share) for name, share in QUANTILES.items()}
        return {"unit": self.unit, "mean": self.mean, **quantiles, "max": self.largest}


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float | None:
    """Return Spearman's correlation of two columns (N,), equal values sharing the middle of ranks.

    None where one of them is constant, which has no correlation.
    """
    a, b = _centered_ranks(np.asarray(first)), _centered_ranks(np.asarray(second))
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0.0 else None


def _centered_ranks(values: Float) -> Float:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2.0)[inverse]  # (N,) from 1
    return np.asarray(ranks - (len(values) + 1) / 2.0)
