"""A study of scale as a whole: runs side by side, what this machine cannot show, the file."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from marl_sched.files import write_atomically
from marl_sched.scaling.cases import Case
from marl_sched.scaling.cost_model import (
    CostModel,
    HeldOut,
    Predicted,
    fit,
    held_out,
    hub_limit,
    predict,
)
from marl_sched.scaling.measured import Measured
from marl_sched.scaling.sizes import Mode

STUDY_FILE = "scaleout.json"


@dataclass(frozen=True)
class Projection:
    """What the cost model says.

    Attributes:
        model: Fitted to all measured sizes.
        sizes: Larger federations.
        error: On the largest measured size, by a model without it; None: too few sizes.
        hub_limit: From how many zones on the hub's work outweighs a zone's; None: not before the
            largest size asked for.
    """

    model: CostModel
    sizes: Sequence[Predicted]
    error: HeldOut | None
    hub_limit: int | None

    def as_json(self) -> dict[str, Any]:
        """Return everything."""
        return {
            "model": self.model.as_json(),
            "sizes": [size.as_json() for size in self.sizes],
            "held_out": None if self.error is None else self.error.as_json(),
            "hub_limit_zones": self.hub_limit,
        }


@dataclass(frozen=True)
class Study:
    """All that was measured.

    Attributes:
        mode: How the configuration was scaled.
        runs: Measured runs by case.
        n_cores: Cores there are.
        zone_jobs: Jobs a second in each zone of the file; 1 each where they are not known before.
    """

    mode: Mode
    runs: Mapping[Case, Measured]
    n_cores: int
    zone_jobs: Sequence[float] = (1.0,)

    @property
    def federated(self) -> list[Measured]:
        """The federated runs, by size."""
        found = [(case.n_zones, run) for case, run in self.runs.items() if _is_federated(case)]
        return [run for _, run in sorted(found, key=lambda pair: pair[0])]

    @property
    def probe_s(self) -> float | None:
        """CPU seconds of the fixed work in the quickest run; None: it is not known of all runs."""
        found = [run.probe_s for run in self.runs.values()]
        known = [seconds for seconds in found if seconds is not None]
        return min(known) if known and len(known) == len(found) else None

    @property
    def at_equal_speed(self) -> list[Measured]:
        """The federated runs with the CPU seconds of the quickest run's machine."""
        probe_s = self.probe_s
        return [run if probe_s is None else run.at_speed(probe_s) for run in self.federated]

    @property
    def cpu_growth(self) -> float | None:
        """CPU seconds per 1,000 decisions at the largest size over those at 2; None: no such."""
        return _growth(self.federated)

    @property
    def cpu_growth_at_equal_speed(self) -> float | None:
        """The same with the CPU seconds of the quickest run's machine; None: no such."""
        return None if self.probe_s is None else _growth(self.at_equal_speed)

    def project(self, sizes: Sequence[int]) -> Projection | None:
        """Return what the cost model says of larger sizes; None: fewer than two were measured."""
        runs = self.at_equal_speed
        if len(runs) < 2:
            return None
        model = fit(runs, self.mode, self.n_cores, self.zone_jobs)
        return Projection(
            model,
            [predict(model, size) for size in sizes],
            held_out(runs, self.mode, self.n_cores, self.zone_jobs),
            hub_limit(model, max(sizes)),
        )

    def caveats(self) -> list[str]:
        """Say what these figures cannot show."""
        return list(self._caveats())

    def _caveats(self) -> Iterator[str]:
        busy = [run.n_zones for run in self.federated if run.n_zones + 1 > self.n_cores]
        if busy:
            cores = "1 core" if self.n_cores == 1 else f"{self.n_cores} cores"
            yield (
                f"This machine has {cores}; with {_named(busy)} zones more processes work at once "
                "than there are cores. Seconds a round, waiting and decisions/s are then those of "
                "processes that take turns, and say nothing of a cluster with a host a zone. CPU "
                "seconds hold but for those of polling, which grow with the seconds of a round; "
                "bytes and memory hold."
            )
        yield "All processes are on one host: no network is between them."
        foreign = [r for r in self.runs.values() if r.load_average > self.n_cores + _RUNNABLE]
        if foreign:
            most = max(run.load_average for run in foreign)
            yield (
                f"The machine's load average was up to {most:.1f}: more than {self.n_cores} wanted "
                "to run, ours among them. Seconds are longer for it, CPU seconds a little."
            )
        for case, run in self.runs.items():
            if run.n_lost:
                yield f"{case.name}: {run.n_lost} zones were lost; their rounds are left out."
            if run.n_timed == 1:
                yield f"{case.name}: one round timed."
        for case, run in self.runs.items():
            for note in run.notes:
                yield f"{case.name}: {note}."

    def save(self, folder: Path, projection: Projection | None) -> Path:
        """Write everything to STUDY_FILE."""
        text = json.dumps(self.as_json(projection), indent=1, allow_nan=False) + "\n"
        path = folder / STUDY_FILE
        write_atomically(path, lambda file: file.write(text.encode()))
        return path

    def as_json(self, projection: Projection | None) -> dict[str, Any]:
        """Return everything."""
        return {
            "mode": self.mode,
            "n_cores": self.n_cores,
            "runs": [
                {"case": vars(case) | {"name": case.name}} | run.as_json()
                for case, run in self.runs.items()
            ],
            "equal": [row.as_json() for row in equal_objectives(self.runs)],
            "cpu_growth_from_2_zones": self.cpu_growth,
            "cpu_growth_from_2_zones_at_equal_speed": self.cpu_growth_at_equal_speed,
            "projection": None if projection is None else projection.as_json(),
            "caveats": self.caveats(),
        }


