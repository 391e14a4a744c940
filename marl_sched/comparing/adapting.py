"""Policies that go on learning in a setting before they are evaluated there, as jobs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marl_sched.comparing.jobs import Training
from marl_sched.config import Experiment
from marl_sched.config.hashing import config_hash
from marl_sched.errors import CheckpointError, MarlSchedError, RunError
from marl_sched.starting import policy_files


@dataclass(frozen=True)
class Adapting:
    """A policy's training in a setting, from what its run has published.

    Attributes:
        setting: Name of the setting.
        origin: The policy's run.
        takes: Zone of the setting -> zone of the run whose policy it begins with; with an empty
            name it begins with drawn weights. Others: their own.
        training: The training in the setting; its folder is this job's alone.
    """

    setting: str
    origin: Training
    takes: Mapping[str, str]
    training: Training

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"adapt {self.training.policy}-{self.training.seed} to {self.setting}"

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.training.log

    @property
    def needs(self) -> tuple[str, ...]:
        """Name of the training that it goes on from."""
        return (self.origin.name,)

    @property
    def cost_s(self) -> float:
        """About how many CPU seconds it takes."""
        return self.training.cost_s

    @property
    def experiment(self) -> Experiment:
        """What is trained."""
        return self.training.experiment

    def identity(self) -> str:
        """Return a hash of all that it depends on.

        Raises:
            CheckpointError: The run it goes on from has published nothing.
        """
        zones = self.experiment.zone_names
        files = policy_files(self.origin.folder, zones, self.takes)
        begins = {
            zone: hashlib.sha256(path.read_bytes()).hexdigest() for zone, path in files.items()
        }
        content = [config_hash(self.experiment), self.origin.identity(), begins]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Check that what is there belongs to this comparison, as far as that is known yet.

        Raises:
            ConfigError: A zone of `takes` is not in the setting.
            RunError: What is there does not belong to it.
        """
        try:
            expected = ("", self.identity())
        except (CheckpointError, RunError):
            return  # the run it goes on from is not done
        if self.training.stamped() not in expected:
            raise RunError(
                f"{self.training.folder}: was adapted from another run or by another "
                "configuration; give another folder: --out FOLDER, or delete it"
            )

    def is_done(self) -> bool:
        """Return whether the training in the setting is finished."""
        try:
            is_ours = self.origin.is_done() and self.training.stamped() == self.identity()
        except MarlSchedError:
            return False
        return is_ours and self.training.has_ended()

    def share(self) -> float:
        """Return the share of the rounds that are done."""
        return self.training.share()

    def tidy(self) -> None:
        """Delete the zones' states, as of any training."""
        self.training.tidy()

    def command(self) -> list[str]:
        """Return the command that trains, or goes on; note what it belongs to."""
        self.training.stamp_as(self.identity())
        taken = (f"{zone}={origin}" for zone, origin in self.takes.items())
        return [
            *self.training.plain_command(),
            *("--from", str(self.origin.folder)),
            *(word for pair in taken for word in ("--takes", pair)),
        ]
