"""The queue of a zone: groups of waiting instances, the head, and what fits where."""

from marl_sched.cluster.kernels.heaps import pop, push
from marl_sched.cluster.model import (
    PEER_ALLOCATABLE,
    PEER_FREE,
    PEER_SENT,
    UP,
    WAITING,
    State,
)
from marl_sched.kernel_cache import inlined, kernel


@inlined
def fits(s: State, e: int, machine: int, task: int) -> bool:
    """Return whether a machine takes placements and has the task's request free."""
    if s.machine[e, machine].status != UP:
        return False
    for r in range(s.request.shape[2]):
        if s.request[e, task, r] > s.free[e, machine, r]:
            return False
    return True


@inlined
def machine_is_open(s: State, e: int, machine: int, task: int) -> bool:
    """Return whether a machine is unmasked: it fits, or placement is unmasked and it is up."""
    if s.parameters[0].is_masked == 1:
        return fits(s, e, machine, task)
    return s.machine[e, machine].status == UP


@inlined
def peer_is_open(s: State, e: int, peer: int, row: int) -> bool:
    """Return whether an instance may be offloaded to a peer.

    It has hops left, the peer's largest machines can hold it, and what was sent since the peer's
    digest stays within its free capacity plus the allowance.
    """
    if s.instance[e, row].hops >= s.parameters[0].max_hops or s.peer[e, peer].is_known == 0:
        return False
    task = s.instance[e, row].task
    n_resources = s.request.shape[2]
    allowance = s.parameters[0].allowance
    for r in range(n_resources):
        asked = s.request[e, task, r]
        room = (
            s.peer_amount[e, peer, PEER_FREE, r]
            + allowance * s.peer_amount[e, peer, PEER_ALLOCATABLE, r]
        )
        if s.peer_amount[e, peer, PEER_SENT, r] + asked > room:
            return False
    for shape in range(s.peer_shape.shape[2]):
        holds = True
        for r in range(n_resources):
            if s.request[e, task, r] > s.peer_shape[e, peer, shape, r]:
                holds = False
        if holds:
            return True
    return False


@inlined
def found_group(s: State, e: int, first: int, last: int, ready_us: int) -> None:
    """Make the instances first..last (contiguous rows of one task) a waiting group."""
    for row in range(first, last + 1):
        s.instance[e, row].status = WAITING
        s.instance[e, row].ready_us = ready_us
        s.instance[e, row].next = row + 1
    s.instance[e, last].group_head = first
    s.instance[e, last].group_count = last - first + 1
    count_waiting(s, e, last, last - first + 1)
    activate(s, e, last)


@inlined
def activate(s: State, e: int, group: int) -> None:
    """Put a group in the active heap, behind those of its priority and ready time."""
    s.instance[e, group].sequence = s.zone[e].sequence
    s.zone[e].sequence += 1
    queue_group(s, e, group)


@inlined
def queue_group(s: State, e: int, group: int) -> None:
    """Put a group in the active heap at the place it has by its sequence."""
    key = (
        -s.task[e, s.instance[e, group].task].priority,
        s.instance[e, group].ready_us,
        s.instance[e, group].sequence,
    )
    push(s.active[e], s.zone[e].active_size, key, group)
    s.zone[e].active_size += 1


@inlined
def count_waiting(s: State, e: int, row: int, change: int) -> None:
    """Add `change` instances of a row's task to the waiting count and requests."""
    s.zone[e].waiting += change
    for r in range(s.request.shape[2]):
        s.queue_request[e, r] += change * s.request[e, s.instance[e, row].task, r]


@inlined
def take_head(s: State, e: int) -> int:
    """Remove the instance at the head of the queue from its group and return its row."""
    group = s.active[e, 0].row
    row = s.instance[e, group].group_head
    s.instance[e, group].group_count -= 1
    if s.instance[e, group].group_count == 0:
        pop(s.active[e], s.zone[e].active_size)
        s.zone[e].active_size -= 1
    else:
        s.instance[e, group].group_head = s.instance[e, row].next
    count_waiting(s, e, row, -1)
    return row


@inlined
def set_aside(s: State, e: int, group: int) -> None:
    """Put a group among those that are retried when capacity frees or a window opens."""
    s.aside[e, s.zone[e].aside_size] = group
    s.zone[e].aside_size += 1


@kernel
def retry_aside(s: State, e: int, machine: int) -> None:
    """Reactivate the groups that a machine with newly freed capacity can take; -1: all groups."""
    kept = 0
    for at in range(s.zone[e].aside_size):
        group = s.aside[e, at]
        if machine < 0 or machine_is_open(s, e, machine, s.instance[e, group].task):
            queue_group(s, e, group)
        else:
            s.aside[e, kept] = group
            kept += 1
    s.zone[e].aside_size = kept


@inlined
def has_choice(s: State, e: int, row: int) -> bool:
    """Return whether at least one machine or peer is unmasked for an instance."""
    task = s.instance[e, row].task
    for machine in range(s.machine.shape[1]):
        if machine_is_open(s, e, machine, task):
            return True
    for peer in range(s.peer.shape[1]):
        if peer_is_open(s, e, peer, row):
            return True
    return False


@inlined
def find_head(s: State, e: int) -> bool:
    """Bring an instance that has a choice to the head of the queue; return whether there is one."""
    while s.zone[e].active_size > 0:
        group = s.active[e, 0].row
        if has_choice(s, e, s.instance[e, group].group_head):
            return True
        if s.parameters[0].is_strict == 1:
            return False
        pop(s.active[e], s.zone[e].active_size)
        s.zone[e].active_size -= 1
        set_aside(s, e, group)
    return False
