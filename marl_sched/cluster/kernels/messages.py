"""Messages between zones as rows of float64, in which every int64 of a run is exact.

An offload is a row (REPLICA, TO, FROM, SEQUENCE, INSTANCE, TIME, then the columns below, then
request, use and known use per resource). A finish notice and a settlement share the head. TIME is
when the message takes effect at the earliest; the receiver takes the later of it and the start of
its next window.
"""

from typing import Any

from numpy.typing import NDArray

from marl_sched.cluster.kernels.events import leave_task
from marl_sched.cluster.kernels.heaps import push
from marl_sched.cluster.model import IN_TRANSIT, State
from marl_sched.kernel_cache import inner

REPLICA, TO, FROM, SEQUENCE, INSTANCE_ROW, TIME = range(6)
(
    O_READY,
    O_WORK,
    O_PRIORITY,
    O_CLASS,
    O_RESTARTS,
    O_HOPS,
    O_TRANSFER,
    O_REFERENCE,
    O_MEAN,
    O_SIGMA,
    O_LATEST_WAIT,
    O_LATEST_FINISH,
    O_FAILED_CREATIONS,
    O_TASK,
) = range(6, 20)
N_OFFLOAD = 20
"""Plain columns of an offload; 3 R more follow."""
N_FAILED = 6
N_NOTICE = 7
S_REWARD, S_SIGN = 6, 7
N_SETTLEMENT = 8


@inner
def write_offloads(s: State, e: int, out: NDArray[Any], at: int) -> int:
    """Write the instances a replica sent in this window to out[at:] and return the next row."""
    n_resources = s.request.shape[2]
    for number in range(s.zone[e].sent_size):
        row = s.sent[e, number]
        task = s.instance[e, row].task
        out[at, REPLICA] = e
        out[at, TO] = s.peer_zone[s.instance[e, row].peer]
        out[at, FROM] = s.parameters[0].zone
        out[at, SEQUENCE] = s.instance[e, row].sequence
        out[at, INSTANCE_ROW] = row
        out[at, TIME] = s.instance[e, row].finish_us
        out[at, O_READY] = s.instance[e, row].ready_us
        out[at, O_WORK] = s.instance[e, row].work_us
        out[at, O_PRIORITY] = s.task[e, task].priority
        out[at, O_CLASS] = s.task[e, task].task_class
        out[at, O_RESTARTS] = s.instance[e, row].restarts
        out[at, O_HOPS] = s.instance[e, row].hops + 1
        out[at, O_TRANSFER] = s.instance[e, row].transfer_us
        out[at, O_REFERENCE] = s.task[e, task].reference_s
        out[at, O_MEAN] = s.task[e, task].known_mean_s
        out[at, O_SIGMA] = s.task[e, task].known_sigma
        out[at, O_LATEST_WAIT] = s.task[e, task].latest_wait_us
        out[at, O_LATEST_FINISH] = s.task[e, task].latest_finish_us
        out[at, O_TASK] = task
        out[at, O_FAILED_CREATIONS] = s.instance[e, row].failed_creations
        for r in range(n_resources):
            out[at, N_OFFLOAD + r] = s.request[e, task, r]
            out[at, N_OFFLOAD + n_resources + r] = s.instance_use[e, row, r]
            out[at, N_OFFLOAD + 2 * n_resources + r] = s.known_use[e, task, r]
        at += 1
    s.zone[e].sent_size = 0
    return at


@inner
def write_notices(s: State, e: int, out: NDArray[Any], at: int) -> int:
    """Write the peers' instances that ended here in this window and return the next row."""
    for number in range(s.zone[e].notice_size):
        row = s.notice[e, number]
        out[at, REPLICA] = e
        out[at, TO] = s.instance[e, row].via_zone
        out[at, FROM] = s.parameters[0].zone
        out[at, SEQUENCE] = number
        out[at, INSTANCE_ROW] = s.instance[e, row].via_instance
        out[at, TIME] = s.instance[e, row].finish_us
        has_failed = s.instance[e, row].restarts > s.parameters[0].max_restarts
        out[at, N_FAILED] = 1.0 if has_failed else 0.0
        at += 1
    s.zone[e].notice_size = 0
    return at


