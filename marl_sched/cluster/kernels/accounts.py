"""The score of instances, tasks and jobs: what metrics.py turns into rates and means."""

import math

from marl_sched.cluster.kernels.placement import cost_of
from marl_sched.cluster.model import (
    LOWEST,
    N_BINS,
    RUNNING,
    SUM_COST,
    SUM_CREATIONS,
    SUM_FAILED_CREATIONS,
    SUM_FAILED_JOBS,
    SUM_INSTANCES,
    SUM_JOB_COMPLETION_S,
    SUM_JOBS,
    SUM_LATE,
    SUM_SLOWDOWN,
    SUM_STARTED,
    SUM_TASK_COMPLETION_S,
    SUM_TASKS,
    SUM_UNFINISHED,
    SUM_VIOLATED,
    SUM_WAIT_S,
    State,
)
from marl_sched.kernel_cache import inlined

HISTOGRAM_WAIT, HISTOGRAM_COMPLETION, HISTOGRAM_SLOWDOWN = range(3)
SLOWDOWN_CAP = 12.0
"""Slowdown counts at most this much: one stuck instance must not decide a comparison."""
BIN_WIDTH = math.log(1.01)


@inlined
def count_in_histogram(s: State, e: int, which: int, value: float) -> None:
    """Count a value in a logarithmic histogram of 1% bins."""
    at = 0
    if value > LOWEST:
        at = min(N_BINS - 1, int(math.log(value / LOWEST) / BIN_WIDTH))
    s.histogram[e, which, at] += 1


@inlined
def score_instance(s: State, e: int, row: int, end_us: int, has_finished: bool) -> None:
    """Score an instance for good: at its finish, or at the end of the episode at `end_us`."""
    task = s.instance[e, row].task
    ready_us = s.instance[e, row].ready_us
    has_started = has_finished or s.instance[e, row].status == RUNNING
    start_us = s.instance[e, row].start_us if has_started else end_us
    wait_us = start_us - ready_us
    completion_us = end_us - ready_us
    slowdown = min(completion_us * 1e-6 / s.task[e, task].reference_s, SLOWDOWN_CAP)
    failed = s.instance[e, row].failed_creations
    s.sums[e, SUM_INSTANCES] += 1.0
    s.sums[e, SUM_WAIT_S] += wait_us * 1e-6
    s.sums[e, SUM_SLOWDOWN] += slowdown
    starts = s.instance[e, row].restarts + (1 if has_started else 0)
    s.sums[e, SUM_CREATIONS] += failed + max(starts, 1)
    s.sums[e, SUM_FAILED_CREATIONS] += failed + (1 if starts == 0 else 0)
    if has_started:
        s.sums[e, SUM_STARTED] += 1.0
        s.sums[e, SUM_COST] += cost_of(s, e, row)
    if wait_us > s.task[e, task].latest_wait_us:
        s.sums[e, SUM_LATE] += 1.0
    if not has_finished:
        s.sums[e, SUM_UNFINISHED] += 1.0
    if failed > 0 or not has_finished or completion_us > s.task[e, task].latest_finish_us:
        s.sums[e, SUM_VIOLATED] += 1.0
    count_in_histogram(s, e, HISTOGRAM_WAIT, wait_us * 1e-6)
    count_in_histogram(s, e, HISTOGRAM_SLOWDOWN, slowdown)


@inlined
def score_task(s: State, e: int, task: int, ready_us: int, finish_us: int) -> None:
    """Score a task of our own by completion: from ready to the finish of its last instance."""
    completion_s = (finish_us - ready_us) * 1e-6
    s.sums[e, SUM_TASKS] += 1.0
    s.sums[e, SUM_TASK_COMPLETION_S] += completion_s
    count_in_histogram(s, e, HISTOGRAM_COMPLETION, completion_s)


@inlined
def score_job(s: State, e: int, job: int, finish_us: int) -> None:
    """Score a job by completion: from arrival to the finish of its last task."""
    s.sums[e, SUM_JOBS] += 1.0
    s.sums[e, SUM_JOB_COMPLETION_S] += (finish_us - s.job[e, job].arrival_us) * 1e-6
    s.sums[e, SUM_FAILED_JOBS] += s.job[e, job].has_failed
