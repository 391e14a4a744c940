"""What makes a zone a zone: its key, its certificate, and where the coordinator is; on disk.

    node_key          its key, EC P-384 in OpenSSH format: for Flower and for mutual TLS
    ca.pem            the CAs by which it knows the coordinator
    certificate.pem   its own certificate
    zone.json         which zone it is, and where the Fleet API and the exchange are; written last

The folder is 0700 and the files 0600; the key never leaves it.
"""

import datetime as dt
import json
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from marl_sched.errors import SecurityError
from zones.chains import (
    certificates_to_pem,
    check_dates,
    check_pair,
    load_certificates,
    parse_certificates,
    utc_now,
)
from zones.keys import (
    PrivateKey,
    key_to_openssh,
    key_to_pem,
    load_key,
    new_key,
    read_file,
    write_private,
)
from zones.proto.enrolment_pb2 import EnrolReply
from zones.tls import split_address

_FORMAT = 1


@dataclass(frozen=True)
class Identity:
    """What an enrolled zone has.

    Attributes:
        zone: Its name; empty: the key is free, and the zone what the run says.
        key_path: Its key, as Flower reads it.
        ca_path: The CAs by which it knows the coordinator.
        ca: The same in PEM.
        certificate: Its own certificate in PEM.
        key: Its key in PEM.
        fleet_address: HOST:PORT of Flower's Fleet API.
        exchange_address: HOST:PORT of the exchange.
    """

    zone: str
    key_path: Path
    ca_path: Path
    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    fleet_address: str
    exchange_address: str

    def credentials(self) -> grpc.ChannelCredentials:
        """Return gRPC credentials for mutual TLS."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


def own_key(folder: Path) -> PrivateKey:
    """Return the key of a zone's folder; the first time, make it.

    Raises:
        SecurityError: There is something else in its place.
        OSError: It cannot be written.
    """
    path = folder / "node_key"
    if not path.exists():
        write_private(path, key_to_openssh(new_key()))
    return load_key(path, is_node_key=True)


def is_enrolled(folder: Path) -> bool:
    """Return whether an enrolment has been completed in a folder."""
    return (folder / "zone.json").exists()


def needs_token(folder: Path, now: dt.datetime | None = None) -> bool:
    """Return whether a folder's key is not let in without a token: new, or its time is up."""
    if not is_enrolled(folder):
        return True
    try:
        certificate = load_certificates(folder / "certificate.pem")[0]
    except SecurityError:  # the coordinator makes another
        return False
    return certificate.not_valid_after_utc <= (now or utc_now())


def load_identity(folder: Path, now: dt.datetime | None = None) -> Identity:
    """Read what an enrolled zone has, and check it.

    Raises:
        SecurityError: It is not enrolled, or a file is not usable, or expired.
    """
    now = now or utc_now()
    content = _read_zone(folder)
    key = load_key(folder / "node_key", is_node_key=True)
    path = folder / "certificate.pem"
    certificates = load_certificates(path)
    check_pair(certificates[0], key, str(path), str(folder / "node_key"))
    check_dates(certificates[0], str(path), now)
    return Identity(
        zone=content["zone"],
        key_path=folder / "node_key",
        ca_path=folder / "ca.pem",
        ca=certificates_to_pem(load_certificates(folder / "ca.pem")),
        certificate=certificates_to_pem(certificates),
        key=key_to_pem(key),
        fleet_address=content["fleet_address"],
        exchange_address=content["exchange_address"],
    )


def save_identity(folder: Path, reply: EnrolReply, key: PrivateKey, zone: str) -> None:
    """Check the coordinator's answer and keep it.

    Args:
        folder: The zone's folder.
        reply: The answer.
        key: The zone's key.
        zone: The zone that was asked for; empty for any.

    Raises:
        SecurityError: It is not for this key or zone.
        OSError: It cannot be written.
    """
    where = "the coordinator's answer"
    certificates = parse_certificates(reply.certificate, where)
    check_pair(certificates[0], key, where, str(folder / "node_key"))
    check_dates(certificates[0], where, utc_now())
    roots = parse_certificates(reply.ca, where)
    if zone and reply.zone not in ("", zone):
        raise SecurityError(f"{where}: zone {reply.zone!r}, expected {zone!r}")
    for address in (reply.fleet_address, reply.exchange_address):
        split_address(address)
    write_private(folder / "ca.pem", certificates_to_pem(roots))
    write_private(folder / "certificate.pem", certificates_to_pem(certificates))
    content = {
        "format": _FORMAT,
        "zone": reply.zone,
        "fleet_address": reply.fleet_address,
        "exchange_address": reply.exchange_address,
    }
    write_private(folder / "zone.json", json.dumps(content).encode())


def _read_zone(folder: Path) -> dict[str, str]:
    path = folder / "zone.json"
    kind = "what an enrolment wrote"
    content = read_file(path, kind, is_private=True)
    try:
        found = json.loads(content)
        if found["format"] != _FORMAT:
            raise ValueError
        return {key: str(found[key]) for key in ("zone", "fleet_address", "exchange_address")}
    except (ValueError, KeyError, TypeError):
        raise SecurityError(f"{path}: half-written or not ours, expected {kind}") from None


def check_zone(folder: Path, zone: str) -> None:
    """Check that a folder, if it is enrolled, is that of a zone, or of a free key.

    Raises:
        SecurityError: It is another's.
    """
    if not is_enrolled(folder):
        return
    known = _read_zone(folder)["zone"]
    if known not in ("", zone):
        raise SecurityError(
            f"{folder}: enrolled as {known}, not as {zone}; expected another folder for {zone}"
        )
