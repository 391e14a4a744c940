"""What a zone publishes: its digest, and the moments of utilization at every window boundary."""

from typing import Any

from numpy.typing import NDArray

from marl_sched.cluster.kernels.machines import deviation, utilization, zone_moments
from marl_sched.cluster.model import (
    ABSENT,
    N_PLAIN_SUMS,
    N_SHAPES,
    PEER_ALLOCATABLE,
    PEER_FREE,
    PEER_IMBALANCE,
    PEER_LARGEST,
    PEER_SENT,
    PEER_SLOT,
    PEER_UTILIZATION,
    SUM_FRAGMENTATION,
    SUM_MEMORY_OVERUSE,
    SUM_PRICE,
    SUM_SAMPLES,
    UP,
    State,
)
from marl_sched.kernel_cache import inlined, inner

D_QUEUE, D_SPEED, D_PRICE, D_SLOWDOWN = range(4)
N_PLAIN_DIGEST = 4
"""Plain columns of a digest; then R each of allocatable, free, largest slot, utilization and
imbalance; then N_SHAPES x R of the largest machines."""
N_DIGEST_AMOUNTS = 5
MOVING_SHARE = 0.08
"""Weight of the newest window in moving averages: about a minute at windows of 5 s."""


@inner
def write_digest(s: State, e: int, out: NDArray[Any]) -> None:
    """Write a replica's digest to out (N_PLAIN_DIGEST + (N_DIGEST_AMOUNTS + N_SHAPES) R,)."""
    n_resources = s.capacity.shape[1]
    out[:] = 0.0
    out[D_QUEUE] = s.zone[e].waiting
    out[D_SLOWDOWN] = s.zone[e].slowdown
    n_up = 0.0
    slot = -1
    for machine in range(s.machine.shape[1]):
        if s.machine[e, machine].status != UP:
            continue
        n_up += 1.0
        out[D_SPEED] += s.machine[e, machine].speed
        out[D_PRICE] += s.machine[e, machine].price
        if slot < 0 or s.free[e, machine, 0] > s.free[e, slot, 0]:
            slot = machine
        for r in range(n_resources):
            out[N_PLAIN_DIGEST + r] += s.allocatable[e, machine, r]
            out[N_PLAIN_DIGEST + n_resources + r] += max(0, s.free[e, machine, r])
    out[D_SPEED] /= max(n_up, 1.0)
    out[D_PRICE] /= max(n_up, 1.0)
    for r in range(n_resources):
        count, total, squares = zone_moments(s, e, r)
        at = N_PLAIN_DIGEST + r
        if slot >= 0:
            out[at + 2 * n_resources] = max(0, s.free[e, slot, r])
        out[at + 3 * n_resources] = total / max(count, 1.0)
        out[at + 4 * n_resources] = deviation(count, total, squares)
    write_shapes(s, e, out[N_PLAIN_DIGEST + N_DIGEST_AMOUNTS * n_resources :])


@inlined
def write_shapes(s: State, e: int, out: NDArray[Any]) -> None:
    """Write up to N_SHAPES allocatable vectors that no other machine's exceeds to out, flat."""
    n_resources = s.capacity.shape[1]
    n_shapes = 0
    for machine in range(s.machine.shape[1]):
        if n_shapes == N_SHAPES or s.machine[e, machine].status != UP:
            continue
        is_largest = True
        for other in range(s.machine.shape[1]):
            if s.machine[e, other].status != UP or other == machine:
                continue
            covers = True
            is_equal = True
            for r in range(n_resources):
                covers = covers and s.allocatable[e, other, r] >= s.allocatable[e, machine, r]
                is_equal = is_equal and s.allocatable[e, other, r] == s.allocatable[e, machine, r]
            if covers and (not is_equal or other < machine):
                is_largest = False
                break
        if is_largest:
            for r in range(n_resources):
                out[n_shapes * n_resources + r] = s.allocatable[e, machine, r]
            n_shapes += 1
    if n_shapes == N_SHAPES:
        cover_resources(s, e, out)


@inlined
def cover_resources(s: State, e: int, out: NDArray[Any]) -> None:
    """Give the last shapes in out, flat, to resources that machines have and no shape names."""
    n_resources = s.capacity.shape[1]
    last = N_SHAPES - 1
    for r in range(n_resources):
        named = 0.0
        for shape in range(N_SHAPES):
            named = max(named, out[shape * n_resources + r])
        if named > 0.0 or last == 0:
            continue
        largest = -1
        for machine in range(s.machine.shape[1]):
            if s.machine[e, machine].status != UP or s.allocatable[e, machine, r] == 0:
                continue
            if largest < 0 or s.allocatable[e, machine, r] > s.allocatable[e, largest, r]:
                largest = machine
        if largest >= 0:
            for other in range(n_resources):
                out[last * n_resources + other] = s.allocatable[e, largest, other]
            last -= 1


