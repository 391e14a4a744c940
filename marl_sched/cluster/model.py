"""The whole truth of one zone in E replicas, as arrays that the kernels work on.

Shapes: E replicas, M machines, P peer zones, N instances, T tasks, J jobs, R resources (0 is cpu,
1 is memory). Rows of N, T and J beyond the counts in `zone` are unused; N and T grow when peers
send instances. Times are int64 microseconds of simulated time, amounts int64 in the resources'
units, real use float64 in the same units.

    instance status   set by
    NOT_READY         the episode's table: a parent task has not finished
    WAITING           in a group of the active heap or set aside
    RUNNING           start; machine, start_us and finish_us are set
    FINISHED          the finish event
    FAILED            its job failed: it died more than max_restarts times
    OFFLOADED         sent to a peer, for good: the zone where it ends scores it
    IN_TRANSIT        sent by a peer, not yet here

A group is waiting instances of one task with one ready time: one entry of the queue, however many
they are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOT_READY, WAITING, RUNNING, FINISHED, FAILED, OFFLOADED, IN_TRANSIT = range(7)
ABSENT, UP, DRAINING = range(3)
JOIN, DRAIN, FAIL, RETURN = range(4)
EVENT_KINDS = {"join": JOIN, "drain": DRAIN, "fail": FAIL, "return": RETURN}

PARAMETERS = np.dtype(
    [
        ("interference", "f8"),  # kappa
        ("is_masked", "i8"),
        ("is_strict", "i8"),  # strict first-in-first-out: the head blocks
        ("max_hops", "i8"),
        ("max_restarts", "i8"),
        ("offload_base_us", "f8"),
        ("offload_us_per_mib", "f8"),
        ("allowance", "f8"),
        ("window_us", "i8"),
        ("digest_period_us", "i8"),
        ("measured_from_us", "i8"),
        ("measured_to_us", "i8"),
        ("end_us", "i8"),
        ("zone", "i8"),  # own index among all zones, sorted by name
    ]
)
ZONE = np.dtype(
    [
        ("now_us", "i8"),
        ("sequence", "i8"),  # breaks ties of equal times
        ("decisions", "i8"),  # decisions asked for so far
        ("n_jobs", "i8"),
        ("n_tasks", "i8"),
        ("n_instances", "i8"),
        ("next_job", "i8"),
        ("n_events", "i8"),  # machine events of the episode
        ("next_event", "i8"),
        ("n_steps", "i8"),  # steps of background use
        ("next_step", "i8"),
        ("step_us", "i8"),
        ("n_groups", "i8"),  # groups ever used
        ("free_group", "i8"),  # first unused one of them plus 1, 0 without one
        ("freed", "i8"),  # machines with capacity freed since their last retry
        ("active_size", "i8"),
        ("aside_size", "i8"),
        ("finish_size", "i8"),
        ("transit_size", "i8"),
        ("sent_size", "i8"),
        ("notice_size", "i8"),
        ("void_size", "i8"),
        ("waiting", "i8"),  # instances that are ready and not placed
        ("became_ready", "i8"),  # instances, in this window
        ("ready_rate", "f8"),  # instances a minute, moving average
        ("slowdown", "f8"),  # duration over work of recent starts, moving average
    ],
    align=True,
)
MACHINE = np.dtype(
    [
        ("status", "i8"),
        ("running", "i8"),
        ("has_freed", "i8"),  # capacity was freed: groups set aside may fit now
        ("speed", "f8"),
        ("price", "f8"),
    ],
    align=True,
)
INSTANCE = np.dtype(
    [
        ("task", "i4"),
        ("status", "i4"),
        ("machine", "i4"),
        ("next", "i4"),  # next instance of its group
        ("restarts", "i4"),
        ("hops", "i4"),  # offloads it has behind it
        ("via_zone", "i4"),  # zone that sent it here, -1 if it is our own
        ("via_instance", "i4"),  # its row there
        ("failed_creations", "i4"),
        ("peer", "i4"),  # where it was sent
        ("work_us", "i8"),
        ("ready_us", "i8"),
        ("start_us", "i8"),
        ("finish_us", "i8"),  # in transit: arrival time
        ("sequence", "i8"),
        ("decision", "i8"),  # the decision that placed or sent it
        ("transfer_us", "i8"),  # spent on the way here
    ],
    align=True,
)
TASK = np.dtype(
    [
        ("job", "i4"),  # -1: an instance of a peer
        ("first_instance", "i4"),
        ("n_instances", "i4"),
        ("instances_left", "i4"),
        ("parents_left", "i4"),
        ("first_child", "i4"),
        ("n_children", "i4"),
        ("priority", "i4"),
        ("task_class", "i4"),
        ("group", "i4"),  # a waiting group that more instances may join, -1 without one
        ("via_zone", "i4"),  # of an instance of a peer: the zone that sent it, else -1
        ("via_task", "i4"),  # and the task's row there
        ("ready_us", "i8"),
        ("finish_us", "i8"),  # latest finish of its instances so far
        ("latest_wait_us", "i8"),
        ("latest_finish_us", "i8"),
        ("reference_s", "f8"),
        ("known_mean_s", "f8"),
        ("known_sigma", "f8"),
    ],
    align=True,
)
JOB = np.dtype(
    [
        ("arrival_us", "i8"),
        ("first_task", "i8"),
        ("n_tasks", "i8"),
        ("tasks_left", "i8"),
        ("has_failed", "i8"),
    ],
    align=True,
)
GROUP = np.dtype(
    [
        ("task", "i4"),
        ("head", "i4"),  # first instance
        ("tail", "i4"),
        ("count", "i4"),
        ("next_free", "i4"),  # of an unused group: the next one
        ("hops", "i4"),
        ("ready_us", "i8"),
        ("sequence", "i8"),
    ],
    align=True,
)
HEAP_ENTRY = np.dtype([("first", "i8"), ("second", "i8"), ("third", "i8"), ("row", "i8")])
EVENT = np.dtype([("at_us", "i8"), ("machine", "i8"), ("kind", "i8")], align=True)
PEER = np.dtype(
    [
        ("digest_us", "i8"),
        ("queue", "f8"),
        ("speed", "f8"),
        ("price", "f8"),
        ("slowdown", "f8"),
        ("is_known", "i8"),  # 0 until the first digest
    ],
    align=True,
)
N_FOREIGN = 1024
"""Slots that remember which row a peer's task got, so that its instances share it."""
N_SHAPES = 4
"""Most machine shapes (Pareto-largest allocatable vectors) a digest names."""
N_BINS = 2048
"""Bins of a histogram: bin b holds values in LOWEST * 1.01**[b, b + 1); the ends are open."""
LOWEST = 1e-3
HISTOGRAMS = ("wait_s", "completion_s", "slowdown")


