"""The coordinator's own CA, in one folder: its certificate, the listeners', the zones'.

    ca.pem             0644  the CA, newest first while two are in use; zones get a copy
    ca.key             0600  signs zones' certificates; never leaves the coordinator
    server.pem         0644  what the listeners show
    server.key         0600
    superexec.secret   0600  between SuperLink and SuperExec
    tokens/ zones/ free/ revoked/  0700  join_tokens.py, zone_keys.py

A pair is replaced so that a killed process leaves the old one or the new: the new key waits as
`server.key.next` until the new certificate is in place.
"""

import datetime as dt
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography import x509

from federation.issuing import Issuer, general_name, make_ca
from federation.server_tls import ServerFiles
from marl_sched.errors import SecurityError
from marl_sched.files import alone_in
from zones.chains import (
    Certificates,
    certificates_to_pem,
    check_dates,
    check_pair,
    is_issued,
    load_certificates,
    names_of,
    utc_now,
)
from zones.keys import (
    PrivateKey,
    PublicKey,
    key_to_pem,
    load_key,
    make_private_folder,
    new_key,
    read_file,
    write_private,
    write_public,
)

LEAF_DAYS = 365
"""How long certificates of listeners and zones are valid unless told otherwise."""

_KNOWN = re.compile(
    r"((ca|server)\.(pem|key|key\.next)|superexec\.secret)(\.tmp)?|tokens|zones|free|revoked"
)


class Authority:
    """A folder with a CA in it. Use `make_authority` or `open_authority`."""

    def __init__(self, folder: Path) -> None:
        """Wrap a folder that holds a CA."""
        self.folder = folder
        self.files = ServerFiles(folder / "ca.pem", folder / "server.pem", folder / "server.key")
        self.superexec_secret = folder / "superexec.secret"
        self._ca_key = folder / "ca.key"

    def roots(self) -> bytes:
        """Return the CAs that have signed zones' certificates, in PEM.

        Raises:
            SecurityError: The file is not what it should be.
        """
        return certificates_to_pem(load_certificates(self.files.ca))

    def sign_zone(
        self,
        zone: str,
        public_key: PublicKey,
        days: int = LEAF_DAYS,
        now: dt.datetime | None = None,
    ) -> x509.Certificate:
        """Issue the certificate by which the exchange knows a zone.

        Args:
            zone: Becomes the common name; empty: the key is free.
            public_key: The zone's key.
            days: How long it is valid, at most as long as the CA.
            now: From when on; this host's clock by default.

        Raises:
            SecurityError: The CA's key is missing or not usable, or the CA has expired.
        """
        return self._issuer(days, now or utc_now()).sign_zone(public_key, zone)

    def renew_server(
        self,
        hosts: Sequence[str] = (),
        days: int = LEAF_DAYS,
        now: dt.datetime | None = None,
    ) -> None:
        """Replace the listeners' key and certificate under the same CA.

        Args:
            hosts: Names and addresses it is for, beside localhost; those of the present one if
                none are given.
            days: How long it is valid, at most as long as the CA.
            now: From when on; this host's clock by default.

        Raises:
            SecurityError: A name is not one, or the CA cannot sign.
        """
        path = self.files.certificate
        if not hosts and path.exists():
            hosts = names_of(load_certificates(path)[0])
        key = new_key()
        leaf = self._issuer(days, now or utc_now()).sign_server(key.public_key(), hosts)
        _replace_pair(path, (leaf,), self.files.key, key)

    def renew_ca(self, now: dt.datetime | None = None) -> None:
        """Put a new CA beside the present one: it signs from now on, both are trusted.

        Raises:
            SecurityError: A changeover is under way already, or a file is not usable.
        """
        present = load_certificates(self.files.ca)
        if len(present) > 1:
            raise SecurityError(
                f"{self.files.ca}: {len(present)} CAs, a changeover is under way; expected one CA "
                "(--retire-ca ends it)"
            )
        self._load_ca(now or utc_now())
        self._write_ca(present, now or utc_now())

    def retire_ca(self) -> None:
        """Stop trusting all CAs but the newest.

        Raises:
            SecurityError: The listeners' certificate is still signed by an older one.
        """
        newest = load_certificates(self.files.ca)[0]
        leaf = load_certificates(self.files.certificate)[0]
        if not is_issued(leaf, newest):
            raise SecurityError(
                f"{self.files.certificate}: signed by the CA that would be retired, expected one "
                "signed by the newest (--renew makes it)"
            )
        write_public(self.files.ca, certificates_to_pem((newest,)))

    def complete(self, hosts: Sequence[str], days: int, now: dt.datetime) -> None:
        """Make whatever is not there yet; nothing is replaced."""
        for pair in ((self.files.ca, self._ca_key), (self.files.certificate, self.files.key)):
            _settle(*pair)
        if not self.files.ca.exists():
            for path in (self._ca_key, self.files.certificate, self.files.key):
                if path.exists():
                    raise SecurityError(
                        f"{path}: no {self.files.ca.name} beside it, expected both or none; "
                        "nothing was changed"
                    )
            self._write_ca((), now)
        if not self.superexec_secret.exists():
            write_private(self.superexec_secret, secrets.token_hex(32).encode())
        if not self.files.certificate.exists() and not self.files.key.exists():
            self.renew_server(hosts, days, now)

    def check(self, hosts: Sequence[str], now: dt.datetime) -> None:
        """Check everything in the folder; a missing CA key is no fault before it is needed."""
        check_dates(load_certificates(self.files.ca)[0], str(self.files.ca), now)
        if self._ca_key.exists():
            self._load_ca(now)
        read_file(self.superexec_secret, "the secret of SuperLink and SuperExec", is_private=True)
        try:
            self.files.load(hosts, now)
        except SecurityError as error:
            raise SecurityError(
                f"{error} (`marl-sched certificates {self.folder} --renew` makes another)"
            ) from None

    def _load_ca(self, now: dt.datetime) -> tuple[x509.Certificate, PrivateKey]:
        certificate = load_certificates(self.files.ca)[0]
        check_dates(certificate, str(self.files.ca), now)
        if not self._ca_key.exists():
            raise SecurityError(
                f"{self._ca_key}: no such file, expected the CA's private key: "
                "without it no certificate can be made here"
            )
        key = load_key(self._ca_key)
        check_pair(certificate, key, str(self.files.ca), str(self._ca_key))
        return certificate, key

    def _issuer(self, days: int, now: dt.datetime) -> Issuer:
        return Issuer(*self._load_ca(now), now, days)

    def _write_ca(self, older: Certificates, now: dt.datetime) -> None:
        key = new_key()
        _replace_pair(self.files.ca, (make_ca(key, now), *older), self._ca_key, key)


