"""The views of the zones, RUN/live/ZONE.json, as the page wants them."""

import os
from pathlib import Path
from typing import Any

from dashboard.following import FileWatch
from marl_sched.errors import MarlSchedError
from zones.view import MAX_VIEW_BYTES, CandidateView, DecisionView, ZoneView, parse_view

_SUFFIX = ".json"
_MAX_ZONES = 1_024
_N_QUANTILES = 33
"""Quantiles a candidate that reach the page: more are no better to see."""


class ZoneViews:
    """Follows the views of a folder.

    Attributes:
        newest: The last good view by zone.
        came_s: When it came, by this host's clock: zones on other hosts have clocks of their own.
        problems: What is wrong, by zone; the view before it stays.
    """

    def __init__(self, folder: Path) -> None:
        """Watch a folder, which need not exist."""
        self._folder = folder
        self._files: dict[str, FileWatch] = {}
        self.newest: dict[str, ZoneView] = {}
        self.came_s: dict[str, float] = {}
        self.problems: dict[str, str] = {}

    def poll(self) -> set[str]:
        """Read the views that are new.

        Returns:
            Zones that have another view now, or none any more.

        Raises:
            OSError: The folder is there and cannot be listed.
        """
        names = self._names()
        changed = {zone for zone in self._files if zone not in names}
        for zone in changed:
            del self._files[zone]
            self._forget(zone)
            self.problems.pop(zone, None)
        for zone in sorted(names)[:_MAX_ZONES]:
            if zone not in self._files:
                self._files[zone] = FileWatch(self._folder / f"{zone}{_SUFFIX}", MAX_VIEW_BYTES)
            if self._read(zone, self._files[zone]):
                changed.add(zone)
        return changed

    def _names(self) -> set[str]:
        try:
            with os.scandir(self._folder) as entries:
                names = [entry.name for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return set()
        return {name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)}

    def _read(self, zone: str, file: FileWatch) -> bool:
        """Read one view; return whether there is a new good one, or none any more."""
        try:
            if not file.poll():
                return False
            if file.content is None:
                return self._forget(zone)
            self.newest[zone] = parse_view(file.content, zone)
            self.came_s[zone] = file.changed_s or 0.0
        except MarlSchedError as error:
            self.problems[zone] = str(error)
            return False
        except OSError as error:
            self.problems[zone] = str(error.strerror or error)
            return False
        self.problems.pop(zone, None)
        return True

    def _forget(self, zone: str) -> bool:
        """Drop a zone's view; return whether there was one."""
        self.came_s.pop(zone, None)
        return self.newest.pop(zone, None) is not None


def shown_view(view: ZoneView, came_s: float) -> dict[str, Any]:
    """Return a view as it is sent: when it came, shares in whole thousandths, a row a resource.

    Shapes: C cells, R resources; `utilization` and `allocation` are (R, C).
    """
    machines = view.machines
    return {
        "time": round(view.time, 2),
        "came": round(came_s, 2),
        "phase": view.phase,
        "round": view.round,
        "attempt": view.attempt,
        "episode": view.episode,
        "share": round(view.share, 4),
        "simulated_s": round(view.simulated_s, 1),
        "n_waiting": view.n_waiting,
        "n_running": view.n_running,
        "n_decisions": view.n_decisions,
        "resources": view.resources,
        "n": machines.n,
        "per_cell": machines.per_cell,
        "utilization": _columns(machines.utilization),
        "allocation": _columns(machines.allocation),
        "offloads": view.offloads,
        "decision": None if view.decision is None else _decision(view.decision),
    }


def _columns(rows: list[list[float]]) -> list[list[int]]:
    return [[round(1000 * share) for share in column] for column in zip(*rows, strict=True)]


def _decision(decision: DecisionView) -> dict[str, Any]:
    kept = _evenly(len(decision.taus), _N_QUANTILES)
    return {
        "simulated_s": round(decision.simulated_s, 1),
        "request": decision.request,
        "is_exploring": decision.is_exploring,
        "taus": [round(decision.taus[i], 4) for i in kept],
        "candidates": [_candidate(one, kept) for one in decision.candidates],
    }


def _candidate(candidate: CandidateView, kept: list[int]) -> dict[str, Any]:
    return {
        "kind": candidate.kind,
        "index": candidate.index,
        "name": candidate.name,
        "utilization": candidate.utilization,
        "is_chosen": candidate.is_chosen,
        "mean": _short(candidate.mean),
        "quantiles": [_short(candidate.quantiles[i]) for i in kept],
    }


def _evenly(n: int, most: int) -> list[int]:
    """Return at most `most` of 0 .. n - 1, evenly spaced, both ends among them."""
    if n <= most:
        return list(range(n))
    return [round(i * (n - 1) / (most - 1)) for i in range(most)]


def _short(number: float) -> float:
    return float(f"{number:.6g}")
