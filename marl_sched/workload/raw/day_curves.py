"""Day curves of many series at once, by least squares, from samples in any order.

Each series has u(t) = mean + a sin(2 pi t / day) + b cos(2 pi t / day) + noise. Only the sums of
the normal equations are kept. Shapes: S series.
"""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from marl_sched.workload.table import Float

DAY_S = 86_400.0
_MOST_ROWS = 300_000
_ANGLE = pl.col("time_s") * (2 * np.pi / DAY_S)
_S, _C, _U = _ANGLE.sin(), _ANGLE.cos(), pl.col("cpu")
_SUMS = {
    "n": pl.len().cast(pl.Float64),
    "u": _U.sum(),
    "uu": (_U * _U).sum(),
    "us": (_U * _S).sum(),
    "uc": (_U * _C).sum(),
    "s": _S.sum(),
    "c": _C.sum(),
    "ss": (_S * _S).sum(),
    "sc": (_S * _C).sum(),
    "cc": (_C * _C).sum(),
    "memory": pl.col("memory").sum(),
}


@dataclass(frozen=True)
class FittedCurves:
    """What was fitted.

    Attributes:
        series: (S,) numbers of the series, ascending.
        coefficients: (S, 3) mean, a and b of cpu; a = b = 0 where the samples span less than a day.
        variance: (S,) of cpu about the curve.
        memory: (S,) mean.
        span: (S,) from the first sample to the last, over that of all series.
    """

    series: np.ndarray
    coefficients: Float
    variance: Float
    memory: Float
    span: Float


@dataclass
class DayCurves:
    """Collects samples block by block."""

    _blocks: list[pl.DataFrame] = field(default_factory=list)

    def add(self, frame: pl.DataFrame) -> None:
        """Take over samples: columns `series` (integer), `time_s`, `cpu`, `memory` (Float64)."""
        sums = frame.group_by("series").agg(
            **_SUMS, first_s=pl.col("time_s").min(), last_s=pl.col("time_s").max()
        )
        self._blocks.append(sums)
        if sum(map(len, self._blocks)) > _MOST_ROWS:
            self._blocks = [self._merged()]

    def fit(self) -> FittedCurves | None:
        """Return the curves of all series; None without a sample."""
        if not any(map(len, self._blocks)):
            return None
        sums = {name: column.to_numpy() for name, column in self._merged().to_dict().items()}
        first_s, last_s = sums["first_s"], sums["last_s"]
        whole_s = last_s.max() - first_s.min()
        n = sums["n"]
        normal = np.array(
            [
                [n, sums["s"], sums["c"]],
                [sums["s"], sums["ss"], sums["sc"]],
                [sums["c"], sums["sc"], sums["cc"]],
            ]
        ).transpose(2, 0, 1)  # (S, 3, 3)
        right = np.column_stack([sums["u"], sums["us"], sums["uc"]])  # (S, 3)
        # By the pseudoinverse: samples of a few times of the day alone leave the rest at 0.
        curve = (np.linalg.pinv(normal, hermitian=True) @ right[:, :, None])[:, :, 0]
        flat = np.zeros_like(curve)
        flat[:, 0] = sums["u"] / n
        coefficients = np.where((last_s - first_s >= DAY_S)[:, None], curve, flat)
        error = sums["uu"] - (coefficients * right).sum(axis=1)
        return FittedCurves(
            series=sums["series"],
            coefficients=coefficients,
            variance=np.maximum(error / n, 0.0),
            memory=sums["memory"] / n,
            span=(last_s - first_s) / whole_s if whole_s > 0 else np.ones(len(n)),
        )

    def _merged(self) -> pl.DataFrame:
        return (
            pl.concat(self._blocks)
            .group_by("series")
            .agg(
                pl.col(*_SUMS).sum(),
                first_s=pl.col("first_s").min(),
                last_s=pl.col("last_s").max(),
            )
            .sort("series")
        )
