"""Play whole episodes of the reference: windows, digests, notices and offloads between zones."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from reference_zone import Instance, RefZone

from marl_sched.cluster.state import EpisodeInput
from marl_sched.config import MICROSECONDS, Experiment


def play_reference(
    experiment: Experiment,
    inputs: Mapping[str, EpisodeInput],
    actions: Mapping[str, Sequence[int]],
) -> dict[str, RefZone]:
    """Play one episode with the actions given and return its zones."""
    names = sorted(experiment.zone_names)
    zones = {name: RefZone(experiment, name, inputs[name], actions[name]) for name in names}
    members = list(zones.values())
    period_us = round(experiment.cluster.digest_period_s * MICROSECONDS)
    _tell(members)
    for number in range(1, experiment.n_windows + 1):
        until_us = number * experiment.window_us
        for zone in members:
            zone.play(until_us)
        horizon_us = experiment.episode.horizon_s * MICROSECONDS
        if experiment.episode.measured_from * horizon_us <= until_us <= horizon_us:
            for zone in members:
                zone.sample()
        _exchange(members, is_digest_due=until_us % period_us == 0)
    for zone in members:
        assert not zone.actions, "fewer decisions than actions"
    return zones


def _tell(members: list[RefZone]) -> None:
    digests = {zone.index: zone.digest() for zone in members}
    for zone in members:
        zone.digests = {peer: digests[peer] for peer in zone.peers}
        zone.sent = {peer: np.zeros(zone.n_resources) for peer in zone.peers}


def _exchange(members: list[RefZone], is_digest_due: bool) -> None:
    if is_digest_due:
        _tell(members)
    notices = [
        (zone.index, number, *notice)
        for zone in members
        for number, notice in enumerate(zone.notices)
    ]
    sent = [
        (zone.index, number, *message)
        for zone in members
        for number, message in enumerate(zone.outgoing)
    ]
    for zone in members:
        zone.notices, zone.outgoing = [], []
    for zone in members:
        told = [notice for notice in notices if notice[2] == zone.index]
        for *_, instance, finish_us, has_failed in sorted(
            told, key=lambda notice: (notice[4], notice[0], notice[1])
        ):
            _hear(zone, instance, finish_us, has_failed)
        for sender, _, _, at_us, instance in sorted(
            (message for message in sent if message[2] == zone.index),
            key=lambda message: (message[3], message[0], message[1]),
        ):
            _take_over(zone, sender, at_us, instance)


def _hear(zone: RefZone, instance: Instance, finish_us: int, has_failed: bool) -> None:
    if instance.came_from is not None:
        zone.notices.append((*instance.came_from, finish_us, has_failed))
    elif has_failed:
        instance.task.job.has_failed = True
    else:
        zone.leave(instance, finish_us)


def _take_over(zone: RefZone, sender: int, at_us: int, instance: Instance) -> None:
    zone.instances.append(
        Instance(
            task=instance.task,
            place=zone.place_of(sender, instance),
            work_us=instance.work_us,
            use=instance.use,
            row=len(zone.instances),
            status="in transit",
            came_from=(sender, instance),
            ready_us=instance.ready_us,
            arrival_us=max(at_us, zone.now_us),
            start_number=instance.start_number,
            restarts=instance.restarts,
            hops=instance.hops + 1,
            failed_creations=instance.failed_creations,
        )
    )


def scored(zones: Mapping[str, RefZone]) -> Iterator[tuple[RefZone, Instance]]:
    """Yield every instance once, where it ended."""
    for zone in zones.values():
        for instance in zone.instances:
            if instance.status != "offloaded":
                yield zone, instance
