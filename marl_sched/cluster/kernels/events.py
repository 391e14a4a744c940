"""What happens at its time: finishes, machine events, background use, arrivals, the end."""

from marl_sched.cluster.kernels.accounts import score_instance, score_job, score_task
from marl_sched.cluster.kernels.heaps import pop, push, sort_rows
from marl_sched.cluster.kernels.machines import set_background, take
from marl_sched.cluster.kernels.queue import note_freed, retry_all, wait
from marl_sched.cluster.model import (
    ABSENT,
    DRAIN,
    DRAINING,
    FAIL,
    FAILED,
    FINISHED,
    NOT_READY,
    OFFLOADED,
    SUM_RESTARTS,
    UP,
    State,
)
from marl_sched.kernel_cache import inlined, inner

NEVER = 1 << 62


@inlined
def next_event_us(s: State, e: int) -> int:
    """Return the time of the next event of a replica, NEVER if there is none."""
    at = NEVER
    z = s.zone[e]
    if z.finish_size > 0:
        at = min(at, s.running[e, 0].first)
    if z.next_event < z.n_events:
        at = min(at, s.event[e, z.next_event].at_us)
    if z.next_step < z.n_steps:
        at = min(at, z.next_step * z.step_us)
    if z.transit_size > 0:
        at = min(at, s.transit[e, 0].first)
    if z.next_job < z.n_jobs:
        at = min(at, s.job[e, z.next_job].arrival_us)
    return at


@inner
def handle_event(s: State, e: int) -> None:
    """Carry out one event due at `now_us`: finishes first, arrivals of jobs last."""
    now_us = s.zone[e].now_us
    if s.zone[e].finish_size > 0 and s.running[e, 0].first <= now_us:
        finish_first(s, e)
    elif (
        s.zone[e].next_event < s.zone[e].n_events
        and s.event[e, s.zone[e].next_event].at_us <= now_us
    ):
        s.zone[e].next_event += 1
        change_machine(s, e, s.zone[e].next_event - 1)
    elif (
        s.zone[e].next_step < s.zone[e].n_steps
        and s.zone[e].next_step * s.zone[e].step_us <= now_us
    ):
        set_background(s, e, s.zone[e].next_step)
        s.zone[e].next_step += 1
        retry_all(s, e)
    elif s.zone[e].transit_size > 0 and s.transit[e, 0].first <= now_us:
        receive_first(s, e)
    else:
        arrive(s, e, s.zone[e].next_job)
        s.zone[e].next_job += 1


@inner
def finish_first(s: State, e: int) -> None:
    """Finish the running instance whose time has come and retry what its machine can now take."""
    row = s.running[e, 0].row
    pop(s.running[e], s.zone[e].finish_size)
    s.zone[e].finish_size -= 1
    machine = s.instance[e, row].machine
    take(s, e, machine, row, -1)
    s.instance[e, row].status = FINISHED
    score_instance(s, e, row, s.instance[e, row].finish_us, True)
    if s.instance[e, row].via_zone >= 0:
        s.notice[e, s.zone[e].notice_size] = row
        s.zone[e].notice_size += 1
    else:
        leave_task(s, e, row)
    note_freed(s, e, machine)


@inner
def leave_task(s: State, e: int, row: int) -> None:
    """Take a finished instance of our own off its task; the last one makes the children ready."""
    task = s.instance[e, row].task
    s.task[e, task].instances_left -= 1
    s.task[e, task].finish_us = max(s.task[e, task].finish_us, s.instance[e, row].finish_us)
    if s.task[e, task].instances_left > 0:
        return
    score_task(s, e, task, s.task[e, task].ready_us, s.task[e, task].finish_us)
    job = s.task[e, task].job
    s.job[e, job].tasks_left -= 1
    if s.job[e, job].tasks_left == 0:
        latest_us = s.task[e, task].finish_us
        for other in range(
            s.job[e, job].first_task, s.job[e, job].first_task + s.job[e, job].n_tasks
        ):
            latest_us = max(latest_us, s.task[e, other].finish_us)
        score_job(s, e, job, latest_us)
    first = s.task[e, task].first_child
    for at in range(first, first + s.task[e, task].n_children):
        child = s.children[e, at]
        s.task[e, child].parents_left -= 1
        if s.task[e, child].parents_left == 0 and s.job[e, job].has_failed == 0:
            make_ready(s, e, child)


