"""Fit the jobs' DAGs: sizes and levels from the histograms, children from the hour.

A task's level counts from the end of its job, as the published histogram does: it is the critical
path less the longest way to a leaf. (Counted from the start, the hour has 36% of the tasks of a job
of four levels in the first; counted from the end 26%, and the histogram has 24%.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marl_sched.workload.generation.calibration import DagModel
from marl_sched.workload.generation.margins import steps_margin
from marl_sched.workload.raw.names import parse_task_name
from marl_sched.workload.table import Float, Int

_MOST_CHILDREN = 6


@dataclass(frozen=True)
class JobShape:
    """One job's DAG.

    Attributes:
        parents: Rows of each task's parents.
        level: Of each task, from 1.
    """

    parents: list[list[int]]
    level: list[int]


def job_shape(names: Sequence[str]) -> JobShape:
    """Read a job's DAG from its tasks' names; parents that it does not have are left out."""
    parsed = [parse_task_name(name) for name in names]
    row_of = {name.number: row for row, name in enumerate(parsed) if name.number is not None}
    parents = [[row_of[number] for number in name.parents if number in row_of] for name in parsed]
    to_leaf = _longest_ways(parents)
    depth = max(to_leaf)
    return JobShape(parents, [depth + 1 - steps for steps in to_leaf])


def fit_dags(histograms: dict[str, Any], jobs: Sequence[JobShape]) -> DagModel:
    """Return the model of the histograms `task_num`, `cpl`, `level` and of the hour's jobs."""
    sizes, counts = _columns(histograms["task_num"])
    paths = {int(size): _columns(table) for size, table in histograms["cpl"].items()}
    levels = {int(depth): _columns(table)[1] for depth, table in histograms["level"].items()}
    mean_size = _mean_sizes(sizes, counts / counts.sum(), paths)
    extra = []
    for depth in range(2, max(levels) + 1):
        share = levels[depth][:depth] / levels[depth][:depth].sum()
        beyond = np.maximum(share * mean_size[depth] - 1.0, 0.0)  # one of each level is given
        extra.append(_shares(beyond if beyond.sum() > 0 else np.ones(depth)))
    return DagModel(
        n_tasks=steps_margin(sizes, counts),
        critical_path=tuple(steps_margin(*paths[size]) for size in range(2, max(paths) + 1)),
        extra_level=tuple(extra),
        n_children=_children(jobs),
    )


def _longest_ways(parents: list[list[int]]) -> list[int]:
    """Return the number of tasks on each task's longest way to a leaf, itself included."""
    longest = [1] * len(parents)
    for _ in parents:  # as many rounds as the longest way has tasks
        changed = False
        for row, above in enumerate(parents):
            for parent in above:
                if longest[parent] <= longest[row]:
                    longest[parent], changed = longest[row] + 1, True
        if not changed:
            break
    return longest


def _columns(table: dict[str, list[float]]) -> tuple[Float, Float]:
    return np.array(table["v"], float), np.array(table["c"], float)


def _mean_sizes(sizes: Float, share: Float, paths: dict[int, tuple[Float, Float]]) -> Float:
    """Return the mean number of tasks of jobs by their critical path."""
    jobs, tasks = np.zeros(int(sizes[-1]) + 2), np.zeros(int(sizes[-1]) + 2)
    for size, weight in zip(sizes.astype(int).tolist(), share.tolist(), strict=True):
        if size < min(paths):
            continue
        depth, counts = paths[min(size, max(paths))]
        capped = np.minimum(depth, size).astype(int)
        np.add.at(jobs, capped, weight * counts / counts.sum())
        np.add.at(tasks, capped, size * weight * counts / counts.sum())
    return np.asarray(tasks / np.maximum(jobs, 1e-300))


def _children(jobs: Sequence[JobShape]) -> tuple[tuple[float, ...], ...]:
    """Return the shares of 1, 2, ... children by the number of levels below, of the hour."""
    seen: Int = np.zeros((_MOST_CHILDREN, _MOST_CHILDREN), np.int64)
    for job in jobs:
        n_children = np.bincount(
            np.array([p for row in job.parents for p in row], np.int64), minlength=len(job.level)
        )
        below = max(job.level) - np.array(job.level)
        inner = below > 0
        np.add.at(
            seen,
            (
                np.minimum(below[inner], _MOST_CHILDREN) - 1,
                np.minimum(n_children[inner], _MOST_CHILDREN) - 1,
            ),
            1,
        )
    return tuple(_shares(row) for row in seen if row.sum())


def _shares(weights: Float) -> tuple[float, ...]:
    return tuple(float(f"{value:.4g}") for value in weights / weights.sum())
