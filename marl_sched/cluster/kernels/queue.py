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
from marl_sched.kernel_cache import inlined, inner


@inlined
def fits(s: State, e: int, machine: int, task: int) -> bool:
    """Return whether a machine takes placements and has the task's request free.

    What is not requested always fits, also where background use has left less than nothing free.
    """
    if s.machine[e, machine].status != UP:
        return False
    for r in range(s.request.shape[2]):
        if s.request[e, task, r] > max(0, s.free[e, machine, r]):
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
def wait(s: State, e: int, row: int, ready_us: int) -> None:
    """Let an instance wait: in its task's group if that has its ready time, else in a new one."""
    task = s.instance[e, row].task
    s.instance[e, row].status = WAITING
    s.instance[e, row].ready_us = ready_us
    count_waiting(s, e, row, 1)
    group = s.task[e, task].group
    if (
        group >= 0
        and s.group[e, group].ready_us == ready_us
        and s.group[e, group].hops == s.instance[e, row].hops
    ):
        s.instance[e, s.group[e, group].tail].next = row
        s.group[e, group].tail = row
        s.group[e, group].count += 1
        return
    group = new_group(s, e, row)
    s.task[e, task].group = group
    queue_group(s, e, group)


@inlined
def new_group(s: State, e: int, row: int) -> int:
    """Return a new group of one waiting instance, behind those of its priority and ready time."""
    if s.zone[e].free_group > 0:
        group = s.zone[e].free_group - 1
        s.zone[e].free_group = s.group[e, group].next_free
    else:
        group = s.zone[e].n_groups
        s.zone[e].n_groups += 1
    s.group[e, group].task = s.instance[e, row].task
    s.group[e, group].head = row
    s.group[e, group].tail = row
    s.group[e, group].count = 1
    s.group[e, group].hops = s.instance[e, row].hops
    s.group[e, group].ready_us = s.instance[e, row].ready_us
    s.group[e, group].sequence = s.zone[e].sequence
    s.zone[e].sequence += 1
    return group


@inlined
def queue_key(s: State, e: int, group: int) -> tuple[int, int, int]:
    """Return what the queue is ordered by: -priority, ready time, sequence."""
    priority = s.task[e, s.group[e, group].task].priority
    return -priority, s.group[e, group].ready_us, s.group[e, group].sequence


@inlined
def queue_group(s: State, e: int, group: int) -> None:
    """Put a group in the active heap."""
    push(s.active[e], s.zone[e].active_size, queue_key(s, e, group), group)
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
    row = s.group[e, group].head
    s.group[e, group].head = s.instance[e, row].next
    s.group[e, group].count -= 1
    if s.group[e, group].count == 0:
        pop(s.active[e], s.zone[e].active_size)
        s.zone[e].active_size -= 1
        if s.task[e, s.group[e, group].task].group == group:
            s.task[e, s.group[e, group].task].group = -1
        s.group[e, group].next_free = s.zone[e].free_group
        s.zone[e].free_group = group + 1
    count_waiting(s, e, row, -1)
    return row


@inlined
def set_aside(s: State, e: int, group: int) -> None:
    """Put a group among those that are retried when capacity frees or a window opens."""
    s.aside[e, s.zone[e].aside_size] = group
    s.zone[e].aside_size += 1


@inner
def retry_all(s: State, e: int) -> None:
    """Reactivate every group that was set aside."""
    for at in range(s.zone[e].aside_size):
        queue_group(s, e, s.aside[e, at])
    s.zone[e].aside_size = 0
    forget_freed(s, e)


@inlined
def note_freed(s: State, e: int, machine: int) -> None:
    """Note that a machine has freed capacity, for the groups set aside."""
    if s.zone[e].aside_size == 0 or s.machine[e, machine].status != UP:
        return
    if s.machine[e, machine].has_freed == 0:
        s.machine[e, machine].has_freed = 1
        s.zone[e].freed += 1


@inlined
def forget_freed(s: State, e: int) -> None:
    """Note that nothing set aside fits what was freed."""
    if s.zone[e].freed > 0:
        for machine in range(s.machine.shape[1]):
            s.machine[e, machine].has_freed = 0
        s.zone[e].freed = 0


@inlined
def freed_span(s: State, e: int) -> tuple[int, int]:
    """Return the first and the last machine with freed capacity: most often they are the same."""
    first = s.machine.shape[1]
    last = -1
    for machine in range(s.machine.shape[1]):
        if s.machine[e, machine].has_freed == 1:
            first = min(first, machine)
            last = machine
    return first, last


@inner
def retry_first(s: State, e: int) -> None:
    """Reactivate the first group set aside that fits a machine with freed capacity.

    One at a time: the first of a thousand usually takes all that was freed.
    """
    found = -1
    first, last = freed_span(s, e)
    for at in range(s.zone[e].aside_size):
        if found >= 0 and not is_before(s, e, s.aside[e, at], s.aside[e, found]):
            continue
        task = s.group[e, s.aside[e, at]].task
        for machine in range(first, last + 1):
            if s.machine[e, machine].has_freed == 1 and fits(s, e, machine, task):
                found = at
                break
    if found < 0:
        forget_freed(s, e)
        return
    group = s.aside[e, found]
    if s.zone[e].active_size > 0 and is_before(s, e, s.active[e, 0].row, group):
        return
    s.zone[e].aside_size -= 1
    s.aside[e, found] = s.aside[e, s.zone[e].aside_size]
    queue_group(s, e, group)


@inlined
def is_before(s: State, e: int, group: int, other: int) -> bool:
    """Return whether a group goes before another."""
    priority = s.task[e, s.group[e, group].task].priority
    other_priority = s.task[e, s.group[e, other].task].priority
    if priority != other_priority:
        return priority > other_priority
    if s.group[e, group].ready_us != s.group[e, other].ready_us:
        return s.group[e, group].ready_us < s.group[e, other].ready_us
    return s.group[e, group].sequence < s.group[e, other].sequence


@inner
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


@inner
def find_head(s: State, e: int) -> bool:
    """Bring an instance that has a choice to the head of the queue; return whether there is one."""
    while True:
        if s.zone[e].freed > 0:
            retry_first(s, e)
        if s.zone[e].active_size == 0:
            return False
        group = s.active[e, 0].row
        if has_choice(s, e, s.group[e, group].head):
            return True
        if s.parameters[0].is_strict == 1:
            return False
        pop(s.active[e], s.zone[e].active_size)
        s.zone[e].active_size -= 1
        set_aside(s, e, group)
