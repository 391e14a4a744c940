"""How trainings went: the validation objective by decisions and by wall time."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marl_sched.errors import RunError


@dataclass(frozen=True)
class Point:
    """A validation of a run.

    Attributes:
        round: Rounds before it.
        decisions: Decisions of all zones in them.
        seconds: Wall seconds of them, validations included; of jobs side by side.
        objective: Objective on the validation episodes.
    """

    round: int
    decisions: int
    seconds: float
    objective: float


@dataclass(frozen=True)
class Curves:
    """The curves of a comparison.

    Attributes:
        runs: Policy -> a curve a training seed.
        baselines: Rule -> its mean objective on the validation episodes of all seeds.
    """

    runs: Mapping[str, Sequence[Sequence[Point]]]
    baselines: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return them as plain data."""
        runs = {
            name: [[asdict(p) for p in one] for one in all_] for name, all_ in self.runs.items()
        }
        return {"runs": runs, "baselines": dict(self.baselines)}


def read_curve(folder: Path) -> list[Point]:
    """Return the validations of a training run, in their order.

    Raises:
        RunError: A file of the run is missing or broken.
    """
    seconds = dict(_round_seconds(folder))
    decisions: dict[int, int] = {}
    objectives: dict[int, float] = {}
    for line in _lines(folder / "metrics.jsonl"):
        number = line["round"]
        if line["kind"] == "train":
            decisions[number] = decisions.get(number, 0) + line["n_decisions"]
        elif line["kind"] == "validation" and line["objective"] is not None:
            objectives[number] = line["objective"]
    return [
        Point(
            round=number,
            decisions=sum(n for r, n in decisions.items() if r <= number),
            seconds=round(sum(s for r, s in seconds.items() if r <= number), 3),
            objective=objective,
        )
        for number, objective in sorted(objectives.items())
    ]


def training_seconds(folder: Path) -> float:
    """Return the wall seconds of all rounds of a run; 0 if nothing says so."""
    try:
        return sum(seconds for _, seconds in dict(_round_seconds(folder)).items())
    except RunError:
        return 0.0


def _round_seconds(folder: Path) -> Iterator[tuple[int, float]]:
    """Yield rounds and their seconds; of a round that was run again the last line counts."""
    for line in _lines(folder / "timing.jsonl"):
        if "round_s" in line:
            yield int(line["round"]), float(line["round_s"])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "round" in line:
                yield line
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
