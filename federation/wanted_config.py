"""Zones by configuration while a run goes on: from the user's file to the ServerApp.

    CONFIG --changed--> ConfigWatch (supervisor): loaded with the same --set, compared
                            |  other zones, and nothing else
                            v
                   RUN/federation/config.yaml  --between two rounds-->  Wanted (ServerApp)

What cannot be taken is said once for every content of the file, and has no effect.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from federation.events import EVENTS, EventLog
from marl_sched.config import Experiment, dump_config, load_config
from marl_sched.config.yaml_text import show_value
from marl_sched.errors import MarlSchedError, RunError
from marl_sched.files import write_atomically
from marl_sched.run_config import as_data, lasting_difference, zone_change
from marl_sched.training_config import resolved_like

WANTED = "config.yaml"
"""File in the run's private folder: the configuration that the run is to have."""
_LOOK_S = 1.0

Stamp = tuple[int, int, int] | None


@dataclass(frozen=True)
class ConfigSource:
    """Where an experiment comes from.

    Attributes:
        path: The user's file.
        overrides: What was given with --set.
    """

    path: Path
    overrides: tuple[str, ...] = field(default=())


class ConfigWatch:
    """Looks whether the user's file has changed."""

    def __init__(
        self,
        source: ConfigSource,
        experiment: Experiment,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch a file.

        Args:
            source: The file.
            experiment: As it was read.
            now: A clock in seconds.
        """
        self._source = source
        self._experiment = experiment
        self._now = now
        self._next_s = 0.0
        self._seen: Stamp = None
        self._taken: Stamp = None

    def look(self) -> Experiment | None:
        """Return the experiment with other zones that the file now holds, once; else None.

        Raises:
            ConfigError: The file cannot be read, or a key or value is not valid; once.
            RunError: Something else has changed than which zones there are; once.
        """
        if self._now() < self._next_s:
            return None
        self._next_s = self._now() + _LOOK_S
        before, self._seen = self._seen, self._stamp()
        # Two looks alike: whoever writes the file has finished.
        if self._seen is None or self._seen != before or self._seen == self._taken:
            return None
        self._taken = self._seen
        self._require_file()
        found = load_config(self._source.path, self._source.overrides)
        experiment = resolved_like(found, self._experiment)
        old, new = as_data(self._experiment), as_data(experiment)
        difference = lasting_difference(old, new, is_shown=True)
        if difference is not None:
            key, was, now = difference
            raise RunError(
                f"{self._source.path}: {key} = {show_value(now)}, but the run has "
                f"{show_value(was)}; while a run goes on zones can be added and removed, and "
                "nothing else"
            )
        if not zone_change(old, new):
            return None
        self._experiment = experiment
        return experiment

    def _stamp(self) -> Stamp:
        try:
            found = self._source.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _require_file(self) -> None:
        """Check that to read the file is not to wait for whoever writes it.

        Raises:
            RunError: It is a named pipe, a folder or the like.
        """
        path = self._source.path
        if path.exists() and not path.is_file():
            raise RunError(f"{path}: not a regular file, changes of zones are not looked for")


class Wanted:
    """The configuration that a run is to have, in a file."""

    def __init__(self, private: Path) -> None:
        """Use the file in a run's private folder."""
        self._path = private / WANTED
        self._text = ""

    def write(self, experiment: Experiment) -> None:
        """Hand an experiment over.

        Raises:
            OSError: It cannot be written.
        """
        text = dump_config(experiment).encode()
        write_atomically(self._path, lambda file: file.write(text))

    def take(self) -> Experiment | None:
        """Return the experiment that was handed over since the last call; else None.

        Raises:
            ConfigError: The file is not what `write` writes.
        """
        try:
            text = self._path.read_text(encoding="utf-8")
        except OSError:
            return None
        if text == self._text:
            return None
        self._text = text
        return load_config(self._path)


class Handover:
    """The supervisor's side: what the user's file has, the ServerApp is given."""

    def __init__(
        self,
        private: Path,
        experiment: Experiment,
        source: ConfigSource | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare it.

        Args:
            private: The run's private folder.
            experiment: As it was read.
            source: The file to watch; None: none.
            now: A clock in seconds.
        """
        self._experiment = experiment
        self._wanted = Wanted(private)
        self._log = EventLog(private / EVENTS)
        self._watch = None if source is None else ConfigWatch(source, experiment, now)

    def begin(self) -> None:
        """Hand over what the run begins, or goes on, with.

        Raises:
            OSError: It cannot be written.
        """
        self._wanted.write(self._experiment)

    def look(self) -> list[str]:
        """Hand over other zones; return their names, or nothing. A problem becomes an event."""
        try:
            experiment = None if self._watch is None else self._watch.look()
            if experiment is not None:
                self._wanted.write(experiment)
                return experiment.zone_names
        except (MarlSchedError, OSError) as error:
            self._log.write("config", {"problem": str(error)})
        return []
