"""From a task's statistics to its instances.

A trace gives a task's mean, median, 95th percentile and maximum; the instances lie on the
piecewise linear quantile function through them, rescaled to the task's mean. Shapes: T tasks, N
instances, contiguous by task.
"""

import numpy as np

from marl_sched.workload.assembly import offsets, positions, ranks
from marl_sched.workload.table import Float, Int
from marl_sched.workload.traces.tasks import MAX, MEAN, P50, P95


def expand_durations(statistics_s: Float, counts: Int, generator: np.random.Generator) -> Float:
    """Return the durations (N,) of all instances in s, in random order within each task.

    Instance i of n is the quantile i / (n - 1), so the maximum is met, as numpy's percentiles have
    it. The quantile 0, which traces do not give, is set so that the task's mean is met; where that
    would take it out of [1 s, median], the whole task is rescaled. One instance has the mean.

    Args:
        statistics_s: (T, 4) mean, p50, p95 and maximum.
        counts: (T,) instances, >= 1.
        generator: Shuffles the instances: their order in the queue says nothing of their length.
    """
    if not len(counts):
        return np.zeros(0)
    task = np.repeat(ranks(len(counts)), counts)  # (N,)
    starts = offsets(counts)[:-1]
    share = positions(counts) / np.maximum(1, counts - 1)[task]
    mean, p50, p95, top = (statistics_s[:, i] for i in (MEAN, P50, P95, MAX))
    upper = np.where(
        share < 0.95,
        p50[task] + (share - 0.5) / 0.45 * (p95 - p50)[task],
        p95[task] + (share - 0.95) / 0.05 * (top - p95)[task],
    )
    lowest_weight = np.maximum(0.0, 1.0 - share / 0.5)
    known = np.where(share < 0.5, share / 0.5 * p50[task], upper)
    missing = counts * mean - np.add.reduceat(known, starts)
    lowest = np.clip(missing / np.add.reduceat(lowest_weight, starts), np.minimum(1.0, p50), p50)
    duration = known + lowest_weight * lowest[task]
    duration *= (counts * mean / np.add.reduceat(duration, starts))[task]
    return duration[_shuffled(task, generator)]


def expand_use(statistics: Float, counts: Int, generator: np.random.Generator) -> Float:
    """Return the real use (N,) of all instances of tasks with a known mean and maximum (T, 2).

    Use is maximum x u^k at u = (i + .5) / n, with k = maximum / mean - 1 so that its mean is the
    task's (rescaled for few instances); one instance has the mean. In random order, not that of
    the durations: the trace's statistics do not tie the two.
    """
    if not len(counts):
        return np.zeros(0)
    task = np.repeat(ranks(len(counts)), counts)  # (N,)
    mean, top = statistics[:, 0], statistics[:, 1]
    power = np.maximum(0.0, top / np.maximum(mean, 1e-9) - 1.0)
    use = ((positions(counts) + 0.5) / counts[task]) ** power[task]
    means = np.add.reduceat(use, offsets(counts)[:-1]) / counts
    use *= (mean / np.maximum(means, 1e-300))[task]
    return use[_shuffled(task, generator)]


def second_moment(statistics_s: Float, counts: Int) -> Float:
    """Return the mean squared duration (T,) in s^2 of the continuous form of the quantile function.

    Segments of width w between quantiles a and b add w (a^2 + ab + b^2) / 3.
    """
    mean, p50, p95, top = (statistics_s[:, i] for i in (MEAN, P50, P95, MAX))
    known = 0.225 * (p50 + p95) + 0.025 * (p95 + top)
    lowest = np.clip((mean - known) / 0.25 - p50, np.minimum(1.0, p50), p50)
    total = np.zeros(len(mean))
    for width, a, b in ((0.5, lowest, p50), (0.45, p50, p95), (0.05, p95, top)):
        total += width * (a * a + a * b + b * b) / 3.0
    scale = mean / (0.25 * (lowest + p50) + known)
    return np.where(counts == 1, mean**2, total * scale**2)


def _shuffled(task: Int, generator: np.random.Generator) -> Int:
    """Return a random order of the rows that keeps every task's rows together."""
    return np.argsort(task + generator.random(len(task)), kind="stable")
