"""The files that the live page reads: RUN/live/ZONE.json, the newest view of every zone.

    train      a zone's thread ------------------------------------> LiveFolder
    federate   a zone's stream -> ViewSink.take -> a thread: parsed -> LiveFolder

What a zone sends is not trusted: a view that makes no sense is dropped and named once, too many are
dropped. Neither that nor a full disk does the run any harm.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from marl_sched.files import write_atomically
from zones.view import ViewError, parse_view

_logger = logging.getLogger(__name__)

LIVE = "live"
"""Folder of the views, in a run's folder."""
MAX_PER_S = 4
"""Most views taken from one zone."""
_STOP_S = 2.0

Clock = Callable[[], float]


class LiveFolder:
    """The folder of the newest views."""

    def __init__(self, run_dir: Path) -> None:
        """Write below the folder of a run."""
        self._folder = run_dir / LIVE
        self._has_failed = False

    def write(self, zone: str, data: bytes) -> None:
        """Replace a zone's view; a disk that does not take it is named once."""
        try:
            self._folder.mkdir(exist_ok=True)
            path = self._folder / f"{zone}.json"
            write_atomically(path, lambda file: file.write(data), is_lasting=False)
        except OSError as error:
            if not self._has_failed:
                _logger.warning(
                    "%s: not written, the live page stands still: %s", self._folder, error.strerror
                )
            self._has_failed = True
        else:
            self._has_failed = False


class ViewSink:
    """Takes what zones send as views, and writes what they are."""

    def __init__(
        self, folder: LiveFolder, zone_names: Collection[str], clock: Clock = time.monotonic
    ) -> None:
        """Start the thread that parses and writes, until `close`.

        Args:
            folder: Where to write.
            zone_names: All zones of the experiment.
            clock: Seconds.
        """
        self._folder = folder
        self._zone_names = frozenset(zone_names)
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: dict[str, bytes] = {}
        self._next_s: dict[str, float] = {}
        self._named: set[str] = set()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="live-views", daemon=True)
        self._thread.start()

    def take(self, zone: str, data: bytes) -> None:
        """Take a view from whoever is known to be `zone`; waits for nothing, never raises."""
        now = self._clock()
        with self._changed:
            if zone not in self._zone_names or now < self._next_s.get(zone, now):
                return
            self._next_s[zone] = now + 1 / MAX_PER_S
            self._waiting[zone] = data
            self._changed.notify_all()

    def close(self) -> None:
        """Write what is still waiting and end the thread, as far as the disk lets it."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(_STOP_S)

    def __enter__(self) -> "ViewSink":
        """Return the sink."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                taken, self._waiting = self._waiting, {}
                is_last = self._is_closed
            for zone, data in taken.items():
                self._write(zone, data)
            if is_last:
                return

    def _write(self, zone: str, data: bytes) -> None:
        try:
            view = parse_view(data, zone, self._zone_names)
            # The page compares it with the clock of this host.
            view = view.model_copy(update={"time": round(time.time(), 3)})
            self._folder.write(zone, view.encoded())
        except ViewError as error:
            if zone not in self._named:
                _logger.warning("%s: views are dropped that make no sense: %s", zone, error)
            self._named.add(zone)
        except Exception:
            _logger.exception("%s: a view is dropped", zone)