def make_authority(
    folder: Path,
    hosts: Sequence[str] = (),
    days: int = LEAF_DAYS,
    now: dt.datetime | None = None,
) -> Authority:
    """Make a CA and the listeners' certificate, or check those that are there.

    Args:
        folder: New, empty, or made by us; `ca.pem`, `ca.key` and the others may be brought.
        hosts: Names and addresses by which zones will know the coordinator, beside localhost.
        days: How long a new certificate of the listeners is valid.
        now: Time to go by; this host's clock by default.

    Raises:
        SecurityError: The folder holds something else, or a file in it is not usable.
        RunError: Another process is at work in it.
        OSError: It cannot be written.
    """
    for host in hosts:
        general_name(host)
    return _at_work(folder, lambda authority: None, hosts, days, now)


def change_authority(
    folder: Path, change: Callable[[Authority], None], hosts: Sequence[str] = ()
) -> Authority:
    """Call `change` on the authority of a folder that has one, then check it all.

    Raises:
        SecurityError: There is none, or a file in the folder is not usable.
        RunError: Another process is at work in it.
        OSError: It cannot be written.
    """
    _require_ca(folder)
    return _at_work(folder, change, hosts, LEAF_DAYS, None)


def open_authority(folder: Path, now: dt.datetime | None = None) -> Authority:
    """Open a folder that `make_authority` has made.

    Raises:
        SecurityError: There is none, or a file in it is not usable.
    """
    _require_ca(folder)
    authority = Authority(folder)
    authority.check((), now or utc_now())
    return authority


def _require_ca(folder: Path) -> None:
    if not (folder / "ca.pem").exists():
        raise SecurityError(
            f"{folder}: no ca.pem in it, expected a folder made by "
            f"`marl-sched certificates {folder}`"
        )


def _require_ours(folder: Path) -> None:
    foreign = sorted(p.name for p in folder.iterdir() if not _KNOWN.fullmatch(p.name))
    if foreign:
        raise SecurityError(
            f"{folder}: holds {foreign[0]}, expected a new or empty folder, or one that "
            "`marl-sched certificates` has made; nothing was changed"
        )


def _at_work(
    folder: Path,
    change: Callable[[Authority], None],
    hosts: Sequence[str],
    days: int,
    now: dt.datetime | None,
) -> Authority:
    now = now or utc_now()
    if folder.is_dir():
        _require_ours(folder)
    make_private_folder(folder)
    with alone_in(folder):
        authority = Authority(folder)
        authority.complete(hosts, days, now)
        change(authority)
        authority.check(hosts, now)
    return authority


def _replace_pair(path: Path, chain: Certificates, key_path: Path, key: PrivateKey) -> None:
    waiting = key_path.with_name(f"{key_path.name}.next")
    write_private(waiting, key_to_pem(key))
    write_public(path, certificates_to_pem(chain))
    waiting.replace(key_path)


def _settle(path: Path, key_path: Path) -> None:
    """Finish or undo a replacement that was cut off."""
    waiting = key_path.with_name(f"{key_path.name}.next")
    if not waiting.exists():
        return
    certificate = load_certificates(path)[0] if path.exists() else None
    if certificate is not None and certificate.public_key() == load_key(waiting).public_key():
        waiting.replace(key_path)
    else:
        waiting.unlink()
