"""Episodes of a trace: a window of it, thinned to the load that one zone can bear.

All zones of an episode see the same window, as zones of one cluster would; each draws its own jobs
of it, without replacement, in random order, until the requested load (request x mean duration, on
the binding resource that background use leaves free, at the zone's mean speed) is as configured. A
window longer than the horizon is squeezed into it: arrivals come closer, durations stay.
Shapes: J jobs, T tasks, N instances, R resources.
"""

import logging
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from marl_sched.config import MICROSECONDS, Experiment, GeneratedWorkload, TraceWorkload, Zone
from marl_sched.config.streams import stream as random_stream
from marl_sched.errors import TraceError
from marl_sched.workload.assembly import offsets, segment_rows
from marl_sched.workload.capacity import ZoneCapacity
from marl_sched.workload.table import Float, InstanceTable, Int
from marl_sched.workload.traces.expansion import expand_durations, expand_use
from marl_sched.workload.traces.knowledge import Knowledge, learn
from marl_sched.workload.traces.source import Source, source_of
from marl_sched.workload.traces.tasks import MEAN, TaskTable

_logger = logging.getLogger(__name__)

Bool = NDArray[np.bool_]
Drawn = TraceWorkload | GeneratedWorkload


@dataclass(frozen=True)
class TraceAccount:
    """Where the jobs of a window went; the counts add up to n_window_jobs.

    Attributes:
        window_start_s: Trace second at which the episode begins.
        n_window_jobs: Jobs that arrive in the window.
        n_unplaceable: Left out: an instance is larger than any machine of the zone.
        n_too_long: Left out: a task's mean duration is above max_duration_s.
        n_too_large: Left out: above max_job_share of the zone's machine-seconds.
        n_overshooting: Passed over: they would have taken the load beyond its tolerance.
        n_not_needed: Not drawn: the load was reached before.
        n_drawn: In the table.
        load: Requested load drawn.
    """

    window_start_s: int
    n_window_jobs: int
    n_unplaceable: int
    n_too_long: int
    n_too_large: int
    n_overshooting: int
    n_not_needed: int
    n_drawn: int
    load: float


def draw_trace(
    experiment: Experiment, workload: Drawn, zone: Zone, split: str, episode: int
) -> tuple[InstanceTable, TraceAccount]:
    """Draw one zone's jobs of one episode, and say what was left out.

    Raises:
        TraceError: The task table cannot be read, or the window holds too little load.
    """
    source = source_of(experiment, workload)
    _warn_of_lacking(source, tuple(experiment.resources))
    start_s = _start(experiment, workload, split, episode)
    window = _open_window(experiment, workload, source.tasks(), zone, start_s)
    key = (experiment.seed, split, episode, zone.name)
    load = zone.load if zone.load is not None else workload.load
    picked, account = _pick(window, load, workload, random_stream(*key, "trace-jobs"))
    if not account.n_drawn or account.load < load * (1.0 - workload.load_tolerance):
        raise TraceError(
            f"{source}: zone {zone.name}, {split} episode {episode}: "
            f"{_shortage(workload, window, account)}, expected {load} "
            f"+- {workload.load_tolerance:.0%}: a lower load, fewer machines, a larger "
            "max_job_share or a longer window_s"
        )
    return _table(experiment, workload, source, window, picked, key), account


@lru_cache(maxsize=64)
def _warn_of_lacking(source: Source, resources: tuple[str, ...]) -> None:
    """Say once how many tasks ask for what the cluster does not have."""
    tasks = source.tasks()
    for column, name in enumerate(tasks.resources):
        count = int((tasks.request[:, column] > 0).sum())
        if name not in resources and count:
            _logger.warning(
                "%s: %d of %d tasks ask for %s, which is none of the cluster's resources: their "
                "jobs are left out",
                source,
                count,
                tasks.n_tasks,
                name,
            )


def _shortage(workload: Drawn, window: "_Window", account: TraceAccount) -> str:
    """Say in numbers why a window offers too little."""
    tasks = window.tasks
    reasons = [f"{account.n_too_large} above max_job_share = {workload.max_job_share}"]
    if workload.max_duration_s is not None:
        reasons.append(f"{account.n_too_long} above max_duration_s = {workload.max_duration_s}")
    reasons.append(f"{account.n_unplaceable} larger than any machine")
    first_s, last_s = tasks.job_arrival_us[[0, -1]] / MICROSECONDS
    outside = (
        "" if account.n_window_jobs else f"; the trace's arrivals span [{first_s:g}, {last_s:g}]"
    )
    return (
        f"the window of {window.length_s} s at trace second {window.start_s} offers a load of "
        f"{account.load:.3f} by {account.n_drawn} of {account.n_window_jobs} jobs "
        f"({', '.join(reasons)}){outside}"
    )


