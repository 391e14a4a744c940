"""The configuration of a federation of another size, or of one zone that holds all machines.

    weak      N zones, each as large and as loaded as the file's: its zones in turn, under new names
    strong    the file's machines and load, dealt over N zones
    pooled    all machines and the load of a configuration in one zone

Where machines are dealt or pooled, zones are alike in all but their machines: they share one mix of
task types and one load, means over the file's zones. Numbers that do not divide are dealt like
cards: of each kind of machine, and in all, no zone has more than one more than another.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Literal

from marl_sched.config import Experiment, Zone
from marl_sched.errors import ConfigError
from marl_sched.scaling.shared_load import Scaled, as_many_jobs, mean_load, mean_mix, validated

Mode = Literal["weak", "strong"]
_POOL = "all"
_EQUAL = ("speed_jitter", "failures", "background")
"""Fields of a zone that have no mean: zones to deal or pool must agree on them."""


def scaled(experiment: Experiment, n_zones: int, mode: Mode) -> Scaled:
    """Return an experiment with another number of zones.

    Raises:
        ConfigError: It cannot have that many, or its parts do not fit then.
    """
    return _weak(experiment, n_zones) if mode == "weak" else _strong(experiment, n_zones)


def _weak(experiment: Experiment, n_zones: int) -> Scaled:
    zones = []
    taken: set[str] = set()
    for index in range(n_zones):
        copy, number = divmod(index, len(experiment.zones))
        zone = experiment.zones[number]
        name = zone.name if copy == 0 else _free_name(zone.name, copy + 1, taken)
        taken.add(name)
        zones.append(zone.model_dump() | {"name": name})
    first, *others = (zone.model_copy(update={"name": ""}) for zone in experiment.zones)
    is_whole = n_zones % len(experiment.zones) == 0
    if is_whole or all(zone == first for zone in others):
        return Scaled(_with_zones(experiment, zones))
    counts = ", ".join(
        f"{zone.name} {-(-(n_zones - index) // len(experiment.zones))}"
        for index, zone in enumerate(experiment.zones)
    )
    note = f"the file's {len(experiment.zones)} zones are not alike; of them there are: {counts}"
    return Scaled(_with_zones(experiment, zones), (note,))


def _free_name(name: str, number: int, taken: Iterable[str]) -> str:
    """Return a new name for a copy of a zone; at most 63 characters."""
    end = f"-{number}"
    while (found := name[: 63 - len(end)] + end) in taken:
        end = f"-{end}"
    return found


def pooled(experiment: Experiment) -> Scaled:
    """Return the experiment with all machines and the whole load in one zone.

    Raises:
        ConfigError: The zones differ in what has no mean.
    """
    if len(experiment.zones) == 1:
        return Scaled(experiment)
    _require_alike(experiment)
    zones = experiment.zones
    groups = [group.model_dump() for zone in zones for group in zone.machines]
    events: list[dict[str, Any]] = []
    before = 0
    for zone in zones:
        events += [
            event.model_dump() | {"machine": event.machine + before}
            for event in zone.machine_events
        ]
        before += zone.n_machines
    pool = zones[0].model_dump() | {
        "name": _POOL,
        "machines": groups,
        "machine_events": events,
        "mix": mean_mix(experiment),
        "load": mean_load(experiment),
    }
    return as_many_jobs(experiment, _with_zones(experiment, [pool], len(zones)))


def _strong(experiment: Experiment, n_zones: int) -> Scaled:
    pool = pooled(experiment)
    whole = pool.experiment.zones[0]
    if n_zones > whole.n_machines:
        raise ConfigError(
            f"{n_zones} zones, expected at most the {whole.n_machines} machines of the "
            "configuration: every zone needs one"
        )
    hands = _deal(whole, n_zones)
    zones = []
    for number, hand in enumerate(hands):
        groups = [
            whole.machines[kind].model_dump() | {"count": len(list(cards))}
            for kind, cards in groupby(kind for kind, _ in hand)
        ]
        places = {machine: place for place, (_, machine) in enumerate(hand)}
        events = [
            event.model_dump() | {"machine": places[event.machine]}
            for event in whole.machine_events
            if event.machine in places
        ]
        zones.append(
            whole.model_dump()
            | {"name": f"part_{number}", "machines": groups, "machine_events": events}
        )
    result = as_many_jobs(experiment, _with_zones(pool.experiment, zones, 1 / n_zones))
    return Scaled(result.experiment, (*_deal_notes(whole, hands), *result.notes))


def _deal(whole: Zone, n_zones: int) -> list[list[tuple[int, int]]]:
    """Deal the machines of a zone: (kind, index in the whole zone) a machine, by new zone.

    Equal groups are one kind, or a few machines of many zones would all fall to the first.
    """
    kinds: list[tuple[int, int]] = []
    first: dict[str, int] = {}
    index = 0
    for number, group in enumerate(whole.machines):
        look = repr(group.model_copy(update={"count": 1}))
        kind = first.setdefault(look, number)
        kinds += [(kind, index + offset) for offset in range(group.count)]
        index += group.count
    kinds.sort()
    return [kinds[zone::n_zones] for zone in range(n_zones)]


def _deal_notes(whole: Zone, hands: Sequence[Sequence[tuple[int, int]]]) -> Iterable[str]:
    sizes = sorted({len(hand) for hand in hands})
    if len(sizes) > 1:
        yield f"{whole.n_machines} machines over {len(hands)} zones: {sizes[0]} or {sizes[1]} each"
    missing = {
        kind: sum(all(kind != k for k, _ in hand) for hand in hands)
        for kind in {kind for hand in hands for kind, _ in hand}
    }
    for kind, n_without in sorted(missing.items()):
        if n_without:
            capacity = ", ".join(f"{k} {v}" for k, v in whole.machines[kind].capacity.items())
            yield (
                f"{n_without} of {len(hands)} zones have no machine of {capacity}: what needs one "
                "is offloaded, or waits"
            )


def _require_alike(experiment: Experiment) -> None:
    """Check that zones differ only in what can be dealt or averaged.

    Raises:
        ConfigError: They do not.
    """
    first = experiment.zones[0]
    for index, zone in enumerate(experiment.zones):
        for key in _EQUAL:
            if getattr(zone, key) != getattr(first, key):
                raise ConfigError(
                    f"{experiment.name}: zones[{index}].{key} differs from that of zones[0], "
                    "expected equal ones where machines are dealt anew or pooled"
                )


def _with_zones(
    experiment: Experiment, zones: Sequence[dict[str, Any]], growth: float = 1.0
) -> Experiment:
    """Return the experiment with other zones.

    Args:
        experiment: The experiment.
        zones: The new zones.
        growth: How much larger one of them is than those before: what is set in numbers for a zone
            grows with it.

    Raises:
        ConfigError: The parts do not fit.
    """
    values = experiment.model_dump() | {"zones": list(zones)}
    values["workload"] = _grown(values["workload"], growth)
    if values["reward"]["imbalance_rate"] is not None:
        values["reward"] = values["reward"] | {
            "imbalance_rate": values["reward"]["imbalance_rate"] * growth
        }
    federation = values["federation"]
    values["federation"] = federation | {"quorum": min(federation["quorum"], len(zones))}
    return validated(values)


def _grown(workload: dict[str, Any], growth: float) -> dict[str, Any]:
    """Return a workload whose waves, and whose largest jobs, are for zones of another size."""
    if "streams" not in workload:
        share = min(1.0, workload["max_job_share"] / growth)
        return workload | {"max_job_share": share}
    streams = []
    for stream in workload["streams"]:
        arrivals = stream["arrivals"]
        if arrivals["kind"] == "waves":
            arrivals = arrivals | {
                "min_tasks": round(arrivals["min_tasks"] * growth),
                "max_tasks": max(1, round(arrivals["max_tasks"] * growth)),
            }
        streams.append(stream | {"arrivals": arrivals})
    return workload | {"streams": streams}