_RUNNABLE = 2.0
"""Load average above the cores that a shared machine is called busy at."""


@dataclass(frozen=True)
class EqualObjective:
    """The objective of a run where all runs of its size have come.

    Attributes:
        case: The run.
        n_decisions: Training decisions that all runs of the size have reached.
        at_decisions: The objective there; None: before the first validation.
        seconds: Training seconds that all runs of the size have reached.
        at_seconds: The objective there; None: before the first validation.
        baseline: Objective of kube-default on the same episodes.
    """

    case: Case
    n_decisions: int
    at_decisions: float | None
    seconds: float
    at_seconds: float | None
    baseline: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the fields; ratios to the baseline beside them."""
        return vars(self) | {
            "case": self.case.name,
            "at_decisions_over_kube_default": self.over_baseline(self.at_decisions),
            "at_seconds_over_kube_default": self.over_baseline(self.at_seconds),
        }

    def over_baseline(self, value: float | None) -> float | None:
        """Return a value over the baseline; None: one of them is not there."""
        return None if value is None or not self.baseline else value / self.baseline


def equal_objectives(runs: Mapping[Case, Measured]) -> list[EqualObjective]:
    """Return the objectives at equal decisions and at equal seconds, within every size."""
    rows = []
    for n_zones in sorted({case.n_zones for case in runs}):
        found = {case: run for case, run in runs.items() if case.n_zones == n_zones and run.curve}
        if not found:
            continue
        decisions = min(run.curve[-1].n_decisions for run in found.values())
        seconds = min(run.curve[-1].seconds for run in found.values())
        rows += [
            EqualObjective(
                case,
                decisions,
                _at([(float(p.n_decisions), p.objective) for p in run.curve], decisions),
                seconds,
                _at([(p.seconds, p.objective) for p in run.curve], seconds),
                run.baseline,
            )
            for case, run in found.items()
        ]
    return rows


def _at(points: Sequence[tuple[float, float]], where: float) -> float | None:
    """Return the value at a place, on a straight line between points; None: before the first."""
    if where < points[0][0]:
        return None
    for (left, low), (right, high) in pairwise(points):
        if left <= where <= right and right > left:
            return low + (high - low) * (where - left) / (right - left)
    return points[-1][1] if where >= points[-1][0] else points[0][1]


def _growth(runs: Sequence[Measured]) -> float | None:
    sizes = {run.n_zones: run.cpu_per_1000(run.cpu_s) for run in runs}
    return sizes[max(sizes)] / sizes[2] if 2 in sizes and max(sizes) > 2 else None


def _is_federated(case: Case) -> bool:
    return case.variant == "federated"


def _named(sizes: Sequence[int]) -> str:
    return (
        str(sizes[0]) if len(sizes) == 1 else f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
    )
