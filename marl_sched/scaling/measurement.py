"""The figures of one run, from what it has written: pure functions of lines.

A round is timed if it is not the first of its processes, scored no weights, and was played by all
zones at the first attempt. Its seconds are those from the commit before to its own:

    training      a zone's time in the round less all below, mean over zones
    waiting       for the others: in the exchange from a zone's post to the last one's, and after
                  the last window for the slowest zone
    transport     the rest of the time in the exchange, and what weights take to travel
    aggregation   the strategy
    saving        zones' states, the coordinator's checkpoint

CPU seconds are the processes' own, threads and all, between the same moments.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from marl_sched.errors import RunError
from marl_sched.scaling.measured import COORDINATOR, SERVER, SPLIT, CurvePoint, Measured

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Lines:
    """What a run has written.

    Attributes:
        timing: timing.jsonl.
        metrics: metrics.jsonl.
        processes: What was seen of its processes: `start` of a ServerApp, a `round` with CPU
            seconds and memory by process, the `end` with the SuperLink's record.
    """

    timing: Sequence[Line]
    metrics: Sequence[Line]
    processes: Sequence[Line]


@dataclass(frozen=True)
class Subject:
    """What was run: name, zones, machines, and exchanges of a round."""

    name: str
    zone_names: Sequence[str]
    n_machines: int
    n_steps: int


def measure(subject: Subject, lines: Lines) -> Measured:
    """Return the figures of a run that has ended.

    Raises:
        RunError: No round of it can be timed.
    """
    pairs = list(_timed(subject, lines))
    if not pairs:
        raise RunError(
            f"{subject.name}: no round that could be timed: it was interrupted, or lost zones, in "
            "every one of them; delete its folder to run it again"
        )
    n_zones = len(subject.zone_names)
    splits = [_split(pair) for pair in pairs]
    cpu = [_cpu(pair) for pair in pairs]
    last = pairs[-1].after.seen
    return Measured(
        name=subject.name,
        n_zones=n_zones,
        n_machines=subject.n_machines,
        n_steps=subject.n_steps,
        n_timed=len(pairs),
        n_decisions=_mean(_decisions(lines.metrics)[pair.after.number] for pair in pairs),
        seconds=_mean(pair.seconds for pair in pairs),
        split_s={key: _mean(split[key] for split in splits) for key in SPLIT},
        zone_cpu_s=_mean(zones for zones, _ in cpu),
        coordinator_cpu_s={key: _mean(c[key] for _, c in cpu) for key in COORDINATOR},
        network_bytes=float(pairs[-1].after.zones[0]["bytes_down"]),
        weight_bytes=_weight_bytes(lines.processes),
        exchange_bytes=_mean(
            sum(float(line["exchange_bytes"]) for line in pair.after.zones) for pair in pairs
        ),
        zone_mib=_mean(float(line["process_peak_mib"]) for line in pairs[-1].after.zones),
        coordinator_mib={key: float(last["peak_mib"].get(key, 0.0)) for key in COORDINATOR},
        load_average=_mean(float(pair.after.seen["load_average"]) for pair in pairs),
        probe_s=_mean_if_any(pair.after.seen.get("probe_s") for pair in pairs),
        curve=list(_curve(lines)),
        n_lost=sum(line["kind"] == "lost" for line in lines.metrics),
    )


@dataclass(frozen=True)
class _Round:
    """A round's lines of timing, and its line of processes."""

    number: int
    zones: Sequence[Line]
    seen: Line


@dataclass(frozen=True)
class _Pair:
    """A timed round and the one before."""

    before: _Round
    after: _Round

    @property
    def seconds(self) -> float:
        return float(self.after.seen["time"]) - float(self.before.seen["time"])


