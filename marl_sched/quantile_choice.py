"""`agent.n_quantiles: auto`: which number of quantiles is enough, by what short trainings reached.

A pilot is a short training with one number of quantiles and one seed; its last policy plays the
validation episodes. RUN/quantiles.json keeps every pilot and the choice; `due` says what is left to
do, so that who is stopped goes on. Shapes: S seeds, V validation episodes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.config import Experiment
from marl_sched.config.hashing import config_hash
from marl_sched.errors import RunError
from marl_sched.files import write_atomically
from marl_sched.run_folder import QUANTILES_FILE, RunFolder
from marl_sched.statistics import Bootstrap, summarize_ratio

TRIED = (1, 2, 4, 8, 16, 32)
"""Numbers of quantiles; the last one is what the others are measured by."""
REFERENCE = TRIED[-1]


@dataclass(frozen=True)
class Pilot:
    """A short training.

    Attributes:
        n_quantiles: Its number of quantiles.
        seed: Its training seed.
        objectives: (V,) of the validation episodes of the run's own seed.
    """

    n_quantiles: int
    seed: int
    objectives: Sequence[float]


@dataclass(frozen=True)
class Figures:
    """What a number of quantiles has reached.

    Attributes:
        n_quantiles: The number.
        objective: Mean over seeds and validation episodes.
        ratio: Over that of the largest number, on the same episodes.
        ci95_low: Bootstrapped over episodes, and over seeds where there are several.
        ci95_high: Its other end.
        n_seeds: S.
    """

    n_quantiles: int
    objective: float
    ratio: float | None
    ci95_low: float | None
    ci95_high: float | None
    n_seeds: int


@dataclass
class Search:
    """The pilots of one run.

    Attributes:
        experiment: With a number of quantiles that is to be found.
        pilots: Those that are done.
    """

    experiment: Experiment
    pilots: list[Pilot] = field(default_factory=list)

    @classmethod
    def open(cls, experiment: Experiment, run_dir: Path) -> "Search":
        """Go on from what is in a run's folder, if anything.

        Raises:
            RunError: The file there is not whole or belongs to another configuration.
        """
        found = _read(run_dir)
        if found is None:
            return cls(experiment)
        path = run_dir / QUANTILES_FILE
        if found.get("identity") != config_hash(experiment):
            raise RunError(
                f"{path}: belongs to another configuration; delete {run_dir} or give another folder"
            )
        try:
            return cls(experiment, [Pilot(**pilot) for pilot in found["pilots"]])
        except (KeyError, TypeError) as error:
            raise _broken(path, error) from None

    @property
    def seeds(self) -> range:
        """Training seeds of the pilots."""
        return range(self.experiment.seed, self.experiment.seed + self.experiment.agent.pilot_seeds)

    @property
    def choice(self) -> int | None:
        """The smallest number that is enough; None while pilots are due."""
        return None if self.due() is not None else self._enough()

    def due(self) -> tuple[int, int] | None:
        """Return number of quantiles and seed of the next pilot; None once the choice is made.

        The largest number comes first, then the smaller ones from the smallest on, until one is
        within the tolerance.
        """
        done = {(pilot.n_quantiles, pilot.seed) for pilot in self.pilots}
        for n_quantiles in (REFERENCE, *TRIED[:-1]):
            for seed in self.seeds:
                if (n_quantiles, seed) not in done:
                    return n_quantiles, seed
            if n_quantiles != REFERENCE and self._is_enough(n_quantiles):
                return None
        return None

    def figures(self, n_quantiles: int) -> Figures:
        """Return what the pilots of a number of quantiles have reached so far."""
        own, reference = self._objectives(n_quantiles), self._objectives(REFERENCE)
        bootstrap = Bootstrap(
            self.experiment.seed, self.experiment.evaluation.bootstrap_samples, own.shape[1]
        )
        names = (str(n_quantiles), str(REFERENCE), "objective")
        found = summarize_ratio(names, own, reference, bootstrap)
        mean = float(own.mean())
        if n_quantiles == REFERENCE:
            return Figures(n_quantiles, mean, 1.0, 1.0, 1.0, len(own))
        return Figures(n_quantiles, mean, found.ratio, found.ci95_low, found.ci95_high, len(own))

    def save(self, run_dir: Path) -> None:
        """Write what is known, atomically."""
        agent = self.experiment.agent
        numbers = sorted({pilot.n_quantiles for pilot in self.pilots})
        content = {
            "identity": config_hash(self.experiment),
            "tolerance": agent.quantiles_tolerance,
            "rounds": pilot_rounds(self.experiment),
            "n_quantiles": self.choice,
            "tried": [asdict(self.figures(number)) for number in numbers],
            "pilots": [asdict(pilot) for pilot in self.pilots],
        }
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        write_atomically(run_dir / QUANTILES_FILE, lambda file: file.write(text.encode()))

    def _enough(self) -> int:
        return next((n for n in TRIED[:-1] if self._is_enough(n)), REFERENCE)

    def _is_enough(self, n_quantiles: int) -> bool:
        """Return whether the mean objective is within the tolerance of that of the largest."""
        own, reference = self._objectives(n_quantiles), self._objectives(REFERENCE)
        loss = own.mean() - reference.mean()
        allowed = self.experiment.agent.quantiles_tolerance * abs(reference.mean())
        return bool(len(own) == len(self.seeds) and loss <= allowed)

    def _objectives(self, n_quantiles: int) -> NDArray[np.float64]:
        """Return (S, V) objectives of a number of quantiles; (0,) without a pilot."""
        rows = [pilot.objectives for pilot in self.pilots if pilot.n_quantiles == n_quantiles]
        return np.array(rows, np.float64)


def pilot_rounds(experiment: Experiment) -> int:
    """Return the rounds of a pilot."""
    return min(experiment.agent.pilot_rounds, experiment.training.rounds)


def with_number(experiment: Experiment, n_quantiles: int) -> Experiment:
    """Return an experiment with a number of quantiles."""
    agent = experiment.agent.model_copy(update={"n_quantiles": n_quantiles})
    return experiment.model_copy(update={"agent": agent})


def pilot_experiment(experiment: Experiment, n_quantiles: int, seed: int) -> Experiment:
    """Return what a pilot trains: the experiment in few rounds, validated at their end."""
    rounds = pilot_rounds(experiment)
    training = experiment.training.model_copy(update={"rounds": rounds, "validate_every": rounds})
    return with_number(experiment, n_quantiles).model_copy(
        update={"training": training, "seed": seed}
    )


def with_known_number(experiment: Experiment, run_dir: Path) -> Experiment:
    """Return an experiment with the number of quantiles that was found for a run's folder, if any.

    Raises:
        RunError: The folder is that of a run that has begun with another configuration, or holds
            pilots of one.
    """
    has_begun = RunFolder(run_dir).config_path.exists()
    found = _read(run_dir)
    if not experiment.agent.finds_quantiles:
        if found is not None and not has_begun:
            raise RunError(
                f"{run_dir}: holds what was tried for agent.n_quantiles = auto, but it is "
                f"{experiment.agent.n_quantiles}; delete it or give another folder"
            )
        return experiment
    if found is None:
        return experiment
    if not has_begun:
        choice = Search.open(experiment, run_dir).choice
    else:
        # Which zones there are may have changed since; RunFolder compares the rest.
        choice = found.get("n_quantiles")
        if choice not in TRIED:
            raise _broken(run_dir / QUANTILES_FILE, f"n_quantiles = {choice}")
    return experiment if choice is None else with_number(experiment, choice)


def _read(run_dir: Path) -> Mapping[str, Any] | None:
    """Return what quantiles.json holds; None if there is none."""
    path = run_dir / QUANTILES_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _broken(path, error) from None
    if not isinstance(found, dict):
        raise _broken(path, "no mapping")
    return found


def _broken(path: Path, why: object) -> RunError:
    return RunError(f"{path}: not a file of pilots, delete it: {why}")