class State(NamedTuple):
    """All arrays of one zone; see the module for the shapes' letters."""

    parameters: NDArray[np.void]  # (1,) PARAMETERS
    zone: NDArray[np.void]  # (E,) ZONE
    machine: NDArray[np.void]  # (E, M) MACHINE
    capacity: NDArray[np.int64]  # (M, R)
    reserved: NDArray[np.int64]  # (M, R)
    has: NDArray[np.float64]  # (M, R) 1 where the machine has the resource, else 0
    per_unit: NDArray[np.float64]  # (M, R) 1 / capacity, 0 without the resource
    per_asked: NDArray[np.float64]  # (M, R) 1 / capacity, 1 without: what is asked of it is missing
    allocatable: NDArray[np.int64]  # (E, M, R)
    free: NDArray[np.int64]  # (E, M, R); negative while background use took what was allocated
    use: NDArray[np.float64]  # (E, M, R), background included
    background: NDArray[np.float64]  # (E, M, R), the part of `use` that is background
    moving: NDArray[np.float64]  # (E, M, 2, R) moving mean and variance of utilization
    series: NDArray[np.float64]  # (E, S, M, R) background use in steps of zone.step_us
    event: NDArray[np.void]  # (E, V) EVENT, by time
    job: NDArray[np.void]  # (E, J) JOB
    task: NDArray[np.void]  # (E, T) TASK
    request: NDArray[np.int64]  # (E, T, R)
    known_use: NDArray[np.float64]  # (E, T, R)
    children: NDArray[np.int32]  # (E, K)
    instance: NDArray[np.void]  # (E, N) INSTANCE
    instance_use: NDArray[np.float64]  # (E, N, R)
    group: NDArray[np.void]  # (E, N) GROUP
    foreign: NDArray[np.int32]  # (E, N_FOREIGN) latest task row + 1 of peers' tasks, by hash
    active: NDArray[np.void]  # (E, N) HEAP_ENTRY: groups by (-priority, ready time, sequence)
    aside: NDArray[np.int32]  # (E, N) groups that fitted nowhere
    running: NDArray[np.void]  # (E, N) HEAP_ENTRY: by (finish, sequence, 0)
    transit: NDArray[np.void]  # (E, N) HEAP_ENTRY: by (arrival, zone it comes from, sequence)
    sent: NDArray[np.int32]  # (E, N) instances offloaded in this window
    notice: NDArray[np.int32]  # (E, N) foreign instances finished in this window
    void: NDArray[np.int32]  # (E, N) instances that died in this window
    queue_request: NDArray[np.int64]  # (E, R) requests of waiting instances
    peer: NDArray[np.void]  # (E, P) PEER
    peer_zone: NDArray[np.int64]  # (P,) index of each peer among all zones
    peer_amount: NDArray[np.float64]  # (E, P, 7, R), the rows named PEER_...
    peer_shape: NDArray[np.float64]  # (E, P, N_SHAPES, R) allocatable of the largest machines
    sums: NDArray[np.float64]  # (E, N_SUMS), metrics.py names them
    histogram: NDArray[np.int64]  # (E, 3, N_BINS), see HISTOGRAMS


