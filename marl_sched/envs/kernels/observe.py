"""Write observations: one row per replica that needs a decision.

Shapes: B rows, C = M + P candidates, F, I and Z columns (marl_sched/observation.py).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.kernels.machines import deviation, expected_stretch, utilization
from marl_sched.cluster.kernels.queue import machine_is_open, peer_is_open
from marl_sched.cluster.model import (
    ABSENT,
    PEER_ALLOCATABLE,
    PEER_FREE,
    PEER_IMBALANCE,
    PEER_LARGEST,
    PEER_SENT,
    PEER_SLOT,
    PEER_UTILIZATION,
    UP,
    State,
)
from marl_sched.envs.observation import (
    ALIGNMENT,
    ALLOCATION_GAP,
    ARRIVALS,
    COST,
    DIGEST_AGE,
    EXPECTED_DURATION,
    EXPECTED_LATE,
    EXPECTED_SLACK,
    FINISH_SLACK,
    FITS_LARGEST_SLOT,
    FREE_SHARE,
    FREE_SHARE_AFTER,
    GROUP,
    HOPS_LEFT,
    IMBALANCE_CHANGE,
    IS_MACHINE,
    IS_PEER,
    JOB_LEFT,
    LATE_SLACK,
    MACHINE_CHOICES,
    MACHINES_UP,
    MEAN,
    N_PLAIN_CANDIDATE,
    N_PLAIN_INSTANCE,
    N_PLAIN_ZONE,
    PEER_CHOICES,
    PRICE,
    PRIORITY,
    QUEUE,
    QUEUE_SHARE,
    RELATIVE_SIZE,
    REQUEST,
    RESTARTS,
    RUNNING,
    SENT_SHARE,
    SET_ASIDE,
    SIGMA,
    SPEED,
    TAKES_LARGEST_SLOT,
    TRANSFER,
    USE,
    UTILIZATION,
    UTILIZATION_AFTER,
    UTILIZATION_MEAN,
    UTILIZATION_SD,
    WAITED,
    ZONE_FREE_SHARE,
    ZONE_IMBALANCE,
    ZONE_UTILIZATION,
)
from marl_sched.kernel_cache import inlined, kernel

BOUND = 10.0
(
    COUNT,
    TOTAL,
    SQUARES,
    FREE,
    CAPACITY,
    LARGEST,
    ALLOCATABLE,
    SD,
    PER_COUNT,
    PER_LARGEST,
) = range(10)


@kernel
def observe_rows(
    s: State,
    rows: NDArray[np.int64],
    instance: NDArray[np.float32],
    candidates: NDArray[np.float32],
    zone: NDArray[np.float32],
    mask: NDArray[np.bool_],
) -> None:
    """Write the observations of the replicas rows (B,) to the first B rows of the arrays."""
    scratch = np.zeros((10, s.capacity.shape[1]))
    n_machines = s.machine.shape[1]
    for at in range(len(rows)):
        e = rows[at]
        row = s.group[e, s.active[e, 0].row].head
        slot = sum_up_zone(s, e, scratch)
        n_open = 0
        for machine in range(n_machines):
            is_open = machine_is_open(s, e, machine, s.instance[e, row].task)
            mask[at, machine] = is_open
            n_open += is_open
            write_machine(s, e, row, machine, scratch, candidates[at, machine])
            candidates[at, machine, TAKES_LARGEST_SLOT] = 1.0 if machine == slot else 0.0
        n_peers_open = 0
        for peer in range(s.peer.shape[1]):
            is_open = peer_is_open(s, e, peer, row)
            mask[at, n_machines + peer] = is_open
            n_peers_open += is_open
            write_peer(s, e, row, peer, scratch, candidates[at, n_machines + peer])
        write_instance(s, e, row, scratch, instance[at])
        write_zone(s, e, scratch, zone[at])
        zone[at, MACHINE_CHOICES] = n_open / n_machines
        zone[at, PEER_CHOICES] = n_peers_open / max(1, s.peer.shape[1])


@inlined
def sum_up_zone(s: State, e: int, scratch: NDArray[Any]) -> int:
    """Fill scratch (10, R) with the zone's totals; return the machine with the most free cpu."""
    scratch[:] = 0.0
    slot = -1
    for machine in range(s.machine.shape[1]):
        if s.machine[e, machine].status == ABSENT:
            continue
        is_up = s.machine[e, machine].status == UP
        if is_up and (slot < 0 or s.free[e, machine, 0] > s.free[e, slot, 0]):
            slot = machine
        for r in range(s.capacity.shape[1]):
            share = utilization(s, e, machine, r, 0.0)
            scratch[COUNT, r] += s.has[machine, r]
            scratch[TOTAL, r] += share
            scratch[SQUARES, r] += share * share
            if is_up:
                scratch[FREE, r] += max(0, s.free[e, machine, r])
                scratch[ALLOCATABLE, r] += s.allocatable[e, machine, r]
                scratch[CAPACITY, r] += s.capacity[machine, r]
            scratch[LARGEST, r] = max(scratch[LARGEST, r], float(s.capacity[machine, r]))
    for r in range(s.capacity.shape[1]):
        scratch[SD, r] = deviation(scratch[COUNT, r], scratch[TOTAL, r], scratch[SQUARES, r])
        scratch[PER_COUNT, r] = 1.0 / max(scratch[COUNT, r], 1.0)
        scratch[PER_LARGEST, r] = 1.0 / max(scratch[LARGEST, r], 1.0)
    return slot


