"""How a zone becomes known to the coordinator: its key, a join token, a certificate.

Cut off anywhere, the same call goes on with the same key; once enrolled, it renews the certificate
and needs no token. What is kept, and where, is in identity.py.
"""

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from marl_sched.errors import SecurityError
from marl_sched.files import alone_in
from zones.chains import (
    Certificates,
    certificates_to_pem,
    check_dates,
    check_host,
    load_certificates,
    parse_certificates,
    utc_now,
)
from zones.identity import (
    Identity,
    check_zone,
    is_enrolled,
    load_identity,
    own_key,
    save_identity,
)
from zones.join_token import JoinToken
from zones.keys import PrivateKey, fingerprint, make_private_folder
from zones.proto.enrolment_pb2 import AuthorityRequest, EnrolReply, EnrolRequest
from zones.proto.enrolment_pb2_grpc import EnrolmentStub
from zones.tls import explain_failure, fetch_certificate, split_address

_Answer = TypeVar("_Answer")

_logger = logging.getLogger(__name__)

TOO_MANY_REFUSALS = "too many refusals"
"""What the service says to a host that is not heard for a while."""
REVOKED = "revoked"
"""What it says to the owner of a key that was put out."""

_MAX_REPLY_BYTES = 256 * 1024
_CALL_S = 10.0
_PAUSE_S = 1.0
_OPTIONS = (("grpc.max_receive_message_length", _MAX_REPLY_BYTES),)
# What Flower's node authentication allows a zone's clock to be off by.
_AHEAD_S = 5
_BEHIND_S = 305


@dataclass(frozen=True)
class Coordinator:
    """The enrolment service, and how to know that it is the right one.

    Attributes:
        address: HOST:PORT.
        ca: File of its CAs; None for a token's fingerprint, or what was kept.
        timeout_s: Longest wait for it.
        stop: Ends the wait when set.
    """

    address: str
    ca: Path | None = None
    timeout_s: float = 60.0
    stop: threading.Event = field(default_factory=threading.Event)


def enrol(
    coordinator: Coordinator, folder: Path, zone: str = "", token: JoinToken | None = None
) -> Identity:
    """Enrol a zone, or renew the certificate of one that is enrolled.

    Args:
        coordinator: Whom to ask.
        folder: Where the zone's key and the rest are, or will be.
        zone: The zone to be; empty for that of the token, or any.
        token: Not needed once enrolled, until the certificate has expired.

    Raises:
        SecurityError: Refused, not reached, or a file or certificate is not usable.
        EnrolmentStopped: The wait was ended.
        RunError: Another process is at work in the folder.
        OSError: The folder cannot be written.
    """
    split_address(coordinator.address)
    make_private_folder(folder)
    with alone_in(folder):
        key = own_key(folder)
        if zone:
            check_zone(folder, zone)
        try:
            roots, roots_from = _roots(coordinator, folder, token)
            reply, clocks = _ask(coordinator, (roots, roots_from), key, zone, token)
        except NotReached as error:
            return _keep(folder, error)
        except KeyRevoked as error:
            raise SecurityError(f"{folder}: {error}") from None
        save_identity(folder, reply, key, zone)
        _check_clock(coordinator.address, reply.clock_s, *clocks)
        return load_identity(folder)


class NotReached(SecurityError):
    """The coordinator did not answer; nothing else is wrong, as far as can be seen."""


class TooManyRefusals(NotReached):
    """The coordinator does not hear this host for a while, whatever it says."""


class TokenRefused(SecurityError):
    """The coordinator refuses the token, or the key that came without one."""


class KeyRevoked(SecurityError):
    """The coordinator has put the key out."""


class EnrolmentStopped(Exception):
    """The process is to stop; not an error."""


def _keep(folder: Path, error: NotReached) -> Identity:
    """Go on with what there is: a coordinator that is away is no reason to stop."""
    if not is_enrolled(folder):
        raise error
    identity = load_identity(folder)
    name = identity.zone or "a free zone"
    _logger.warning("%s; the certificate of %s is not renewed now", error, name)
    return identity


def _roots(
    coordinator: Coordinator, folder: Path, token: JoinToken | None
) -> tuple[Certificates, str]:
    """Find the CAs to trust: a file that was given, the ones kept, or that of the token."""
    for path in (coordinator.ca, folder / "ca.pem"):
        if path is not None and (path == coordinator.ca or path.exists()):
            roots = load_certificates(path)
            for root in roots:
                check_dates(root, str(path), utc_now())
            return roots, str(path)
    if token is None:
        raise SecurityError(
            f"{folder}: not enrolled yet, expected a join token "
            "(`marl-sched certificates DIR --join-token` on the coordinator's host)"
        )
    return _pinned(coordinator, token), "the join token"


