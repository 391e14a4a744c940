"""Fit the generator to Alibaba's OpenB 2023: pods of one instance, a third of them sharing a GPU.

Classes are by GPUs: none, a fraction of one, one, several. Within a class requests and priority are
drawn together, as the shapes that occur, and run times by rank correlation with them. Pods that
were never scheduled count for the shapes, not for the run times. Arrivals are those of the 34 days
that hold all but 27 pods. Shapes: P pods, R resources, C columns.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from marl_sched.workload.generation.arrivals import ArrivalModel
from marl_sched.workload.generation.calibration import (
    DURATION,
    SHAPE,
    Calibration,
    DagModel,
    Published,
    TaskClass,
)
from marl_sched.workload.generation.comparison import dispersion
from marl_sched.workload.generation.fit_arrivals import fit_arrivals, modes
from marl_sched.workload.generation.fit_hour import SHARES
from marl_sched.workload.generation.fit_margins import latent_correlation
from marl_sched.workload.generation.margins import (
    LAST_SCORE,
    Margin,
    curve_margin,
    normal_score,
    rank_correlation,
    steps_margin,
    weighted_quantiles,
)
from marl_sched.workload.raw.alibaba.openb import PRIORITIES
from marl_sched.workload.table import Float, Int

RESOURCES = ("cpu_milli", "memory_mib", "gpu_milli")
REFERENCE = {"cpu_milli": 128_000, "memory_mib": 1_048_576, "gpu_milli": 8_000}
CLASSES = ("no GPU", "fraction of a GPU", "one GPU", "several GPUs")
SPANS_S = (10, 60, 600, 3600, 21_600)
_BULK_START_S = 9_940_000
_SOURCE = (
    "Alibaba cluster-trace-gpu-v2023 (OpenB), openb_pod_list_default.csv, 8,152 pods; "
    "research use, Apache-2.0 by hkust-adsl/kubernetes-scheduler-simulator"
)
_METHOD = "python -m marl_sched.workload.generation.fit openb PODS.csv OUT.json"


@dataclass(frozen=True)
class _Pods:
    """The published list.

    Attributes:
        rows: (P, R + 1) requests, and priority.
        run_s: (P,) from scheduling to deletion; NaN where never scheduled.
        created: (P',) seconds of the arrivals of the bulk, from 0 on, ascending.
    """

    rows: Int
    run_s: Float
    created: Int


def fit_openb(path: Path) -> Calibration:
    """Return the calibration of the published list of pods."""
    pods = _read(path)
    rows, run_s = pods.rows, pods.run_s
    kind = np.searchsorted([0, 999, 1000], rows[:, 2])
    shapes, shape = _shapes(rows)
    share = np.bincount(kind) / len(kind)
    has_run = ~np.isnan(run_s)
    length_s = int(pods.created[-1]) + 1
    gaps = np.diff(pods.created)
    targets = {span: dispersion(pods.created, span, length_s) for span in SPANS_S}
    own = ArrivalModel(
        rate_per_s=float(f"{1.0 / gaps.mean():.4g}"),
        batch_jobs=1.0,
        modulations=(),
        factors="gamma",
        modes=modes(pods.created, length_s),
    )
    one = Margin(kind="steps", values=(1.0,), scores=(LAST_SCORE,))
    return Calibration(
        name="openb",
        source=_SOURCE,
        method=_METHOD,
        reference=REFERENCE,
        arrivals=fit_arrivals(own, targets, gaps, n_factors=3),
        dag=DagModel(n_tasks=one, critical_path=(), extra_level=(), n_children=()),
        n_instances=one,
        classes=tuple(
            _class(place, share, shape[kind == place], run_s[kind == place])
            for place in range(len(CLASSES))
        ),
        alike_size=0.0,
        alike={SHAPE: 0.0, DURATION: 0.0},
        shapes=tuple(tuple(row) for row in shapes.tolist()),
        published=_quantities(rows, run_s[has_run], gaps),
        dispersion={span: round(value, 3) for span, value in targets.items()},
        correlations=_correlations(rows[has_run], run_s[has_run]),
        stragglers={},
    )


def _read(path: Path) -> _Pods:
    pods = pl.read_csv(path).with_columns(
        gpu=pl.col("num_gpu") * pl.col("gpu_milli"),
        priority=pl.col("qos").replace_strict(PRIORITIES, default=0, return_dtype=pl.Int64),
        run_s=(pl.col("deletion_time") - pl.col("scheduled_time")).clip(1).cast(pl.Float64),
    )
    created = np.sort(pods["creation_time"].to_numpy())
    created = created[created >= _BULK_START_S]
    rows = pods.select("cpu_milli", "memory_mib", "gpu", "priority").to_numpy().astype(np.int64)
    return _Pods(rows, pods["run_s"].to_numpy(), created - created[0])


def _shapes(rows: Int) -> tuple[Int, Float]:
    """Return the distinct rows (S, R + 1), by priority, cpu, memory and GPU; each pod's (P,)."""
    ordered, number = np.unique(rows[:, [3, 0, 1, 2]], axis=0, return_inverse=True)
    return ordered[:, [1, 2, 3, 0]], number.ravel().astype(float)


def _quantities(rows: Int, run_s: Float, gaps: Int) -> dict[str, Published]:
    found = (
        ("cpu_milli", "milli-cores", rows[:, 0]),
        ("memory_mib", "MiB", rows[:, 1]),
        ("gpu_milli", "thousandths of a GPU", rows[:, 2]),
        (DURATION, "s from scheduling to deletion", run_s),
        ("gap_s", "s between pods", gaps),
    )
    return {name: _published(unit, values) for name, unit, values in found}


def _class(place: int, share: Float, shape: Float, run_s: Float) -> TaskClass:
    values, counts = np.unique(shape, return_counts=True)
    has_run = ~np.isnan(run_s)
    margins = {
        SHAPE: steps_margin(values, counts.astype(float)),
        DURATION: curve_margin("log", run_s[has_run], np.ones(int(has_run.sum()))),
    }
    columns = np.column_stack([shape, run_s])[has_run]
    latent = latent_correlation(columns, list(margins.values()))
    upper = (
        LAST_SCORE if place == len(share) - 1 else normal_score(np.array(share[: place + 1].sum()))
    )
    return TaskClass(
        name=CLASSES[place],
        upper_score=round(float(upper), 4),
        margins=margins,
        mixing=tuple(tuple(float(f"{v:.4g}") for v in row) for row in np.linalg.cholesky(latent)),
    )


def _published(unit: str, values: Int | Float) -> Published:
    quantiles = weighted_quantiles(values.astype(float), np.ones(len(values)), np.array(SHARES))
    return Published(
        unit=unit, step=1.0, shares=SHARES, quantiles=tuple(float(f"{v:.5g}") for v in quantiles)
    )


def _correlations(rows: Int, run_s: Float) -> dict[str, float]:
    names = [*RESOURCES, "priority", DURATION]
    matrix = rank_correlation(np.column_stack([rows, run_s]))
    return {
        f"{a} ~ {b}": round(float(matrix[i, j]), 3)
        for i, a in enumerate(names)
        for j, b in enumerate(names[:i])
    }