@inner
def make_ready(s: State, e: int, task: int) -> None:
    """Queue all instances of a task."""
    s.task[e, task].ready_us = s.zone[e].now_us
    s.zone[e].became_ready += s.task[e, task].n_instances
    first = s.task[e, task].first_instance
    for row in range(first, first + s.task[e, task].n_instances):
        wait(s, e, row, s.zone[e].now_us)


@inner
def arrive(s: State, e: int, job: int) -> None:
    """Let a job arrive: its tasks without parents are ready."""
    first = s.job[e, job].first_task
    for task in range(first, first + s.job[e, job].n_tasks):
        if s.task[e, task].parents_left == 0:
            make_ready(s, e, task)


@inner
def receive_first(s: State, e: int) -> None:
    """Queue the offloaded instance that arrives now; its ready time stays that of its origin."""
    row = s.transit[e, 0].row
    pop(s.transit[e], s.zone[e].transit_size)
    s.zone[e].transit_size -= 1
    s.zone[e].became_ready += 1
    wait(s, e, row, s.instance[e, row].ready_us)


@inner
def change_machine(s: State, e: int, number: int) -> None:
    """Carry out a machine event; a failure kills what runs there."""
    machine = s.event[e, number].machine
    kind = s.event[e, number].kind
    if kind == FAIL:
        s.machine[e, machine].status = ABSENT
        kill_all(s, e, machine)
    elif kind == DRAIN:
        if s.machine[e, machine].status == UP:
            s.machine[e, machine].status = DRAINING
    else:
        s.machine[e, machine].status = UP
        if s.parameters[0].is_masked == 1:
            note_freed(s, e, machine)
        else:
            # Where none was up nothing could be picked, fit or not.
            retry_all(s, e)


@inner
def kill_all(s: State, e: int, machine: int) -> None:
    """Take every instance off a failed machine and queue it again, its progress lost."""
    kept = 0
    size = s.zone[e].finish_size
    heap = s.running[e]
    dead = s.aside[e, s.zone[e].aside_size :]
    n_dead = 0
    for at in range(size):
        row = heap[at].row
        if s.instance[e, row].machine == machine:
            dead[n_dead] = row
            n_dead += 1
        else:
            # What is kept is pushed anew: a heap of the first `kept` entries, never ahead of `at`.
            push(heap, kept, (heap[at].first, heap[at].second, 0), row)
            kept += 1
    s.zone[e].finish_size = kept
    # In the order of the rows, not of the heap. The free tail of `aside` holds them until then:
    # requeueing goes to the active heap.
    sort_rows(dead[:n_dead])
    for at in range(n_dead):
        kill(s, e, dead[at], machine)


@inner
def kill(s: State, e: int, row: int, machine: int) -> None:
    """Let an instance die with its machine: queued again, or its job fails."""
    take(s, e, machine, row, -1)
    s.void[e, s.zone[e].void_size] = row
    s.zone[e].void_size += 1
    s.instance[e, row].restarts += 1
    s.sums[e, SUM_RESTARTS] += 1.0
    ready_us = s.instance[e, row].ready_us
    if s.instance[e, row].restarts <= s.parameters[0].max_restarts:
        wait(s, e, row, ready_us)
        return
    s.instance[e, row].status = FAILED
    if s.instance[e, row].via_zone >= 0:
        s.instance[e, row].finish_us = s.zone[e].now_us
        s.notice[e, s.zone[e].notice_size] = row
        s.zone[e].notice_size += 1
    else:
        s.job[e, s.task[e, s.instance[e, row].task].job].has_failed = 1


@inner
def close_episode(s: State, e: int) -> None:
    """Score what has not finished by the end: nobody gains by not placing.

    An instance that never became ready counts from its job's arrival. Instances at a peer are
    scored there.
    """
    end_us = s.zone[e].now_us
    for row in range(s.zone[e].n_instances):
        status = s.instance[e, row].status
        if status == NOT_READY or (status == FAILED and s.instance[e, row].ready_us < 0):
            job = s.task[e, s.instance[e, row].task].job
            s.instance[e, row].ready_us = s.job[e, job].arrival_us
        if status not in (FINISHED, OFFLOADED):
            score_instance(s, e, row, end_us, False)
    for job in range(s.zone[e].n_jobs):
        first = s.job[e, job].first_task
        for task in range(first, first + s.job[e, job].n_tasks):
            if s.task[e, task].instances_left > 0:
                ready_us = s.task[e, task].ready_us
                if ready_us < 0:
                    ready_us = s.job[e, job].arrival_us
                score_task(s, e, task, ready_us, end_us)
        if s.job[e, job].tasks_left > 0:
            score_job(s, e, job, end_us)
