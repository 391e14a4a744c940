"""What no single field can know: how the parts of an experiment must fit together.

Every check yields `path = value, expected ...` and must stand the faults that the other checks
report, since all of them run.
"""

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from marl_sched.config.cluster import MachineGroup, Zone
from marl_sched.config.learning import CENTRAL
from marl_sched.config.workload import DrawnWorkload, SyntheticWorkload, TaskType
from marl_sched.config.yaml_text import show_value

if TYPE_CHECKING:  # experiment.py imports this module
    from marl_sched.config.experiment import Experiment
    from marl_sched.config.learning import Federation

_MICROSECONDS = 1_000_000
_MAX_WINDOWS = 1_000_000
_MAX_MACHINES = 100_000
_N_ALWAYS_THERE = 2
"""Resources that every machine must have: cpu and memory, the first of the list."""


def problems(experiment: "Experiment") -> Iterator[str]:
    """Yield everything that does not fit, in the order of the file."""
    yield from _duplicates("resources[{}]", experiment.resources)
    yield from _absent_resources(experiment)
    yield from _duplicates("zones[{}].name", experiment.zone_names)
    for index, zone in enumerate(experiment.zones):
        yield from _zone_problems(experiment, f"zones[{index}]", zone)
    yield from _time_problems(experiment)
    if isinstance(experiment.workload, SyntheticWorkload):
        yield from _synthetic_problems(experiment, experiment.workload)
    else:
        yield from _drawn_problems(experiment, experiment.workload)
    yield from _resource_name_problems(experiment)
    yield from _reward_problems(experiment)
    yield from _strategy_problems(experiment)
    yield from _teacher_problems(experiment)
    if experiment.agent.finds_quantiles and not experiment.training.validation_episodes:
        yield (
            "training.validation_episodes = 0, expected an integer > 0 with agent.n_quantiles = "
            "auto: they say which number is enough"
        )
    if experiment.federation.quorum > len(experiment.zones):
        yield (
            f"federation.quorum = {experiment.federation.quorum}, expected at most the number of "
            f"zones, {len(experiment.zones)}"
        )


def zones_needed(federation: "Federation") -> int:
    """Return how many zones a strategy needs to be what its name says."""
    match federation.strategy:
        case "fedmedian":
            return 3
        case "fedtrimmedavg":
            return math.ceil(1 / federation.trim_share)
        case "krum" | "multikrum":
            return 2 * federation.hostile_zones + 3
        case "bulyan":
            return 4 * federation.hostile_zones + 3
        case _:
            return 1


def _strategy_problems(experiment: "Experiment") -> Iterator[str]:
    federation, n_zones = experiment.federation, len(experiment.zones)
    needed = zones_needed(federation)
    if n_zones < needed:
        depends = {"fedtrimmedavg": "trim_share", "fedmedian": ""}
        key = depends.get(federation.strategy, "hostile_zones")
        given = f" with federation.{key} = {getattr(federation, key)}" if key else ""
        yield (
            f"federation.strategy = {federation.strategy}, expected at least {needed} zones for "
            f"it{given}, there are {n_zones}"
        )
    if federation.strategy == CENTRAL and experiment.agent.personal_head:
        yield (
            "federation.strategy = centralised, expected another one with agent.personal_head: "
            "one learner has one head"
        )
    if federation.strategy == "fedprox" and experiment.agent.personal_head:
        yield (
            "federation.strategy = fedprox, expected another one with agent.personal_head: there "
            "are no common weights of the head to stay near to"
        )


def _reward_problems(experiment: "Experiment") -> Iterator[str]:
    """Yield weights of resources that say nothing, or two things at once."""
    reward = experiment.reward
    counted = experiment.resources
    if reward.name == "outcome":
        counted = [r for r in counted if r in experiment.objective.imbalance_resources]
    if counted and not any(reward.resource_weights.get(name, 1.0) for name in counted):
        yield (
            f"reward.resource_weights = {show_value(reward.resource_weights)}, expected a weight "
            f"above 0 of one of {', '.join(counted)}"
        )
    if reward.resource_weighting == "fixed":
        return
    if reward.name != "outcome":
        yield (
            f"reward.resource_weighting = {reward.resource_weighting}, expected fixed with "
            f"reward.name = {reward.name}"
        )
    elif reward.resource_weights:
        yield (
            f"reward.resource_weights = {show_value(reward.resource_weights)}, expected none with "
            f"reward.resource_weighting = {reward.resource_weighting}"
        )


def _duplicates(path: str, names: list[str]) -> Iterator[str]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield f"{path.format(index)} = {name}, expected a name that does not stand there yet"