@inlined
def bounded(value: float) -> float:
    """Clip a feature to the documented bounds."""
    return min(BOUND, max(-BOUND, value))


@inlined
def write_machine(
    s: State, e: int, row: int, machine: int, scratch: NDArray[Any], out: NDArray[np.float32]
) -> None:
    """Write one machine's features to out (F,)."""
    task = s.instance[e, row].task
    n_resources = s.capacity.shape[1]
    mean_s = s.task[e, task].known_mean_s
    stretch = expected_stretch(s, e, machine, s.known_use[e, task, 0])
    alignment = 0.0
    largest_share = 0.0
    count = 0.0
    total = 0.0
    squares = 0.0
    for r in range(n_resources):
        has = s.has[machine, r]
        free = s.free[e, machine, r] * s.per_unit[machine, r]
        asked = s.request[e, task, r] * s.per_asked[machine, r]
        allocated = (1.0 - free + asked) * has
        now = utilization(s, e, machine, r, 0.0)
        after = utilization(s, e, machine, r, s.known_use[e, task, r])
        mean = (scratch[TOTAL, r] + after - now) * scratch[PER_COUNT, r]
        squares_after = (scratch[SQUARES, r] + after * after - now * now) * scratch[PER_COUNT, r]
        change = math.sqrt(max(0.0, squares_after - mean * mean))
        at = N_PLAIN_CANDIDATE + r
        out[at + FREE_SHARE * n_resources] = bounded(free)
        out[at + FREE_SHARE_AFTER * n_resources] = bounded(free - asked)
        out[at + UTILIZATION * n_resources] = bounded(now)
        out[at + UTILIZATION_AFTER * n_resources] = bounded(after)
        out[at + UTILIZATION_MEAN * n_resources] = bounded(s.moving[e, machine, 0, r])
        out[at + UTILIZATION_SD * n_resources] = bounded(math.sqrt(s.moving[e, machine, 1, r]))
        out[at + IMBALANCE_CHANGE * n_resources] = bounded(
            (change - scratch[SD, r]) * scratch[COUNT, r] * has
        )
        out[at + RELATIVE_SIZE * n_resources] = bounded(
            s.capacity[machine, r] * scratch[PER_LARGEST, r]
        )
        alignment += asked * free
        largest_share = max(largest_share, asked)
        count += has
        total += allocated
        squares += allocated * allocated
    finish_us = s.zone[e].now_us - s.instance[e, row].ready_us + mean_s * stretch * 1e6
    out[IS_MACHINE] = 1.0
    out[IS_PEER] = 0.0
    out[SPEED] = bounded(s.machine[e, machine].speed)
    out[PRICE] = bounded(s.machine[e, machine].price)
    out[ALIGNMENT] = bounded(alignment)
    out[ALLOCATION_GAP] = bounded(deviation(count, total, squares))
    out[EXPECTED_DURATION] = bounded(stretch)
    out[EXPECTED_LATE] = is_late(s, e, row, 0.0)
    out[EXPECTED_SLACK] = bounded((s.task[e, task].latest_finish_us - finish_us) * 1e-6 / mean_s)
    out[RUNNING] = bounded(math.log1p(s.machine[e, machine].running))
    out[COST] = bounded(s.machine[e, machine].price * largest_share * stretch)
    for at in range(DIGEST_AGE, N_PLAIN_CANDIDATE):
        out[at] = 0.0


