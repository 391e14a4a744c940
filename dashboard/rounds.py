"""The rounds of a run, put together from its metrics, timing and event lines."""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from dashboard.following import Line, finite, text, whole

_N_SHOWN = 60
"""Rounds of the table."""
_N_POINTS = 240
"""Points of a curve."""
_N_EVENTS = 120
_MAX_ROUNDS = 50_000
_MAX_MEMBERS = 1_024
_ZONE_FIGURES = (
    "n_decisions",
    "objective",
    "mean_reward",
    "epsilon",
    "utilization_cpu",
    "utilization_memory",
    "offload_rate",
    "late_start_rate",
    "finish_violation_rate",
    "mean_wait_s",
)


@dataclass
class Round:
    """One round as far as it is known; sums over its members."""

    number: int
    attempt: int = 1
    members: list[str] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)
    n_decisions: int = 0
    reward_sum: float = 0.0
    reward_weight: int = 0
    seconds: float | None = None
    n_bytes: int = 0
    cpu_s: float = 0.0

    @property
    def mean_reward(self) -> float | None:
        """Mean reward of a decision over all members."""
        return self.reward_sum / self.reward_weight if self.reward_weight else None

    @property
    def rate(self) -> float | None:
        """Decisions a second of all members."""
        return self.n_decisions / self.seconds if self.seconds and self.n_decisions else None


@dataclass(frozen=True)
class Validation:
    """One validation: the cluster's metrics over the validation episodes."""

    round_number: int
    is_best: bool
    zones: tuple[str, ...]
    metrics: dict[str, float]


class RoundBook:
    """Takes lines, gives what the page shows of them."""

    def __init__(self) -> None:
        """Start without a round."""
        self.validations: list[Validation] = []
        self.zones: dict[str, dict[str, float]] = {}
        """Figures of the last round that a zone took part in."""
        self._rounds: dict[int, Round] = {}
        self._numbers: list[int] = []
        self._timing: dict[int, tuple[float, float, float]] = {}

    def reset_metrics(self) -> None:
        """Forget what metrics.jsonl said."""
        self.validations, self.zones = [], {}
        self._rounds, self._numbers = {}, []

    def reset_timing(self) -> None:
        """Forget what timing.jsonl said."""
        self._timing = {}

    @property
    def last(self) -> int:
        """Number of the last committed round; 0 before the first."""
        trained = (number for number in reversed(self._numbers) if self._rounds[number].members)
        return next(trained, 0)

    def take_metrics(self, line: Line) -> None:
        """Take a line of metrics.jsonl; one that makes no sense is passed over."""
        number, kind = whole(line.get("round")), line.get("kind")
        if number is None or not 0 <= number < 1 << 31:
            return
        zone = text(line.get("zone"), 80)
        if kind == "validation":
            self._take_validation(number, line)
        elif kind == "lost" and zone and (found := self._round(number)) is not None:
            if len(found.lost) < _MAX_MEMBERS:
                found.lost.append((zone, text(line.get("reason"))))
        elif kind == "train" and zone and (found := self._round(number)) is not None:
            self._take_train(found, zone, line)

    def take_timing(self, line: Line) -> None:
        """Take a line of timing.jsonl."""
        number = whole(line.get("round"))
        if number is None or (number not in self._timing and len(self._timing) >= _MAX_ROUNDS):
            return
        _, n_bytes, cpu_s = self._timing.get(number, (0.0, 0.0, 0.0))
        down, up = finite(line.get("bytes_down")) or 0.0, finite(line.get("bytes_up")) or 0.0
        seconds = finite(line.get("round_s")) or 0.0
        cpu_s += finite(line.get("cpu_s")) or 0.0
        self._timing[number] = (seconds, n_bytes + down + up, cpu_s)

    def table(self) -> list[dict[str, Any]]:
        """Return the newest rounds, newest first."""
        shown = []
        for number in reversed(self._numbers[-_N_SHOWN:]):
            found = self._timed(number)
            shown.append(
                {
                    "round": number,
                    "attempt": found.attempt,
                    "members": found.members,
                    "lost": [{"zone": zone, "reason": why} for zone, why in found.lost],
                    "n_decisions": found.n_decisions,
                    "seconds": found.seconds,
                    "mean_reward": found.mean_reward,
                    "bytes": found.n_bytes,
                    "cpu_s": round(found.cpu_s, 3),
                }
            )
        return shown

    def curves(self) -> dict[str, list[list[float | int | bool]]]:
        """Return the learning curves, at most 240 points each."""
        rounds = [self._timed(number) for number in self._numbers if self._rounds[number].members]
        objective = [
            [v.round_number, v.metrics["objective"], v.is_best]
            for v in self.validations
            if "objective" in v.metrics
        ]
        reward = [[r.number, r.mean_reward] for r in rounds if r.mean_reward is not None]
        rate = [[r.number, r.rate] for r in rounds if r.rate is not None]
        return {
            "objective": _thinned(objective),
            "reward": _thinned(reward),
            "rate": _thinned(rate),
        }

    def best(self, n_zones: int) -> Validation | None:
        """Return the published validation if all zones took part in it, else the best of those."""
        full = [v for v in self.validations if len(v.zones) == n_zones and "objective" in v.metrics]
        return min(full, key=lambda v: (v.metrics["objective"], v.round_number), default=None)

    def _round(self, number: int) -> Round | None:
        if number not in self._rounds:
            if len(self._rounds) >= _MAX_ROUNDS:
                return None
            self._rounds[number] = Round(number)
            insort(self._numbers, number)
        return self._rounds[number]

    def _timed(self, number: int) -> Round:
        found = self._rounds[number]
        seconds, n_bytes, found.cpu_s = self._timing.get(number, (0.0, 0.0, 0.0))
        found.seconds, found.n_bytes = seconds or None, int(n_bytes)
        return found

    def _take_train(self, found: Round, zone: str, line: Line) -> None:
        if zone in found.members or len(found.members) >= _MAX_MEMBERS:
            return
        found.members.append(zone)
        found.attempt = whole(line.get("attempt")) or 1
        n_decisions = max(0, whole(line.get("n_decisions")) or 0)
        found.n_decisions += n_decisions
        reward = finite(line.get("mean_reward"))
        if reward is not None and n_decisions:
            found.reward_sum += reward * n_decisions
            found.reward_weight += n_decisions
        figures = {name: finite(line.get(name)) for name in _ZONE_FIGURES}
        self.zones[zone] = {name: value for name, value in figures.items() if value is not None}
        self.zones[zone]["round"] = found.number

    def _take_validation(self, number: int, line: Line) -> None:
        if len(self.validations) >= _MAX_ROUNDS:
            return
        given = _list(line.get("zones"))
        zones = tuple(text(zone, 80) for zone in given[:_MAX_MEMBERS])
        metrics = {
            text(name, 80): value
            for name, given_value in line.items()
            if name not in ("round", "kind") and (value := finite(given_value)) is not None
        }
        is_best = line.get("is_best") is True
        self.validations.append(Validation(number, is_best, zones, metrics))


