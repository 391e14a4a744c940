"""Random search, then local steps around the best: a minimiser that can be interrupted.

Candidates are made in batches of fixed size, and a batch depends on the results before it only, so
that the outcome depends neither on the number of processes nor on interruptions: every result is a
line of a log, and a search that finds lines in its log takes them instead of scoring.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from marl_sched.config.streams import named_stream
from marl_sched.errors import RunError
from marl_sched.files import naming, write_atomically

BATCH = 4
"""Candidates that are made before any of them is scored."""

Weights = Mapping[str, float]

Scorer = Callable[[Sequence[Weights]], Iterable[float]]
"""From candidates to their objectives, in order; lower is better."""

SearchProgress = Callable[[int, int, float], None]
"""Called with (evaluations done, evaluations in all, best objective so far)."""


@dataclass(frozen=True)
class SearchSpace:
    """Where to search.

    Attributes:
        priors: Weight -> (start, spread).
        n_evaluations: Candidates to score, the start among them.
        n_random: How many of them are random search.
        seed: Of the search.
    """

    priors: Mapping[str, tuple[float, float]]
    n_evaluations: int
    n_random: int
    seed: int


@dataclass(frozen=True)
class Found:
    """What a search has found: the best weights, their objective and the start's."""

    weights: dict[str, float]
    objective: float
    start_objective: float
    n_evaluations: int


class SearchLog:
    """One JSON line an evaluation, after a first line that says what is searched."""

    def __init__(self, path: Path, identity: Mapping[str, object]) -> None:
        """Open a log, new or left by an interrupted search.

        Args:
            path: The file.
            identity: What its evaluations belong to.

        Raises:
            RunError: The file is the log of something else.
        """
        self._path = path
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        # A search killed while writing leaves half a line.
        whole = [line for line in lines if line.endswith(b"\n")]
        first = json.dumps(dict(identity), sort_keys=True).encode() + b"\n"
        if whole and whole[0] != first:
            found = whole[0].decode(errors="replace").strip()[:300]
            raise RunError(
                f"{path}: evaluations of another configuration ({found}), expected "
                f"{first.decode().strip()}; delete the file to start anew"
            )
        self._known = [_entry(path, row, line) for row, line in enumerate(whole[1:], 2)]
        kept = b"".join(whole) if whole else first
        write_atomically(path, lambda file: file.write(kept))

    def objective(self, number: int, weights: Weights) -> float | None:
        """Return the logged objective of evaluation `number`, or None.

        Raises:
            RunError: The log has other weights there.
        """
        if number >= len(self._known):
            return None
        entry = self._known[number]
        if entry.get("evaluation") != number or entry.get("weights") != dict(weights):
            raise RunError(
                f"{self._path}: evaluation {number} has other weights than this search; "
                "delete the file to start anew"
            )
        return float(entry["objective"])

    def append(self, number: int, objective: float, weights: Weights) -> None:
        """Add an evaluation."""
        entry = {"evaluation": number, "objective": objective, "weights": dict(weights)}
        with naming(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _entry(path: Path, row: int, line: bytes) -> dict[str, Any]:
    """Read one line of a log, row 2 and on."""
    try:
        entry = json.loads(line)
        if isinstance(entry, dict) and isinstance(entry["objective"], float):
            return entry
    except (ValueError, KeyError):
        pass
    shown = line.decode(errors="replace").strip()[:80]
    raise RunError(f"{path}: line {row} is no evaluation: {shown}; delete the file to start anew")


def search(
    space: SearchSpace, score: Scorer, log: SearchLog, progress: SearchProgress | None = None
) -> Found:
    """Minimise the objective over the weights.

    Args:
        space: Where to search.
        score: Scores candidates.
        log: Results so far are taken from it, new ones added.
        progress: Called after every evaluation.
    """
    local = _LocalSteps()
    start_objective = np.inf
    done = 0
    for batch in range(-(-space.n_evaluations // BATCH)):
        generator = named_stream(space.seed, "tuning", str(batch))
        size = min(BATCH, space.n_evaluations - done)
        is_random = done < space.n_random
        if is_random:
            candidates = [_random_candidate(space, done + i, generator) for i in range(size)]
        else:
            candidates = [local.propose(space, i, generator) for i in range(size)]
        results: list[float] = []
        for objective in _score_logged(candidates, done, score, log):
            results.append(objective)
            if progress is not None:
                best = min(local.objective, *results, np.inf)
                progress(done + len(results), space.n_evaluations, best)
        if batch == 0:
            start_objective = results[0]
        local.learn(candidates, results, adapts=not is_random)
        done += size
    return Found(local.weights, local.objective, start_objective, done)


class _LocalSteps:
    """The best weights so far, and how far to step from them."""

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}
        self.objective = np.inf
        self._last_move: dict[str, float] = {}
        self._step = 0.5

    def propose(
        self, space: SearchSpace, number: int, generator: np.random.Generator
    ) -> dict[str, float]:
        """Return the best weights with a few of them changed.

        The first candidate after a success goes on in the same direction (Hooke and Jeeves 1961).
        """
        if number == 0 and self._last_move:
            moved = {name: self.weights[name] + move for name, move in self._last_move.items()}
            return self.weights | _rounded(moved)
        names = list(space.priors)
        n_changed = min(len(names), int(generator.choice([1, 2, 3, 5, 8])))
        candidate = dict(self.weights)
        for index in generator.choice(len(names), n_changed, replace=False):
            spread = space.priors[names[index]][1]
            candidate[names[index]] += self._step * spread * generator.standard_normal()
        return _rounded(candidate)

    def learn(
        self, candidates: Sequence[Weights], results: Sequence[float], *, adapts: bool
    ) -> None:
        """Take over the best candidate if it is better; adapt the step to success or failure."""
        winner = int(np.argmin(results))
        is_better = results[winner] < self.objective
        if adapts:
            self._step = float(np.clip(self._step * (1.4 if is_better else 0.93), 0.05, 1.5))
        self._last_move = {}
        if is_better:
            if adapts:
                old = self.weights
                self._last_move = {n: w - old[n] for n, w in candidates[winner].items()}
            self.weights = dict(candidates[winner])
            self.objective = results[winner]


def _random_candidate(
    space: SearchSpace, number: int, generator: np.random.Generator
) -> dict[str, float]:
    """Return the start (number 0) or the start with about half of its weights changed."""
    start = {name: value for name, (value, _) in space.priors.items()}
    if number == 0:
        return start
    scale = (0.3, 0.6, 1.0)[number % 3]
    changed = generator.random(len(start)) < 0.5
    noise = generator.standard_normal(len(start))
    return _rounded(
        {
            name: value + scale * spread * noise[i] * changed[i]
            for i, (name, (value, spread)) in enumerate(space.priors.items())
        }
    )


def _rounded(weights: Weights) -> dict[str, float]:
    return {name: round(float(value), 6) for name, value in weights.items()}


def _score_logged(
    candidates: Sequence[Weights], first: int, score: Scorer, log: SearchLog
) -> Iterator[float]:
    """Yield the objectives of evaluations first, first + 1, ...; play only those not in the log."""
    known = [log.objective(first + i, weights) for i, weights in enumerate(candidates)]
    n_known = sum(objective is not None for objective in known)
    yield from (objective for objective in known if objective is not None)
    if n_known < len(candidates):
        for i, objective in enumerate(score(candidates[n_known:]), start=n_known):
            log.append(first + i, float(objective), candidates[i])
            yield float(objective)
