"""What a node is told to be, and where it keeps what belongs to it.

    assignment.json                what it was told last: run, zone, epoch
    runs/RUN/config.yaml           the experiment of a run
    runs/RUN/ZONE/state-00004.npz  the zone's states, as zones.state has them

A node holds its folder alone. States may be kept elsewhere, in a folder ZONE of one for all zones
of this host: then whoever is the zone holds that.
"""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from federation.greeting import Hello
from marl_sched.config import Experiment, load_config
from marl_sched.config.base import NAME_PATTERN
from marl_sched.errors import MarlSchedError, RunError
from marl_sched.files import alone_in, write_atomically

_logger = logging.getLogger(__name__)

_FORMAT = 1
_FILE = "assignment.json"
_RUN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Told:
    """What a node is told to be.

    Attributes:
        run: Name of the run.
        zone: The zone.
        epoch: Of the assignment.
        experiment: What the run trains.
        last_round: The last committed round the zone took part in, if that was said.
    """

    run: str
    zone: str
    epoch: int
    experiment: Experiment
    last_round: int | None = field(default=None, compare=False)

    def is_like(self, other: "Told") -> bool:
        """Return whether all but the epoch is the same."""
        return replace(self, epoch=other.epoch) == other


class AssignmentStore:
    """A node's folder."""

    def __init__(self, folder: Path, learner_state: Path | None = None) -> None:
        """Use a folder that exists; states go to `learner_state`, if given."""
        self._folder = folder
        self._learner_state = learner_state
        self._config_text = ""
        self._experiment: Experiment | None = None

    @contextmanager
    def state_dir(self, told: Told) -> Iterator[Path]:
        """Hold the folder for a zone's states in a run, which is created.

        A process that stands still may hold the one shared by this host; then it is our own.

        Raises:
            OSError: It cannot be created.
        """
        own = self._folder / "runs" / told.run / told.zone
        with ExitStack() as stack:
            folder = own if self._learner_state is None else self._learner_state / told.zone
            folder.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(alone_in(folder))
            except RunError as error:
                if folder == own:
                    raise
                _logger.warning("%s: %s; states go to %s", told.zone, error, own)
                folder = own
                folder.mkdir(parents=True, exist_ok=True)
            yield folder

    def experiment_of(self, hello: Hello) -> Experiment:
        """Keep the experiment of a greeting, and return it.

        Raises:
            ConfigError: It is not one that this version can run; the message names the file.
            RunError: The run's name cannot be that of a folder.
            OSError: It cannot be written.
        """
        if _RUN.fullmatch(hello.run) is None:
            raise RunError(f"run = {hello.run!r}, expected letters, digits, '_', '-' and '.'")
        path = self._config_path(hello.run)
        if self._experiment is None or self._config_text != hello.config or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, lambda file: file.write(hello.config.encode()))
            self._experiment = load_config(path)
            self._config_text = hello.config
        return self._experiment

    def save(self, told: Told) -> None:
        """Remember what this node was told last.

        Raises:
            OSError: It cannot be written.
        """
        content = {"format": _FORMAT, "run": told.run, "zone": told.zone, "epoch": told.epoch}
        text = json.dumps(content).encode()
        write_atomically(self._folder / _FILE, lambda file: file.write(text))

    def forget(self) -> None:
        """Remember that this node is no zone."""
        (self._folder / _FILE).unlink(missing_ok=True)

    def last(self) -> Told | None:
        """Return what this node was told last; None if that is nothing, or cannot be read."""
        try:
            content = json.loads((self._folder / _FILE).read_bytes())
            run, zone, epoch = str(content["run"]), str(content["zone"]), int(content["epoch"])
            is_ours = content["format"] == _FORMAT and _RUN.fullmatch(run) is not None
            if not is_ours or re.fullmatch(NAME_PATTERN, zone) is None:
                return None
            experiment = load_config(self._config_path(run))
            # It may have left the configuration since.
            return Told(run, zone, epoch, experiment) if zone in experiment.zone_names else None
        except (OSError, ValueError, KeyError, TypeError, MarlSchedError):
            return None

    def _config_path(self, run: str) -> Path:
        return self._folder / "runs" / run / "config.yaml"
