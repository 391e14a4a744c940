"""Copy replicas onto others, for what-if play: only the rows that are in use.

Shapes: B pairs of a source and a target.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.model import State
from marl_sched.kernel_cache import inlined, inner, kernel


@kernel
def clone_rows(
    s: State,
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    settled: NDArray[np.int64],
) -> None:
    """Make the replicas `targets` (B,) play on exactly as `sources` (B,) would.

    Args:
        s: The zone.
        sources: (B,) replicas; none of them is a target.
        targets: (B,) replicas, all different.
        settled: (B,) -1: the target may hold anything. Otherwise both hold the same episode, and
            jobs below this number, finished, are equal in both: neither these nor what an episode
            never changes is copied, nor are the histograms, which only reports read.
    """
    for at in range(len(sources)):
        source, target = sources[at], targets[at]
        is_whole = settled[at] < 0
        if is_whole:
            _copy_input(s, source, target)
        _copy_work(s, source, target, max(settled[at], 0), is_whole)
        _copy_queues(s, source, target)
        _copy_machines(s, source, target)
        s.zone[target] = s.zone[source]  # last: what was copied depends on the target's counts
        for column in range(s.sums.shape[1]):
            s.sums[target, column] = s.sums[source, column]


@inlined
def _copy(array: NDArray[Any], source: int, target: int, first: int, end: int) -> None:
    """Copy rows [first, end) of an array (E, N)."""
    for row in range(first, end):
        array[target, row] = array[source, row]


@inlined
def _copy_wide(array: NDArray[Any], source: int, target: int, first: int, end: int) -> None:
    """Copy rows [first, end) of an array (E, N, R)."""
    for row in range(first, end):
        for r in range(array.shape[2]):
            array[target, row, r] = array[source, row, r]


@inner
def _copy_input(s: State, source: int, target: int) -> None:
    """Copy what an episode never changes, and the histograms."""
    _copy(s.event, source, target, 0, s.zone[source].n_events)
    for step in range(s.zone[source].n_steps):
        for machine in range(s.series.shape[2]):
            for r in range(s.series.shape[3]):
                s.series[target, step, machine, r] = s.series[source, step, machine, r]
    _copy(s.children, source, target, 0, s.children.shape[1])
    _copy_wide(s.histogram, source, target, 0, s.histogram.shape[1])


@inlined
def _first_task(s: State, e: int, job: int) -> int:
    """Return the first task of a job; one past the last of our own where there is no such job."""
    n_jobs = s.zone[e].n_jobs
    if job < n_jobs:
        return s.job[e, job].first_task
    return s.job[e, n_jobs - 1].first_task + s.job[e, n_jobs - 1].n_tasks if n_jobs > 0 else 0


@inlined
def _first_instance(s: State, e: int, job: int) -> int:
    """Return the first instance of a job, one past the last of our own without such a job."""
    task = _first_task(s, e, job)
    if job < s.zone[e].n_jobs:
        return s.task[e, task].first_instance
    return s.task[e, task - 1].first_instance + s.task[e, task - 1].n_instances if task > 0 else 0


@inner
def _copy_work(s: State, source: int, target: int, first: int, is_whole: bool) -> None:
    """Copy jobs, tasks and instances: of ours from job `first` on, of peers all."""
    n_jobs = s.zone[source].n_jobs
    end = n_jobs
    if not is_whole:  # jobs to come are as the episode's table has them
        end = max(s.zone[source].next_job, s.zone[target].next_job)
    own_tasks, own_instances = _first_task(s, source, n_jobs), _first_instance(s, source, n_jobs)
    n_tasks, n_instances = s.zone[source].n_tasks, s.zone[source].n_instances
    low, high = _first_task(s, source, first), _first_task(s, source, end)
    from_row, to_row = _first_instance(s, source, first), _first_instance(s, source, end)
    _copy(s.job, source, target, first, end)
    _copy(s.task, source, target, low, high)
    _copy(s.task, source, target, own_tasks, n_tasks)
    _copy(s.instance, source, target, from_row, to_row)
    _copy(s.instance, source, target, own_instances, n_instances)
    drawn_task, drawn_row = (0, 0) if is_whole else (own_tasks, own_instances)
    _copy_wide(s.request, source, target, drawn_task, n_tasks)
    _copy_wide(s.known_use, source, target, drawn_task, n_tasks)
    _copy_wide(s.instance_use, source, target, drawn_row, n_instances)
    _copy(s.foreign, source, target, 0, s.foreign.shape[1])


@inner
def _copy_queues(s: State, source: int, target: int) -> None:
    """Copy the groups and everything that is queued, running or to be sent."""
    zone = s.zone[source]
    _copy(s.group, source, target, 0, zone.n_groups)
    _copy(s.active, source, target, 0, zone.active_size)
    _copy(s.aside, source, target, 0, zone.aside_size)
    _copy(s.running, source, target, 0, zone.finish_size)
    _copy(s.transit, source, target, 0, zone.transit_size)
    _copy(s.sent, source, target, 0, zone.sent_size)
    _copy(s.notice, source, target, 0, zone.notice_size)
    _copy(s.void, source, target, 0, zone.void_size)
    for r in range(s.queue_request.shape[1]):
        s.queue_request[target, r] = s.queue_request[source, r]


@inner
def _copy_machines(s: State, source: int, target: int) -> None:
    """Copy the machines and what is known of the peers."""
    n_machines, n_resources = s.capacity.shape
    _copy(s.machine, source, target, 0, n_machines)
    _copy_wide(s.allocatable, source, target, 0, n_machines)
    _copy_wide(s.free, source, target, 0, n_machines)
    _copy_wide(s.use, source, target, 0, n_machines)
    _copy_wide(s.background, source, target, 0, n_machines)
    for machine in range(n_machines):
        for moment in range(s.moving.shape[2]):
            for r in range(n_resources):
                s.moving[target, machine, moment, r] = s.moving[source, machine, moment, r]
    _copy(s.peer, source, target, 0, s.peer.shape[1])
    for peer in range(s.peer.shape[1]):
        for row in range(s.peer_amount.shape[2]):
            for r in range(n_resources):
                s.peer_amount[target, peer, row, r] = s.peer_amount[source, peer, row, r]
        for row in range(s.peer_shape.shape[2]):
            for r in range(n_resources):
                s.peer_shape[target, peer, row, r] = s.peer_shape[source, peer, row, r]


@kernel
def first_unfinished(s: State, rows: NDArray[np.int64], start: NDArray[np.int64]) -> None:
    """Raise `start` (B,), for replicas rows (B,), to the first job that has not finished."""
    for at in range(len(rows)):
        e = rows[at]
        while start[at] < s.zone[e].n_jobs and s.job[e, start[at]].tasks_left == 0:
            start[at] += 1