def _absent_resources(experiment: "Experiment") -> Iterator[str]:
    """Yield resources that every machine has 0 of; a missing key is reported elsewhere."""
    groups = [group for zone in experiment.zones for group in zone.machines]
    for index, resource in enumerate(experiment.resources[_N_ALWAYS_THERE:], _N_ALWAYS_THERE):
        if all(group.capacity.get(resource) == 0 for group in groups):
            yield (
                f"resources[{index}] = {resource}, expected a resource that some machine has: "
                "its capacity is 0 on all machines of all zones"
            )


def _zone_problems(experiment: "Experiment", path: str, zone: Zone) -> Iterator[str]:
    for number, group in enumerate(zone.machines):
        yield from _machine_problems(experiment.resources, f"{path}.machines[{number}]", group)
    if zone.n_machines > _MAX_MACHINES:
        yield f"{path} has {zone.n_machines} machines, expected at most {_MAX_MACHINES}"
    for number, event in enumerate(zone.machine_events):
        if event.machine >= zone.n_machines:
            yield (
                f"{path}.machine_events[{number}].machine = {event.machine}, expected an index "
                f"below the zone's {zone.n_machines} machines"
            )


def _machine_problems(resources: list[str], path: str, group: MachineGroup) -> Iterator[str]:
    yield from _key_problems(f"{path}.capacity", group.capacity, resources)
    for resource in resources[:_N_ALWAYS_THERE]:
        if group.capacity.get(resource) == 0:
            yield (
                f"{path}.capacity.{resource} = 0, expected an integer > 0: only resources after "
                f"{resources[_N_ALWAYS_THERE - 1]} may be 0"
            )
    for resource, amount in group.reserved.items():
        is_nothing_of_nothing = amount == group.capacity.get(resource) == 0
        if amount >= group.capacity.get(resource, 0) and not is_nothing_of_nothing:
            yield (
                f"{path}.reserved.{resource} = {amount}, expected a resource of the machine and "
                f"less than its capacity, {group.capacity.get(resource, 'none')}"
            )


def _key_problems(path: str, given: Iterable[str], resources: list[str]) -> Iterator[str]:
    if sorted(given) != sorted(set(resources)):
        keys = ", ".join(given) or "none"
        yield f"{path} has the keys {keys}, expected exactly {', '.join(resources)}"


def _resource_name_problems(experiment: "Experiment") -> Iterator[str]:
    """Yield names of resources that the cluster does not have."""
    named: dict[str, Iterable[str]] = {
        "objective.imbalance_resources": experiment.objective.imbalance_resources,
        "reward.resource_weights": experiment.reward.resource_weights,
    }
    for index, zone in enumerate(experiment.zones):
        if zone.background is not None:
            named[f"zones[{index}].background.mean"] = zone.background.mean
    for path, names in named.items():
        unknown = sorted(set(names) - set(experiment.resources))
        if unknown:
            known = ", ".join(experiment.resources)
            yield f"{path} names {', '.join(unknown)}, expected names out of {known}"


def _time_problems(experiment: "Experiment") -> Iterator[str]:
    window_us = experiment.window_us
    if window_us < 1:
        yield f"cluster.window_s = {experiment.cluster.window_s}, expected at least 0.000001"
        return
    if experiment.n_windows > _MAX_WINDOWS:
        yield (
            f"cluster.window_s = {experiment.cluster.window_s}, expected at most {_MAX_WINDOWS} "
            "windows in an episode (episode.horizon_s + drain_s)"
        )
    multiples = {"cluster.digest_period_s": experiment.cluster.digest_period_s}
    for index, zone in enumerate(experiment.zones):
        if zone.background is not None:
            multiples[f"zones[{index}].background.step_s"] = zone.background.step_s
    for path, value in multiples.items():
        value_us = round(value * _MICROSECONDS)
        if value_us < window_us or value_us % window_us:
            yield (
                f"{path} = {value}, expected a multiple of cluster.window_s = "
                f"{experiment.cluster.window_s}"
            )


def _synthetic_problems(experiment: "Experiment", workload: SyntheticWorkload) -> Iterator[str]:
    types = [task_type.name for task_type in workload.task_types]
    yield from _duplicates("workload.task_types[{}].name", types)
    yield from _duplicates("workload.streams[{}].name", [s.name for s in workload.streams])
    for index, task_type in enumerate(workload.task_types):
        yield from _task_type_problems(
            experiment, workload, f"workload.task_types[{index}]", task_type
        )
    mixes = {f"zones[{i}].mix": zone.mix for i, zone in enumerate(experiment.zones)}
    mixes |= {f"workload.streams[{i}].mix": s.mix for i, s in enumerate(workload.streams)}
    for path, mix in mixes.items():
        if mix is not None and (set(mix) - set(types) or sum(mix.values()) <= 0):
            yield (
                f"{path} = {show_value(mix)}, expected shares of {', '.join(types)}, not all zero"
            )
    for index, stream in enumerate(workload.streams):
        path = f"workload.streams[{index}]"
        if abs(sum(stream.stage_probabilities) - 1) > 1e-9:
            yield f"{path}.stage_probabilities = {stream.stage_probabilities}, expected a sum of 1"


