"""Make, fill and grow the state arrays of a zone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.machines import Machines, first_events
from marl_sched.cluster.model import (
    ABSENT,
    EVENT,
    GROUP,
    HEAP_ENTRY,
    HISTOGRAMS,
    INSTANCE,
    JOB,
    MACHINE,
    N_BINS,
    N_FOREIGN,
    N_PEER_AMOUNTS,
    N_PLAIN_SUMS,
    N_SHAPES,
    PARAMETERS,
    PEER,
    TASK,
    UP,
    ZONE,
    State,
)
from marl_sched.config import MICROSECONDS, Experiment, Zone
from marl_sched.workload.table import InstanceTable

_SPARE_ROWS = 256
_GROWN_BY_TASK = ("task", "request", "known_use")
_GROWN_BY_INSTANCE = (
    "instance",
    "instance_use",
    "group",
    "active",
    "aside",
    "running",
    "transit",
    "sent",
    "notice",
    "void",
)


@dataclass(frozen=True)
class EpisodeInput:
    """What happens to one replica from outside.

    Attributes:
        table: Jobs of the zone's users.
        events: (V,) EVENT, machine events by time.
        background: (S, M, R) background use in steps.
    """

    table: InstanceTable
    events: NDArray[np.void]
    background: NDArray[np.float64]


def empty_state(
    experiment: Experiment, machines: Machines, zone_index: int, inputs: Sequence[EpisodeInput]
) -> State:
    """Allocate the arrays for E = len(inputs) replicas, large enough for the inputs."""
    n, (m, r) = len(inputs), machines.capacity.shape
    tables = [item.table for item in inputs]
    jobs = max(table.n_jobs for table in tables)
    tasks = max(table.n_tasks for table in tables) + _SPARE_ROWS
    rows = max(table.n_instances for table in tables) + _SPARE_ROWS
    edges = max(len(table.task_parents) for table in tables)
    steps = max(len(item.background) for item in inputs)
    events = max(len(item.events) for item in inputs)
    n_peers = len(experiment.zones) - 1
    has = (machines.capacity > 0).astype(np.float64)

    def queue() -> NDArray[np.int32]:
        return np.zeros((n, rows), np.int32)

    return State(
        parameters=_parameters(experiment, zone_index),
        zone=np.zeros(n, ZONE),
        machine=np.zeros((n, m), MACHINE),
        capacity=machines.capacity,
        reserved=machines.reserved,
        has=has,
        per_unit=has / np.maximum(machines.capacity, 1),
        per_asked=1.0 / np.maximum(machines.capacity, 1),
        allocatable=np.tile(machines.capacity - machines.reserved, (n, 1, 1)),
        free=np.tile(machines.capacity - machines.reserved, (n, 1, 1)),
        use=np.zeros((n, m, r)),
        background=np.zeros((n, m, r)),
        moving=np.zeros((n, m, 2, r)),
        series=np.zeros((n, steps, m, r)),
        event=np.zeros((n, events), EVENT),
        job=np.zeros((n, jobs), JOB),
        task=np.zeros((n, tasks), TASK),
        request=np.zeros((n, tasks, r), np.int64),
        known_use=np.zeros((n, tasks, r)),
        children=np.zeros((n, edges), np.int32),
        instance=np.zeros((n, rows), INSTANCE),
        instance_use=np.zeros((n, rows, r)),
        group=np.zeros((n, rows), GROUP),
        foreign=np.zeros((n, N_FOREIGN), np.int32),
        active=np.zeros((n, rows), HEAP_ENTRY),
        aside=queue(),
        running=np.zeros((n, rows), HEAP_ENTRY),
        transit=np.zeros((n, rows), HEAP_ENTRY),
        sent=queue(),
        notice=queue(),
        void=queue(),
        queue_request=np.zeros((n, r), np.int64),
        peer=np.zeros((n, n_peers), PEER),
        peer_zone=np.array(
            [index for index in range(n_peers + 1) if index != zone_index], np.int64
        ),
        peer_amount=np.zeros((n, n_peers, N_PEER_AMOUNTS, r)),
        peer_shape=np.zeros((n, n_peers, N_SHAPES, r)),
        sums=np.zeros((n, N_PLAIN_SUMS + 3 * r)),
        histogram=np.zeros((n, len(HISTOGRAMS), N_BINS), np.int64),
    )


def _parameters(experiment: Experiment, zone_index: int) -> NDArray[np.void]:
    cluster, episode = experiment.cluster, experiment.episode
    parameters = np.zeros(1, PARAMETERS)
    parameters[0] = (
        cluster.interference,
        cluster.placement == "masked",
        cluster.queue == "strict-fifo",
        cluster.max_hops,
        cluster.max_restarts,
        cluster.offload_base_s * MICROSECONDS,
        cluster.offload_s_per_gib * MICROSECONDS / 1024,
        cluster.peer_queue_allowance,
        experiment.window_us,
        round(cluster.digest_period_s * MICROSECONDS),
        round(episode.measured_from * episode.horizon_s * MICROSECONDS),
        round(episode.horizon_s * MICROSECONDS),
        experiment.n_windows * experiment.window_us,
        zone_index,
    )
    return parameters


def fill_state(
    state: State, zone: Zone, machines: Machines, inputs: Sequence[EpisodeInput]
) -> None:
    """Write the machines and each replica's input into a fresh state."""
    first = first_events(zone)
    absent = [machine for machine, kind in first.items() if kind == "join"]
    step_s = 1.0 if zone.background is None else zone.background.step_s
    for e, item in enumerate(inputs):
        state.machine["status"][e] = UP
        state.machine["speed"][e] = machines.speed
        state.machine["price"][e] = machines.price_per_hour
        state.machine["status"][e, absent] = ABSENT
        state.zone["slowdown"][e] = 1.0
        state.zone["step_us"][e] = round(step_s * MICROSECONDS)
        state.zone["n_steps"][e] = len(item.background)
        state.zone["n_events"][e] = len(item.events)
        state.series[e, : len(item.background)] = item.background
        state.event[e, : len(item.events)] = item.events
        _fill_jobs(state, e, item.table)


