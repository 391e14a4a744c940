"""What a scheduler may know of a trace's tasks before they run: classes of the training part.

A class is (requested cpu, further resources, number of instances, requested memory): cpu as it
is, the others in buckets of powers of two, the number in powers of four. Its statistics come from
tasks that arrived in the training range only. A class with fewer than 30 such tasks gives way to a
coarser one: without memory, then without the number, then all tasks. Shapes: T tasks, R resources.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from marl_sched.errors import TraceError
from marl_sched.workload.table import Float, Int
from marl_sched.workload.traces.expansion import second_moment
from marl_sched.workload.traces.source import Source
from marl_sched.workload.traces.tasks import MEAN, USE_MEAN, TaskTable

Bool = NDArray[np.bool_]

LEAST_TASKS = 30
"""Training tasks that a class needs to stand on its own."""
_MICROSECONDS = 1e6
_SHARES = 1_000_000
"""Buckets of requests count millionths of the trace's largest machine."""


@dataclass(frozen=True)
class Knowledge:
    """Statistics of durations and use, a row a task of the trace or one row for all of them.

    Attributes:
        task_class: (T,) number of the class; 0 holds all tasks.
        mean_s: (T,) mean duration.
        sigma: (T,) sigma of the lognormal with the class's mean and variance.
        use_share: (T, R) mean real use over the request; 0 where nothing is requested.
    """

    task_class: Int
    mean_s: Float
    sigma: Float
    use_share: Float

    def at(self, rows: Int) -> "Knowledge":
        """Return the rows of some tasks."""
        return Knowledge(
            task_class=self.task_class[rows],
            mean_s=self.mean_s[rows],
            sigma=self.sigma[rows],
            use_share=self.use_share[rows],
        )


@lru_cache(maxsize=12)
def learn(source: Source, start_s: float, end_s: float, kind: str) -> Knowledge:
    """Return what policies know under a `duration_knowledge`: type, task-mean or none.

    Args:
        source: Where the tasks come from, as in the configuration.
        start_s: Training arrivals are in [start_s, end_s).
        end_s: See start_s.
        kind: `type` the class's statistics, `task-mean` the task's own, `none` those of all tasks.

    Raises:
        TraceError: No task arrived in the training range.
    """
    tasks = source.tasks()
    arrival_s = tasks.job_arrival_us / _MICROSECONDS
    is_training = (arrival_s >= start_s) & (arrival_s < end_s)  # (J,)
    if not is_training.any():
        raise TraceError(
            f"{source}: no task arrives in train_arrivals_s = [{start_s}, {end_s}), its arrivals "
            f"span [{arrival_s[0]:g}, {arrival_s[-1]:g}]"
        )
    return know(tasks, np.repeat(is_training, np.diff(tasks.job_task_start)), kind)


def know(tasks: TaskTable, is_training: Bool, kind: str) -> Knowledge:
    """Return what policies know of tasks, from those (T,) that are training tasks."""
    own = _own(tasks)
    classes = _class_statistics(_keys(tasks)[: 1 if kind == "none" else None], own, is_training)
    return replace(own, task_class=classes.task_class) if kind == "task-mean" else classes


def _class_statistics(levels: list[Int], own: Knowledge, is_training: Bool) -> Knowledge:
    """Give every task the statistics of the finest level that knows enough tasks like it.

    Every training task counts once, however many instances it has, so that no single giant speaks
    for its class; the variance holds that within the tasks and that between them.
    """
    n = len(own.mean_s)
    columns = (own.mean_s, own.mean_s**2 * np.exp(own.sigma**2), *own.use_share.T)
    result = np.zeros((len(columns), n))
    task_class = np.zeros(n, np.int64)
    first_number = 0
    for level, keys in enumerate(levels):
        names, group = np.unique(keys, return_inverse=True)
        count = np.bincount(group[is_training], minlength=len(names))
        means = [
            np.bincount(group[is_training], column[is_training], len(names)) / np.maximum(1, count)
            for column in columns
        ]
        is_known = (count >= (LEAST_TASKS if level else 1))[group]
        result[:, is_known] = np.array(means)[:, group[is_known]]
        task_class[is_known] = first_number + group[is_known]
        first_number += len(names)
    mean_s, second, *shares = result
    sigma = np.sqrt(np.log(np.maximum(second / mean_s**2, 1.0)))
    return Knowledge(task_class, mean_s, sigma, np.column_stack(shares))


def _own(tasks: TaskTable) -> Knowledge:
    mean_s = tasks.duration_s[:, MEAN]
    ratio = second_moment(tasks.duration_s, tasks.n_instances) / mean_s**2
    return Knowledge(
        task_class=np.zeros(len(mean_s), np.int64),
        mean_s=mean_s,
        sigma=np.sqrt(np.log(np.maximum(ratio, 1.0))),
        use_share=np.where(
            tasks.request > 0, tasks.use[:, :, USE_MEAN] / np.maximum(1, tasks.request), 0.0
        ),
    )


def _keys(tasks: TaskTable) -> list[Int]:
    """Return the class key (T,) of every task, from the coarsest level to the finest."""
    largest = np.where(tasks.reference > 0, tasks.reference, tasks.request.max(0, initial=1))
    share = np.round(tasks.request * (_SHARES / largest))
    bucket = np.floor(np.log2(np.maximum(1.0, share))).astype(np.int64)  # (T, R)
    bucket[tasks.request == 0] = -1
    size = np.floor(np.log2(tasks.n_instances) / 2).astype(np.int64)  # powers of four
    first = np.column_stack([tasks.request[:, 0], bucket[:, 2:]])
    levels = [np.zeros((len(size), 1), np.int64), first]
    levels.append(np.column_stack([first, size]))
    levels.append(np.column_stack([first, size, bucket[:, 1]]))
    return [_numbered(level) for level in levels]


def _numbered(rows: Int) -> Int:
    """Return the number (T,) of each row (T, C) among the distinct ones, in ascending order."""
    _, number = np.unique(rows, axis=0, return_inverse=True)
    return number.reshape(len(rows)).astype(np.int64)
