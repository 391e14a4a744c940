"""The enrolment service: lets a new zone's key in for a join token, and renews certificates.

    token, certificate request  -->  key checked  -->  token used up  -->  zone found, or none
      -->  key registered with Flower  -->  certificate signed  -->  answer

The token says what the key is to be: that of a zone, or a free one.

Every step may be repeated by the same key, so that an enrolment that was cut off anywhere goes on
when the zone asks again. A key that is in, and whose certificate has not expired, needs no token:
it proves itself by signing the request, and the answer is of no use without it.

A caller that is refused is told so, and nothing else; why is in the log. Only who proves to have a
key that was revoked is told that.
"""

import collections
import ipaddress
import logging
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from typing import TypeVar

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from federation.certificates import LEAF_DAYS, Authority
from federation.fleet_errors import LinkDown
from federation.join_tokens import JoinTokens, Refused
from federation.server_tls import ServerFiles
from federation.zone_keys import ZoneKeys
from marl_sched.config.base import NAME_PATTERN
from marl_sched.errors import SecurityError
from zones.chains import certificates_to_pem, load_certificates, utc_now
from zones.enrolment_client import REVOKED, TOO_MANY_REFUSALS
from zones.keys import PublicKey, describe, fingerprint, public_to_pem
from zones.proto.enrolment_pb2 import (
    AuthorityReply,
    AuthorityRequest,
    EnrolReply,
    EnrolRequest,
)
from zones.proto.enrolment_pb2_grpc import (
    EnrolmentServicer,
    add_EnrolmentServicer_to_server,
)

Register = Callable[[bytes, str], None]
"""Makes Flower know a public key (PEM) as that of a zone, or with an empty name as a free one;
knowing it already is no failure."""

_Reply = TypeVar("_Reply", AuthorityReply, EnrolReply)

_logger = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 16 * 1024
_MAX_REQUEST_BYTES = 4 * 1024
_MAX_TEXT = 64
_MAX_CALLS = 64
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 4 * 1024),
    ("grpc.max_connection_idle_ms", 20_000),
    ("grpc.max_connection_age_ms", 60_000),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),
)


@dataclass(frozen=True)
class Offer:
    """What a zone that is let in is told.

    Attributes:
        zones: All zones of the experiment, in its order.
        fleet_address: HOST:PORT of Flower's Fleet API, as zones reach it.
        exchange_address: HOST:PORT of the exchange, as zones reach it.
        days: How long zones' certificates are valid.
    """

    zones: Sequence[str]
    fleet_address: str
    exchange_address: str
    days: int = LEAF_DAYS


class RefusalLimit:
    """Counts refusals by host, and says when a host has had enough for a while."""

    def __init__(
        self,
        limit: int = 10,
        window_s: float = 60.0,
        now: Callable[[], float] = time.monotonic,
        max_hosts: int = 1024,
    ) -> None:
        """Allow `limit` refusals a host in any `window_s` seconds, and remember `max_hosts`."""
        self._limit = limit
        self._window_s = window_s
        self._now = now
        self._max_hosts = max_hosts
        self._times: collections.OrderedDict[str, collections.deque[float]] = (
            collections.OrderedDict()
        )
        self._lock = threading.Lock()

    def is_reached(self, host: str) -> bool:
        """Return whether a host is not to be heard for now."""
        with self._lock:
            times = self._times.get(host, ())
            return sum(self._now() - moment < self._window_s for moment in times) >= self._limit

    def count(self, host: str) -> None:
        """Note a refusal."""
        with self._lock:
            times = self._times.setdefault(host, collections.deque(maxlen=self._limit))
            times.append(self._now())
            self._times.move_to_end(host)
            if len(self._times) > self._max_hosts:
                self._times.popitem(last=False)