@inner
def foreign_task(s: State, e: int, message: NDArray[Any]) -> int:
    """Return the row of a peer's task, made new unless its slot still remembers it."""
    zone = int(message[FROM])
    number = int(message[O_TASK])
    slot = (number * 31 + zone) % s.foreign.shape[1]
    task = s.foreign[e, slot] - 1
    if task >= 0 and s.task[e, task].via_zone == zone and s.task[e, task].via_task == number:
        s.task[e, task].n_instances += 1
        return task
    task = s.zone[e].n_tasks
    s.zone[e].n_tasks += 1
    s.foreign[e, slot] = task + 1
    s.task[e, task].job = -1
    s.task[e, task].group = -1
    s.task[e, task].via_zone = zone
    s.task[e, task].via_task = number
    s.task[e, task].first_instance = s.zone[e].n_instances
    s.task[e, task].n_instances = 1
    s.task[e, task].priority = int(message[O_PRIORITY])
    s.task[e, task].task_class = int(message[O_CLASS])
    s.task[e, task].reference_s = message[O_REFERENCE]
    s.task[e, task].known_mean_s = message[O_MEAN]
    s.task[e, task].known_sigma = message[O_SIGMA]
    s.task[e, task].latest_wait_us = int(message[O_LATEST_WAIT])
    s.task[e, task].latest_finish_us = int(message[O_LATEST_FINISH])
    s.task[e, task].ready_us = int(message[O_READY])
    n_resources = s.request.shape[2]
    for r in range(n_resources):
        s.request[e, task, r] = int(message[N_OFFLOAD + r])
        s.known_use[e, task, r] = message[N_OFFLOAD + 2 * n_resources + r]
    return task


@inner
def receive_offload(s: State, message: NDArray[Any]) -> None:
    """Add an instance that a peer sent; it arrives at max(its time, now)."""
    e = int(message[REPLICA])
    row = s.zone[e].n_instances
    s.instance[e, row].task = foreign_task(s, e, message)
    s.zone[e].n_instances += 1
    s.instance[e, row].status = IN_TRANSIT
    s.instance[e, row].machine = -1
    s.instance[e, row].restarts = int(message[O_RESTARTS])
    s.instance[e, row].hops = int(message[O_HOPS])
    s.instance[e, row].via_zone = int(message[FROM])
    s.instance[e, row].via_instance = int(message[INSTANCE_ROW])
    s.instance[e, row].failed_creations = int(message[O_FAILED_CREATIONS])
    s.instance[e, row].work_us = int(message[O_WORK])
    s.instance[e, row].ready_us = int(message[O_READY])
    s.instance[e, row].transfer_us = int(message[O_TRANSFER])
    s.instance[e, row].finish_us = max(int(message[TIME]), s.zone[e].now_us)
    s.instance[e, row].sequence = int(message[SEQUENCE])
    s.instance[e, row].decision = -1
    n_resources = s.request.shape[2]
    for r in range(n_resources):
        s.instance_use[e, row, r] = message[N_OFFLOAD + n_resources + r]
    key = (s.instance[e, row].finish_us, int(message[FROM]), int(message[SEQUENCE]))
    push(s.transit[e], s.zone[e].transit_size, key, row)
    s.zone[e].transit_size += 1


@inner
def receive_notice(s: State, message: NDArray[Any]) -> None:
    """Learn that an offloaded instance has ended; one that only passed through is reported on."""
    e = int(message[REPLICA])
    row = int(message[INSTANCE_ROW])
    has_failed = message[N_FAILED] == 1.0
    s.instance[e, row].finish_us = int(message[TIME])
    if s.instance[e, row].via_zone >= 0:
        # It stays OFFLOADED: the zone where it ended scores it. Its restarts tell of a failure.
        if has_failed:
            s.instance[e, row].restarts = s.parameters[0].max_restarts + 1
        s.notice[e, s.zone[e].notice_size] = row
        s.zone[e].notice_size += 1
    elif has_failed:
        s.job[e, s.task[e, s.instance[e, row].task].job].has_failed = 1
    else:
        leave_task(s, e, row)