def _fill_jobs(state: State, e: int, table: InstanceTable) -> None:
    n_jobs, n_tasks, n_rows = table.n_jobs, table.n_tasks, table.n_instances
    state.zone["n_jobs"][e], state.zone["n_tasks"][e] = n_jobs, n_tasks
    state.zone["n_instances"][e] = n_rows
    job, task, row = state.job[e, :n_jobs], state.task[e, :n_tasks], state.instance[e, :n_rows]
    job["arrival_us"] = table.job_arrival_us
    job["first_task"] = table.job_task_start[:-1]
    job["n_tasks"] = job["tasks_left"] = np.diff(table.job_task_start)
    task["job"] = np.repeat(np.arange(n_jobs), np.diff(table.job_task_start))
    task["first_instance"] = table.task_instance_start[:-1]
    task["n_instances"] = task["instances_left"] = np.diff(table.task_instance_start)
    task["parents_left"] = np.diff(table.task_parent_start)
    child_of_edge = np.repeat(np.arange(n_tasks), np.diff(table.task_parent_start))
    order = np.argsort(table.task_parents, kind="stable")
    state.children[e, : len(order)] = child_of_edge[order]
    task["n_children"] = np.bincount(table.task_parents, minlength=n_tasks)
    task["first_child"] = np.cumsum(task["n_children"]) - task["n_children"]
    task["priority"] = table.task_priority
    task["task_class"] = table.task_class
    task["ready_us"] = task["group"] = task["via_zone"] = -1
    task["latest_wait_us"] = table.latest_wait_us
    task["latest_finish_us"] = table.latest_finish_us
    task["reference_s"] = table.reference_s
    task["known_mean_s"] = table.known_mean_s
    task["known_sigma"] = table.known_sigma
    state.request[e, :n_tasks] = table.request
    state.known_use[e, :n_tasks] = table.known_use
    row["task"] = np.repeat(np.arange(n_tasks), np.diff(table.task_instance_start))
    row["machine"] = row["via_zone"] = row["via_instance"] = row["decision"] = -1
    row["ready_us"] = -1
    row["work_us"] = table.work_us
    state.instance_use[e, :n_rows] = table.use


def grow_arrays(arrays: dict[str, NDArray[Any]], incoming: NDArray[np.int64]) -> None:
    """Make room for `incoming` (E,) more instances of peers in each replica of a state.

    Args:
        arrays: Those of a state by name, replaced one by one: whoever holds no other reference to
            them never has two of everything.
        incoming: Number of instances by replica.
    """
    tasks = int((arrays["zone"]["n_tasks"] + incoming).max())
    rows = int((arrays["zone"]["n_instances"] + incoming).max())
    for names, needed in ((_GROWN_BY_TASK, tasks), (_GROWN_BY_INSTANCE, rows)):
        has = arrays[names[0]].shape[1]
        if needed <= has:
            continue
        more = max(needed - has, has // 2)
        for name in names:
            old = arrays[name]
            new = np.zeros((old.shape[0], has + more, *old.shape[2:]), old.dtype)
            new[:, :has] = old
            arrays[name] = new
