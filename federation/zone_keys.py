"""Which key is which zone: the keys that were let in, and those that were put out.

    zones/ZONE.json       the zone's key, and until when its certificate is valid
    revoked/KEY.json      keys that are refused for good, by fingerprint

A zone has one key and a key one zone. To give a zone another key, revoke the present one.
"""

import contextlib
import datetime as dt
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from federation.join_tokens import Refused
from marl_sched.errors import SecurityError
from zones.chains import public_key_of
from zones.keys import (
    PublicKey,
    fingerprint,
    make_private_folder,
    public_to_pem,
    read_file,
    write_private,
)

_FORMAT = 1


@dataclass(frozen=True)
class ZoneKey:
    """A key that was let in.

    Attributes:
        zone: Its zone.
        public_key: The key.
        expires: Until when its certificate is valid; None before the first was issued.
    """

    zone: str
    public_key: PublicKey
    expires: dt.datetime | None


class ZoneKeys:
    """The zones' keys of one coordinator, in a folder."""

    def __init__(self, folder: Path) -> None:
        """Use the `zones` and `revoked` folders of a CA's folder; created when they are needed."""
        self._zones = folder / "zones"
        self._revoked = folder / "revoked"

    def all(self) -> list[ZoneKey]:
        """Return every key that is let in, in the order of zone names.

        Raises:
            SecurityError: A file is not one of ours.
        """
        return [_read(path) for path in sorted(self._zones.glob("*.json"))]

    def revoked(self) -> list[PublicKey]:
        """Return every key that was put out, for Flower to forget.

        Raises:
            SecurityError: A file is not one of ours.
        """
        return [_read(path).public_key for path in sorted(self._revoked.glob("*.json"))]

    def find(self, key: PublicKey) -> ZoneKey | None:
        """Return what is known of a key that is let in.

        Raises:
            Refused: The key was revoked.
        """
        if self._revoked_path(key).exists():
            raise Refused(f"key {fingerprint(key).hex()[:8]} was revoked")
        return next((known for known in self.all() if known.public_key == key), None)

    def assign(self, key: PublicKey, wanted: str, names: Sequence[str]) -> str:
        """Give a key its zone; asked again, it is the same one.

        Args:
            key: The key.
            wanted: The zone; empty for the first that is free.
            names: All zones, in order.

        Raises:
            Refused: There is no such zone, it has another key, or none is free.
            OSError: It cannot be written.
        """
        with self._alone():
            known = self.find(key)
            if known is not None:
                if wanted not in ("", known.zone):
                    raise Refused(f"the key of {known.zone} asks for {wanted}")
                return known.zone
            taken = {other.zone for other in self.all()}
            if wanted and wanted not in names:
                raise Refused(f"{wanted!r} is not one of the zones {', '.join(names)}")
            if wanted in taken:
                raise Refused(f"{wanted} has a key, to be revoked before it gets another")
            zone = wanted or next((name for name in names if name not in taken), "")
            if not zone:
                raise Refused(f"all zones have a key: {', '.join(names)}")
            self._write(ZoneKey(zone, key, None))
            return zone

    def note_certificate(self, zone: str, certificate: x509.Certificate) -> None:
        """Keep until when the certificate of a zone is valid.

        Raises:
            Refused: The zone was given to another key, or to none, in the meantime.
            OSError: It cannot be written.
        """
        key = public_key_of(certificate, zone)
        with self._alone():
            known = self.find(key)
            if known is None or known.zone != zone:
                raise Refused(f"{zone} is no longer the zone of key {fingerprint(key).hex()[:8]}")
            self._write(ZoneKey(zone, key, certificate.not_valid_after_utc))

    def revoke(self, zone: str) -> PublicKey:
        """Put out the key of a zone, for good; the zone is free for another.

        Returns:
            The key, for Flower to forget.

        Raises:
            SecurityError: The zone has no key.
            OSError: It cannot be written.
        """
        with self._alone():
            known = {other.zone: other for other in self.all()}
            if zone not in known:
                raise SecurityError(
                    f"{self._zones}: no key of zone {zone}, "
                    f"expected one of: {', '.join(known) or 'none has one'}"
                )
            make_private_folder(self._revoked)
            key = known[zone].public_key
            (self._zones / f"{zone}.json").replace(self._revoked_path(key))
            return key

    def zone_of_certificate(self, pem: bytes) -> str:
        """Return whose certificate a caller has shown; TLS has checked who signed it.

        Args:
            pem: As gRPC's `auth_context()["x509_pem_cert"][0]` gives it.

        Raises:
            SecurityError: Its key is not, or no longer, that of a zone.
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

    def _revoked_path(self, key: PublicKey) -> Path:
        return self._revoked / f"{fingerprint(key).hex()}.json"

    def _write(self, record: ZoneKey) -> None:
        content = {
            "format": _FORMAT,
            "zone": record.zone,
            "public_key": public_to_pem(record.public_key).decode("ascii"),
            "expires": None if record.expires is None else int(record.expires.timestamp()),
        }
        write_private(self._zones / f"{record.zone}.json", json.dumps(content).encode())

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
