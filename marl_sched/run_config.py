"""What of a run's configuration may change while it goes on: which zones there are.

A zone may be added and one may leave; those that stay are what they were, and so is all the rest.
Compared are configurations as plain data, both dumped, or both read from what `dump_config` writes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from marl_sched.config import Experiment
from marl_sched.config.hashing import completed

Difference = tuple[str, Any, Any]
"""A key, and its value in the one and in the other configuration."""

_SHOWN = "live"
"""What is shown of a run may change while it goes on."""


@dataclass(frozen=True)
class ZoneChange:
    """Zones by which a configuration differs from the one before it, in the order of names."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def between(cls, before: Iterable[str], after: Iterable[str]) -> "ZoneChange":
        """Return which names of `after` are not in `before`, and the other way round."""
        old, new = set(before), set(after)
        return cls(tuple(sorted(new - old)), tuple(sorted(old - new)))

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.added or self.removed)


def as_data(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment as plain data."""
    return experiment.model_dump(mode="json")


def zone_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> ZoneChange:
    """Return which zones of `new` are not in `old`, and the other way round."""
    return ZoneChange.between(_zones(old), _zones(new))


def first_difference(old: Any, new: Any) -> Difference | None:
    """Return the first key that differs, or None."""
    return _difference(_without(old, _SHOWN), _without(new, _SHOWN), "")


def lasting_difference(old: Any, new: Any, is_shown: bool = False) -> Difference | None:
    """Return the first key that differs and must not while a run goes on, or None.

    Args:
        old: The configuration of the run.
        new: The one that it is to have.
        is_shown: What is shown of a run counts too: it is read when a process starts.
    """
    before, after = _zones(old), _zones(new)
    ignored = ("zones",) if is_shown else ("zones", _SHOWN)
    rest = _difference(_without(old, *ignored), _without(new, *ignored), "")
    if rest is not None:
        return rest
    found = (
        _difference(before[name], zone, f"zones[{index}]")
        for index, (name, zone) in enumerate(after.items())
        if name in before
    )
    return next((difference for difference in found if difference is not None), None)


def _zones(data: Any) -> dict[str, Any]:
    """Return the zones by name; what is no configuration has none."""
    zones = data.get("zones") if isinstance(data, dict) else None
    named = [z for z in zones if isinstance(z, dict)] if isinstance(zones, list) else []
    return {str(zone.get("name")): zone for zone in named}


def _without(data: Any, *keys: str) -> Any:
    """Return a configuration without some sections, with later settings that it was before."""
    if not isinstance(data, dict):
        return data
    return {key: value for key, value in completed(data).items() if key not in keys}


def _difference(old: Any, new: Any, path: str) -> Difference | None:
    """Return the first key that differs with both values, or None."""
    if isinstance(old, dict) and isinstance(new, dict):
        steps: Iterable[Any] = dict.fromkeys([*new, *old])
        pairs = [(f"{path}.{s}" if path else str(s), old.get(s), new.get(s)) for s in steps]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(old, new, strict=True))]
    else:
        return None if old == new else (path or "the file", old, new)
    found = (_difference(a, b, key) for key, a, b in pairs)
    return next((difference for difference in found if difference is not None), None)
