"""The generator of BASE: typed tasks in short chains, bursts, waves, at a set offered load.

Shapes: J jobs, T tasks, N instances, R resources, K task types. Every kind of draw has a stream of
its own (config/streams.py), keyed by the zone's name, so nothing depends on other zones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marl_sched.config import (
    MICROSECONDS,
    Experiment,
    ModulatedPoisson,
    Stream,
    SyntheticWorkload,
    Waves,
    Zone,
)
from marl_sched.config.streams import stream as random_stream
from marl_sched.workload.assembly import offsets, positions, ranks
from marl_sched.workload.capacity import ZoneCapacity
from marl_sched.workload.offered_load import job_rates, mixture, wave_starts
from marl_sched.workload.table import Float, InstanceTable, Int
from marl_sched.workload.task_types import TypeColumns, type_mix


@dataclass(frozen=True)
class _Jobs:
    """Jobs before their instances.

    Attributes:
        arrival_us: (J,).
        n_tasks: (J,) tasks of each job; the rest is in the order of the jobs.
        task_type: (T,).
        n_instances: (T,).
        factor: (T,) jitter of the requests.
    """

    arrival_us: Int
    n_tasks: Int
    task_type: Int
    n_instances: Int
    factor: Float


def draw_synthetic(
    experiment: Experiment, workload: SyntheticWorkload, zone: Zone, split: str, episode: int
) -> InstanceTable:
    """Draw one zone's jobs of one episode.

    Raises:
        ConfigError: Background use and waves alone exceed the configured load.
    """
    types = TypeColumns.of(experiment, workload)
    parts = []
    rates = job_rates(experiment, workload, zone)
    for source, rate in zip(workload.streams, rates, strict=True):
        key = (experiment.seed, split, episode, zone.name)
        arrival_us, n_tasks = _draw_jobs(
            source, rate, experiment.episode.horizon_s, random_stream(*key, f"jobs:{source.name}")
        )
        generator = random_stream(*key, f"tasks:{source.name}")
        n = int(n_tasks.sum())
        mix = type_mix(workload, zone, source)
        task_type = generator.choice(len(mix), size=n, p=mix)
        n_instances = np.minimum(
            generator.geometric(types.success_probability(source)[task_type]),
            source.max_instances,
        )
        jitter = workload.request_jitter
        factor = generator.uniform(1.0 - jitter, 1.0 + jitter, n)
        parts.append(_Jobs(arrival_us, n_tasks, task_type, n_instances, factor))
    jobs = _merge(parts)
    generator = random_stream(experiment.seed, split, episode, zone.name, "instances")
    return _table(experiment, workload, zone, jobs, generator)


def modulated_arrivals(
    arrivals: ModulatedPoisson, rate: float, horizon_s: float, generator: np.random.Generator
) -> Float:
    """Draw arrival times (J,) in s, ascending, of mean rate `rate` per second.

    The phase at the start is drawn from the stationary distribution, so the mean holds from 0 on.
    """
    means = (arrivals.calm_s, arrivals.burst_s)
    is_burst = bool(generator.random() < arrivals.burst_s / sum(means))
    ends, bursts = [], []
    now = 0.0
    while now < horizon_s:
        now += generator.exponential(means[is_burst])
        ends.append(min(now, horizon_s))
        bursts.append(is_burst)
        is_burst = not is_burst
    starts = np.array([0.0, *ends[:-1]])
    lengths = np.array(ends) - starts
    calm_rate = rate * sum(means) / (arrivals.calm_s + arrivals.burst_factor * arrivals.burst_s)
    factors = np.where(bursts, arrivals.burst_factor, 1.0)
    counts = generator.poisson(calm_rate * factors * lengths)
    times = np.repeat(starts, counts) + generator.random(counts.sum()) * np.repeat(lengths, counts)
    return np.sort(times)


def _draw_jobs(
    source: Stream, rate: float, horizon_s: float, generator: np.random.Generator
) -> tuple[Int, Int]:
    """Draw arrival times (J,) in us and numbers of tasks (J,) of one stream."""
    if isinstance(source.arrivals, Waves):
        times, n_tasks = _draw_waves(source, source.arrivals, horizon_s, generator)
    else:
        times = modulated_arrivals(source.arrivals, rate, horizon_s, generator)
        n_tasks = _draw_stages(source, len(times), generator)
    # (J,): a time that rounds up to the horizon would arrive after the last arrival window
    arrival_us = np.minimum(times * MICROSECONDS, horizon_s * MICROSECONDS - 1).astype(np.int64)
    return arrival_us, n_tasks


def _draw_waves(
    source: Stream, arrivals: Waves, horizon_s: float, generator: np.random.Generator
) -> tuple[Float, Int]:
    times, n_tasks = [], []
    for start in wave_starts(arrivals, horizon_s):
        wanted = int(generator.integers(arrivals.min_tasks, arrivals.max_tasks + 1))
        stages = _draw_stages(source, wanted, generator)
        before = np.cumsum(stages) - stages
        stages = np.minimum(stages, wanted - before)[before < wanted]  # exactly `wanted` tasks
        spread_s = min(arrivals.spread_s, horizon_s - start)
        times.append(start + spread_s * generator.random(len(stages)))
        n_tasks.append(stages)
    return np.concatenate(times), np.concatenate(n_tasks)


def _draw_stages(source: Stream, n: int, generator: np.random.Generator) -> Int:
    probabilities = source.stage_probabilities
    return generator.choice(len(probabilities), size=n, p=probabilities).astype(np.int64) + 1


def _merge(parts: Sequence[_Jobs]) -> _Jobs:
    """Put the jobs of all streams in the order of their arrival; ties keep the streams' order."""
    arrival_us = np.concatenate([part.arrival_us for part in parts])
    n_tasks = np.concatenate([part.n_tasks for part in parts])
    order = np.argsort(arrival_us, kind="stable")
    rank = np.empty_like(order)
    rank[order] = ranks(len(order))
    task_order = np.argsort(np.repeat(rank, n_tasks), kind="stable")
    return _Jobs(
        arrival_us=arrival_us[order],
        n_tasks=n_tasks[order],
        task_type=np.concatenate([part.task_type for part in parts])[task_order],
        n_instances=np.concatenate([part.n_instances for part in parts])[task_order],
        factor=np.concatenate([part.factor for part in parts])[task_order],
    )