def _timed(subject: Subject, lines: Lines) -> Iterator[_Pair]:
    """Yield the timed rounds; the round before one is of the same processes."""
    zones: dict[int, dict[str, Line]] = {}
    for line in lines.timing:  # of a round that was run again after a resume, the last lines count
        zones.setdefault(int(line["round"]), {})[str(line["zone"])] = line
    sessions: list[list[_Round]] = []
    for line in lines.processes:
        if line["kind"] == "start" or not sessions:
            sessions.append([])
        if line["kind"] == "round":
            number = int(line["round"])
            sessions[-1].append(_Round(number, list(zones.get(number, {}).values()), line))
    everybody = set(subject.zone_names)
    for session in sessions:
        for before, after in pairwise(session):
            is_next = after.number == before.number + 1
            is_whole = all({str(z["zone"]) for z in r.zones} == everybody for r in (before, after))
            is_plain = all(z["attempt"] == 1 and z["validation_s"] < 0.001 for z in after.zones)
            if is_next and is_whole and is_plain:
                yield _Pair(before, after)


def _split(pair: _Pair) -> dict[str, float]:
    """Return where a round's seconds went; they add up to it."""
    zones = pair.after.zones
    zone_s = _mean(float(line["zone_s"]) for line in zones)
    slowest_s = max(float(line["zone_s"]) for line in zones)
    in_exchange_s = _mean(float(line["exchange_s"]) for line in zones)
    peers_s = min(_mean(float(line["peer_wait_s"]) for line in zones), in_exchange_s)
    save_s = _mean(float(line["save_s"]) for line in zones)
    round_s, aggregation_s = float(zones[0]["round_s"]), float(zones[0]["aggregation_s"])
    validation_s = _mean(float(line["validation_s"]) for line in zones)
    return {
        "training": zone_s - in_exchange_s - save_s - validation_s,
        "waiting": peers_s + slowest_s - zone_s,
        "transport": in_exchange_s - peers_s + round_s - slowest_s - aggregation_s,
        "aggregation": aggregation_s,
        "saving": save_s + pair.seconds - round_s,
    }


def _cpu(pair: _Pair) -> tuple[float, dict[str, float]]:
    """Return the CPU seconds of a round: all zones, and by process of the coordinator."""
    before = {str(line["zone"]): line for line in pair.before.zones}
    zones = sum(
        float(line["process_cpu_s"]) - float(before[str(line["zone"])]["process_cpu_s"])
        for line in pair.after.zones
    )
    own = "server_cpu_s"
    server = float(pair.after.zones[0][own]) - float(pair.before.zones[0][own])
    seen = {
        name: float(pair.after.seen["cpu_s"].get(name, 0.0))
        - float(pair.before.seen["cpu_s"].get(name, 0.0))
        for name in COORDINATOR
    }
    return zones, seen | {SERVER: server}


def _decisions(metrics: Iterable[Line]) -> dict[int, int]:
    """Return the training decisions of all zones by round."""
    found: dict[int, int] = {}
    for line in metrics:
        if line["kind"] == "train":
            number = int(line["round"])
            found[number] = found.get(number, 0) + int(line["n_decisions"])
    return found


def _weight_bytes(processes: Iterable[Line]) -> float:
    """Return the bytes of weights a round of the last processes that have come to their end."""
    n_rounds = n_of_end = 0
    total = 0.0
    for line in processes:
        if line["kind"] == "start":
            n_rounds = 0
        elif line["kind"] == "round":
            n_rounds += 1
        elif line["kind"] == "end" and n_rounds:
            total, n_of_end = float(line["bytes"]), n_rounds
    return total / n_of_end if n_of_end else 0.0


def _curve(lines: Lines) -> Iterator[CurvePoint]:
    decisions = _decisions(lines.metrics)
    seconds: dict[int, float] = {}
    scoring: dict[int, float] = {}
    for line in lines.timing:
        number = int(line["round"])
        seconds[number] = float(line["round_s"])
        scoring[number] = max(scoring.get(number, 0.0), float(line["validation_s"]))
    for line in lines.metrics:
        if line["kind"] != "validation" or line["objective"] is None:
            continue
        number = int(line["round"])
        rounds = [r for r in decisions if r <= number]
        yield CurvePoint(
            round_number=number,
            n_decisions=sum(decisions[r] for r in rounds),
            seconds=sum(seconds[r] - scoring[r] for r in rounds),
            objective=float(line["objective"]),
        )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _mean_if_any(values: Iterable[float | None]) -> float | None:
    found = [float(value) for value in values if value is not None]
    return _mean(found) if found else None