@dataclass(frozen=True)
class _Window:
    """The jobs of the trace that arrive in the window, W of them.

    Attributes:
        tasks: The whole trace.
        start_s: Trace second at which it opens.
        length_s: Its length.
        jobs: (W,) rows of the trace's jobs.
        job_load: (W, R) each job's requested work over what is free.
        is_placeable: (W,) every instance fits a machine of the zone.
        is_short: (W,) every task's mean duration is within max_duration_s.
    """

    tasks: TaskTable
    start_s: int
    length_s: float
    jobs: Int
    job_load: Float
    is_placeable: Bool
    is_short: Bool


def _window_s(experiment: Experiment, workload: Drawn) -> float:
    return workload.window_s or experiment.episode.horizon_s


def _start(experiment: Experiment, workload: Drawn, split: str, episode: int) -> int:
    """Return the trace second at which an episode begins: the same for all zones."""
    earliest, end = workload.test_arrivals_s if split == "test" else workload.train_arrivals_s
    first = math.ceil(earliest)
    latest = max(first, math.floor(end - _window_s(experiment, workload)))
    generator = random_stream(experiment.seed, split, episode, "", "trace-window")
    return int(generator.integers(first, latest + 1))


def _open_window(
    experiment: Experiment, workload: Drawn, tasks: TaskTable, zone: Zone, start_s: int
) -> _Window:
    length_s = _window_s(experiment, workload)
    end_us = (start_s + int(length_s)) * MICROSECONDS
    first, last = np.searchsorted(tasks.job_arrival_us, [start_s * MICROSECONDS, end_us])
    bounds = tasks.job_task_start[first : last + 1]
    rows = np.arange(bounds[0], bounds[-1])
    request = _requests(experiment, tasks, rows)
    duration_s = tasks.duration_s[rows, MEAN]
    work = (tasks.n_instances[rows] * duration_s)[:, None] * request
    is_short = duration_s <= (workload.max_duration_s or math.inf)
    fits = _has_resources(experiment, tasks, rows)
    capacity = ZoneCapacity.of(experiment, zone)
    starts = bounds[:-1] - bounds[0]
    if len(starts):
        job_work = np.add.reduceat(work, starts)
        fits = np.logical_and.reduceat(fits & capacity.fits(request), starts)
        is_short = np.logical_and.reduceat(is_short, starts)
    else:
        job_work = np.zeros((0, request.shape[1]))
    job_load = capacity.work_load(job_work, experiment.episode.horizon_s, shared=False)
    return _Window(tasks, start_s, length_s, np.arange(first, last), job_load, fits, is_short)


def _pick(
    window: _Window, load: float, workload: Drawn, generator: np.random.Generator
) -> tuple[Int, TraceAccount]:
    """Draw jobs (rows of the trace, ascending) in random order until the load is reached."""
    is_large = window.job_load.max(1, initial=0.0) > workload.max_job_share
    is_long = window.is_placeable & ~window.is_short
    eligible = np.flatnonzero(window.is_placeable & window.is_short & ~is_large)
    order = generator.permutation(eligible)
    ceiling = load * (1.0 + workload.load_tolerance)
    total = [0.0] * window.job_load.shape[1]
    drawn, n_seen = [], 0
    for job, added in zip(order.tolist(), window.job_load[order].tolist(), strict=True):
        if max(total) >= load:
            break
        n_seen += 1
        candidate = [a + b for a, b in zip(total, added, strict=True)]
        if max(candidate) <= ceiling:
            total = candidate
            drawn.append(job)
    account = TraceAccount(
        window_start_s=window.start_s,
        n_window_jobs=len(window.jobs),
        n_unplaceable=int((~window.is_placeable).sum()),
        n_too_long=int(is_long.sum()),
        n_too_large=int((window.is_placeable & window.is_short & is_large).sum()),
        n_overshooting=n_seen - len(drawn),
        n_not_needed=len(order) - n_seen,
        n_drawn=len(drawn),
        load=max(total),
    )
    return window.jobs[np.sort(np.array(drawn, np.int64))], account


