"""One-use tokens that let a new zone's key in: only their hashes are kept.

    tokens/HASH.json    when it expires, which zone it is for, whether it lay in a join folder
    tokens/HASH.used    the key that used it; created in one step, so that one of many wins

HASH is the SHA-256 of the secret. A token may be used again by the very key that used it, until it
expires: an enrolment that was cut off goes on, and nobody else gains anything.
"""

import datetime as dt
import hashlib
import hmac
import json
from dataclasses import dataclass
from pathlib import Path

from marl_sched.errors import SecurityError
from marl_sched.files import create_once
from zones.chains import show_time, utc_now
from zones.join_token import new_secret
from zones.keys import PRIVATE_FILE, make_private_folder, read_file

MAX_MINUTES = 7 * 24 * 60
"""Longest time that a token may be valid."""

_MAX_TOKENS = 1000
_FORMAT = 1


class Refused(Exception):
    """A caller is refused: the reason is for the log, never for the caller."""

    def __init__(self, message: str, is_revoked: bool = False) -> None:
        """Say why; `is_revoked` when its key was put out, which its owner may know."""
        super().__init__(message)
        self.is_revoked = is_revoked


@dataclass(frozen=True)
class Token:
    """What is kept of a token.

    Attributes:
        digest: SHA-256 of its secret, hexadecimal.
        expires: End of its life.
        zone: The zone it is for; empty for any.
        is_shared: Whether it was put into a join folder.
    """

    digest: str
    expires: dt.datetime
    zone: str
    is_shared: bool = False

    @property
    def label(self) -> str:
        """What logs call it."""
        return f"token {self.digest[:8]}"


class JoinTokens:
    """The tokens of one coordinator, in a folder."""

    def __init__(self, folder: Path) -> None:
        """Use the `tokens` folder of a CA's folder; created when it is needed."""
        self._folder = folder / "tokens"

    def create(
        self, zone: str, minutes: int, now: dt.datetime | None = None, is_shared: bool = False
    ) -> str:
        """Make a token and return its secret, which is kept nowhere.

        Args:
            zone: The zone whose key it makes; empty: a free key, for any zone.
            minutes: How long it is valid.
            now: From when on; this host's clock by default.
            is_shared: It will lie in a join folder.

        Raises:
            SecurityError: Too many are waiting to be used, or the folder is not private.
            OSError: It cannot be written.
        """
        now = now or utc_now()
        make_private_folder(self._folder)
        self._prune(now)
        if len(self._paths()) >= _MAX_TOKENS:
            raise SecurityError(
                f"{self._folder}: {_MAX_TOKENS} tokens, expected fewer; wait until some expire, "
                "or delete some"
            )
        secret = new_secret()
        expires = int((now + dt.timedelta(minutes=minutes)).timestamp())
        found = {"format": _FORMAT, "expires": expires, "zone": zone}
        content = json.dumps({**found, "shared": True} if is_shared else found)
        path = self._folder / f"{digest_of(secret)}.json"
        create_once(path, content.encode(), PRIVATE_FILE)
        return secret

    def find(self, secret: str, now: dt.datetime | None = None) -> Token:
        """Look a token up.

        Raises:
            Refused: There is none, or it has expired.
        """
        now = now or utc_now()
        wanted = digest_of(secret)
        found = None
        for path in self._paths():  # all of them, whichever it is
            if hmac.compare_digest(path.stem, wanted):
                found = path
        if found is None:
            raise Refused("unknown token")
        token = _read(found)
        if now >= token.expires:
            raise Refused(f"{token.label} expired at {show_time(token.expires)}")
        return token

    def use(self, token: Token, key: bytes) -> None:
        """Use a token up, for one key.

        Args:
            token: As found.
            key: Fingerprint of the key that it lets in.

        Raises:
            Refused: Another key has used it.
            OSError: It cannot be written.
        """
        path = self._folder / f"{token.digest}.used"
        if create_once(path, key.hex().encode(), PRIVATE_FILE):
            return
        if not hmac.compare_digest(path.read_bytes(), key.hex().encode()):
            raise Refused(f"{token.label} has been used by another key")

    def is_unused(self, digest: str) -> bool:
        """Return whether a token is there that nobody has used."""
        path = self._folder / f"{digest}.json"
        return path.exists() and not path.with_suffix(".used").exists()

    def void(self, digest: str) -> None:
        """Delete a token; one that was used stays for the key that has used it."""
        if self.is_unused(digest):
            (self._folder / f"{digest}.json").unlink(missing_ok=True)

    def void_shared(self) -> None:
        """Delete every token that lay in a join folder and was not used."""
        for path in self._paths():
            try:
                is_shared = _read(path).is_shared
            except Refused:
                continue
            if is_shared:
                self.void(path.stem)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("*.json"))

    def _prune(self, now: dt.datetime) -> None:
        """Delete what has expired: the token first, which nobody can use from then on."""
        for path in self._paths():
            try:
                is_over = now >= _read(path).expires
            except Refused:
                is_over = True
            if is_over:
                path.unlink(missing_ok=True)
                path.with_suffix(".used").unlink(missing_ok=True)


def digest_of(secret: str) -> str:
    """Return what a token is filed under: the SHA-256 of its secret, hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _read(path: Path) -> Token:
    try:
        content = json.loads(read_file(path, "a token", is_private=True))
        if content["format"] != _FORMAT:
            raise ValueError
        expires = dt.datetime.fromtimestamp(content["expires"], dt.UTC)
        return Token(path.stem, expires, str(content["zone"]), content.get("shared") is True)
    except SecurityError as error:
        raise Refused(str(error)) from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError):
        raise Refused(f"{path}: not a token of ours") from None
