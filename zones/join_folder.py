"""A folder of join tokens, for zones that are started alike: each takes one, no two the same.

HASH.token              a token that the coordinator has put there
HASH.token.taken-XXXX   the same while the zone that took it reads it; deleted at once
"""

import contextlib
import logging
import re
import secrets
import threading
import time
from pathlib import Path

from marl_sched.errors import SecurityError
from marl_sched.files import naming
from zones.enrolment_client import EnrolmentStopped
from zones.join_token import JoinToken, parse_join_token
from zones.keys import make_private_folder, read_file

TOKEN = ".token"
"""End of the name of a file with a token."""
TAKEN = f"{TOKEN}.taken-"
"""What follows the hash in the name of one that was taken."""

_logger = logging.getLogger(__name__)

_OURS = re.compile(r"[0-9a-f]{64}\.token(\.tmp|\.taken-[0-9a-f]{16})?")
_LOOK_S = 0.2


def is_ours(path: Path) -> bool:
    """Return whether a file is named like one of a join folder."""
    return _OURS.fullmatch(path.name) is not None and (path.is_symlink() or not path.is_dir())


def take_token(folder: Path, wait_s: float, stop: threading.Event) -> JoinToken:
    """Take a token that nobody else will have; wait for one if there is none.

    Args:
        folder: Where the coordinator puts them.
        wait_s: Longest wait.
        stop: Ends the wait when set.

    Raises:
        SecurityError: There was none in time, or what was there is no token.
        EnrolmentStopped: `stop` was set.
        OSError: The folder cannot be written.
    """
    deadline = time.monotonic() + wait_s
    is_first = True
    while True:
        token = _take(folder)
        if token is not None:
            return token
        if time.monotonic() >= deadline:
            raise SecurityError(f"{_lack(folder)} within {wait_s:g} s, {_EXPECTED}")
        if is_first:
            _logger.warning("%s yet, waiting for up to %g s", _lack(folder), wait_s)
            is_first = False
        if stop.wait(min(_LOOK_S, max(deadline - time.monotonic(), 0.0))):
            raise EnrolmentStopped


_EXPECTED = (
    "expected the folder of `marl-sched federate ... --join-folder`, shared with this zone, and "
    "the coordinator at work"
)


def _lack(folder: Path) -> str:
    return f"{folder}: no join token in it" if folder.is_dir() else f"{folder}: no such folder"


def _take(folder: Path) -> JoinToken | None:
    """Take a token if there is one; the name that is changed first is had by one process alone."""
    if not folder.exists():
        return None
    make_private_folder(folder)
    for path in sorted(folder.glob(f"*{TOKEN}")):
        if not is_ours(path):
            continue
        taken = path.with_name(f"{path.stem}{TAKEN}{secrets.token_hex(8)}")
        with naming(path), contextlib.suppress(FileNotFoundError):
            path.rename(taken)
            try:
                return parse_join_token(_text(taken, path))
            finally:
                taken.unlink(missing_ok=True)
    return None


def _text(taken: Path, path: Path) -> str:
    """Return what a file holds that was `path`, the name for messages."""
    try:
        return read_file(taken, "a join token", is_private=True).decode("ascii", errors="replace")
    except SecurityError as error:
        raise SecurityError(str(error).replace(str(taken), str(path))) from None
