"""The shape of the jobs' DAGs: how long, how wide.

A task's level is the number of tasks on the longest way to it, itself included: 1 without parents.
A job's depth is its last level, which is its critical path in tasks; its width is the number of
tasks of its fullest level. Shapes: J jobs, T tasks, P edges.
"""

from dataclasses import dataclass

import numpy as np

from marl_sched.workload.assembly import ranks
from marl_sched.workload.table import Int
from marl_sched.workload.traces.tasks import TaskTable


@dataclass(frozen=True)
class DagShape:
    """Attributes of every job and task.

    Attributes:
        depth: (J,) tasks on the critical path.
        width: (J,) tasks of the fullest level.
        n_parents: (T,).
        n_edges: (J,).
    """

    depth: Int
    width: Int
    n_parents: Int
    n_edges: Int


def dag_shape(tasks: TaskTable) -> DagShape:
    """Measure the DAGs of a task table."""
    starts = tasks.job_task_start[:-1]
    n_parents = np.diff(tasks.parent_start)
    level = task_levels(tasks)
    depth = np.maximum.reduceat(level, starts)
    # A row of all levels of all jobs, one job's after the other's.
    job = np.repeat(ranks(tasks.n_jobs), np.diff(tasks.job_task_start))  # (T,)
    first_level = np.cumsum(depth) - depth  # (J,)
    fill = np.bincount(first_level[job] + level - 1, minlength=int(depth.sum()))
    return DagShape(
        depth=depth,
        width=np.maximum.reduceat(fill, first_level),
        n_parents=n_parents,
        n_edges=np.add.reduceat(n_parents, starts),
    )


def task_levels(tasks: TaskTable) -> Int:
    """Return the level (T,) of every task."""
    n_parents = np.diff(tasks.parent_start)
    child = np.repeat(ranks(tasks.n_tasks), n_parents)  # (P,)
    first_task = np.repeat(tasks.job_task_start[:-1], np.diff(tasks.job_task_start))  # (T,)
    parent = first_task[child] + tasks.parents
    level = np.ones(tasks.n_tasks, np.int64)
    # Only children of a task that moved in the last round can still move: the DAGs have no cycle.
    while len(child):
        before = level.copy()
        np.maximum.at(level, child, level[parent] + 1)
        has_moved = (level > before)[parent]
        child, parent = child[has_moved], parent[has_moved]
    return level
