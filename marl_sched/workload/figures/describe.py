"""What a trace is like: distributions of its jobs and tasks, arrivals, DAGs, correlations.

Shapes: J jobs, T tasks, R resources.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from marl_sched.workload.figures.arrival_figures import Arrivals, describe_arrivals
from marl_sched.workload.figures.dag_shape import dag_shape
from marl_sched.workload.figures.samples import Sample, rank_correlation
from marl_sched.workload.table import Float, Int
from marl_sched.workload.traces.expansion import expand_durations
from marl_sched.workload.traces.tasks import MAX, MEAN, USE_MEAN, TaskTable

TOP_SHARES = {"1%": 0.01, "10%": 0.1}
_CPU, _MEMORY = 0, 1
_MILLI = 1000.0
_MILLISECONDS = 1000.0
_MOST_POINTS = 200
"""Instances of a larger task are represented by this many."""
_CHUNK = 200_000


@dataclass(frozen=True)
class Description:
    """The figures of a trace.

    Attributes:
        n_jobs: J.
        n_tasks: T.
        n_instances: All instances of all tasks.
        n_edges: Parents of all tasks.
        first_arrival_s: Trace second of the first job.
        samples: Quantities by name; those that the trace has none of are left out.
        top_jobs: Share of the requested core-seconds that the largest 1% and 10% of the jobs have.
        arrivals: When the jobs arrive.
        dag_job_share: Share of the jobs with at least one edge.
        correlations: Spearman's over the tasks, by `A ~ B`; None: one of the two is constant.
        is_use_known: False where real use is the request throughout, which stands for unknown.
    """

    n_jobs: int
    n_tasks: int
    n_instances: int
    n_edges: int
    first_arrival_s: float
    samples: dict[str, Sample]
    top_jobs: dict[str, float]
    arrivals: Arrivals
    dag_job_share: float
    correlations: dict[str, float | None]
    is_use_known: bool

    def as_json(self) -> dict[str, Any]:
        """Return the figures as `trace info --json` prints them."""
        found = asdict(self.arrivals)
        del found["gap_s"]  # it is among the samples
        return {
            "n_jobs": self.n_jobs,
            "n_tasks": self.n_tasks,
            "n_instances": self.n_instances,
            "n_edges": self.n_edges,
            "first_arrival_s": self.first_arrival_s,
            "arrivals": found,
            "distributions": {name: sample.as_json() for name, sample in self.samples.items()},
            "core_seconds_of_top_jobs": self.top_jobs,
            "dag_job_share": self.dag_job_share,
            "rank_correlations": self.correlations,
            "is_use_known": self.is_use_known,
        }


def describe(tasks: TaskTable) -> Description:
    """Measure a task table.

    Its samples, in this order: tasks a job; instances a task; mean duration of a task; durations of
    all instances, which lie on the quantile function through the task's statistics as in an
    episode; requests of a task per instance; mean real use over request, by instances; requested
    core-seconds a job; longest over mean instance of a task; time between arrivals; depth and
    width of a job and parents of a task.
    """
    shape = dag_shape(tasks)
    arrivals = describe_arrivals(tasks)
    core_s = core_seconds(tasks)
    samples = {
        "tasks a job": Sample.of(np.diff(tasks.job_task_start)),
        "instances a task": Sample.of(tasks.n_instances),
        "task mean duration": Sample.of(tasks.duration_s[:, MEAN], unit="s"),
        "instance duration": instance_durations(tasks),
        **_resource_samples(tasks),
        "core-seconds a job": Sample.of(core_s, unit="core s"),
        "longest / mean instance": Sample.of(tasks.duration_s[:, MAX] / tasks.duration_s[:, MEAN]),
    }
    if arrivals.gap_s is not None:
        samples["gap between jobs"] = arrivals.gap_s
    samples["depth of a job"] = Sample.of(shape.depth)
    samples["width of a job"] = Sample.of(shape.width)
    samples["parents a task"] = Sample.of(shape.n_parents)
    return Description(
        n_jobs=tasks.n_jobs,
        n_tasks=tasks.n_tasks,
        n_instances=int(tasks.n_instances.sum()),
        n_edges=len(tasks.parents),
        first_arrival_s=float(tasks.job_arrival_us[0]) / 1e6,
        samples=samples,
        top_jobs={name: top_share(core_s, share) for name, share in TOP_SHARES.items()},
        arrivals=arrivals,
        dag_job_share=float((shape.n_edges > 0).mean()),
        correlations=_correlations(tasks),
        is_use_known=not np.array_equal(tasks.use[:, :, USE_MEAN], tasks.request),
    )


def job_work(tasks: TaskTable, request: Int) -> Float:
    """Return requested work (J, C) of every job: instances x mean duration x requests (T, C)."""
    seconds = tasks.n_instances * tasks.duration_s[:, MEAN]
    return np.asarray(np.add.reduceat(seconds[:, None] * request, tasks.job_task_start[:-1]))


def core_seconds(tasks: TaskTable) -> Float:
    """Return the requested core-seconds (J,) of every job."""
    return job_work(tasks, tasks.request[:, [_CPU]])[:, 0] / _MILLI


def top_share(amounts: Float, share: float) -> float:
    """Return what part of the total the largest have, `share` of their number, one at least."""
    n_top = max(1, round(share * len(amounts)))
    return float(np.sort(amounts)[-n_top:].sum() / amounts.sum())


def instance_durations(tasks: TaskTable) -> Sample:
    """Return the durations of all instances in whole ms; a task of over 200 stands for 200."""
    values, weights = [], []
    # Durations come in random order, which a sample forgets: any seed gives the same one.
    order = np.random.default_rng(0)
    for first in range(0, tasks.n_tasks, _CHUNK):
        rows = slice(first, first + _CHUNK)
        n_points = np.minimum(tasks.n_instances[rows], _MOST_POINTS)
        duration_s = expand_durations(tasks.duration_s[rows], n_points, order)
        distinct, inverse = np.unique(np.round(duration_s * _MILLISECONDS), return_inverse=True)
        values.append(distinct / _MILLISECONDS)
        weights.append(
            np.bincount(inverse, np.repeat(tasks.n_instances[rows] / n_points, n_points))
        )
    return Sample.of(np.concatenate(values), np.concatenate(weights), "s")


def _resource_samples(tasks: TaskTable) -> dict[str, Sample]:
    samples = {
        f"request {name}": Sample.of(tasks.request[:, column])
        for column, name in enumerate(tasks.resources)
    }
    for column, name in enumerate(tasks.resources):
        request = tasks.request[:, column]
        asks = request > 0
        if asks.any():
            use = tasks.use[asks, column, USE_MEAN] / request[asks]
            samples[f"use / request {name}"] = Sample.of(use, tasks.n_instances[asks])
    return samples


def _correlations(tasks: TaskTable) -> dict[str, float | None]:
    columns = {
        "cpu": tasks.request[:, _CPU],
        "memory": tasks.request[:, _MEMORY],
        "instances": tasks.n_instances,
        "duration": tasks.duration_s[:, MEAN],
    }
    pairs = (("cpu", "memory"), ("memory", "instances"), ("instances", "duration"))
    return {
        f"{first} ~ {second}": rank_correlation(columns[first], columns[second])
        for first, second in (*pairs, ("cpu", "duration"))
    }
