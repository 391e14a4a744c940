"""Where jobs come from: a generator, or a trace."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from marl_sched.config.base import (
    Model,
    Name,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Share,
)


class Use(Model):
    """Real use of a resource as a share of the request: clip(N(mean, sd), low, high)."""

    mean: Positive
    """Mean share of the request that is used; the scheduler knows it."""
    sd: NonNegative
    """Standard deviation of the share, drawn per instance."""
    low: NonNegative = 0.05
    """Smallest share."""
    high: Positive = 1.0
    """Largest share; above 1 an instance uses more than it asked for."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low = {self.low}, expected at most high = {self.high}")
        return self


class TaskType(Model):
    """A class of tasks: what they ask for, how long they run, what they promise."""

    name: Name
    """Named by the mixes."""
    request: dict[str, NonNegativeInt]
    """Requested amount of each resource, per instance. 0 asks for none of it, and fits on every
    machine; cpu must be above 0."""
    mean_s: Positive
    """Mean work, in seconds on a machine of speed 1."""
    sigma: NonNegative
    """Sigma of the lognormal work: work = mean_s * exp(sigma N - sigma^2 / 2)."""
    use: dict[str, Use]
    """Real use of each resource; those with a request of 0 may be left out."""
    finish_slack: Positive
    """The finish is violated when finish - ready > finish_slack * mean_s."""
    priority: NonNegativeInt = 0
    """Larger goes first."""


class ModulatedPoisson(Model):
    """Markov-modulated Poisson arrivals: calm and burst phases of exponential length."""

    kind: Literal["modulated-poisson"]
    """Chooses these arrivals."""
    calm_s: Positive = 300.0
    """Mean length of a calm phase."""
    burst_s: Positive = 60.0
    """Mean length of a burst."""
    burst_factor: Positive = 3.5
    """Rate in a burst over the rate in a calm phase. 1 gives plain Poisson arrivals."""
    share: Positive = 1.0
    """Share of the offered load that remains for such streams (normalised over them)."""


class Waves(Model):
    """A wave of tasks at the start of every period, uniform in number and in time."""

    kind: Literal["waves"]
    """Chooses these arrivals."""
    period_s: Positive = 900.0
    """Time from one wave to the next."""
    min_tasks: NonNegativeInt
    """Fewest tasks of a wave."""
    max_tasks: PositiveInt
    """Most tasks of a wave."""
    spread_s: NonNegative = 60.0
    """The wave's jobs arrive uniformly over this time."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_tasks > self.max_tasks:
            limit = f"expected at most max_tasks = {self.max_tasks}"
            raise ValueError(f"min_tasks = {self.min_tasks}, {limit}")
        return self


class Stream(Model):
    """One source of jobs in every zone."""

    name: Name
    """Names the stream in messages."""
    arrivals: Annotated[ModulatedPoisson | Waves, Field(discriminator="kind")]
    """When its jobs arrive."""
    mix: dict[str, NonNegative] | None = None
    """Share of each task type; default: the zone's mix, else equal shares."""
    stage_probabilities: list[Share] = Field(default=[1.0], min_length=1)
    """Probability of a job of 1, 2, ... tasks in sequence."""
    mean_instances: Positive = 6.0
    """Instances a task: geometric with mean mean_instances / sqrt(max(1, cores requested))."""
    max_instances: PositiveInt = 16
    """Most instances of a task."""


class SyntheticWorkload(Model):
    """The generator of BASE: typed tasks, short chains, bursts."""

    kind: Literal["synthetic"]
    """Chooses the generator."""
    load: Positive
    """Offered load: requested work over capacity, at the zone's mean speed, on the binding
    resource; background use and waves included."""
    request_jitter: Share = 0.25
    """A task's requests are multiplied by U(1 - jitter, 1 + jitter)."""
    task_types: list[TaskType] = Field(min_length=1)
    """Classes of tasks that the mixes choose from."""
    streams: list[Stream] = Field(min_length=1)
    """Sources of jobs; every zone has each of them."""


class DrawnWorkload(Model):
    """Jobs that are drawn from a longer list of them until the load is as configured."""

    kind: str
    """Chooses where the list comes from."""
    load: Positive = 0.8
    """Offered load on the binding resource that background use leaves free."""
    load_tolerance: Share = 0.02
    """The drawn load may differ from `load` by this share of it."""
    train_arrivals_s: list[NonNegative] = Field(default=[0.0, 1800.0], min_length=2, max_length=2)
    """Trace seconds [from, to) that tuning, training and validation draw from."""
    test_arrivals_s: list[NonNegative] = Field(default=[1800.0, 3600.0], min_length=2, max_length=2)
    """Trace seconds [from, to) that tests draw from."""
    window_s: Positive | None = None
    """Trace time that an episode draws its jobs from; their arrivals are squeezed into
    `episode.horizon_s`, their durations are not. Default: the horizon itself."""
    max_job_share: Share = 0.05
    """Jobs above this share of a zone's machine-seconds in an episode are left out and counted."""
    max_duration_s: Positive | None = None
    """Jobs with a task whose mean duration is above this are left out and counted; null: none."""
    max_task_instances: Annotated[int, Field(ge=1)] | None = None
    """Tasks of more instances are cut to so many, before anything is drawn; null: none is cut."""
    finish_slack: Positive = 3.0
    """The finish is violated when finish - ready > finish_slack * the task's mean duration."""


class TraceWorkload(DrawnWorkload):
    """Jobs of a trace, drawn per seed and episode until the load is as configured."""

    kind: Literal["trace"]
    """Chooses a trace."""
    path: str
    """A task table, as `trace convert` and `trace generate` write it; a name like
    `package:alibaba-v2018-hour` is a sample that ships with us; other paths are relative to the
    configuration file."""


class GeneratedWorkload(DrawnWorkload):
    """Jobs calibrated to a published trace; the seed makes the list, all zones draw from it."""

    kind: Literal["generated"]
    """Chooses the calibrated generator."""
    profile: Literal["alibaba-v2018", "openb"]
    """Whose jobs they are like: v2018's batch DAGs, or OpenB's GPU pods (needs `gpu_milli`)."""
    jobs_per_s: Positive | None = None
    """Mean rate of arrivals of the list; default: the trace's own."""
    day_swing: Annotated[float, Field(ge=1.0, le=100.0)] = 1.0
    """Rate in the busiest hour over that in the quietest; 1: no day curve."""


class Sla(Model):
    """When an instance has started too late."""

    late_base_s: NonNegative = 5.0
    """An instance is late that waited more than late_base_s + late_factor * its mean duration."""
    late_factor: NonNegative = 0.25
    """See late_base_s."""
