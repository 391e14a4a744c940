"""What a scheduler may know of a trace's tasks before they run: classes of the training part.

A class is (requested cpu, requested memory, number of instances), memory and number in buckets of
powers of two and four. Its statistics come from tasks that arrived in the training range only. A
class with fewer than 30 such tasks gives way to a coarser one: without memory, then cpu alone,
then all tasks. Shapes: T tasks, K classes.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from marl_sched.errors import TraceError
from marl_sched.workload.table import Float, Int
from marl_sched.workload.traces.expansion import second_moment
from marl_sched.workload.traces.tasks import MEAN, TaskTable, load_tasks

Bool = NDArray[np.bool_]

LEAST_TASKS = 30
"""Training tasks that a class needs to stand on its own."""


@dataclass(frozen=True)
class Knowledge:
    """Statistics of durations and use, a row a task of the trace or one row for all of them.

    Attributes:
        task_class: (T,) number of the class; 0 holds all tasks.
        mean_s: (T,) mean duration.
        sigma: (T,) sigma of the lognormal with the class's mean and variance.
        cpu_share: (T,) mean real use over the request.
        memory_share: (T,) likewise.
    """

    task_class: Int
    mean_s: Float
    sigma: Float
    cpu_share: Float
    memory_share: Float

    def at(self, rows: Int) -> "Knowledge":
        """Return the rows of some tasks."""
        return Knowledge(
            task_class=self.task_class[rows],
            mean_s=self.mean_s[rows],
            sigma=self.sigma[rows],
            cpu_share=self.cpu_share[rows],
            memory_share=self.memory_share[rows],
        )


@lru_cache(maxsize=12)
def learn(path: str, start_s: float, end_s: float, kind: str) -> Knowledge:
    """Return what policies know under a `duration_knowledge`: type, task-mean or none.

    Args:
        path: A task table, as in the configuration.
        start_s: Training arrivals are in [start_s, end_s).
        end_s: See start_s.
        kind: `type` the class's statistics, `task-mean` the task's own, `none` those of all tasks.

    Raises:
        TraceError: No task arrived in the training range.
    """
    tasks = load_tasks(path)
    own = _own(tasks)
    arrival = np.repeat(tasks.job_arrival_s, np.diff(tasks.job_task_start))  # (T,)
    is_training = (arrival >= start_s) & (arrival < end_s)
    if not is_training.any():
        raise TraceError(
            f"{path}: no task arrives in train_arrivals_s = [{start_s}, {end_s}), its arrivals "
            f"span [{arrival[0]}, {arrival[-1]}]"
        )
    classes = _class_statistics(_keys(tasks)[: 1 if kind == "none" else None], own, is_training)
    return replace(own, task_class=classes.task_class) if kind == "task-mean" else classes


def _class_statistics(levels: list[Int], own: Knowledge, is_training: Bool) -> Knowledge:
    """Give every task the statistics of the finest level that knows enough tasks like it.

    Every training task counts once, however many instances it has, so that no single giant speaks
    for its class; the variance holds that within the tasks and that between them.
    """
    n = len(own.mean_s)
    result = np.zeros((4, n))
    task_class = np.zeros(n, np.int64)
    second = own.mean_s**2 * np.exp(own.sigma**2)
    first_number = 0
    for level, keys in enumerate(levels):
        names, group = np.unique(keys, return_inverse=True)
        count = np.bincount(group[is_training], minlength=len(names))
        means = [
            np.bincount(group[is_training], column[is_training], len(names)) / np.maximum(1, count)
            for column in (own.mean_s, second, own.cpu_share, own.memory_share)
        ]
        is_known = (count >= (LEAST_TASKS if level else 1))[group]
        result[:, is_known] = np.array(means)[:, group[is_known]]
        task_class[is_known] = first_number + group[is_known]
        first_number += len(names)
    mean_s, second, cpu_share, memory_share = result
    sigma = np.sqrt(np.log(np.maximum(second / mean_s**2, 1.0)))
    return Knowledge(task_class, mean_s, sigma, cpu_share, memory_share)


def _own(tasks: TaskTable) -> Knowledge:
    mean_s = tasks.duration_s[:, MEAN]
    ratio = second_moment(tasks.duration_s, tasks.n_instances) / mean_s**2
    return Knowledge(
        task_class=np.zeros(len(mean_s), np.int64),
        mean_s=mean_s,
        sigma=np.sqrt(np.log(np.maximum(ratio, 1.0))),
        cpu_share=tasks.cpu_used_milli[:, 0] / tasks.cpu_milli,
        memory_share=tasks.memory_used_ppm[:, 0] / np.maximum(1, tasks.memory_ppm),
    )


def _keys(tasks: TaskTable) -> list[Int]:
    """Return the class key (T,) of every task, from the coarsest level to the finest."""
    cpu = tasks.cpu_milli
    memory = np.floor(np.log2(np.maximum(1, tasks.memory_ppm))).astype(np.int64)
    size = np.floor(np.log2(tasks.n_instances) / 2).astype(np.int64)  # powers of four
    return [np.zeros_like(cpu), cpu, (cpu << 12) | (size << 6), (cpu << 12) | (size << 6) | memory]
