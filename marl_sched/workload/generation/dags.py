"""Which tasks a job has and what they wait for.

A job draws its number of tasks, its critical path D, and a level for every task: each level has one
at least, so a way of D tasks exists, and no longer one can, because edges go to later levels only.
Tasks of one level are spread over those of the next as evenly as they go: tasks that none is left
for have no parents. A few have more children, anywhere in the levels below.
Shapes: J jobs, T tasks, P edges.
"""

from dataclasses import dataclass

import numpy as np

from marl_sched.workload.assembly import offsets, positions, ranks
from marl_sched.workload.generation.calibration import DagModel
from marl_sched.workload.table import Float, Int


@dataclass(frozen=True)
class Dags:
    """Jobs' tasks, in an order that puts parents before their children.

    Attributes:
        n_tasks: (J,).
        critical_path: (J,) tasks on the longest way through the job.
        level: (T,) 1 .. critical path.
        n_parents: (T,).
        parents: (P,) position of each parent within the job.
    """

    n_tasks: Int
    critical_path: Int
    level: Int
    n_parents: Int
    parents: Int


def draw_dags(model: DagModel, n_jobs: int, generator: np.random.Generator) -> Dags:
    """Draw the DAGs of some jobs."""
    n_tasks = model.n_tasks.at(generator.standard_normal(n_jobs)).astype(np.int64)
    depth = _critical_paths(model, n_tasks, generator)
    level = _levels(model, n_tasks, depth, generator)
    child, parent = _edges(model, n_tasks, depth, level, generator)
    first_task = np.repeat(offsets(n_tasks)[:-1], n_tasks)  # (T,)
    return Dags(
        n_tasks=n_tasks,
        critical_path=depth,
        level=level,
        n_parents=np.bincount(child, minlength=len(level)),
        parents=parent - first_task[parent],
    )


def _critical_paths(model: DagModel, n_tasks: Int, generator: np.random.Generator) -> Int:
    depth = np.ones(len(n_tasks), np.int64)
    score = generator.standard_normal(len(n_tasks))
    row = np.minimum(n_tasks, len(model.critical_path) + 1) - 2
    for number, margin in enumerate(model.critical_path):
        jobs = np.flatnonzero(row == number)
        depth[jobs] = margin.at(score[jobs])
    return np.minimum(depth, n_tasks)


def _levels(model: DagModel, n_tasks: Int, depth: Int, generator: np.random.Generator) -> Int:
    """Return (T,) levels, ascending within each job."""
    once = positions(depth) + 1  # one task of each level
    n_extra = n_tasks - depth
    extra_depth = np.repeat(depth, n_extra)
    uniform = generator.random(len(extra_depth))
    extra = _pick(_cumulative(((1.0,), *model.extra_level)), extra_depth - 1, uniform) + 1
    beyond = extra_depth > len(model.extra_level) + 1
    extra[beyond] = (uniform[beyond] * extra_depth[beyond]).astype(np.int64) + 1
    job = np.concatenate(
        [np.repeat(ranks(len(depth)), depth), np.repeat(ranks(len(depth)), n_extra)]
    )
    base = int(depth.max(initial=0)) + 1
    return np.sort(job * base + np.concatenate([once, extra])) % base


def _edges(
    model: DagModel, n_tasks: Int, depth: Int, level: Int, generator: np.random.Generator
) -> tuple[Int, Int]:
    """Return child and parent (P,), as rows of the tasks, in the order of the children."""
    n = len(level)
    job = np.repeat(ranks(len(n_tasks)), n_tasks)
    level_row = offsets(depth)[job] + level - 1  # (T,) number of the level, over all jobs
    width = np.bincount(level_row, minlength=int(depth.sum()))  # (levels,)
    start = offsets(width)[:-1]
    parent = np.flatnonzero(level < depth[job])
    here = level_row[parent]
    place = parent - start[here]
    child = start[here + 1] + place * width[here + 1] // width[here]
    below = depth[job[parent]] - level[parent]
    n_more = _pick(
        _cumulative(model.n_children),
        np.minimum(below, len(model.n_children)) - 1,
        generator.random(len(parent)),
    )
    more_parent = np.repeat(parent, n_more)
    lowest = np.repeat(start[here + 1], n_more)
    end = offsets(n_tasks)[1:][job[more_parent]]
    more_child = lowest + (generator.random(len(lowest)) * (end - lowest)).astype(np.int64)
    key = np.concatenate([child, more_child]) * max(1, n) + np.concatenate([parent, more_parent])
    key.sort(kind="stable")  # two ascending runs, nearly
    return np.divmod(key[np.diff(key, prepend=-1) > 0], max(1, n))


def _cumulative(rows: tuple[tuple[float, ...], ...]) -> Float:
    """Return shares (rows, longest row) summed along each row; 1 from its end on."""
    table = np.zeros((len(rows), max((len(row) for row in rows), default=0)))
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    summed = table.cumsum(axis=1)
    for number, row in enumerate(rows):
        summed[number, len(row) - 1 :] = 1.0
    return summed


def _pick(cumulative: Float, row: Int, uniform: Float) -> Int:
    """Return the column (N,) that a uniform number (N,) falls into, in a row (N,) each."""
    row = np.minimum(row, len(cumulative) - 1)
    flat = (cumulative + ranks(len(cumulative))[:, None]).ravel()
    below_one = np.minimum(uniform, 1.0 - 1e-9)  # else row + uniform could round up to row + 1
    found = np.searchsorted(flat, row + below_one, side="right")
    return np.asarray(found - row * cumulative.shape[1])
