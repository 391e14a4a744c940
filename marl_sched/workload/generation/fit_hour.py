"""The published files of Alibaba's v2018 that the generator is fitted to, in its units.

Shapes: T tasks of the hour, J its jobs.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from marl_sched.workload.assembly import offsets
from marl_sched.workload.generation.calibration import (
    DURATION,
    MIDDLE,
    PEAK,
    SPREAD,
    TAIL,
    USE,
    Published,
)
from marl_sched.workload.generation.fit_dags import JobShape, job_shape
from marl_sched.workload.generation.fit_margins import Histogram
from marl_sched.workload.generation.margins import weighted_quantiles
from marl_sched.workload.table import Float, Int

CPU_USE, MEMORY_USE = f"{USE}cpu_milli", f"{USE}memory_mib"
CPU_PEAK, MEMORY_PEAK = f"{PEAK}cpu_milli", f"{PEAK}memory_mib"
SHARES = (0.001, 0.01, 0.05, *np.round(np.arange(0.1, 0.96, 0.05), 2).tolist(), 0.975, 0.99, 0.999)
_CPU_MILLI, _MEMORY_MIB = 10.0, 3932.16
"""Of a hundredth of a core, and of 1% of the largest machine's memory."""
_SHORTEST_S, _LEAST_CPU_MILLI, _LEAST_MEMORY_MIB = 1.0, 1.0, 4.0
"""What the trace gives as 0 is taken for these."""


@dataclass(frozen=True)
class Quantity:
    """A quantity with a histogram.

    Attributes:
        key: Of the histogram.
        step: Measuring step, in the histogram's unit.
        unit: What the generator gives it in.
        factor: That unit over the histogram's.
        smallest: Floor, in the generator's unit.
    """

    key: str
    step: float
    unit: str
    factor: float
    smallest: float = 0.0


QUANTITIES = {
    "n_tasks": Quantity("task_num", 1.0, "tasks of a job", 1.0),
    "n_instances": Quantity("instance_num", 1.0, "instances of a task", 1.0),
    "cpu_milli": Quantity("task_cpu", 1.0, "milli-cores an instance, over tasks", 10.0),
    "memory_mib": Quantity("task_mem", 0.01, "MiB an instance, over tasks", 3932.16),
    DURATION: Quantity("instance_duration", 1.0, "s, over instances; at least 1", 1.0, 1.0),
    CPU_USE: Quantity("instance_cpu", 1.0, "milli-cores, over instances", 10.0, 1.0),
    MEMORY_USE: Quantity("instance_mem", 0.01, "MiB, over instances", 3932.16, 4.0),
    "gap_s": Quantity("job_interval", 1.0, "s between jobs", 1.0),
}


def histogram(histograms: dict[str, Any], name: str) -> Histogram:
    """Return a quantity's histogram, in its published unit."""
    table = histograms[QUANTITIES[name].key]
    return Histogram(np.array(table["v"], float), np.array(table["c"], float))


@dataclass(frozen=True)
class Hour:
    """The hour's tasks: columns (T,) in the generator's units, statistics for the expansion."""

    job: Int
    names: list[str]
    arrival_s: Int
    columns: dict[str, Float]
    duration_s: Float
    cpu_use: Float
    memory_use: Float

    def shapes(self) -> list[JobShape]:
        """Return the jobs' DAGs."""
        bounds = offsets(np.bincount(self.job)).tolist()
        return [job_shape(self.names[start:end]) for start, end in pairwise(bounds)]


def read_hour(path: Path) -> Hour:
    """Read `tasks_with_instance_stats.csv.gz`: one row a task, jobs made whole."""
    rows = pl.read_csv(path, schema_overrides={"arrive": pl.Int64})
    rows = rows.with_columns(number=pl.col("job").rank("dense")).sort(
        "arrive", "number", maintain_order=True
    )
    job = rows["job"].rle_id().to_numpy().astype(np.int64)

    def column(name: str) -> Float:
        return rows[name].cast(pl.Float64).to_numpy()

    duration_s = np.column_stack(
        [np.maximum(column(f"dur_{name}"), 1.0) for name in ("mean", "p50", "p95", "max")]
    )
    cpu = np.maximum(
        np.column_stack([column(f"cpu_avg_{name}") for name in ("mean", "max")]) * _CPU_MILLI,
        1.0,
    )
    memory = np.maximum(
        np.column_stack([column(f"mem_avg_{name}") for name in ("mean", "max")]) * _MEMORY_MIB,
        4.0,
    )
    mean, p50, p95, top = duration_s.T
    columns = {
        "n_instances": column("inst_num"),
        "cpu_milli": column("plan_cpu") * _CPU_MILLI,
        "memory_mib": column("plan_mem") * _MEMORY_MIB,
        DURATION: mean,
        CPU_USE: cpu[:, 0],
        MEMORY_USE: memory[:, 0],
        SPREAD: np.maximum(top / mean, 1.0),
        TAIL: np.clip((p95 - mean) / np.maximum(top - mean, 1e-9), 0.0, 1.0),
        MIDDLE: p50 / mean,
        CPU_PEAK: np.maximum(cpu[:, 1] / cpu[:, 0], 1.0),
        MEMORY_PEAK: np.maximum(memory[:, 1] / memory[:, 0], 1.0),
    }
    first = np.flatnonzero(np.diff(job, prepend=-1))
    return Hour(
        job,
        rows["task"].to_list(),
        rows["arrive"].to_numpy()[first],
        columns,
        duration_s,
        cpu,
        memory,
    )


def published(histograms: dict[str, Any], name: str) -> Published:
    """Return a quantity's quantiles, in the generator's unit."""
    quantity, found = QUANTITIES[name], histogram(histograms, name)
    values = weighted_quantiles(found.values, found.counts, np.array(SHARES)) * quantity.factor
    return Published(
        unit=quantity.unit,
        step=quantity.step * quantity.factor,
        shares=SHARES,
        quantiles=tuple(float(f"{v:.5g}") for v in np.maximum(values, quantity.smallest)),
    )
