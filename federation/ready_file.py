"""The file by which a zone's process says that it is there: for health checks, and for itself.

    STATE/ready    {"state": "online" | "working", "node": ..., "zone": ..., "pid": ...}

It exists while the SuperLink answers, and is touched every few seconds. A process that was killed
leaves it behind: the next one learns from it which node the SuperLink still holds for alive.
"""

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from marl_sched.files import write_atomically

_logger = logging.getLogger(__name__)

READY = "ready"
"""File in the zone's folder while the SuperLink answers: state, node, zone, process."""
_TOUCH_S = 2.0


class ReadyFile:
    """Says, for as long as it is fresh, that the zone is there.

    A disk that takes no file is no reason to end: then it is stale, or missing.

    Attributes:
        left_node: Node of a process before this one that had no time to say good-bye; 0: none.
    """

    def __init__(self, path: Path, zone: Callable[[], str]) -> None:
        """Take over the file at `path`.

        Args:
            path: The file; its folder exists.
            zone: Returns what the log calls the zone.
        """
        self._path = path
        self._zone = zone
        self._content = b""
        self._written = 0.0
        self._is_broken = False
        self.left_node = _node_of(path)
        self.remove()

    def tell(self, state: str, node_id: int) -> None:
        """Write the file, or touch it; without an answer from the SuperLink there is none."""
        if state == "connecting":
            self.remove()
            return
        said = {"state": state, "node": node_id, "zone": self._zone(), "pid": os.getpid()}
        content = json.dumps(said).encode()
        now = time.monotonic()
        if content == self._content and now - self._written <= _TOUCH_S:
            return
        try:
            if content == self._content:
                os.utime(self._path)
            else:
                write_atomically(self._path, lambda file: file.write(content))
        except OSError as error:
            self._warn(error)
        else:
            self._content, self._written, self._is_broken = content, now, False

    def remove(self) -> None:
        """Take the file away."""
        self._content = b""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        """Say once that the file is not what it should be."""
        if not self._is_broken:
            self._is_broken = True
            _logger.warning(
                "%s: %s; the zone goes on, but a health check will find it stale",
                self._path,
                error.strerror or error,
            )


def _node_of(path: Path) -> int:
    """Return the node that a file left behind names; 0: none."""
    try:
        node_id = json.loads(path.read_bytes())["node"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return node_id if type(node_id) is int and node_id > 0 else 0
