"""Fit the arrival model to counts' dispersion and to the share of gaps of 0 s."""

from itertools import combinations

import numpy as np

from marl_sched.workload.generation.arrivals import (
    ArrivalModel,
    DayCurve,
    Modulation,
    draw_arrivals,
)
from marl_sched.workload.generation.margins import normal_score
from marl_sched.workload.table import Float, Int

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
_GAP_WEIGHT = 4.0
_CANDIDATES, _GAP_JOBS = 20, 10_000
_WINDOWS = 60
"""The modes are the quietest and the busiest of so many equal parts of the trace."""


def modes(seconds: Int, length_s: int) -> dict[str, float]:
    """Return the rate of each mode over the trace's own."""
    window = np.minimum(seconds * _WINDOWS // length_s, _WINDOWS - 1)
    counts = np.bincount(window, minlength=_WINDOWS)
    relative = counts / counts.mean()
    return {
        "own": 1.0,
        "sparse": float(f"{relative.min():.3g}"),
        "dense": float(f"{relative.max():.3g}"),
    }


def fit_arrivals(
    own: ArrivalModel, targets: dict[int, float], gaps: Int, n_factors: int = 2
) -> ArrivalModel:
    """Return the model that comes closest to the dispersion and to the gaps between jobs.

    Batches of 1 to 2 jobs and sets of time scales are tried in turn; for each, the factors'
    variances by damped least squares of the logarithms of IDC. Of the models that come closest, and
    have the share of gaps of 0 s, the one is taken whose drawn gaps are most like the trace's.

    Args:
        own: The trace's rate, modes and kind of factors.
        targets: IDC by span in s.
        gaps: (J - 1,) between the trace's jobs, in s.
        n_factors: Time scales of the model.
    """
    spans = sorted(targets)
    scales = np.geomspace(max(2.0, spans[0] / 4.0), spans[-1] / 2.0, 11)
    zero_gaps = float((gaps == 0).mean())
    found: list[tuple[float, ArrivalModel]] = []
    for batch in np.arange(1.0, 2.0, 0.05).tolist():
        for chosen in combinations(np.round(scales, 1).tolist(), n_factors):
            parts = tuple(Modulation(variance=0.2, scale_s=scale) for scale in chosen)
            start = own.model_copy(update={"batch_jobs": round(batch, 3), "modulations": parts})
            model = _fit_variances(start, targets)
            gap_error = _GAP_WEIGHT * np.log(_zero_gaps(model) / zero_gaps)
            found.append((float((_errors(model, targets) ** 2).sum() + gap_error**2), model))
        if batch > 1.5 * min(found, key=lambda entry: entry[0])[1].batch_jobs:
            break
    found.sort(key=lambda entry: entry[0])
    closest = [loss + _gap_loss(model, gaps) for loss, model in found[:_CANDIDATES]]
    return found[int(np.argmin(closest))][1]


def _gap_loss(model: ArrivalModel, gaps: Int) -> float:
    """Return the squared distance, in normal scores, of the shares of short, ..., long gaps."""
    horizon_s = int(_GAP_JOBS / model.rate_per_s)
    seconds = draw_arrivals(
        model, model.rate_per_s, horizon_s, DayCurve(), np.random.default_rng(0)
    )
    drawn = np.diff(seconds)
    edges = np.unique(np.quantile(gaps, (0.1, 0.5, 0.9, 0.99)))
    shares = [[(x <= edge).mean() for edge in edges] for x in (gaps, drawn)]
    wanted, has = normal_score(np.array(shares))
    return float(((wanted - has) ** 2).sum())


def _fit_variances(model: ArrivalModel, targets: dict[int, float]) -> ArrivalModel:
    x = np.log([part.variance for part in model.modulations])
    damping = 1e-2
    errors = _errors(model, targets)
    for _ in range(15):
        columns = [
            (_errors(_with(model, x + step), targets) - errors) / 1e-4
            for step in 1e-4 * np.eye(len(x))
        ]
        jacobian = np.column_stack(columns)
        matrix = jacobian.T @ jacobian + damping * np.eye(len(x))
        candidate = np.clip(x - np.linalg.solve(matrix, jacobian.T @ errors), -8.0, 3.0)
        new = _errors(_with(model, candidate), targets)
        if (new**2).sum() < (errors**2).sum():
            x, errors, damping = candidate, new, damping / 3.0
        else:
            damping *= 4.0
    return _with(model, np.array([np.log(float(f"{v:.4g}")) for v in np.exp(x)]))


def _with(model: ArrivalModel, log_variances: Float) -> ArrivalModel:
    parts = zip(model.modulations, np.exp(log_variances).tolist(), strict=True)
    return model.model_copy(
        update={"modulations": tuple(Modulation(variance=v, scale_s=p.scale_s) for p, v in parts)}
    )


def _errors(model: ArrivalModel, targets: dict[int, float]) -> Float:
    return np.log([model.dispersion(span) / idc for span, idc in targets.items()])


def _zero_gaps(model: ArrivalModel) -> float:
    """Return the share of gaps of 0 s: 1 less the seconds that are not empty, by job.

    All factors together are lognormal; the mean over them is a Gauss-Hermite sum.
    """
    sigma2 = sum(float(np.log1p(part.variance)) for part in model.modulations)
    rate = model.rate_per_s * np.exp(np.sqrt(sigma2) * _NODES - sigma2 / 2.0)
    empty = float((_WEIGHTS * np.exp(-rate / model.batch_jobs)).sum() / _WEIGHTS.sum())
    return 1.0 - (1.0 - empty) / model.rate_per_s