@inlined
def is_late(s: State, e: int, row: int, after_us: float) -> float:
    """Return 1 if an instance that starts `after_us` from now starts late, else 0."""
    waited_us = s.zone[e].now_us - s.instance[e, row].ready_us + after_us
    return 1.0 if waited_us > s.task[e, s.instance[e, row].task].latest_wait_us else 0.0


@inlined
def write_peer(
    s: State, e: int, row: int, peer: int, scratch: NDArray[Any], out: NDArray[np.float32]
) -> None:
    """Write one peer's features, from its digest and what was sent since, to out (F,)."""
    task = s.instance[e, row].task
    n_resources = s.capacity.shape[1]
    mean_s = s.task[e, task].known_mean_s
    out[:] = 0.0
    transfer_us = (
        s.parameters[0].offload_base_us + s.parameters[0].offload_us_per_mib * s.request[e, task, 1]
    )
    fits_slot = 1.0
    largest_share = 0.0
    for r in range(n_resources):
        allocatable = max(s.peer_amount[e, peer, PEER_ALLOCATABLE, r], 1.0)
        free = (
            s.peer_amount[e, peer, PEER_FREE, r] - s.peer_amount[e, peer, PEER_SENT, r]
        ) / allocatable
        if s.request[e, task, r] > s.peer_amount[e, peer, PEER_SLOT, r]:
            fits_slot = 0.0
        largest = max(s.peer_amount[e, peer, PEER_LARGEST, r], 1.0)
        largest_share = max(largest_share, s.request[e, task, r] / largest)
        at = N_PLAIN_CANDIDATE + r
        out[at + FREE_SHARE * n_resources] = bounded(free)
        out[at + FREE_SHARE_AFTER * n_resources] = bounded(
            free - s.request[e, task, r] / allocatable
        )
        out[at + UTILIZATION * n_resources] = bounded(s.peer_amount[e, peer, PEER_UTILIZATION, r])
        out[at + UTILIZATION_SD * n_resources] = bounded(s.peer_amount[e, peer, PEER_IMBALANCE, r])
        out[at + RELATIVE_SIZE * n_resources] = bounded(
            s.peer_amount[e, peer, PEER_ALLOCATABLE, r] / max(scratch[ALLOCATABLE, r], 1.0)
        )
    slowdown = s.peer[e, peer].slowdown
    waited_us = s.zone[e].now_us - s.instance[e, row].ready_us
    finish_us = waited_us + transfer_us + mean_s * slowdown * 1e6
    out[IS_PEER] = 1.0
    out[SPEED] = bounded(s.peer[e, peer].speed)
    out[PRICE] = bounded(s.peer[e, peer].price)
    out[EXPECTED_DURATION] = bounded(slowdown)
    out[EXPECTED_LATE] = is_late(s, e, row, transfer_us)
    out[EXPECTED_SLACK] = bounded((s.task[e, task].latest_finish_us - finish_us) * 1e-6 / mean_s)
    out[RUNNING] = bounded(math.log1p(s.peer[e, peer].queue))
    out[COST] = bounded(s.peer[e, peer].price * largest_share * slowdown)
    out[DIGEST_AGE] = bounded(
        (s.zone[e].now_us - s.peer[e, peer].digest_us) / s.parameters[0].digest_period_us
    )
    out[SENT_SHARE] = bounded(
        s.peer_amount[e, peer, PEER_SENT, 0] / max(s.peer_amount[e, peer, PEER_ALLOCATABLE, 0], 1.0)
    )
    out[TRANSFER] = bounded(transfer_us * 1e-6 / mean_s)
    out[FITS_LARGEST_SLOT] = fits_slot


