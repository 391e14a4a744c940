"""The jobs of a comparison: trainings and evaluations, each a process, each with its own files."""

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from marl_sched.agents.tuned import tuned_path
from marl_sched.comparing.playing import Play, load_cached, read_played
from marl_sched.config import Experiment
from marl_sched.config.hashing import config_hash
from marl_sched.errors import MarlSchedError, RunError
from marl_sched.files import write_atomically
from marl_sched.run_folder import RunFolder

COMMAND_LINE = "from marl_sched.cli import main; main()"
_PLAYING = "marl_sched.comparing.playing"


class Job(Protocol):
    """One process's worth of work."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def log(self) -> Path:
        """Where its output goes."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the jobs that must be done before."""

    @property
    def cost_s(self) -> float:
        """About how many CPU seconds it takes in all."""

    def is_done(self) -> bool:
        """Return whether nothing is left to do."""

    def share(self) -> float:
        """Return which share of it is done."""

    def command(self) -> list[str]:
        """Return the command that does what is left, and note what it belongs to."""

    def tidy(self) -> None:
        """Delete what nobody needs once it is done."""


@dataclass(frozen=True)
class Training:
    """One training run.

    Attributes:
        policy: Name of the policy.
        seed: The training seed.
        config: The configuration.
        overrides: Of it, the seed's among them.
        tuned: Folder of the tuned weights that the run may start from.
        folder: Folder of the run.
        log: Where its output goes.
        cost_s: About how many CPU seconds it takes.
    """

    policy: str
    seed: int
    config: str
    overrides: tuple[str, ...]
    tuned: Path | None
    folder: Path
    log: Path
    cost_s: float = 1.0
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"train {self.policy}-{self.seed}"

    @property
    def experiment(self) -> Experiment:
        """What is trained."""
        return load_cached(self.config, self.overrides)

    @property
    def stamp(self) -> Path:
        """The file that says what the run belongs to; its folder must be the run's alone."""
        return self.folder.with_name(f"{self.folder.name}.json")

    def identity(self) -> str:
        """Return a hash of all that the run depends on."""
        experiment = self.experiment
        prior = b""
        if experiment.agent.has_prior and experiment.agent.prior_weights is None:
            path = tuned_path(experiment, self.tuned)
            prior = path.read_bytes() if path.is_file() else b""
        content = [config_hash(experiment), hashlib.sha256(prior).hexdigest()]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Check that what is there belongs to this comparison.

        Raises:
            RunError: It does not.
        """
        if self.stamped() not in ("", self.identity()):
            raise RunError(
                f"{self.folder}: was trained with another configuration or other tuned weights; "
                "give another folder: --out FOLDER, or delete it"
            )

    def is_done(self) -> bool:
        """Return whether the run is finished."""
        return self.stamped() == self.identity() and self.has_ended()

    def has_ended(self) -> bool:
        """Return whether the run in the folder, whatever it is of, has all its rounds."""
        last = RunFolder(self.folder).last_checkpoint()
        return last is not None and last.is_finished

    def share(self) -> float:
        """Return the share of the rounds that are done."""
        try:
            with (self.folder / "timing.jsonl").open("rb") as file:
                lines = file.read().splitlines()
            n_rounds = int(json.loads(lines[-1])["round"])
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return 0.0  # nothing there yet, or a line half-written
        return min(1.0, n_rounds / self.experiment.training.rounds)

    def command(self) -> list[str]:
        """Return the command that trains, or goes on; note what the run belongs to."""
        self.stamp_as(self.identity())
        return self.plain_command()

    def tidy(self) -> None:
        """Delete the zones' states: hundreds of megabytes that only further rounds need."""
        RunFolder(self.folder).discard_states()

    def stamped(self) -> str:
        """Return the identity of what is in the folder; empty: nothing."""
        return read_stamp(self.stamp)

    def stamp_as(self, identity: str) -> None:
        """Note what the run belongs to."""
        write_stamp(self.stamp, identity)

    def plain_command(self) -> list[str]:
        """Return the command that trains, or goes on."""
        settings = [part for override in self.overrides for part in ("--set", override)]
        has_begun = (self.folder / "config.yaml").exists()
        return [
            *(sys.executable, "-c", COMMAND_LINE, "train", self.config, *settings),
            *("--out", str(self.folder), *(["--resume"] if has_begun else [])),
        ]


@dataclass(frozen=True)
class Evaluating:
    """One policy over the episodes of one setting.

    Attributes:
        policy: Name of the policy or rule.
        seed: The training seed; 0 for a rule.
        setting: Name of the setting.
        order: What to play.
        log: Where its output goes.
        needs: Names of the jobs that make the policy; none for a rule.
        cost_s: About how many CPU seconds it takes.
    """

    policy: str
    seed: int
    setting: str
    order: Play
    log: Path
    needs: tuple[str, ...] = ()
    cost_s: float = 1.0

    @property
    def name(self) -> str:
        """What messages call it."""
        seed = f"-{self.seed}" if self.seed else ""
        return f"evaluate {self.policy}{seed} in {self.setting}"

    def is_done(self) -> bool:
        """Return whether all episodes were played by this very policy."""
        try:
            played = read_played(self.order.values_path)
            if played is None or played.n_episodes < self.order.n_episodes:
                return False
            return played.identity == self.order.identity()
        except MarlSchedError:
            return False  # broken, or there is no policy yet: to be played

    def share(self) -> float:
        """Return the share of the episodes that were played."""
        try:
            played = read_played(self.order.values_path)
        except MarlSchedError:
            return 0.0
        return 0.0 if played is None else min(1.0, played.n_episodes / self.order.n_episodes)

    def tidy(self) -> None:
        """Delete nothing: it is small."""

    def command(self) -> list[str]:
        """Return the command that plays what is left."""
        return [sys.executable, "-m", _PLAYING, self.order.as_json()]


def tail(log: Path, n_lines: int = 5) -> list[str]:
    """Return the last lines of a log that say something."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    said: Sequence[str] = [line.rstrip() for line in lines if line.strip()]
    return list(said[-n_lines:])


def write_stamp(path: Path, identity: str) -> None:
    """Note beside a folder what is in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"identity": identity}) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def read_stamp(path: Path) -> str:
    """Return the identity that a stamp holds; empty if there is none.

    Raises:
        RunError: It is not one of ours.
    """
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["identity"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: not a file written by `compare`: {error!r}") from None