(
    PEER_ALLOCATABLE,
    PEER_FREE,
    PEER_SLOT,
    PEER_UTILIZATION,
    PEER_SENT,
    PEER_IMBALANCE,
    PEER_LARGEST,  # of the first of its largest machines that has the resource
) = range(7)
N_PEER_AMOUNTS = 7

# Columns of State.sums; after them, per resource: zone_imbalance, utilization, allocation_ratio,
# each summed over samples.
(
    SUM_INSTANCES,  # scored in this zone: where they were at the end
    SUM_STARTED,
    SUM_LATE,
    SUM_VIOLATED,
    SUM_UNFINISHED,
    SUM_SLOWDOWN,
    SUM_COST,
    SUM_WAIT_S,
    SUM_OFFLOADS,  # sent from here
    SUM_CREATIONS,  # picks of a machine, and instances that were never picked one
    SUM_FAILED_CREATIONS,  # picks that did not fit, and instances that were never started
    SUM_RESTARTS,
    SUM_TASKS,  # of jobs of this zone
    SUM_TASK_COMPLETION_S,
    SUM_JOBS,
    SUM_JOB_COMPLETION_S,
    SUM_FAILED_JOBS,
    SUM_SAMPLES,  # window boundaries measured
    SUM_MEMORY_OVERUSE,  # machines whose memory use exceeds their capacity, over samples
    SUM_PRICE,  # price per hour of the allocated share of the machines, over samples
    SUM_FRAGMENTATION,  # 1 - largest free cpu slot over all free cpu, over samples
) = range(21)
N_PLAIN_SUMS = 21

# Columns of the facts of a start; after them, per resource: change of the zone's std of
# utilization, the machine's utilization after, the zone's mean utilization after, the request over
# the zone's allocatable, and 1 if the machine has the resource.
(
    FACT_WAIT_S,
    FACT_DURATION_S,
    FACT_WORK_S,
    FACT_REFERENCE_S,
    FACT_LATE,
    FACT_VIOLATED,
    FACT_VIOLATED_BY_WORK,  # the drawn work alone exceeds the limit: no placement could help
    FACT_COST,
    FACT_TRANSFER_S,  # spent on the way here, 0 for our own
    FACT_BEHIND,  # instances waiting behind it
    FACT_IS_FAILED,  # a creation that failed
    FACT_INSTANCE,
    FACT_DECISION,
) = range(13)
N_PLAIN_FACTS = 13
N_FACT_BLOCKS = 5