class Enrolment(EnrolmentServicer):
    """Answers the calls of zones; gRPC aside, `enrol` is all of it."""

    def __init__(
        self,
        authority: Authority,
        server: ServerFiles,
        offer: Offer,
        register: Register,
        limit: RefusalLimit | None = None,
    ) -> None:
        """Create the service.

        Args:
            authority: Signs the zones' certificates.
            server: Names the CA by which zones know the coordinator.
            offer: What zones are told.
            register: Called with every key that is let in, or renewed.
            limit: How many refusals a host may collect.
        """
        self._authority = authority
        self._server = server
        self._offer = offer
        self._register = register
        self._limit = limit or RefusalLimit()
        self._tokens = JoinTokens(authority.folder)
        self._keys = ZoneKeys(authority.folder)

    def use_zones(self, zone_names: Sequence[str]) -> None:
        """Let these zones in from now on."""
        self._offer = replace(self._offer, zones=tuple(zone_names))

    def Authority(self, request: AuthorityRequest, context: grpc.ServicerContext) -> AuthorityReply:
        """Answer with the CAs, which are no secret."""
        return self._guarded(context, lambda: AuthorityReply(ca=self._roots()))

    def Enrol(self, request: EnrolRequest, context: grpc.ServicerContext) -> EnrolReply:
        """Let a zone in, or refuse it."""
        return self._guarded(context, lambda: self.enrol(request))

    def enrol(self, request: EnrolRequest) -> EnrolReply:
        """Let a zone in.

        Raises:
            Refused: Why not; not for the caller's eyes.
            SecurityError: A file of ours is not usable.
            OSError: A file of ours cannot be written.
        """
        key = _requested_key(request)
        zone = self._admit(key, request.token, request.zone)
        self._register(public_to_pem(key), zone)
        certificate = self._authority.sign_zone(zone, key, self._offer.days)
        self._keys.note_certificate(zone, certificate)
        _logger.info("%s: key %s is in", zone or "any zone", fingerprint(key).hex()[:8])
        return EnrolReply(
            zone=zone,
            ca=self._roots(),
            certificate=certificates_to_pem((certificate,)),
            fleet_address=self._offer.fleet_address,
            exchange_address=self._offer.exchange_address,
            clock_s=int(time.time()),
        )

    def _admit(self, key: PublicKey, secret: str, wanted: str) -> str:
        """Return the zone of a key, empty for a free one: it is in already, or has a token."""
        if wanted and re.fullmatch(NAME_PATTERN, wanted) is None:
            raise Refused(f"{wanted!r} is not the name of a zone")
        known = self._keys.find(key)
        if known is not None and known.zone and wanted not in ("", known.zone):
            raise Refused(f"the key of {known.zone} asks for {wanted}")
        if known is not None and known.expires is not None and utc_now() < known.expires:
            return known.zone
        token = self._tokens.find(secret)
        if token.zone and wanted not in ("", token.zone):
            raise Refused(f"{token.label} is for {token.zone}, not for {wanted!r}")
        self._tokens.use(token, fingerprint(key))
        return self._keys.assign(key, token.zone, self._offer.zones)

    def _roots(self) -> bytes:
        return certificates_to_pem(load_certificates(self._server.ca))

    def _guarded(self, context: grpc.ServicerContext, answer: Callable[[], _Reply]) -> _Reply:
        """Call `answer`; whatever goes wrong reaches the log, and only its kind the caller."""
        host = _host(context.peer())
        if self._limit.is_reached(host):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{TOO_MANY_REFUSALS}, wait a minute")
        try:
            return answer()
        except Refused as refusal:
            self._limit.count(host)
            _logger.warning("%s: refused: %s", host, refusal)
            answered = REVOKED if refusal.is_revoked else "refused"
        except LinkDown as error:  # it starts, or is started again: the zone will ask once more
            _logger.info("%s: not let in yet: %s", host, error)
            context.abort(grpc.StatusCode.UNAVAILABLE, "try again later")
        except Exception as error:  # noqa: BLE001 - gRPC would send its text to the caller
            _logger.error("%s: enrolment failed: %s: %s", host, type(error).__name__, error)
            context.abort(grpc.StatusCode.UNAVAILABLE, "try again later")
        context.abort(grpc.StatusCode.PERMISSION_DENIED, answered)
        raise AssertionError


class EnrolmentServer:
    """The service behind a port."""

    def __init__(self, service: Enrolment, server: ServerFiles, address: str) -> None:
        """Listen.

        Args:
            service: Answers.
            server: The certificate to show.
            address: HOST:PORT to listen at; port 0 takes a free one.

        Raises:
            SecurityError: The certificate is not usable, or the address is taken.
        """
        credentials = server.load().credentials()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(4, thread_name_prefix="enrolment"),
            options=_OPTIONS,
            maximum_concurrent_rpcs=_MAX_CALLS,
        )
        add_EnrolmentServicer_to_server(service, self._server)  # type: ignore[no-untyped-call]
        try:
            self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            raise SecurityError(
                f"{address}: enrolment cannot listen there, expected a free port of this host"
            ) from None
        self._server.start()

    def close(self) -> None:
        """Stop; calls under way have two seconds to end."""
        self._server.stop(2.0).wait()


def _requested_key(request: EnrolRequest) -> PublicKey:
    """Check what a stranger sent, and return the key that has signed it."""
    if len(request.token) > _MAX_TEXT or len(request.zone) > _MAX_TEXT:
        raise Refused("a token or a zone name that is too long")
    if len(request.certificate_request) > _MAX_REQUEST_BYTES:
        raise Refused(f"a certificate request of {len(request.certificate_request)} bytes")
    try:
        found = x509.load_der_x509_csr(request.certificate_request)
        key = found.public_key()
        is_signed = found.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise Refused("not a certificate request") from None
    if not isinstance(key, PublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise Refused(f"{describe(key)}, expected an EC key on secp384r1")
    if not is_signed:
        raise Refused("a certificate request that is not signed by its key")
    return key


def _host(peer: str) -> str:
    """Return the host of a gRPC peer, `ipv4:10.0.0.7:51234`; of IPv6 the network, a /64."""
    kind, _, address = urllib.parse.unquote(peer).partition(":")
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    if kind == "ipv6":
        try:
            return str(ipaddress.ip_network((host, 64), strict=False))
        except ValueError:
            return host
    return host or kind
