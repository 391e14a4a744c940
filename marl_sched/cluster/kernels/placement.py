"""What a decision does: start an instance, fail to create it, or send it to a peer."""

from typing import Any

from numpy.typing import NDArray

from marl_sched.cluster.kernels.heaps import push
from marl_sched.cluster.kernels.machines import (
    deviation,
    expected_stretch,
    take,
    utilization,
    zone_moments,
)
from marl_sched.cluster.kernels.queue import (
    count_waiting,
    fits,
    forget_freed,
    machine_is_open,
    new_group,
    peer_is_open,
    set_aside,
    take_head,
)
from marl_sched.cluster.model import (
    FACT_BEHIND,
    FACT_COST,
    FACT_DECISION,
    FACT_DURATION_S,
    FACT_INSTANCE,
    FACT_IS_FAILED,
    FACT_LATE,
    FACT_REFERENCE_S,
    FACT_TRANSFER_S,
    FACT_VIOLATED,
    FACT_VIOLATED_BY_WORK,
    FACT_WAIT_S,
    FACT_WORK_S,
    N_PLAIN_FACTS,
    OFFLOADED,
    PEER_SENT,
    RUNNING,
    SUM_OFFLOADS,
    UP,
    WAITING,
    State,
)
from marl_sched.kernel_cache import inlined

NOTHING, STARTED, SENT, FAILED_CREATION, MASKED = range(5)
SLOWDOWN_MEMORY = 0.05
"""Weight of the newest start in the moving average of the zone's slowdown."""


@inlined
def decide(s: State, e: int, action: int, facts: NDArray[Any]) -> int:
    """Carry out an action for the head instance.

    Args:
        s: The zone.
        e: Replica.
        action: Machine, or number of machines + peer.
        facts: (N_PLAIN_FACTS + N_FACT_BLOCKS R,), filled when the instance starts or its creation
            fails.

    Returns:
        STARTED, SENT, FAILED_CREATION, or MASKED (nothing was changed).
    """
    head = s.group[e, s.active[e, 0].row].head
    task = s.instance[e, head].task
    n_machines = s.machine.shape[1]
    if action < 0 or action >= n_machines + s.peer.shape[1]:
        return MASKED
    if action >= n_machines:
        if not peer_is_open(s, e, action - n_machines, head):
            return MASKED
        send(s, e, action - n_machines)
        return SENT
    if not machine_is_open(s, e, action, task):
        return MASKED
    row = take_head(s, e)
    s.instance[e, row].decision = s.zone[e].decisions
    s.zone[e].decisions += 1
    if fits(s, e, action, task):
        start(s, e, row, action, facts)
        return STARTED
    fail_creation(s, e, row, facts)
    return FAILED_CREATION


@inlined
def start(s: State, e: int, row: int, machine: int, facts: NDArray[Any]) -> None:
    """Start an instance: its duration is fixed now, its finish is known."""
    n_resources = s.request.shape[2]
    for r in range(n_resources):
        count, total, squares = zone_moments(s, e, r)
        facts[N_PLAIN_FACTS + r] = -deviation(count, total, squares)
    take(s, e, machine, row, 1)
    for r in range(n_resources):
        count, total, squares = zone_moments(s, e, r)
        facts[N_PLAIN_FACTS + r] += deviation(count, total, squares)
        facts[N_PLAIN_FACTS + n_resources + r] = utilization(s, e, machine, r, 0.0)
        facts[N_PLAIN_FACTS + 2 * n_resources + r] = total / max(count, 1.0)
        facts[N_PLAIN_FACTS + 4 * n_resources + r] = s.has[machine, r]
    stretch = expected_stretch(s, e, machine, 0.0)
    s.zone[e].slowdown += SLOWDOWN_MEMORY * (stretch - s.zone[e].slowdown)
    duration_us = max(1, round(s.instance[e, row].work_us * stretch))
    s.instance[e, row].status = RUNNING
    s.instance[e, row].machine = machine
    s.instance[e, row].start_us = s.zone[e].now_us
    s.instance[e, row].finish_us = s.zone[e].now_us + duration_us
    s.instance[e, row].sequence = s.zone[e].sequence
    key = (s.instance[e, row].finish_us, s.zone[e].sequence, 0)
    s.zone[e].sequence += 1
    push(s.running[e], s.zone[e].finish_size, key, row)
    s.zone[e].finish_size += 1
    write_facts(s, e, row, facts)
    facts[FACT_COST] = cost_of(s, e, row)


