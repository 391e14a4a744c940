"""Zones, machines and how the cluster behaves."""

from typing import Literal

from pydantic import Field

from marl_sched.config.base import (
    Model,
    Name,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Share,
)


class MachineGroup(Model):
    """Equal machines of one zone."""

    count: PositiveInt
    """How many machines of this kind."""
    capacity: dict[str, NonNegativeInt]
    """Installed amount of every resource of the cluster (cpu_milli: 1000 = one core). 0 where the
    machines have none of it, which holds for neither cpu nor memory."""
    reserved: dict[str, NonNegativeInt] = Field(default={})
    """Amount kept from placements, by resource: allocatable = capacity - reserved."""
    speed: Positive = 1.0
    """Work done per second, relative to the reference machine."""
    price_per_hour: NonNegative = 1.0
    """Price of one machine for an hour, in any currency."""


class MachineEvent(Model):
    """Something that happens to one machine at a set time of every episode."""

    at_s: NonNegative
    """Seconds since the start of the episode."""
    machine: NonNegativeInt
    """Index of the machine in its zone, in the order of `machines`."""
    kind: Literal["join", "drain", "fail", "return"]
    """A machine whose first event is a join is absent until then."""


class Failures(Model):
    """Random failures: exponential times up and down, drawn per machine and episode."""

    mean_up_s: Positive
    """Mean time from start or return to the next failure."""
    mean_down_s: Positive
    """Mean time from failure to return."""


class BackgroundUse(Model):
    """Use by online services on every machine: a day curve with noise, constant within a step.

    use(t) = mean + amplitude * sin(2 pi t / period_s + phase) + sd * noise, as a share
    of the machine's capacity. It counts in utilization and lowers allocatable.
    """

    mean: dict[str, Share]
    """Mean share of the capacity in use, by resource."""
    amplitude: Share = 0.0
    """Amplitude of the day curve, as a share of the capacity."""
    sd: Share = 0.0
    """Standard deviation of the noise, as a share of the capacity."""
    period_s: Positive = 86_400.0
    """Length of the day curve."""
    step_s: Positive = 60.0
    """How long one value holds; a multiple of the cluster's window."""


class Zone(Model):
    """A failure domain: machines under one agent."""

    name: Name
    """Names the agent, the zone's random streams and its files."""
    machines: list[MachineGroup] = Field(min_length=1)
    """Its machines, by groups of equal ones."""
    speed_jitter: Share = 0.0
    """A machine's speed is multiplied by U(1 - jitter, 1 + jitter), fixed by the zone's name."""
    load: Positive | None = None
    """Offered load of this zone; overrides the workload's."""
    mix: dict[str, NonNegative] | None = None
    """Share of each task type in this zone's jobs; overrides the workload's."""
    machine_events: list[MachineEvent] = Field(default=[])
    """Machines that join, drain, fail or return at set times."""
    failures: Failures | None = None
    """Random failures of the machines without `machine_events`; null: none."""
    background: BackgroundUse | None = None
    """Use by online services beside the jobs; null: none."""

    @property
    def n_machines(self) -> int:
        """Number of machines, joined or not."""
        return sum(group.count for group in self.machines)


class Cluster(Model):
    """Rules that hold in every zone."""

    window_s: Positive = 5.0
    """Length of the exchange's window W: zones touch each other at its boundaries only."""
    digest_period_s: Positive = 20.0
    """How often a zone publishes its digest; a multiple of window_s."""
    interference: NonNegative = 0.8
    """kappa: durations are multiplied by 1 + kappa * max(0, u - 0.5) / 0.5, where u is the
    machine's cpu use over its capacity right after the placement."""
    placement: Literal["masked", "unmasked"] = "masked"
    """masked: only machines that fit may be picked. unmasked: a pick that does not fit fails."""
    queue: Literal["set-aside", "strict-fifo"] = "set-aside"
    """What happens to a head that fits nowhere: its task steps aside, or it blocks the queue."""
    max_hops: NonNegativeInt = 1
    """How often an instance may be offloaded."""
    offload_base_s: NonNegative = 2.0
    """Fixed part of the transfer time of an offload."""
    offload_s_per_gib: NonNegative = 0.5
    """Transfer time per GiB of requested memory."""
    peer_queue_allowance: Share = 0.25
    """A peer stays unmasked while what was sent since its digest is within its free capacity plus
    this share of its allocatable capacity."""
    max_restarts: NonNegativeInt = 3
    """How often an instance may die with its machine before its job fails."""


class Episode(Model):
    """Length of an episode; the same for every policy."""

    horizon_s: Positive = 1800.0
    """Arrivals happen in [0, horizon_s)."""
    drain_s: NonNegative = 600.0
    """Time after the horizon in which the rest may finish."""
    measured_from: Share = 0.1
    """Imbalance is measured over [measured_from * horizon_s, horizon_s]."""