@inlined
def write_instance(
    s: State, e: int, row: int, scratch: NDArray[Any], out: NDArray[np.float32]
) -> None:
    """Write the head instance's features to out (I,)."""
    task = s.instance[e, row].task
    n_resources = s.capacity.shape[1]
    mean_us = s.task[e, task].known_mean_s * 1e6
    waited_us = s.zone[e].now_us - s.instance[e, row].ready_us
    job = s.task[e, task].job
    job_left = s.job[e, job].tasks_left if job >= 0 else 1
    out[MEAN] = bounded(math.log1p(s.task[e, task].known_mean_s) / 5.0)
    out[SIGMA] = bounded(s.task[e, task].known_sigma)
    out[WAITED] = bounded(waited_us / mean_us)
    out[LATE_SLACK] = bounded((s.task[e, task].latest_wait_us - waited_us) / mean_us)
    out[FINISH_SLACK] = bounded((s.task[e, task].latest_finish_us - waited_us) / mean_us)
    out[HOPS_LEFT] = bounded(s.parameters[0].max_hops - s.instance[e, row].hops)
    out[RESTARTS] = bounded(s.instance[e, row].restarts)
    out[GROUP] = bounded(math.log1p(s.group[e, s.active[e, 0].row].count))
    out[JOB_LEFT] = bounded(math.log1p(job_left))
    out[PRIORITY] = bounded(s.task[e, task].priority)
    for r in range(n_resources):
        asked = s.request[e, task, r]
        out[N_PLAIN_INSTANCE + REQUEST * n_resources + r] = bounded(
            asked / max(scratch[LARGEST, r], 1.0)
        )
        out[N_PLAIN_INSTANCE + USE * n_resources + r] = bounded(
            s.known_use[e, task, r] / max(asked, 1)
        )


@inlined
def write_zone(s: State, e: int, scratch: NDArray[Any], out: NDArray[np.float32]) -> None:
    """Write the zone's features, the choices apart, to out (Z,)."""
    n_resources = s.capacity.shape[1]
    n_up = 0
    for machine in range(s.machine.shape[1]):
        if s.machine[e, machine].status == UP:
            n_up += 1
    out[QUEUE] = bounded(math.log1p(s.zone[e].waiting))
    out[SET_ASIDE] = bounded(math.log1p(s.zone[e].aside_size))
    out[MACHINES_UP] = bounded(math.log1p(n_up) / 5.0)
    out[ARRIVALS] = bounded(math.log1p(s.zone[e].ready_rate))
    for r in range(n_resources):
        at = N_PLAIN_ZONE + r
        capacity = max(scratch[CAPACITY, r], 1.0)
        out[at + ZONE_FREE_SHARE * n_resources] = bounded(scratch[FREE, r] / capacity)
        out[at + ZONE_UTILIZATION * n_resources] = bounded(
            scratch[TOTAL, r] / max(scratch[COUNT, r], 1.0)
        )
        out[at + ZONE_IMBALANCE * n_resources] = bounded(scratch[SD, r])
        out[at + QUEUE_SHARE * n_resources] = bounded(
            s.queue_request[e, r] / max(scratch[ALLOCATABLE, r], 1.0)
        )