@inner
def read_digest(s: State, e: int, peer: int, digest: NDArray[Any]) -> None:
    """Take over a peer's digest, made now; what was sent counts from here anew."""
    n_resources = s.capacity.shape[1]
    s.peer[e, peer].digest_us = s.zone[e].now_us
    s.peer[e, peer].is_known = 1
    s.peer[e, peer].queue = digest[D_QUEUE]
    s.peer[e, peer].speed = digest[D_SPEED]
    s.peer[e, peer].price = digest[D_PRICE]
    s.peer[e, peer].slowdown = digest[D_SLOWDOWN]
    for r in range(n_resources):
        at = N_PLAIN_DIGEST + r
        s.peer_amount[e, peer, PEER_ALLOCATABLE, r] = digest[at]
        s.peer_amount[e, peer, PEER_FREE, r] = digest[at + n_resources]
        s.peer_amount[e, peer, PEER_SLOT, r] = digest[at + 2 * n_resources]
        s.peer_amount[e, peer, PEER_UTILIZATION, r] = digest[at + 3 * n_resources]
        s.peer_amount[e, peer, PEER_IMBALANCE, r] = digest[at + 4 * n_resources]
        s.peer_amount[e, peer, PEER_SENT, r] = 0.0
        s.peer_amount[e, peer, PEER_LARGEST, r] = 0.0
        for shape in range(N_SHAPES):
            at = N_PLAIN_DIGEST + (N_DIGEST_AMOUNTS + shape) * n_resources + r
            s.peer_shape[e, peer, shape, r] = digest[at]
            if s.peer_amount[e, peer, PEER_LARGEST, r] == 0.0:
                s.peer_amount[e, peer, PEER_LARGEST, r] = digest[at]


@inner
def close_window(s: State, e: int, moments: NDArray[Any]) -> None:
    """Update moving averages, write moments (R, 3) and, in the measured span, sample the zone."""
    n_resources = s.capacity.shape[1]
    now_us = s.zone[e].now_us
    minutes = s.parameters[0].window_us / 60e6
    rate = s.zone[e].became_ready / minutes
    s.zone[e].ready_rate += MOVING_SHARE * (rate - s.zone[e].ready_rate)
    s.zone[e].became_ready = 0
    for machine in range(s.machine.shape[1]):
        for r in range(n_resources):
            change = utilization(s, e, machine, r, 0.0) - s.moving[e, machine, 0, r]
            s.moving[e, machine, 0, r] += MOVING_SHARE * change
            s.moving[e, machine, 1, r] = (1.0 - MOVING_SHARE) * (
                s.moving[e, machine, 1, r] + MOVING_SHARE * change * change
            )
    for r in range(n_resources):
        moments[r, 0], moments[r, 1], moments[r, 2] = zone_moments(s, e, r)
    if s.parameters[0].measured_from_us <= now_us <= s.parameters[0].measured_to_us:
        sample(s, e, moments)


@inlined
def sample(s: State, e: int, moments: NDArray[Any]) -> None:
    """Add one window boundary to the sums over samples."""
    n_resources = s.capacity.shape[1]
    s.sums[e, SUM_SAMPLES] += 1.0
    largest_free = 0.0
    all_free = 0.0
    for machine in range(s.machine.shape[1]):
        if s.machine[e, machine].status == ABSENT:
            continue
        if s.use[e, machine, 1] > s.capacity[machine, 1]:
            s.sums[e, SUM_MEMORY_OVERUSE] += 1.0
        free = max(0.0, float(s.free[e, machine, 0]))
        largest_free = max(largest_free, free)
        all_free += free
        share = 0.0
        for r in range(n_resources):
            allocated = s.allocatable[e, machine, r] - s.free[e, machine, r]
            share = max(share, allocated / max(s.capacity[machine, r], 1))
        s.sums[e, SUM_PRICE] += s.machine[e, machine].price * share
    if all_free > 0.0:
        s.sums[e, SUM_FRAGMENTATION] += 1.0 - largest_free / all_free
    for r in range(n_resources):
        allocated = 0.0
        allocatable = 0.0
        for machine in range(s.machine.shape[1]):
            if s.machine[e, machine].status != ABSENT:
                allocatable += s.allocatable[e, machine, r]
                allocated += s.allocatable[e, machine, r] - s.free[e, machine, r]
        at = N_PLAIN_SUMS + 3 * r
        s.sums[e, at] += deviation(moments[r, 0], moments[r, 1], moments[r, 2])
        s.sums[e, at + 1] += moments[r, 1] / max(moments[r, 0], 1.0)
        s.sums[e, at + 2] += allocated / max(allocatable, 1.0)
