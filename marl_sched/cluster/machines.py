"""The machines of a zone, what happens to them in an episode, and their background use."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.model import EVENT, EVENT_KINDS, FAIL, RETURN
from marl_sched.config import MICROSECONDS, Experiment, Zone
from marl_sched.config.streams import named_stream, stream


@dataclass(frozen=True)
class Machines:
    """A zone's machines, in the order of the configuration.

    Attributes:
        capacity: (M, R) int64.
        reserved: (M, R) int64, kept from placements.
        speed: (M,) float64, work per second relative to the reference machine.
        price_per_hour: (M,) float64.
    """

    capacity: NDArray[np.int64]
    reserved: NDArray[np.int64]
    speed: NDArray[np.float64]
    price_per_hour: NDArray[np.float64]


def build_machines(experiment: Experiment, zone: Zone) -> Machines:
    """Return a zone's machines; their speeds are fixed by the zone's name, whatever the seed."""
    groups = [group for group in zone.machines for _ in range(group.count)]
    resources = experiment.resources
    jitter = named_stream(0, zone.name, "machine speed").uniform(
        1 - zone.speed_jitter, 1 + zone.speed_jitter, len(groups)
    )
    return Machines(
        capacity=np.array([[group.capacity[r] for r in resources] for group in groups], np.int64),
        reserved=np.array(
            [[group.reserved.get(r, 0) for r in resources] for group in groups], np.int64
        ),
        speed=np.array([group.speed for group in groups]) * jitter,
        price_per_hour=np.array([group.price_per_hour for group in groups], np.float64),
    )


def draw_events(experiment: Experiment, zone: Zone, split: str, episode: int) -> NDArray[np.void]:
    """Return the machine events (V,) of one episode, configured and random, by time.

    A machine with configured events has no random ones: a random return must not bring back what
    was to stay away.
    """
    rows = [
        (round(event.at_s * MICROSECONDS), event.machine, EVENT_KINDS[event.kind])
        for event in zone.machine_events
    ]
    if zone.failures is not None:
        generator = stream(experiment.seed, split, episode, zone.name, "failures")
        end_s = experiment.episode.horizon_s + experiment.episode.drain_s
        configured = {event.machine for event in zone.machine_events}
        for machine in range(zone.n_machines):
            if machine in configured:
                continue
            at_s = generator.exponential(zone.failures.mean_up_s)
            while at_s < end_s:
                back_s = at_s + generator.exponential(zone.failures.mean_down_s)
                rows.append((round(at_s * MICROSECONDS), machine, FAIL))
                rows.append((round(back_s * MICROSECONDS), machine, RETURN))
                at_s = back_s + generator.exponential(zone.failures.mean_up_s)
    # Of equal times the order of the file holds: `first_events` goes by it too.
    return np.array(sorted(rows, key=lambda row: row[0]), EVENT)


def first_events(zone: Zone) -> dict[int, str]:
    """Return the kind of each machine's first configured event, by machine."""
    first: dict[int, str] = {}
    for event in sorted(zone.machine_events, key=lambda event: round(event.at_s * MICROSECONDS)):
        first.setdefault(event.machine, event.kind)
    return first


def draw_background(
    experiment: Experiment, zone: Zone, split: str, episode: int
) -> NDArray[np.float64]:
    """Return background use (S, M, R) per step of one episode; S = 0 without background.

    The day curve starts at a random point of the day in every episode.
    """
    machines = build_machines(experiment, zone)
    if zone.background is None:
        return np.zeros((0, *machines.capacity.shape))
    config = zone.background
    generator = stream(experiment.seed, split, episode, zone.name, "background")
    end_s = experiment.episode.horizon_s + experiment.episode.drain_s
    n_steps = int(np.ceil(end_s / config.step_s))
    at = np.arange(n_steps) * config.step_s / config.period_s
    curve = config.amplitude * np.sin(2 * np.pi * (at + generator.uniform()))
    noise = config.sd * generator.standard_normal((n_steps, *machines.capacity.shape))
    mean = np.array([config.mean.get(resource, 0.0) for resource in experiment.resources])
    share = np.where(mean > 0, mean + curve[:, None, None] + noise, 0.0)
    return np.asarray(np.clip(share, 0.0, 1.0) * machines.capacity)
