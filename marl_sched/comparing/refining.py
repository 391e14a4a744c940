"""Policies that are made of trained ones: their corrections added up and refined, as jobs."""

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from marl_sched.comparing.jobs import COMMAND_LINE, Training, read_stamp, write_stamp
from marl_sched.comparing.playing import load_cached
from marl_sched.config import Experiment
from marl_sched.config.hashing import config_hash
from marl_sched.errors import MarlSchedError, RunError
from marl_sched.refining import EVALUATIONS_FILE, REFINED_FILE
from marl_sched.run_folder import RunFolder


@dataclass(frozen=True)
class Refining:
    """One `marl-sched refine`.

    Attributes:
        policy: Name of the policy that is made.
        seed: The training seed of what it is made of; tune episodes are drawn by it too.
        config: The configuration.
        overrides: Of it, the seed's among them.
        origins: The trainings whose policies are added up.
        n_evaluations: Points that are scored; 1: none is searched.
        folder: Where the policy is published, laid out as a run.
        log: Where its output goes.
        cost_s: About how many CPU seconds it takes.
    """

    policy: str
    seed: int
    config: str
    overrides: tuple[str, ...]
    origins: tuple[Training, ...]
    n_evaluations: int
    folder: Path
    log: Path
    cost_s: float = 1.0

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"refine {self.policy}-{self.seed}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the trainings that it is made of."""
        return tuple(origin.name for origin in self.origins)

    @property
    def experiment(self) -> Experiment:
        """What the search plays."""
        return load_cached(self.config, self.overrides)

    @property
    def stamp(self) -> Path:
        """The file that says what the policy belongs to; its folder must be this job's alone."""
        return self.folder.with_name(f"{self.folder.name}.json")

    def identity(self) -> str:
        """Return a hash of all that it depends on."""
        origins = [origin.identity() for origin in self.origins]
        content = [config_hash(self.experiment), origins, self.n_evaluations]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Check that what is there belongs to this comparison.

        Raises:
            RunError: It does not.
        """
        if read_stamp(self.stamp) not in ("", self.identity()):
            raise RunError(
                f"{self.folder}: was refined from other runs, by another configuration or with "
                "other evaluations; give another folder: --out FOLDER, or delete it"
            )

    def is_done(self) -> bool:
        """Return whether the policy is published."""
        try:
            is_ours = read_stamp(self.stamp) == self.identity()
            is_made = all(origin.is_done() for origin in self.origins)
        except MarlSchedError:
            return False
        return is_ours and is_made and RunFolder(self.folder).best_path.exists()

    def share(self) -> float:
        """Return the share of the evaluations that are done."""
        if (self.folder / REFINED_FILE).exists():
            return 1.0
        try:
            n_lines = len((self.folder / EVALUATIONS_FILE).read_bytes().splitlines())
        except OSError:
            return 0.0
        return min(1.0, max(0, n_lines - 1) / self.n_evaluations)

    def tidy(self) -> None:
        """Delete nothing: it is small."""

    def command(self) -> list[str]:
        """Return the command that searches, or goes on; note what the policy belongs to."""
        write_stamp(self.stamp, self.identity())
        settings = [part for override in self.overrides for part in ("--set", override)]
        runs = [part for origin in self.origins for part in ("--run", str(origin.folder))]
        return [
            *(sys.executable, "-c", COMMAND_LINE, "refine", self.config, *settings, *runs),
            *("--evaluations", str(self.n_evaluations), "--out", str(self.folder)),
        ]