def _pinned(coordinator: Coordinator, token: JoinToken) -> Certificates:
    """Fetch the coordinator's CAs and keep the one that the token names.

    The certificate that is shown is trusted for this one question, whose answer is checked.
    """
    address = coordinator.address

    def fetch(timeout_s: float) -> Certificates:
        try:
            shown = fetch_certificate(address, timeout_s)
        except OSError as error:
            raise NotReached(f"{address}: not reached: {error.strerror or error}") from None
        where = f"the certificate of {address}"
        check_dates(shown, where, utc_now())
        check_host(shown, split_address(address)[0], where)
        with _channel(address, (shown,)) as channel:
            reply = _stub(channel).Authority(AuthorityRequest(), timeout=timeout_s)
        return parse_certificates(reply.ca, f"the CAs of {address}")

    found = _until_reached(coordinator, None, fetch)
    pinned = tuple(c for c in found if fingerprint(c.public_key()) == token.ca_fingerprint)
    if not pinned:
        raise SecurityError(
            f"{address}: has another CA than the one the join token names, "
            "expected the coordinator that made the token"
        )
    return pinned


def _ask(
    coordinator: Coordinator,
    trust: tuple[Certificates, str],
    key: PrivateKey,
    zone: str,
    token: JoinToken | None,
) -> tuple[EnrolReply, tuple[float, float]]:
    """Send the request, and return the answer and the times between which it was made."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, zone or "any")])
    signed = x509.CertificateSigningRequestBuilder(name).sign(key, hashes.SHA384())
    request = EnrolRequest(
        token="" if token is None else token.secret,
        zone=zone,
        certificate_request=signed.public_bytes(serialization.Encoding.DER),
    )

    def call(timeout_s: float) -> tuple[EnrolReply, tuple[float, float]]:
        before = time.time()
        with _channel(coordinator.address, trust[0]) as channel:
            reply = _stub(channel).Enrol(request, timeout=timeout_s)
        return reply, (before, time.time())

    return _until_reached(coordinator, trust, call)


def _stub(channel: grpc.Channel) -> EnrolmentStub:
    return EnrolmentStub(channel)  # type: ignore[no-untyped-call]


def _channel(address: str, roots: Certificates) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(certificates_to_pem(roots))
    return grpc.secure_channel(address, credentials, options=_OPTIONS)


def _until_reached(
    coordinator: Coordinator,
    trust: tuple[Certificates, str] | None,
    call: Callable[[float], _Answer],
) -> _Answer:
    """Call again until there is an answer, good or bad, or time is up."""
    deadline = time.monotonic() + coordinator.timeout_s
    while True:
        left_s = max(deadline - time.monotonic(), 0.1)
        try:
            return call(min(_CALL_S, left_s))
        except grpc.RpcError as error:
            failure = _judge(coordinator, trust, error, min(_CALL_S, left_s))
        except NotReached as error:
            failure = error
        if time.monotonic() + _PAUSE_S >= deadline:
            raise failure
        if coordinator.stop.wait(_PAUSE_S):
            raise EnrolmentStopped


def _judge(
    coordinator: Coordinator,
    trust: tuple[Certificates, str] | None,
    error: grpc.RpcError,
    timeout_s: float,
) -> NotReached:
    """Return an error that another try may mend, or raise one that none will."""
    address = coordinator.address
    code, details = error.code(), str(error.details())
    if code is grpc.StatusCode.PERMISSION_DENIED and details == REVOKED:
        raise KeyRevoked(
            f"its key was revoked by the coordinator, {address}; expected a key that was not "
            "(to be let in again: delete the folder, start with a new join token)"
        )
    if code is grpc.StatusCode.PERMISSION_DENIED:
        raise TokenRefused(
            f"{address}: enrolment refused, expected a join token that is not used, not expired "
            "and for this zone, or a key that is enrolled; the coordinator's log says why"
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_MANY_REFUSALS in details:
        raise TooManyRefusals(f"{address}: {details}, expected fewer tries from this host")
    if code is grpc.StatusCode.UNAVAILABLE:
        if trust is not None and any(word in details.lower() for word in ("handshake", "verif")):
            explain_failure(address, *trust, timeout_s)
        return NotReached(f"{address}: no answer within {coordinator.timeout_s:g} s: {details}")
    is_busy = code is grpc.StatusCode.RESOURCE_EXHAUSTED and "Concurrent" in details
    if is_busy or code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return NotReached(f"{address}: no answer within {coordinator.timeout_s:g} s")
    raise SecurityError(f"{address}: {code.name}: {details}, expected an enrolment service")


def _check_clock(address: str, clock_s: int, before_s: float, after_s: float) -> None:
    """Check that the clocks are as close as Flower wants them: its refusals do not say why."""
    ahead_s, behind_s = before_s - (clock_s + 1), clock_s - after_s
    if ahead_s <= _AHEAD_S and behind_s <= _BEHIND_S:
        return
    here, there = (dt.datetime.fromtimestamp(moment, dt.UTC) for moment in (after_s, clock_s))
    raise SecurityError(
        f"this host's clock says {here:%Y-%m-%d %H:%M:%S} UTC, that of {address} "
        f"{there:%Y-%m-%d %H:%M:%S} UTC; expected at most {_AHEAD_S} s ahead or {_BEHIND_S} s "
        "behind (the zone is enrolled, set the clock and start again)"
    )