def _task_type_problems(
    experiment: "Experiment", workload: SyntheticWorkload, path: str, task_type: TaskType
) -> Iterator[str]:
    yield from _key_problems(f"{path}.request", task_type.request, experiment.resources)
    yield from _use_problems(f"{path}.use", task_type, experiment.resources)
    cpu = experiment.resources[0]
    if task_type.request.get(cpu) == 0:
        yield (
            f"{path}.request.{cpu} = 0, expected an integer > 0: only resources after {cpu} "
            "may be 0"
        )
    groups = [group for zone in experiment.zones for group in zone.machines]
    if any(_fits(task_type.request, group, workload.request_jitter) for group in groups):
        return
    amounts = [_allocatable(group) for group in groups]
    largest = max(amounts, key=lambda amount: tuple(amount.get(r, 0) for r in experiment.resources))
    jitter = f" times 1 + request_jitter = {1 + workload.request_jitter:g}"
    yield (
        f"{path}.request = {show_value(task_type.request)}, expected that{jitter} fits on a "
        f"machine; the largest has {show_value(largest)}"
    )


def _use_problems(path: str, task_type: TaskType, resources: list[str]) -> Iterator[str]:
    """Yield keys that are unknown, or missing though the resource is requested."""
    given = set(task_type.use)
    optional = [r for r in resources if task_type.request.get(r) == 0]
    if given - set(resources) or set(resources) - given - set(optional):
        keys = ", ".join(task_type.use) or "none"
        needed = ", ".join(r for r in resources if r not in optional)
        also = f", and if you like {', '.join(optional)}" if optional else ""
        yield f"{path} has the keys {keys}, expected exactly {needed}{also}"


def _allocatable(group: MachineGroup) -> dict[str, int]:
    return {r: amount - group.reserved.get(r, 0) for r, amount in group.capacity.items()}


def _fits(request: dict[str, int], group: MachineGroup, jitter: float) -> bool:
    """Return whether the largest request of a type fits on an empty machine."""
    free = _allocatable(group)
    return all(amount * (1 + jitter) <= free.get(r, amount * 2) for r, amount in request.items())


def _drawn_problems(experiment: "Experiment", workload: DrawnWorkload) -> Iterator[str]:
    for index, zone in enumerate(experiment.zones):
        if zone.mix is not None:
            yield f"zones[{index}].mix is given, expected none: a trace has no task types"
    window_s = workload.window_s or experiment.episode.horizon_s
    for key in ("train_arrivals_s", "test_arrivals_s"):
        start, end = getattr(workload, key)
        if end - start < window_s:
            name = "episode.horizon_s" if workload.window_s is None else "workload.window_s"
            yield (
                f"workload.{key} = [{start}, {end}], expected a span of at least {name} = "
                f"{window_s}"
            )
    train, test = workload.train_arrivals_s, workload.test_arrivals_s
    if train[0] < test[1] and test[0] < train[1]:
        yield (
            f"workload.test_arrivals_s = {test}, expected no overlap with train_arrivals_s = "
            f"{train}"
        )


def _teacher_problems(experiment: "Experiment") -> Iterator[str]:
    """Yield what a teacher needs: it corrects a prior, whose opinion its network repeats."""
    samples, agent = experiment.teacher.samples, experiment.agent
    if not samples:
        return
    if not agent.has_prior:
        given = f"agent.algorithm = {agent.algorithm} with agent.prior = {agent.prior}"
        yield f"teacher.samples = {samples}, expected 0 with {given}: there is no prior to correct"
    elif agent.prior_scale:
        yield (
            f"agent.prior_scale = {agent.prior_scale}, expected 0 with teacher.samples = "
            f"{samples}: what the teacher found is measured against the prior's choice"
        )
    teacher, horizon_s = experiment.teacher, experiment.episode.horizon_s
    looked_ahead_s = teacher.horizon_s + teacher.value_horizon_s
    if looked_ahead_s > horizon_s / 2:
        yield (
            f"teacher.value_horizon_s = {teacher.value_horizon_s}, expected with "
            f"teacher.horizon_s = {teacher.horizon_s} at most half of "
            f"episode.horizon_s = {horizon_s}"
        )
