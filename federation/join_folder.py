"""Join tokens for zones that are started alike: the coordinator's side of a folder of them.

    HASH.token   one token for any zone, good for one key; zones.join_folder takes it

A few that nobody has used are always there. Each is replaced long before it expires, and all are
void once the supervisor has ended: it sees to that, or the next one of the same CA does.
"""

import contextlib
import datetime as dt
import logging
import time
from pathlib import Path

from federation.join_tokens import JoinTokens, digest_of
from marl_sched.files import alone_in, naming
from zones.chains import utc_now
from zones.join_folder import TAKEN, TOKEN, is_ours
from zones.join_token import JoinToken
from zones.keys import make_private_folder, write_private

_logger = logging.getLogger(__name__)

_MINUTES = 60
"""How long a token is valid."""
_LEFT = dt.timedelta(minutes=_MINUTES / 2)
"""What a token has left at least when it is taken."""
_TAKEN_S = 60.0
"""Age at which what a zone has taken and not deleted is deleted: the zone was killed."""


class JoinFolder:
    """Keeps a folder filled. One supervisor at a time."""

    def __init__(
        self, folder: Path, tokens: JoinTokens, ca_fingerprint: bytes, n_tokens: int
    ) -> None:
        """Hold the folder, made if need be, and clear it of what an earlier supervisor left.

        Args:
            folder: Shared with zones of the same user.
            tokens: Where tokens are made, and known to enrolment.
            ca_fingerprint: By which zones know the coordinator.
            n_tokens: How many to keep there.

        Raises:
            RunError: Another process is at work there.
            SecurityError: It is no folder, or others may write to it.
            OSError: It cannot be written.
        """
        self._folder = folder
        self._tokens = tokens
        self._ca_fingerprint = ca_fingerprint
        self._n_tokens = n_tokens
        self._ends: dict[str, dt.datetime] = {}
        """When the tokens that we have put there expire."""
        make_private_folder(folder)
        self._held = contextlib.ExitStack()
        self._held.enter_context(alone_in(folder))
        self._clear()

    def keep(self, now: dt.datetime | None = None) -> None:
        """Take away what is used, old or not ours, and fill up.

        Raises:
            SecurityError: There are too many tokens, or others may write to the folder.
            OSError: The folder cannot be written.
        """
        now = now or utc_now()
        make_private_folder(self._folder)  # somebody may have deleted it
        there = {path.stem for path in self._folder.glob(f"*{TOKEN}") if is_ours(path)}
        for digest in set(self._ends) - there:  # taken; the token itself is good until it expires
            del self._ends[digest]
        for digest in there:
            ends = self._ends.get(digest)
            if ends is None or ends - now < _LEFT or not self._tokens.is_unused(digest):
                self._take_away(digest)
        for path in self._folder.glob(f"*{TAKEN}*"):
            self._sweep(path)
        for _ in range(self._n_tokens - len(self._ends)):
            self._put(now)

    def close(self) -> None:
        """Make void and delete what is left."""
        with contextlib.suppress(OSError):
            for digest in list(self._ends):
                self._take_away(digest)
            self._clear()
        self._held.close()

    def _put(self, now: dt.datetime) -> None:
        secret = self._tokens.create("", _MINUTES, now, is_shared=True)
        digest = digest_of(secret)
        text = f"{JoinToken(secret, self._ca_fingerprint).text()}\n"
        try:
            write_private(self._folder / f"{digest}{TOKEN}", text.encode())
        except OSError:
            self._tokens.void(digest)
            raise
        self._ends[digest] = now + dt.timedelta(minutes=_MINUTES)

    def _take_away(self, digest: str) -> None:
        """Delete a token's file, and the token with it unless a zone was faster."""
        path = self._folder / f"{digest}{TOKEN}"
        self._ends.pop(digest, None)
        with naming(path), contextlib.suppress(FileNotFoundError):
            path.unlink()
            self._tokens.void(digest)

    def _sweep(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            if is_ours(path) and time.time() - path.stat().st_mtime > _TAKEN_S:
                path.unlink()

    def _clear(self) -> None:
        """Delete every file of ours."""
        for path in self._folder.iterdir():
            if is_ours(path):
                with naming(path), contextlib.suppress(FileNotFoundError):
                    path.unlink()
