"""Machines: utilization, the books of allocated and free, and the zone's moments."""

import math

from marl_sched.cluster.model import ABSENT, State
from marl_sched.kernel_cache import inlined, inner


@inlined
def utilization(s: State, e: int, machine: int, r: int, added: float) -> float:
    """Return real use plus `added` over capacity, 0 without any; cpu (the first) is capped at 1."""
    share = (s.use[e, machine, r] + added) * s.per_unit[machine, r]
    return min(share, 1.0) if r == 0 else share


@inlined
def zone_moments(s: State, e: int, r: int) -> tuple[float, float, float]:
    """Return count, sum and sum of squares of utilization over the machines with the resource.

    Absent machines do not count either.
    """
    count = 0.0
    total = 0.0
    squares = 0.0
    for machine in range(s.machine.shape[1]):
        if s.machine[e, machine].status != ABSENT:
            share = utilization(s, e, machine, r, 0.0)
            count += s.has[machine, r]
            total += share
            squares += share * share
    return count, total, squares


@inlined
def deviation(count: float, total: float, squares: float) -> float:
    """Return the population standard deviation of count, sum and sum of squares."""
    if count == 0.0:
        return 0.0
    mean = total / count
    return math.sqrt(max(0.0, squares / count - mean * mean))


@inlined
def take(s: State, e: int, machine: int, row: int, sign: int) -> None:
    """Allocate (sign 1) or release (sign -1) an instance's request and use on a machine."""
    task = s.instance[e, row].task
    s.machine[e, machine].running += sign
    for r in range(s.request.shape[2]):
        s.free[e, machine, r] -= sign * s.request[e, task, r]
        s.use[e, machine, r] += sign * s.instance_use[e, row, r]
    if s.machine[e, machine].running == 0:
        # Sums of floats leave dust behind: an empty machine uses exactly its background.
        for r in range(s.request.shape[2]):
            s.use[e, machine, r] = s.background[e, machine, r]


@inner
def set_background(s: State, e: int, step: int) -> None:
    """Apply one step of the background series: it counts as use and lowers allocatable."""
    for machine in range(s.machine.shape[1]):
        for r in range(s.capacity.shape[1]):
            used = s.series[e, step, machine, r]
            s.use[e, machine, r] += used - s.background[e, machine, r]
            s.background[e, machine, r] = used
            allocatable = max(0, s.capacity[machine, r] - s.reserved[machine, r] - math.ceil(used))
            s.free[e, machine, r] += allocatable - s.allocatable[e, machine, r]
            s.allocatable[e, machine, r] = allocatable


@inlined
def expected_stretch(s: State, e: int, machine: int, added_cpu: float) -> float:
    """Return interference over speed: a duration over its work once `added_cpu` is in use there."""
    load = (s.use[e, machine, 0] + added_cpu) * s.per_unit[machine, 0]
    stretch = 1.0 + s.parameters[0].interference * max(0.0, load - 0.5) / 0.5
    return stretch / s.machine[e, machine].speed