@inlined
def cost_of(s: State, e: int, row: int) -> float:
    """Return price x largest share of the machine x duration over the reference duration."""
    machine = s.instance[e, row].machine
    task = s.instance[e, row].task
    share = 0.0
    for r in range(s.request.shape[2]):
        share = max(share, s.request[e, task, r] * s.per_unit[machine, r])
    duration_s = (s.instance[e, row].finish_us - s.instance[e, row].start_us) * 1e-6
    return s.machine[e, machine].price * share * duration_s / s.task[e, task].reference_s


@inlined
def write_facts(s: State, e: int, row: int, facts: NDArray[Any]) -> None:
    """Fill the plain facts (model.FACTS) and the shares of an instance that has just started."""
    task = s.instance[e, row].task
    wait_us = s.instance[e, row].start_us - s.instance[e, row].ready_us
    completion_us = s.instance[e, row].finish_us - s.instance[e, row].ready_us
    facts[FACT_WAIT_S] = wait_us * 1e-6
    facts[FACT_DURATION_S] = (s.instance[e, row].finish_us - s.instance[e, row].start_us) * 1e-6
    facts[FACT_WORK_S] = s.instance[e, row].work_us * 1e-6
    facts[FACT_REFERENCE_S] = s.task[e, task].reference_s
    facts[FACT_LATE] = 1.0 if wait_us > s.task[e, task].latest_wait_us else 0.0
    facts[FACT_VIOLATED] = 1.0 if completion_us > s.task[e, task].latest_finish_us else 0.0
    facts[FACT_VIOLATED_BY_WORK] = (
        1.0 if s.instance[e, row].work_us > s.task[e, task].latest_finish_us else 0.0
    )
    facts[FACT_COST] = 0.0
    facts[FACT_TRANSFER_S] = s.instance[e, row].transfer_us * 1e-6
    facts[FACT_BEHIND] = s.zone[e].waiting
    facts[FACT_IS_FAILED] = 0.0
    facts[FACT_INSTANCE] = row
    facts[FACT_DECISION] = s.instance[e, row].decision
    n_resources = s.request.shape[2]
    for r in range(n_resources):
        total = 0.0
        for machine in range(s.machine.shape[1]):
            if s.machine[e, machine].status == UP:
                total += s.allocatable[e, machine, r]
        facts[N_PLAIN_FACTS + 3 * n_resources + r] = s.request[e, task, r] / max(total, 1.0)


@inlined
def fail_creation(s: State, e: int, row: int, facts: NDArray[Any]) -> None:
    """An infeasible pick: the creation fails.

    The instance is retried when a release leaves room for it, or a window opens. What was freed
    before is forgotten: else the same pick would be asked for at once, and without end.
    """
    s.instance[e, row].failed_creations += 1
    s.instance[e, row].status = WAITING
    s.instance[e, row].start_us = s.zone[e].now_us
    s.instance[e, row].finish_us = s.zone[e].now_us
    count_waiting(s, e, row, 1)
    forget_freed(s, e)
    set_aside(s, e, new_group(s, e, row))
    facts[:] = 0.0
    write_facts(s, e, row, facts)
    facts[FACT_VIOLATED] = 1.0
    facts[FACT_IS_FAILED] = 1.0


@inlined
def send(s: State, e: int, peer: int) -> None:
    """Offload the head instance to a peer; its transfer begins now."""
    row = take_head(s, e)
    task = s.instance[e, row].task
    transfer_us = round(
        s.parameters[0].offload_base_us + s.parameters[0].offload_us_per_mib * s.request[e, task, 1]
    )
    s.instance[e, row].status = OFFLOADED
    s.instance[e, row].peer = peer
    s.instance[e, row].start_us = s.zone[e].now_us
    s.instance[e, row].finish_us = s.zone[e].now_us + transfer_us
    s.instance[e, row].transfer_us += transfer_us
    s.instance[e, row].sequence = s.zone[e].sequence
    s.instance[e, row].decision = s.zone[e].decisions
    s.zone[e].decisions += 1
    s.zone[e].sequence += 1
    s.sent[e, s.zone[e].sent_size] = row
    s.zone[e].sent_size += 1
    s.sums[e, SUM_OFFLOADS] += 1.0
    for r in range(s.request.shape[2]):
        s.peer_amount[e, peer, PEER_SENT, r] += s.request[e, task, r]