def _table(
    experiment: Experiment,
    workload: SyntheticWorkload,
    zone: Zone,
    jobs: _Jobs,
    generator: np.random.Generator,
) -> InstanceTable:
    """Draw the instances and write the columns down."""
    types = TypeColumns.of(experiment, workload)
    kind = jobs.task_type
    request = _jittered(types, ZoneCapacity.of(experiment, zone), jobs)
    task = np.repeat(ranks(len(kind)), jobs.n_instances)  # (N,)
    sigma = types.sigma[kind][task]
    noise = generator.standard_normal(len(task))
    work_s = types.mean_s[kind][task] * np.exp(sigma * noise - sigma**2 / 2)
    has_parent = positions(jobs.n_tasks) > 0
    reference_s = types.mean_s[kind]
    known_mean_s, known_sigma = _knowledge(experiment, workload, zone, jobs, work_s)
    wait_s = experiment.sla.late_base_s + experiment.sla.late_factor * reference_s
    finish_s = types.finish_slack[kind] * reference_s
    return InstanceTable(
        job_arrival_us=jobs.arrival_us,
        job_task_start=offsets(jobs.n_tasks),
        task_instance_start=offsets(jobs.n_instances),
        task_parent_start=offsets(has_parent.astype(np.int64)),
        task_parents=ranks(len(kind))[has_parent] - 1,
        task_priority=types.priority[kind],
        task_class=kind,
        request=request,
        reference_s=reference_s,
        known_mean_s=known_mean_s,
        known_sigma=known_sigma,
        known_use=types.use_mean[kind] * request,
        latest_wait_us=np.round(wait_s * MICROSECONDS).astype(np.int64),
        latest_finish_us=np.round(finish_s * MICROSECONDS).astype(np.int64),
        work_us=np.maximum(1, np.round(work_s * MICROSECONDS)).astype(np.int64),
        use=_draw_use(types, kind, task, generator) * request[task],
    )


def _draw_use(types: TypeColumns, kind: Int, task: Int, generator: np.random.Generator) -> Float:
    """Return the shares (N, R) of the requests that the instances really use."""
    mean, sd = types.use_mean[kind][task], types.use_sd[kind][task]  # (N, R)
    share = mean + sd * generator.standard_normal(mean.shape)
    return np.clip(share, types.use_low[kind][task], types.use_high[kind][task])


def _knowledge(
    experiment: Experiment,
    workload: SyntheticWorkload,
    zone: Zone,
    jobs: _Jobs,
    work_s: Float,
) -> tuple[Float, Float]:
    """Return what policies may know: mean (T,) in s and sigma (T,) of a lognormal duration."""
    types = TypeColumns.of(experiment, workload)
    sigma = types.sigma[jobs.task_type]
    if experiment.duration_knowledge == "type":
        return types.mean_s[jobs.task_type], sigma
    if experiment.duration_knowledge == "none":
        mean_s, wide = mixture(experiment, workload, zone)
        return np.full(len(sigma), mean_s), np.full(len(sigma), wide)
    if not len(sigma):
        return np.zeros(0), sigma
    return np.add.reduceat(work_s, offsets(jobs.n_instances)[:-1]) / jobs.n_instances, sigma


def _jittered(types: TypeColumns, capacity: ZoneCapacity, jobs: _Jobs) -> Int:
    """Return the requests (T, R); the jitter never makes one too large for the zone.

    Where the type fits the zone, a request that the jitter made too large is cut to the machine
    that holds most of it. Where the type fits no machine here (it must be offloaded), the jitter
    only makes it smaller. Other zones' machines play no part: adding a zone changes no table. What
    is not requested stays so; what is comes to 1 at least.
    """
    nominal = types.request[jobs.task_type]
    request = nominal * jobs.factor[:, None]
    fits = capacity.fits(types.request)[jobs.task_type]
    request = np.where(fits[:, None], request, np.minimum(request, nominal))
    rows = np.flatnonzero(fits & ~capacity.fits(request))
    if len(rows):
        asked = np.broadcast_to(request[rows][:, None, :], (len(rows), *capacity.shapes.shape))
        excess = np.zeros(asked.shape)  # (rows, K, R)
        with np.errstate(divide="ignore"):
            np.divide(asked, capacity.shapes[None], out=excess, where=asked > 0)
        excess = excess.max(2)  # (rows, K)
        request[rows] = np.minimum(request[rows], capacity.shapes[excess.argmin(1)])
    rounded: Int = np.maximum(nominal > 0, np.round(request)).astype(np.int64)
    return rounded
