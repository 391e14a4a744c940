"""Fit the generator to Alibaba's v2018: histograms of eight days, statistics of one hour's tasks.

Margins are the eight days'; what ties quantities together (sizes, spread within a task, jobs'
likeness, children) is the hour's. Requests are per task, durations and use per instance, as
published. Shapes: T tasks of the hour.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from marl_sched.workload.generation.arrivals import ArrivalModel
from marl_sched.workload.generation.calibration import SPREAD, Calibration
from marl_sched.workload.generation.comparison import dispersion
from marl_sched.workload.generation.fit_arrivals import fit_arrivals, modes
from marl_sched.workload.generation.fit_classes import (
    LARGEST,
    MATCHED,
    REQUESTS,
    SPREADS,
    fit_classes,
)
from marl_sched.workload.generation.fit_dags import fit_dags
from marl_sched.workload.generation.fit_hour import QUANTITIES, histogram, published, read_hour
from marl_sched.workload.generation.fit_margins import alike_factors, within_jobs
from marl_sched.workload.generation.margins import integers_margin, rank_correlation

SPANS_S = (1, 10, 60, 300)
STRAGGLER_SHARES = (0.5, 0.9, 0.99)
REFERENCE = {"cpu_milli": 96_000, "memory_mib": 393_216}
_HOUR_S = 3600
_SOURCE = (
    "Alibaba cluster-trace-v2018 (research use), by the histograms and the sample hour of the "
    "package spar 0.0.7 (MIT): Tian, Zheng, Wang, SoCC 2019, doi 10.1145/3357223.3362710"
)
_METHOD = (
    "python -m marl_sched.workload.generation.fit alibaba-v2018 HISTOGRAMS.json.gz "
    "TASKS_WITH_STATS.csv.gz OUT.json; margins from the histograms of eight days; dispersion, "
    "correlations, spread and children from the sample hour"
)


def fit_alibaba(histogram_path: Path, task_path: Path) -> Calibration:
    """Return the calibration of the published files."""
    with gzip.open(histogram_path) as file:
        histograms: dict[str, Any] = json.load(file)
    hour = read_hour(task_path)
    sizes = histogram(histograms, "n_instances")
    n_instances = integers_margin(sizes.values, sizes.counts, LARGEST)
    classes = fit_classes(histograms, hour, n_instances)
    names = [*REQUESTS, *MATCHED, *SPREADS]
    alike = alike_factors(
        [np.array(part.mixing) for part in classes],
        np.bincount(np.searchsorted(LARGEST, hour.columns["n_instances"])) / len(hour.names),
        np.array([within_jobs(hour.columns[name], hour.job) for name in names]),
    )
    arrivals = {span: dispersion(hour.arrival_s, span, _HOUR_S) for span in SPANS_S}
    gaps = histogram(histograms, "gap_s")
    start = ArrivalModel(
        rate_per_s=float(f"{gaps.counts.sum() / (gaps.values @ gaps.counts):.4g}"),
        batch_jobs=1.0,
        modulations=(),
        modes=modes(hour.arrival_s, _HOUR_S),
    )
    own = ["n_instances", *REQUESTS, *MATCHED]
    correlation = rank_correlation(np.column_stack([hour.columns[name] for name in own]))
    return Calibration(
        name="alibaba-v2018",
        source=_SOURCE,
        method=_METHOD,
        reference=REFERENCE,
        arrivals=fit_arrivals(
            start, arrivals, np.repeat(gaps.values, gaps.counts.astype(np.int64)).astype(np.int64)
        ),
        dag=fit_dags(histograms, hour.shapes()),
        n_instances=n_instances,
        classes=classes,
        alike_size=round(within_jobs(hour.columns["n_instances"], hour.job), 3),
        alike={name: round(float(v), 3) for name, v in zip(names, alike, strict=True)},
        published={name: published(histograms, name) for name in QUANTITIES},
        dispersion={span: round(value, 2) for span, value in arrivals.items()},
        correlations={
            f"{a} ~ {b}": round(float(correlation[i, j]), 3)
            for i, a in enumerate(own)
            for j, b in enumerate(own[:i])
        },
        stragglers={
            str(share): round(float(np.quantile(hour.columns[SPREAD], share)), 3)
            for share in STRAGGLER_SHARES
        },
    )
