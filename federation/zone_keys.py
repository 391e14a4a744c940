"""Which key may be which zone: the keys that were let in, and those that were put out.

    zones/ZONE.json       a zone's own key, and until when its certificate is valid
    free/KEY.json         the same of a key that is bound to no zone, by fingerprint
    revoked/KEY.json      keys that are refused for good, by fingerprint

A zone has at most one key of its own, and such a key one zone; to give the zone another, revoke the
present one. A free key is whatever zone its process is told to be, round by round.
"""

import contextlib
import datetime as dt
import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from federation.join_tokens import MAX_MINUTES, Refused
from marl_sched.errors import SecurityError
from zones.chains import public_key_of, utc_now
from zones.keys import (
    PublicKey,
    fingerprint,
    make_private_folder,
    public_to_pem,
    read_file,
    write_private,
)

N_SPARES = 64
"""Free keys that may be in beyond one a zone."""

_FORMAT = 1
_PREFIX = re.compile("[0-9a-f]{8,64}")
_UNISSUED = dt.timedelta(minutes=MAX_MINUTES)
"""How long a free key without a certificate counts: its token can be used again that long."""


@dataclass(frozen=True)
class ZoneKey:
    """A key that was let in.

    Attributes:
        zone: Its zone; empty: none, it is free.
        public_key: The key.
        expires: Until when its certificate is valid; None before the first was issued.
    """

    zone: str
    public_key: PublicKey
    expires: dt.datetime | None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key, hexadecimal."""
        return fingerprint(self.public_key).hex()

    @property
    def label(self) -> str:
        """What logs and lists call it: enough of the fingerprint to revoke it by."""
        return self.fingerprint[:8]


class ZoneKeys:
    """The zones' keys of one coordinator, in a folder."""

    def __init__(self, folder: Path) -> None:
        """Use folders of a CA's folder: `zones`, `free`, `revoked`; created when needed."""
        self._zones = folder / "zones"
        self._free = folder / "free"
        self._revoked = folder / "revoked"

    def all(self) -> list[ZoneKey]:
        """Return every key that is in: in the order of zone names, then the free ones.

        Raises:
            SecurityError: A file is not one of ours.
        """
        return [*_read_all(self._zones), *_read_all(self._free)]

    def revoked(self) -> frozenset[str]:
        """Return the fingerprint of every key that was put out, for Flower to forget."""
        return frozenset(path.stem for path in self._revoked.glob("*.json"))

    def find(self, key: PublicKey) -> ZoneKey | None:
        """Return what is known of a key that is in.

        Raises:
            Refused: The key was revoked.
        """
        if self._revoked_path(key).exists():
            raise Refused(f"key {fingerprint(key).hex()[:8]} was revoked", is_revoked=True)
        return next((known for known in self.all() if known.public_key == key), None)

    def assign(self, key: PublicKey, zone: str, names: Sequence[str]) -> str:
        """Let a key in; asked again, it stays what it is.

        Args:
            key: The key.
            zone: The zone whose key it is to be; empty: none, a free key.
            names: All zones, in order; how many there are bounds the free keys.

        Returns:
            Its zone; empty: it is free.

        Raises:
            Refused: There is no such zone, it has another key, or there are too many free keys.
            OSError: It cannot be written.
        """
        with self._alone():
            known = self.find(key)
            if known is not None and known.zone:
                if zone not in ("", known.zone):
                    raise Refused(f"the key of {known.zone} asks for {zone}")
                return known.zone
            if not zone:
                if known is None:
                    self._require_room(len(names) + N_SPARES)
                    self._write(ZoneKey("", key, None))
                return ""
            if zone not in names:
                raise Refused(f"{zone!r} is not one of the zones {', '.join(names)}")
            if self._path(zone, key).exists():
                raise Refused(f"{zone} has a key, to be revoked before it gets another")
            self._write(ZoneKey(zone, key, None))
            self._path("", key).unlink(missing_ok=True)
            return zone

    def note_certificate(self, zone: str, certificate: x509.Certificate) -> None:
        """Keep until when the certificate of a key is valid.

        Args:
            zone: The key's zone; empty: it is free.
            certificate: The certificate.

        Raises:
            Refused: The key was revoked, or became something else, in the meantime.
            OSError: It cannot be written.
        """
        key = public_key_of(certificate, zone)
        with self._alone():
            known = self.find(key)
            if known is None or known.zone != zone:
                label = fingerprint(key).hex()[:8]
                raise Refused(f"{zone or 'none'} is no longer the zone of key {label}")
            self._write(ZoneKey(zone, key, certificate.not_valid_after_utc))

    def revoke(self, which: str) -> ZoneKey:
        """Put out a key, for good; its zone, if it has one, is free for another.

        Args:
            which: The key's zone, or the first 8 or more characters of its fingerprint.

        Raises:
            SecurityError: There is no such key, or more than one.
            OSError: It cannot be written.
        """
        with self._alone():
            known = self._chosen(which)
            make_private_folder(self._revoked)
            self._path(known.zone, known.public_key).replace(self._revoked_path(known.public_key))
            return known

    def zone_of_certificate(self, pem: bytes) -> str:
        """Return whose certificate a caller has shown; TLS has checked who signed it.

        Args:
            pem: As gRPC's `auth_context()["x509_pem_cert"][0]` gives it.

        Returns:
            The only zone that the caller can be; empty: any, the key is free.

        Raises:
            SecurityError: Its key is not, or no longer, one that was let in.
        """
        where = "the caller's certificate"
        try:
            key = public_key_of(x509.load_pem_x509_certificate(pem), where)
            known = self.find(key)
        except Refused as refusal:
            raise SecurityError(f"{where}: {refusal}, expected the key of a zone") from None
        except (ValueError, x509.InvalidVersion):
            raise SecurityError(f"{where}: not a certificate, expected a zone's") from None
        if known is None:
            label = fingerprint(key).hex()[:8]
            raise SecurityError(f"{where}: key {label} is unknown, expected the key of a zone")
        return known.zone

    def _chosen(self, which: str) -> ZoneKey:
        """Return the one key that is meant."""
        known = self.all()
        found = [one for one in known if one.zone and one.zone == which]
        if not found and _PREFIX.fullmatch(which):
            found = [one for one in known if one.fingerprint.startswith(which)]
        if len(found) > 1:
            raise SecurityError(
                f"{which} begins the fingerprints of {len(found)} keys, expected more of one"
            )
        if not found:
            zones = ", ".join(one.zone for one in known if one.zone) or "none has one"
            n_free = sum(not one.zone for one in known)
            raise SecurityError(
                f"{self._zones}: no key of zone {which}, expected one of: {zones}; or the first "
                f"characters of a key, 8 or more ({n_free} are free)"
            )
        return found[0]

    def _require_room(self, limit: int) -> None:
        """Drop free keys whose certificates have expired; check that one more may come."""
        now = utc_now()
        n_living = 0
        for known in _read_all(self._free):
            path = self._path("", known.public_key)
            ends = known.expires
            if ends is None:
                ends = dt.datetime.fromtimestamp(path.stat().st_mtime, dt.UTC) + _UNISSUED
            if now >= ends:
                path.unlink()
            else:
                n_living += 1
        if n_living >= limit:
            raise Refused(
                f"{n_living} free keys are in, expected fewer than {limit}: {N_SPARES} beyond one "
                "a zone (revoke those that are not used any more)"
            )

    def _path(self, zone: str, key: PublicKey) -> Path:
        if zone:
            return self._zones / f"{zone}.json"
        return self._free / f"{fingerprint(key).hex()}.json"

    def _revoked_path(self, key: PublicKey) -> Path:
        return self._revoked / f"{fingerprint(key).hex()}.json"

    def _write(self, record: ZoneKey) -> None:
        content = {
            "format": _FORMAT,
            "zone": record.zone,
            "public_key": public_to_pem(record.public_key).decode("ascii"),
            "expires": None if record.expires is None else int(record.expires.timestamp()),
        }
        path = self._path(record.zone, record.public_key)
        make_private_folder(path.parent)
        write_private(path, json.dumps(content).encode())

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let in one thread of one process at a time; each stays for milliseconds."""
        make_private_folder(self._zones)
        handle = os.open(self._zones, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _read_all(folder: Path) -> Iterator[ZoneKey]:
    """Yield the keys of a folder in the order of file names; one that is just put out is none."""
    for path in sorted(folder.glob("*.json")):
        try:
            yield _read(path)
        except SecurityError:
            if path.exists():
                raise


def _read(path: Path) -> ZoneKey:
    kind = "the key of a zone, written by us"
    content = read_file(path, kind, is_private=True)
    try:
        found = json.loads(content)
        key = serialization.load_pem_public_key(found["public_key"].encode())
        expires = found["expires"]
        if found["format"] != _FORMAT:
            raise ValueError
        if not isinstance(key, PublicKey):
            raise TypeError
        time = None if expires is None else dt.datetime.fromtimestamp(expires, dt.UTC)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError):
        raise SecurityError(f"{path}: half-written or not ours, expected {kind}") from None
    return ZoneKey(str(found["zone"]), key, time)