class EventBook:
    """The newest events of federation/events.jsonl."""

    def __init__(self) -> None:
        """Start without an event."""
        self.end: dict[str, str] | None = None
        """How the ServerApp has ended; None while it runs, or never ran."""
        self._events: deque[dict[str, Any]] = deque(maxlen=_N_EVENTS)

    def reset(self) -> None:
        """Forget everything."""
        self.end = None
        self._events.clear()

    def take(self, line: Line) -> None:
        """Take a line; rounds have a table of their own."""
        kind = text(line.get("kind"), 40)
        if kind == "start":
            self.end = None
        elif kind == "end":
            self.end = {key: text(line.get(key)) for key in ("outcome", "error")}
        if not kind or kind == "round":
            return
        event: dict[str, Any] = {"kind": kind, "time": finite(line.get("time"))}
        for key in ("zone", "reason", "problem", "error", "outcome", "node", "process", "how"):
            if key in line:
                event[key] = text(line[key])
        for key in ("round", "epoch"):
            if key in line:
                event[key] = whole(line[key])
        for key in ("zones", "added", "removed"):
            if zones := _list(line.get(key)):
                event[key] = [text(zone, 80) for zone in zones[:64]]
        event |= _reasons(line.get("why"))
        self._events.append(event)

    def newest(self) -> list[dict[str, Any]]:
        """Return the newest events, newest first."""
        return list(reversed(self._events))


def _reasons(why: Any) -> dict[str, str]:
    """Return reasons by zone as one."""
    if not isinstance(why, dict):
        return {}
    return {"reason": text("; ".join(f"{zone}: {reason}" for zone, reason in sorted(why.items())))}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _thinned(points: list[list[Any]]) -> list[list[Any]]:
    """Return at most 240 points: every n-th one, the last one, and the extreme ones."""
    if len(points) <= _N_POINTS:
        return points
    values = [point[1] for point in points]
    extremes = {values.index(min(values)), values.index(max(values)), len(points) - 1, 0}
    step = len(points) / (_N_POINTS - len(extremes))
    kept = {int(i * step) for i in range(_N_POINTS - len(extremes))} | extremes
    return [points[i] for i in sorted(kept) if i < len(points)]
