"""How much load policies carry: the largest one at which few instances finish late.

The violations of a policy at a load are the mean of `finish_violation_rate` over its training seeds
and the episodes; `crossing` has how the largest load follows. Loads are shares of the configured
one. Shapes: S training seeds, E episodes, L loads, K resamples.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.comparing.crossing import Crossing, largest_load, largest_loads, ratio_of_loads
from marl_sched.errors import RunError
from marl_sched.files import write_atomically
from marl_sched.statistics import KUBE_DEFAULT, TUNED, Bootstrap, Row, summarize_row

CAPACITY_FILE = "capacity.json"
VIOLATIONS = "finish_violation_rate"
LARGEST_LOAD = "largest offered load"
BASELINES = (KUBE_DEFAULT, TUNED)

Violations = Mapping[str, Sequence[NDArray[np.float64]]]
"""Policy -> L arrays (S, E)."""


@dataclass(frozen=True)
class LargestLoad:
    """The largest load of a policy.

    Attributes:
        policy: Its name.
        found: As a share of the configured load.
        by_seed: Of every training seed alone.
        n_episodes: E.
        n_training_seeds: S.
    """

    policy: str
    found: Crossing
    by_seed: Sequence[float]
    n_episodes: int
    n_training_seeds: int


@dataclass(frozen=True)
class LoadRatio:
    """The largest load of a policy over that of a baseline, on the same episodes.

    Attributes:
        policy: Whose.
        baseline: Over whose.
        found: The ratio.
    """

    policy: str
    baseline: str
    found: Crossing


@dataclass(frozen=True)
class Capacity:
    """Policies compared by the load that they carry.

    Attributes:
        shares: (L,) loads that were played, as shares of the configured one.
        rows: Policy -> the violations at every load.
        loads: The largest loads.
        ratios: To the baselines that were played.
        origin: How it was made: names, hashes, seeds, versions, the bound.
    """

    shares: Sequence[float]
    rows: Mapping[str, Sequence[Row]]
    loads: Sequence[LargestLoad]
    ratios: Sequence[LoadRatio]
    origin: Mapping[str, Any]

    @property
    def by_load(self) -> list[LargestLoad]:
        """The largest loads, the best first."""
        return sorted(self.loads, key=lambda one: -(one.found.value or 0.0))

    def save(self, folder: Path) -> None:
        """Write capacity.json; the folder is made if it is not there."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), indent=1, allow_nan=False) + "\n"
        write_atomically(folder / CAPACITY_FILE, lambda file: file.write(text.encode()))


def measure(
    shares: Sequence[float],
    violations: Violations,
    bound: float,
    bootstrap: Bootstrap,
    origin: Mapping[str, Any],
) -> Capacity:
    """Find the largest loads, and their ratios to the baselines.

    Args:
        shares: (L,) rising shares of the configured load.
        violations: What was played, all policies over the same episodes.
        bound: Largest mean rate of violations that a load may have.
        bootstrap: The resamples, the same for all policies and loads.
        origin: How it was made.
    """
    grid = np.array(shares)
    means = {name: np.array([v.mean() for v in by]) for name, by in violations.items()}  # (L,)
    resampled = {
        name: np.stack([bootstrap.means(values) for values in by], axis=1)  # (K, L)
        for name, by in violations.items()
    }
    rows = {
        name: [summarize_row(name, VIOLATIONS, values, bootstrap) for values in by]
        for name, by in violations.items()
    }
    loads = []
    for name, by in violations.items():
        n_seeds, n_episodes = by[0].shape
        seeds = np.stack([values.mean(axis=1) for values in by], axis=1)  # (S, L)
        by_seed, _ = largest_loads(grid, seeds, bound)
        found = largest_load(grid, means[name], resampled[name], bound)
        loads.append(LargestLoad(name, found, by_seed.tolist(), n_episodes, n_seeds))
    ratios = [
        LoadRatio(
            name,
            baseline,
            ratio_of_loads(
                grid,
                (means[name], means[baseline]),
                (resampled[name], resampled[baseline]),
                bound,
            ),
        )
        for baseline in BASELINES
        if baseline in violations
        for name in violations
        if name != baseline
    ]
    return Capacity(list(shares), rows, loads, ratios, dict(origin) | {"bound": bound})


def load_capacity(folder: Path) -> Capacity:
    """Read what `Capacity.save` wrote.

    Raises:
        RunError: It is missing or not one of ours.
    """
    path = folder / CAPACITY_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Capacity(
            shares=[float(share) for share in content["shares"]],
            rows={name: [Row(**row) for row in rows] for name, rows in content["rows"].items()},
            loads=[LargestLoad(**one) for one in _with_crossings(content["loads"])],
            ratios=[LoadRatio(**one) for one in _with_crossings(content["ratios"])],
            origin=dict(content["origin"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path}: not a file written by `capacity`: {error!r}") from None


def _with_crossings(content: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in content:
        yield {**one, "found": Crossing(**one["found"])}