def _table(
    experiment: Experiment,
    workload: Drawn,
    source: Source,
    window: _Window,
    jobs: Int,
    key: tuple[int, str, int, str],
) -> InstanceTable:
    """Write down the drawn jobs (rows of the trace) in the order of their arrival."""
    tasks = window.tasks
    # Jobs of one tick of the trace's clock, most often a second, are spread over it.
    tick_s = tasks.resolution_us / MICROSECONDS
    offset_s = (tasks.job_arrival_us[jobs] - window.start_s * MICROSECONDS) / MICROSECONDS
    offset_s = offset_s + tick_s * random_stream(*key, "arrivals").random(len(jobs))
    squeeze = experiment.episode.horizon_s / window.length_s
    arrival_us = (offset_s * squeeze * MICROSECONDS).astype(np.int64)
    order = np.argsort(arrival_us, kind="stable")
    jobs, arrival_us = jobs[order], arrival_us[order]
    n_tasks = np.diff(tasks.job_task_start)[jobs]
    rows = segment_rows(tasks.job_task_start[jobs], n_tasks)  # (T,)
    n_parents = np.diff(tasks.parent_start)[rows]
    first_task = np.repeat(offsets(n_tasks)[:-1], n_tasks)  # (T,) where the task's job begins here
    edges = segment_rows(tasks.parent_start[rows], n_parents)
    counts = tasks.n_instances[rows]
    request = _requests(experiment, tasks, rows)
    reference_s = tasks.duration_s[rows, MEAN]
    known = learn(source, *workload.train_arrivals_s, experiment.duration_knowledge).at(rows)
    duration_s = expand_durations(tasks.duration_s[rows], counts, random_stream(*key, "durations"))
    sla = experiment.sla
    wait_s = sla.late_base_s + sla.late_factor * reference_s
    return InstanceTable(
        job_arrival_us=arrival_us,
        job_task_start=offsets(n_tasks),
        task_instance_start=offsets(counts),
        task_parent_start=offsets(n_parents),
        task_parents=tasks.parents[edges] + np.repeat(first_task, n_parents),
        task_priority=tasks.priority[rows],
        task_class=known.task_class,
        request=request,
        reference_s=reference_s,
        known_mean_s=known.mean_s,
        known_sigma=known.sigma,
        known_use=_known_use(experiment, tasks, known, request),
        latest_wait_us=np.round(wait_s * MICROSECONDS).astype(np.int64),
        latest_finish_us=np.round(workload.finish_slack * reference_s * MICROSECONDS).astype(
            np.int64
        ),
        work_us=np.maximum(1, np.round(duration_s * MICROSECONDS)).astype(np.int64),
        use=_use(experiment, tasks, rows, random_stream(*key, "use")),
    )


def _columns(experiment: Experiment, tasks: TaskTable) -> list[tuple[int, int]]:
    """Return (place in the experiment, place in the trace) of the resources that both have."""
    return [
        (place, tasks.resources.index(name))
        for place, name in enumerate(experiment.resources)
        if name in tasks.resources
    ]


def _requests(experiment: Experiment, tasks: TaskTable, rows: Int) -> Int:
    """Return the requests (T, R) of some tasks; of resources that the trace lacks, none."""
    request = np.zeros((len(rows), experiment.n_resources), np.int64)
    for place, column in _columns(experiment, tasks):
        request[:, place] = tasks.request[rows, column]
    return request


def _has_resources(experiment: Experiment, tasks: TaskTable, rows: Int) -> Bool:
    """Return which tasks (T,) ask for no resource that the cluster lacks."""
    lacking = [name not in experiment.resources for name in tasks.resources]
    fits: Bool = np.all(tasks.request[rows][:, lacking] == 0, axis=1)
    return fits


def _known_use(experiment: Experiment, tasks: TaskTable, known: Knowledge, request: Int) -> Float:
    share = np.zeros(request.shape)
    for place, column in _columns(experiment, tasks):
        share[:, place] = known.use_share[:, column]
    return share * request


def _use(
    experiment: Experiment, tasks: TaskTable, rows: Int, generator: np.random.Generator
) -> Float:
    """Return the real use (N, R) of the instances of some tasks."""
    counts = tasks.n_instances[rows]
    use = np.zeros((int(counts.sum()), experiment.n_resources))
    for place, column in _columns(experiment, tasks):
        use[:, place] = expand_use(tasks.use[rows, column], counts, generator)
    return use
