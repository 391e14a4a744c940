"""What the value of a zone's situation is predicted from: the whole truth, not an observation.

It is only a target's baseline: no policy sees it. Shapes: B rows, R resources.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.kernels.accounts import SLOWDOWN_CAP
from marl_sched.cluster.kernels.machines import deviation, zone_moments
from marl_sched.cluster.model import ABSENT, UP, State
from marl_sched.kernel_cache import inner, kernel

(
    WAITING,
    ASIDE,
    ON_THE_WAY,
    READY_RATE,
    SLOWDOWN,
    WAITED,
    LATE,
    QUEUED_WORK,
    WORK_ON_THE_WAY,
    MACHINES_UP,
) = range(10)
N_PLAIN = 10
SLOTS = (1 / 32, 1 / 8, 1 / 4, 1 / 2)
"""Of the largest capacity: machines with at least so much of everything free are counted."""
N_SLOTS = 4
AHEAD_S = (15.0, 45.0, 120.0, 300.0)
"""What running instances will have released by then is known: their durations are fixed. What is
left of the imbalance too."""
N_AHEAD = 4
N_PER_RESOURCE = 5 + 2 * N_AHEAD
MINUTE_S = 60.0


@kernel
def write_situations(s: State, rows: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """Write situations of replicas rows (B,) to out (B, N_PLAIN + N_SLOTS + N_PER_RESOURCE R)."""
    left = np.empty((s.capacity.shape[0], s.capacity.shape[1]))
    for at in range(len(rows)):
        out[at] = 0.0
        _write_queue(s, rows[at], out[at])
        _write_way(s, rows[at], out[at])
        _write_machines(s, rows[at], out[at])
        _write_releases(s, rows[at], out[at])
        for span in range(N_AHEAD):
            _write_left(s, rows[at], span, left, out[at])
        for column in (WAITING, ASIDE, ON_THE_WAY, READY_RATE, WAITED, LATE):
            out[at, column] = math.log1p(out[at, column])
        for column in (QUEUED_WORK, WORK_ON_THE_WAY):
            out[at, column] = math.log1p(out[at, column])


@inner
def _share(s: State, e: int, task: int, r: int) -> float:
    """Return a task's request over the zone's allocatable of a resource."""
    total = 0.0
    for machine in range(s.machine.shape[1]):
        total += s.allocatable[e, machine, r]
    return s.request[e, task, r] / max(total, 1.0)


@inner
def _work(s: State, e: int, task: int) -> float:
    """Return the zone-minutes that an instance of a task takes: largest share x duration."""
    share = 0.0
    for r in range(s.request.shape[2]):
        share = max(share, _share(s, e, task, r))
    return share * s.task[e, task].known_mean_s / MINUTE_S


@inner
def _add_group(s: State, e: int, group: int, out: NDArray[Any]) -> None:
    task = s.group[e, group].task
    count = s.group[e, group].count
    wait_us = s.zone[e].now_us - s.group[e, group].ready_us
    waited = min(wait_us * 1e-6 / s.task[e, task].reference_s, SLOWDOWN_CAP)
    out[WAITED] += count * waited
    out[LATE] += count if wait_us > s.task[e, task].latest_wait_us else 0
    out[QUEUED_WORK] += count * _work(s, e, task)


@inner
def _write_queue(s: State, e: int, out: NDArray[Any]) -> None:
    out[WAITING] = s.zone[e].waiting
    out[ASIDE] = s.zone[e].aside_size
    out[READY_RATE] = s.zone[e].ready_rate
    out[SLOWDOWN] = s.zone[e].slowdown
    for at in range(s.zone[e].active_size):
        _add_group(s, e, s.active[e, at].row, out)
    for at in range(s.zone[e].aside_size):
        _add_group(s, e, s.aside[e, at], out)


@inner
def _add_on_the_way(s: State, e: int, row: int, out: NDArray[Any]) -> None:
    task = s.instance[e, row].task
    out[ON_THE_WAY] += 1.0
    out[WORK_ON_THE_WAY] += _work(s, e, task)
    for r in range(s.request.shape[2]):
        out[N_PLAIN + N_SLOTS + 4 * s.request.shape[2] + r] += _share(s, e, task, r)


@inner
def _write_way(s: State, e: int, out: NDArray[Any]) -> None:
    """Count what comes from peers, and what was sent to them in this window, which no peer has."""
    for at in range(s.zone[e].transit_size):
        _add_on_the_way(s, e, s.transit[e, at].row, out)
    for at in range(s.zone[e].sent_size):
        _add_on_the_way(s, e, s.sent[e, at], out)


@inner
def _has_slot(s: State, e: int, machine: int, share: float) -> bool:
    """Return whether a machine has a share of the largest capacity free, of every resource."""
    for r in range(s.capacity.shape[1]):
        largest = 0
        for other in range(s.capacity.shape[0]):
            largest = max(largest, s.capacity[other, r])
        if s.free[e, machine, r] < share * largest:
            return False
    return True


@inner
def _write_machines(s: State, e: int, out: NDArray[Any]) -> None:
    n_machines, n_resources = s.capacity.shape
    for machine in range(n_machines):
        if s.machine[e, machine].status == UP:
            out[MACHINES_UP] += 1.0 / n_machines
            for slot in range(N_SLOTS):
                if _has_slot(s, e, machine, SLOTS[slot]):
                    out[N_PLAIN + slot] += 1.0 / n_machines
    for r in range(n_resources):
        free = 0.0
        capacity = 0.0
        for machine in range(n_machines):
            if s.machine[e, machine].status != ABSENT:
                free += max(0, s.free[e, machine, r])
                capacity += s.allocatable[e, machine, r]
        count, total, squares = zone_moments(s, e, r)
        at = N_PLAIN + N_SLOTS + r
        out[at] = free / max(capacity, 1.0)
        out[at + n_resources] = total / max(count, 1.0)
        out[at + 2 * n_resources] = deviation(count, total, squares)
        out[at + 3 * n_resources] = min(10.0, s.queue_request[e, r] / max(capacity, 1.0))


@inner
def _write_releases(s: State, e: int, out: NDArray[Any]) -> None:
    """Write the shares of the zone that running instances release within AHEAD_S."""
    n_machines, n_resources = s.capacity.shape
    start = N_PLAIN + N_SLOTS + 5 * n_resources
    for at in range(s.zone[e].finish_size):
        left_s = (s.running[e, at].first - s.zone[e].now_us) * 1e-6
        task = s.instance[e, s.running[e, at].row].task
        for span in range(N_AHEAD):
            if left_s < AHEAD_S[span]:
                for r in range(n_resources):
                    out[start + span * n_resources + r] += s.request[e, task, r]
    for r in range(n_resources):
        capacity = 0.0
        for machine in range(n_machines):
            capacity += s.allocatable[e, machine, r]
        for span in range(N_AHEAD):
            out[start + span * n_resources + r] /= max(capacity, 1.0)


@inner
def _write_left(s: State, e: int, span: int, left: NDArray[Any], out: NDArray[Any]) -> None:
    """Write the std of utilization by what will still be running after AHEAD_S[span].

    `left` (M, R) is room.
    """
    n_machines, n_resources = s.capacity.shape
    left[:] = 0.0
    for at in range(s.zone[e].finish_size):
        if (s.running[e, at].first - s.zone[e].now_us) * 1e-6 >= AHEAD_S[span]:
            row = s.running[e, at].row
            machine = s.instance[e, row].machine
            for r in range(n_resources):
                left[machine, r] += s.instance_use[e, row, r] * s.per_unit[machine, r]
    start = N_PLAIN + N_SLOTS + (5 + N_AHEAD + span) * n_resources
    for r in range(n_resources):
        count = 0.0
        total = 0.0
        squares = 0.0
        for machine in range(n_machines):
            count += s.has[machine, r]
            total += left[machine, r]
            squares += left[machine, r] * left[machine, r]
        out[start + r] = deviation(count, total, squares)
