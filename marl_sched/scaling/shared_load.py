"""Zones that are dealt or pooled: one mix of task types, one load, as many jobs as before."""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from marl_sched.config import Experiment, SyntheticWorkload
from marl_sched.config.messages import problems
from marl_sched.errors import ConfigError
from marl_sched.workload.offered_load import job_rates

_SAME = 1e-4
"""Jobs a second that differ by this share are the same."""
_WORTH_SAYING = 0.005
_MAX_STEPS = 8


@dataclass(frozen=True)
class Scaled:
    """A configuration of another size.

    Attributes:
        experiment: The configuration.
        notes: What is not exactly as in the file, for the reader of the figures.
    """

    experiment: Experiment
    notes: tuple[str, ...] = ()


def validated(values: dict[str, Any]) -> Experiment:
    """Return an experiment of its values.

    Raises:
        ConfigError: They do not fit together.
    """
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        found = problems(error, Experiment)
        raise ConfigError(
            f"{values['name']} with {len(values['zones'])} zones: {found[0]}"
        ) from None


def mean_mix(experiment: Experiment) -> dict[str, float] | None:
    """Return the shares of task types over all zones' jobs; None: all have the workload's own."""
    workload = experiment.workload
    if not isinstance(workload, SyntheticWorkload):
        return None
    if all(zone.mix is None for zone in experiment.zones):
        return None
    total: dict[str, float] = {task_type.name: 0.0 for task_type in workload.task_types}
    for zone in experiment.zones:
        mix = zone.mix or dict.fromkeys(total, 1.0)
        rates = zip(workload.streams, job_rates(experiment, workload, zone), strict=True)
        n_jobs = sum(rate for stream, rate in rates if stream.mix is None)
        for name, share in mix.items():
            total[name] += n_jobs * share / sum(mix.values())
    whole = sum(total.values())
    return {name: share / whole for name, share in total.items()} if whole else None


def mean_load(experiment: Experiment) -> float | None:
    """Return the mean load of the zones by their cpu; None: all have the workload's own."""
    if all(zone.load is None for zone in experiment.zones):
        return None
    cpu = experiment.resources[0]
    weights = [sum(g.count * g.capacity[cpu] for g in zone.machines) for zone in experiment.zones]
    loads = [
        experiment.workload.load if zone.load is None else zone.load for zone in experiment.zones
    ]
    return sum(w * load for w, load in zip(weights, loads, strict=True)) / sum(weights)


def as_many_jobs(before: Experiment, after: Experiment) -> Scaled:
    """Set the load of dealt or pooled zones so that as many jobs arrive as before.

    Load is that of the binding resource, and what binds a zone may not bind a mean one: an equal
    load would be other work. Jobs a second are piecewise linear in the load, so that a few secant
    steps find it. What arrives of a trace follows the load alone.

    Raises:
        ConfigError: There is no such load.
    """
    wanted = _job_rate(before)
    if not wanted:
        return Scaled(after)
    load = after.zones[0].load or after.workload.load
    was = mean_load(before) or before.workload.load
    points: list[tuple[float, float]] = []
    for _ in range(_MAX_STEPS):
        rate = _job_rate(after)
        if abs(rate / wanted - 1) < _SAME:
            break
        points.append((load, rate))
        if len(points) == 1:
            load *= wanted / rate
        else:
            (load_a, rate_a), (load_b, rate_b) = points[-2:]
            if rate_a == rate_b:
                break
            load = load_b + (wanted - rate_b) * (load_b - load_a) / (rate_b - rate_a)
        zones = [zone.model_dump() | {"load": load} for zone in after.zones]
        after = validated(after.model_dump() | {"zones": zones})
    if abs(load / was - 1) < _WORTH_SAYING:
        return Scaled(after)
    note = f"load {load:.3f}, not {was:.3f}: as many jobs arrive, but zones share one mix"
    return Scaled(after, (note,))


def zone_jobs(experiment: Experiment) -> list[float]:
    """Return the jobs a second of every zone; 1 each if they are known only once drawn."""
    workload = experiment.workload
    if not isinstance(workload, SyntheticWorkload):
        return [1.0 for _ in experiment.zones]
    return [sum(job_rates(experiment, workload, zone)) for zone in experiment.zones]


def _job_rate(experiment: Experiment) -> float:
    """Return the jobs a second of all zones; 0 if they are not known before they are drawn."""
    is_known = isinstance(experiment.workload, SyntheticWorkload)
    return sum(zone_jobs(experiment)) if is_known else 0.0
