"""How many jobs a second offer the configured load.

Load of a resource = requested work (request x seconds at speed 1) over the zone's allocatable
capacity at its mean speed, plus background use over allocatable. A zone's load is that of its most
loaded resource, the binding one, over the episode's horizon; a resource that the zone does not have
cannot bind. Shapes: K task types, R resources.
"""

import math

import numpy as np

from marl_sched.config import Experiment, ModulatedPoisson, Stream, SyntheticWorkload, Waves, Zone
from marl_sched.errors import ConfigError
from marl_sched.workload.capacity import ZoneCapacity
from marl_sched.workload.table import Float, InstanceTable
from marl_sched.workload.task_types import TypeColumns, mean_stages, type_mix


def job_rates(experiment: Experiment, workload: SyntheticWorkload, zone: Zone) -> list[float]:
    """Return the mean job arrivals per second of every stream of a zone.

    Waves are given. The Poisson streams share what waves and background use leave: a stream's
    share counts on its own binding resource, and all are scaled together until the zone's binding
    resource is at the load.

    Raises:
        ConfigError: Nothing is left for the Poisson streams.
    """
    types = TypeColumns.of(experiment, workload)
    capacity = ZoneCapacity.of(experiment, zone)
    load = zone.load if zone.load is not None else workload.load
    given = capacity.background_load  # (R,)
    mixed = np.zeros(len(given))
    rates = []
    for source in workload.streams:
        unit = capacity.work_load(_work_a_job(types, workload, zone, source), 1.0)  # (R,) at 1/s
        arrivals = source.arrivals
        if isinstance(arrivals, Waves):
            rates.append(_wave_rate(source, arrivals, experiment.episode.horizon_s))
            given = given + unit * rates[-1]
        else:
            rates.append(arrivals.share / float(unit.max()))
            mixed = mixed + unit * rates[-1]
    if not mixed.any():
        return rates
    if (given >= load).any():
        raise ConfigError(
            f"zone {zone.name}: load = {load}, expected more than background use and waves alone "
            f"offer, {given.max():.3f} on {experiment.resources[int(given.argmax())]}"
        )
    used = mixed > 0
    scale = float(np.min((load - given[used]) / mixed[used]))
    return [
        rate * scale if isinstance(source.arrivals, ModulatedPoisson) else rate
        for source, rate in zip(workload.streams, rates, strict=True)
    ]


def offered_load(experiment: Experiment, zone: Zone, table: InstanceTable) -> Float:
    """Return (R,) the load that a drawn table offers by its reference durations."""
    capacity = ZoneCapacity.of(experiment, zone)
    work = (np.diff(table.task_instance_start) * table.reference_s) @ table.request
    load = capacity.work_load(work, experiment.episode.horizon_s)
    return load + capacity.background_load


def mixture(experiment: Experiment, workload: SyntheticWorkload, zone: Zone) -> tuple[float, float]:
    """Return mean (s) and sigma of the lognormal with the moments of all the zone's instances.

    This is what a policy knows of a duration when it is told nothing of the task.
    """
    types = TypeColumns.of(experiment, workload)
    weight = np.zeros(len(types.mean_s))
    for source, rate in zip(workload.streams, job_rates(experiment, workload, zone), strict=True):
        tasks = rate * mean_stages(source)
        weight = weight + tasks * type_mix(workload, zone, source) * types.mean_instances(source)
    weight = weight / weight.sum()
    mean = float(weight @ types.mean_s)
    second = float(weight @ (types.mean_s**2 * np.exp(types.sigma**2)))
    return mean, math.sqrt(math.log(second / mean**2))


def wave_starts(arrivals: Waves, horizon_s: float) -> Float:
    """Return when the waves of an episode begin, in s."""
    return np.arange(0.0, horizon_s, arrivals.period_s)


def _work_a_job(
    types: TypeColumns, workload: SyntheticWorkload, zone: Zone, source: Stream
) -> Float:
    """Return (R,) mean requested work of a job: request x seconds at speed 1."""
    instances = type_mix(workload, zone, source) * types.mean_instances(source)
    work: Float = mean_stages(source) * ((instances * types.mean_s) @ types.request)
    return work


def _wave_rate(source: Stream, arrivals: Waves, horizon_s: float) -> float:
    n_tasks = len(wave_starts(arrivals, horizon_s)) * (arrivals.min_tasks + arrivals.max_tasks) / 2
    return n_tasks / mean_stages(source) / horizon_s
