"""One experiment: everything a YAML file says, checked as a whole."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from marl_sched.config.base import Model, Name, NonNegativeInt
from marl_sched.config.cluster import Cluster, Episode, Zone
from marl_sched.config.learning import (
    Agent,
    Evaluation,
    Federation,
    Objective,
    Reward,
    Training,
    Tuning,
)
from marl_sched.config.workload import Sla, SyntheticWorkload, TraceWorkload

MICROSECONDS = 1_000_000


class Experiment(Model):
    """A whole experiment. Adding a zone is adding an item to `zones`."""

    version: Literal[1]
    """Version of this format."""
    name: Name
    """Names the run's folder."""
    seed: NonNegativeInt = 1
    """The one seed that all random streams are spawned from."""
    resources: list[Name] = Field(default=["cpu_milli", "memory_mib"], min_length=2)
    """Resources in the order of all arrays; the first is cpu, the second memory."""
    zones: list[Zone] = Field(min_length=1)
    cluster: Cluster = Cluster()
    workload: Annotated[SyntheticWorkload | TraceWorkload, Field(discriminator="kind")]
    sla: Sla = Sla()
    duration_knowledge: Literal["type", "task-mean", "none"] = "type"
    """What policies know of durations: the class's statistics, the task's own mean, or nothing."""
    episode: Episode = Episode()
    objective: Objective = Objective()
    reward: Reward = Reward()
    agent: Agent = Agent()
    training: Training = Training()
    federation: Federation = Federation()
    evaluation: Evaluation = Evaluation()
    tuning: Tuning = Tuning()

    @property
    def zone_names(self) -> list[str]:
        """Names of the zones, in the order of the file."""
        return [zone.name for zone in self.zones]

    @property
    def n_resources(self) -> int:
        """R: number of resources."""
        return len(self.resources)

    @property
    def window_us(self) -> int:
        """Length of a window in microseconds."""
        return round(self.cluster.window_s * MICROSECONDS)

    @property
    def n_windows(self) -> int:
        """Windows of an episode, horizon and drain together."""
        length_us = round((self.episode.horizon_s + self.episode.drain_s) * MICROSECONDS)
        return -(-length_us // self.window_us)

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        for problem in _problems(self):
            raise ValueError(problem)
        return self


def _problems(experiment: Experiment) -> Iterator[str]:
    """Yield what no single field can know, as `path = value, expected ...`."""
    yield from _time_problems(experiment)
    names = experiment.zone_names
    for index, zone in enumerate(experiment.zones):
        if zone.name in names[:index]:
            yield f"zones[{index}].name = {zone.name}, expected a name no other zone has"
        yield from _zone_problems(experiment, index, zone)
    unknown = set(experiment.objective.imbalance_resources) - set(experiment.resources)
    if unknown:
        yield (
            f"objective.imbalance_resources = {sorted(unknown)}, expected names out of "
            f"{experiment.resources}"
        )
    if experiment.federation.quorum > len(names):
        yield (
            f"federation.quorum = {experiment.federation.quorum}, expected at most the number of "
            f"zones, {len(names)}"
        )
    if isinstance(experiment.workload, SyntheticWorkload):
        yield from _synthetic_problems(experiment, experiment.workload)
    else:
        yield from _trace_problems(experiment, experiment.workload)


def _time_problems(experiment: Experiment) -> Iterator[str]:
    window_us = experiment.window_us
    multiples = {"cluster.digest_period_s": experiment.cluster.digest_period_s}
    for index, zone in enumerate(experiment.zones):
        if zone.background is not None:
            multiples[f"zones[{index}].background.step_s"] = zone.background.step_s
    for path, value in multiples.items():
        value_us = round(value * MICROSECONDS)
        if value_us < window_us or value_us % window_us:
            yield (
                f"{path} = {value}, expected a multiple of cluster.window_s = "
                f"{experiment.cluster.window_s}"
            )


def _zone_problems(experiment: Experiment, index: int, zone: Zone) -> Iterator[str]:
    resources = experiment.resources
    for number, group in enumerate(zone.machines):
        path = f"zones[{index}].machines[{number}]"
        if sorted(group.capacity) != sorted(resources):
            yield f"{path}.capacity = {group.capacity}, expected exactly the keys {resources}"
        for resource, amount in group.reserved.items():
            if resource not in resources or amount > group.capacity[resource]:
                yield (
                    f"{path}.reserved.{resource} = {amount}, expected a resource out of "
                    f"{resources} and at most its capacity"
                )
    for number, event in enumerate(zone.machine_events):
        if event.machine >= zone.n_machines:
            yield (
                f"zones[{index}].machine_events[{number}].machine = {event.machine}, expected an "
                f"index below the zone's {zone.n_machines} machines"
            )
    if zone.background is not None:
        unknown = set(zone.background.mean) - set(resources)
        if unknown:
            yield f"zones[{index}].background.mean has {sorted(unknown)}, expected {resources}"


def _synthetic_problems(experiment: Experiment, workload: SyntheticWorkload) -> Iterator[str]:
    resources = experiment.resources
    types = [task_type.name for task_type in workload.task_types]
    largest = {
        resource: max(
            group.capacity.get(resource, 0) - group.reserved.get(resource, 0)
            for zone in experiment.zones
            for group in zone.machines
        )
        for resource in resources
    }
    for index, task_type in enumerate(workload.task_types):
        path = f"workload.task_types[{index}]"
        for key, given in (("request", task_type.request), ("use", task_type.use)):
            if sorted(given) != sorted(resources):
                yield f"{path}.{key} has the keys {sorted(given)}, expected exactly {resources}"
        for resource, amount in task_type.request.items():
            if amount > largest.get(resource, amount):
                yield (
                    f"{path}.request.{resource} = {amount}, expected at most what the largest "
                    f"machine has, {largest[resource]}"
                )
    mixes = {f"zones[{i}].mix": zone.mix for i, zone in enumerate(experiment.zones)}
    mixes |= {f"workload.streams[{i}].mix": s.mix for i, s in enumerate(workload.streams)}
    for path, mix in mixes.items():
        if mix is not None and (set(mix) - set(types) or sum(mix.values()) <= 0):
            yield f"{path} = {mix}, expected shares of {types}, not all zero"
    for index, stream in enumerate(workload.streams):
        if abs(sum(stream.stage_probabilities) - 1) > 1e-9:
            yield (
                f"workload.streams[{index}].stage_probabilities = {stream.stage_probabilities}, "
                "expected a sum of 1"
            )


def _trace_problems(experiment: Experiment, workload: TraceWorkload) -> Iterator[str]:
    for key in ("train_arrivals_s", "test_arrivals_s"):
        start, end = getattr(workload, key)
        if end - start < experiment.episode.horizon_s:
            yield (
                f"workload.{key} = [{start}, {end}], expected a span of at least "
                f"episode.horizon_s = {experiment.episode.horizon_s}"
            )
    train, test = workload.train_arrivals_s, workload.test_arrivals_s
    if train[0] < test[1] and test[0] < train[1]:
        yield f"workload.test_arrivals_s = {test}, expected no overlap with train_arrivals_s {train}"
