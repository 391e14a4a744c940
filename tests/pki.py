"""Certificates, and servers that use them, for tests."""

import contextlib
import datetime as dt
import ipaddress
from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from federation.certificates import Authority, make_authority
from federation.enrolment import Enrolment, EnrolmentServer, Offer, RefusalLimit
from federation.join_tokens import JoinTokens
from zones.chains import utc_now
from zones.join_token import JoinToken
from zones.proto.enrolment_pb2 import EnrolReply, EnrolRequest
from zones.proto.enrolment_pb2_grpc import EnrolmentStub

ZONES = ("zone_a", "zone_b", "zone_c")
DAY = dt.timedelta(days=1)


def request_of(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, token: str = "", zone: str = ""
) -> EnrolRequest:
    """Return the request that a zone with this key sends."""
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    content = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    return EnrolRequest(token=token, zone=zone, certificate_request=content)


@dataclass
class Registrations:
    """Stands for Flower's Control API."""

    calls: list[tuple[bytes, str]] = field(default_factory=list)
    failures: int = 0

    def __call__(self, public_key: bytes, zone: str) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the SuperLink is away")
        self.calls.append((public_key, zone))


@dataclass
class Coordinator:
    """A CA and its enrolment service on loopback."""

    authority: Authority
    service: Enrolment
    address: str
    registrations: Registrations
    tokens: JoinTokens

    def token(
        self, zone: str = "zone_a", minutes: int = 60, now: dt.datetime | None = None
    ) -> JoinToken:
        secret = self.tokens.create(zone, minutes, now)
        return JoinToken(secret, self.authority.files.load().ca_fingerprint)

    def call(self, request: EnrolRequest) -> EnrolReply:
        """Make the call as a zone that trusts the CA."""
        credentials = grpc.ssl_channel_credentials(self.authority.roots())
        with grpc.secure_channel(self.address, credentials) as channel:
            reply = EnrolmentStub(channel).Enrol(request, timeout=10)
        assert isinstance(reply, EnrolReply)
        return reply


@contextlib.contextmanager
def serve_enrolment(
    folder: Path, limit: RefusalLimit | None = None, days: int = 30
) -> Iterator[Coordinator]:
    authority = make_authority(folder)
    registrations = Registrations()
    offer = Offer(ZONES, "localhost:9092", "localhost:9093", days)
    service = Enrolment(authority, authority.files, offer, registrations, limit)
    server = EnrolmentServer(service, authority.files, "127.0.0.1:0")
    address = f"127.0.0.1:{server.port}"
    try:
        yield Coordinator(authority, service, address, registrations, JoinTokens(folder))
    finally:
        server.close()


def self_signed(
    key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], until: dt.datetime | None = None
) -> x509.Certificate:
    """Return a stranger's certificate: its own CA."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stranger")])
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(utc_now() - 2 * DAY)
        .not_valid_after(until or utc_now() + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )


class _Echo(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(_answer)


def _answer(request: bytes, context: grpc.ServicerContext) -> bytes:
    shown = context.auth_context().get("x509_pem_cert", [b""])
    return bytes(next(iter(shown)))


@contextlib.contextmanager
def serve_echo(credentials: grpc.ServerCredentials) -> Iterator[str]:
    """Serve at a free port of loopback; the answer is the caller's certificate in PEM."""
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(futures.ThreadPoolExecutor(2))
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((_Echo(),))
        port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        stack.callback(lambda: server.stop(None).wait())
        yield f"127.0.0.1:{port}"


def call_echo(address: str, credentials: grpc.ChannelCredentials) -> bytes:
    """Call `serve_echo`.

    Raises:
        grpc.RpcError: The handshake failed.
    """
    with grpc.secure_channel(address, credentials) as channel:
        return bytes(channel.unary_unary("/echo/Echo")(b"", timeout=10))
