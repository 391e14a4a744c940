"""Compare generated jobs with the published figures they are calibrated to.

Shapes: J jobs, T tasks, N instances, S shares.
"""

from dataclasses import dataclass

import numpy as np

from marl_sched.config import MICROSECONDS
from marl_sched.workload.assembly import ranks
from marl_sched.workload.generation.calibration import DURATION, USE, Calibration
from marl_sched.workload.generation.margins import rank_correlation, weighted_quantiles
from marl_sched.workload.table import Float, Int
from marl_sched.workload.traces.expansion import expand_durations, expand_use
from marl_sched.workload.traces.tasks import MAX, MEAN, USE_MEAN, TaskTable


@dataclass(frozen=True)
class Sample:
    """Values (N,) of a quantity and their weights (N,)."""

    values: Float
    weights: Float

    def quantiles(self, shares: Float) -> Float:
        """Return the values (S,) that the shares (S,) of the weight lie at or below."""
        return weighted_quantiles(self.values, self.weights, shares)


def samples(
    table: TaskTable, generator: np.random.Generator, most_instances: int = 32
) -> dict[str, Sample]:
    """Return what a table holds of every published quantity, by the calibration's names.

    Durations and use are over instances. Of a large task `most_instances` are expanded, each with
    the weight of several: they lie at evenly spread quantiles of the task, as all would.
    """
    counts = np.minimum(table.n_instances, most_instances)
    weights = np.repeat(table.n_instances / counts, counts)
    durations = expand_durations(table.duration_s, counts, generator)
    found = {
        "n_tasks": _equal(np.diff(table.job_task_start)),
        "n_instances": _equal(table.n_instances),
        DURATION: Sample(durations, weights),
        "gap_s": _equal(np.diff(table.job_arrival_us) / MICROSECONDS),
    }
    for number, name in enumerate(table.resources):
        found[name] = _equal(table.request[:, number])
        use = expand_use(table.use[:, number], counts, generator)
        found[f"{USE}{name}"] = Sample(use, weights)
    return found


def quantile_table(
    calibration: Calibration, found: dict[str, Sample], shares: tuple[float, ...]
) -> list[tuple[str, float, float, float]]:
    """Return (quantity, share, published, generated) of every published quantity."""
    rows = []
    for name, published in calibration.published.items():
        generated = found[name].quantiles(np.array(shares)).tolist()
        wanted = [published.quantiles[published.shares.index(share)] for share in shares]
        rows += [(name, *row) for row in zip(shares, wanted, generated, strict=True)]
    return rows


def correlations(table: TaskTable) -> dict[str, float]:
    """Return Spearman's correlations over the tasks, by the calibration's keys."""
    columns = {
        "n_instances": table.n_instances,
        "priority": table.priority,
        DURATION: table.duration_s[:, MEAN],
    }
    for number, name in enumerate(table.resources):
        columns[name] = table.request[:, number]
        columns[f"{USE}{name}"] = table.use[:, number, USE_MEAN]
    matrix = rank_correlation(np.column_stack(list(columns.values())).astype(float))
    return {
        f"{a} ~ {b}": float(matrix[i, j])
        for i, a in enumerate(columns)
        for j, b in enumerate(columns)
        if i != j
    }


def dispersion(seconds: Int, span_s: int, length_s: int) -> float:
    """Return variance over mean of the counts in spans of a trace of some length, from 0 on."""
    n = length_s // span_s
    counts = np.bincount(seconds[seconds < n * span_s] // span_s, minlength=n)
    return float(counts.var() / counts.mean())


def stragglers(table: TaskTable, shares: tuple[float, ...]) -> Float:
    """Return quantiles (S,) of longest over mean instance of the tasks."""
    return np.quantile(table.duration_s[:, MAX] / table.duration_s[:, MEAN], shares)


def critical_paths(table: TaskTable) -> Int:
    """Return the number of tasks (J,) on each job's longest way; parents precede children."""
    n_tasks = np.diff(table.job_task_start)
    first_task = np.repeat(table.job_task_start[:-1], n_tasks)
    child = np.repeat(ranks(table.n_tasks), np.diff(table.parent_start))
    parent = first_task[child] + table.parents
    depth = np.ones(table.n_tasks, np.int64)
    while True:
        longer = depth.copy()
        np.maximum.at(longer, child, depth[parent] + 1)
        if np.array_equal(longer, depth):
            return np.maximum.reduceat(depth, table.job_task_start[:-1])
        depth = longer


def _equal(values: Int | Float) -> Sample:
    return Sample(values.astype(float), np.ones(len(values)))
