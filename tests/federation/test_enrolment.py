"""The enrolment service over real TLS: who is let in, who is refused, and what is told."""

import datetime as dt
import logging
import os
import re
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pki import DAY, ZONES, Coordinator, request_of, serve_enrolment

from federation.enrolment import EnrolmentServer, RefusalLimit, _host
from federation.join_tokens import Refused
from federation.zone_keys import ZoneKeys
from marl_sched.errors import SecurityError
from zones.chains import certificates_to_pem, is_issued, load_certificates, utc_now
from zones.keys import new_key, public_to_pem
from zones.proto.enrolment_pb2 import AuthorityRequest, EnrolRequest
from zones.proto.enrolment_pb2_grpc import EnrolmentStub

pytestmark = pytest.mark.network


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with serve_enrolment(tmp_path / "pki", RefusalLimit(limit=1000)) as running:
        yield running


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return raised.value.code(), str(raised.value.details())


REFUSED = (grpc.StatusCode.PERMISSION_DENIED, "refused")


def test_token_lets_a_key_in(coordinator: Coordinator) -> None:
    key = new_key()
    reply = coordinator.call(request_of(key, coordinator.token().secret))
    assert reply.zone == "zone_a"
    certificate = x509.load_pem_x509_certificate(reply.certificate)
    assert certificate.public_key() == key.public_key()
    assert certificate.subject.rfc4514_string() == "CN=zone_a"
    assert is_issued(certificate, load_certificates(coordinator.authority.files.ca)[0])
    assert (reply.fleet_address, reply.exchange_address) == ("localhost:9092", "localhost:9093")
    assert reply.ca == coordinator.authority.roots()
    assert coordinator.registrations.calls == [(public_to_pem(key.public_key()), "zone_a")]


def test_zones_are_given_in_order_and_each_once(coordinator: Coordinator) -> None:
    wishes = ["", "zone_b", ""]
    replies = [
        coordinator.call(request_of(new_key(), coordinator.token().secret, zone)).zone
        for zone in wishes
    ]
    assert replies == ["zone_a", "zone_b", "zone_c"]
    assert (
        refusal(lambda: coordinator.call(request_of(new_key(), coordinator.token().secret)))
        == REFUSED
    )


def unknown(coordinator: Coordinator) -> EnrolRequest:
    return request_of(new_key(), "a" * 32)


def none_at_all(coordinator: Coordinator) -> EnrolRequest:
    return request_of(new_key())


def expired(coordinator: Coordinator) -> EnrolRequest:
    return request_of(new_key(), coordinator.token(minutes=5, now=utc_now() - DAY).secret)


def used(coordinator: Coordinator) -> EnrolRequest:
    secret = coordinator.token().secret
    coordinator.call(request_of(new_key(), secret))
    return request_of(new_key(), secret)


def other_zone(coordinator: Coordinator) -> EnrolRequest:
    return request_of(new_key(), coordinator.token("zone_b").secret, "zone_c")


def no_such_zone(coordinator: Coordinator) -> EnrolRequest:
    return request_of(new_key(), coordinator.token().secret, "../../zone_a")


def taken_zone(coordinator: Coordinator) -> EnrolRequest:
    coordinator.call(request_of(new_key(), coordinator.token().secret, "zone_a"))
    return request_of(new_key(), coordinator.token("zone_a").secret, "zone_a")


def zone_of_another(coordinator: Coordinator) -> EnrolRequest:
    key = new_key()
    coordinator.call(request_of(key, coordinator.token().secret, "zone_a"))
    return request_of(key, coordinator.token().secret, "zone_b")


def revoked(coordinator: Coordinator) -> EnrolRequest:
    key = new_key()
    coordinator.call(request_of(key, coordinator.token().secret))
    ZoneKeys(coordinator.authority.folder).revoke("zone_a")
    return request_of(key, coordinator.token().secret)


def rsa_key(coordinator: Coordinator) -> EnrolRequest:
    return request_of(rsa.generate_private_key(65537, 2048), coordinator.token().secret)


def other_curve(coordinator: Coordinator) -> EnrolRequest:
    return request_of(ec.generate_private_key(ec.SECP256R1()), coordinator.token().secret)


def ed25519_key(coordinator: Coordinator) -> EnrolRequest:
    key = ed25519.Ed25519PrivateKey.generate()
    content = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, None)
    return EnrolRequest(
        token=coordinator.token().secret,
        certificate_request=content.public_bytes(serialization.Encoding.DER),
    )


def forged(coordinator: Coordinator) -> EnrolRequest:
    """Another's public key in a request that it has not signed."""
    request = request_of(new_key(), coordinator.token().secret)
    content = bytearray(request.certificate_request)
    content[-5] ^= 1
    request.certificate_request = bytes(content)
    return request


def garbage(coordinator: Coordinator) -> EnrolRequest:
    return EnrolRequest(token=coordinator.token().secret, certificate_request=b"\x30\x82" * 50)


def long_request(coordinator: Coordinator) -> EnrolRequest:
    return EnrolRequest(token=coordinator.token().secret, certificate_request=bytes(5000))


def long_zone(coordinator: Coordinator) -> EnrolRequest:
    return request_of(new_key(), coordinator.token().secret, "z" * 65)


REASONS: dict[Callable[[Coordinator], EnrolRequest], str] = {
    unknown: "unknown token",
    none_at_all: "unknown token",
    expired: "expired at",
    used: "has been used by another key",
    other_zone: "is for zone_b, not for 'zone_c'",
    no_such_zone: "'../../zone_a' is not one of the zones zone_a, zone_b, zone_c",
    taken_zone: "zone_a has a key, to be revoked before",
    zone_of_another: "the key of zone_a asks for zone_b",
    revoked: "was revoked",
    rsa_key: "a key of type RSA, expected an EC key on secp384r1",
    other_curve: "an EC key on secp256r1, expected",
    ed25519_key: "a key of type Ed25519, expected",
    forged: "not signed by its key",
    garbage: "not a certificate request",
    long_request: "a certificate request of 5000 bytes",
    long_zone: "too long",
}


@pytest.mark.parametrize("make", REASONS)
def test_refusal_has_one_answer_and_its_reason_is_in_the_log(
    make: Callable[[Coordinator], EnrolRequest],
    coordinator: Coordinator,
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = make(coordinator)
    n_registered = len(coordinator.registrations.calls)
    assert refusal(lambda: coordinator.call(request)) == REFUSED
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert REASONS[make] in warnings[0]
    assert warnings[0].startswith("127.0.0.1: refused: ")
    assert len(coordinator.registrations.calls) == n_registered


VALID_REQUEST = request_of(new_key()).certificate_request


@given(
    token=st.text(max_size=70),
    zone=st.text(max_size=70),
    content=st.one_of(
        st.binary(max_size=200),
        st.tuples(st.integers(0, len(VALID_REQUEST) - 1), st.integers(0, 255)).map(
            lambda change: (
                VALID_REQUEST[: change[0]] + bytes([change[1]]) + VALID_REQUEST[change[0] + 1 :]
            )
        ),
        st.integers(0, len(VALID_REQUEST)).map(lambda length: VALID_REQUEST[:length]),
    ),
)
@settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_whatever_a_stranger_sends_is_refused(
    token: str, zone: str, content: bytes, coordinator: Coordinator
) -> None:
    request = EnrolRequest(token=token, zone=zone, certificate_request=content)
    with pytest.raises(Refused):
        coordinator.service.enrol(request)
    assert coordinator.registrations.calls == []


def test_oversized_message_is_refused_and_the_service_goes_on(coordinator: Coordinator) -> None:
    huge = EnrolRequest(token="x" * 1_000_000)
    code, _ = refusal(lambda: coordinator.call(huge))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert coordinator.call(request_of(new_key(), coordinator.token().secret)).zone == "zone_a"


def test_same_key_comes_again_with_the_same_token(coordinator: Coordinator) -> None:
    """The answer to the first call was lost: the second has the same effect."""
    key, secret = new_key(), coordinator.token().secret
    first, second = (coordinator.call(request_of(key, secret)) for _ in range(2))
    assert first.zone == second.zone == "zone_a"
    assert len(ZoneKeys(coordinator.authority.folder).all()) == 1


def test_enrolment_goes_on_after_flower_was_away(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    key, secret = new_key(), coordinator.token().secret
    coordinator.registrations.failures = 1
    answer = refusal(lambda: coordinator.call(request_of(key, secret)))
    assert answer == (grpc.StatusCode.UNAVAILABLE, "try again later")
    assert "the SuperLink is away" in caplog.text
    assert coordinator.call(request_of(key, secret)).zone == "zone_a"


def test_disk_that_is_full_is_told_to_the_log_only(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key, secret = new_key(), coordinator.token().secret

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        answer = refusal(lambda: coordinator.call(request_of(key, secret)))
    assert answer == (grpc.StatusCode.UNAVAILABLE, "try again later")
    assert "No space left on device" in caplog.text
    assert coordinator.call(request_of(key, secret)).zone == "zone_a"


def test_service_that_was_restarted_knows_its_zones(tmp_path: Path) -> None:
    key = new_key()
    with serve_enrolment(tmp_path / "pki") as first:
        secret = first.token().secret
        first.call(request_of(key, secret))
    with serve_enrolment(tmp_path / "pki") as second:
        assert second.call(request_of(key)).zone == "zone_a"
        assert refusal(lambda: second.call(request_of(new_key(), secret))) == REFUSED


def test_key_that_is_in_renews_without_a_token(coordinator: Coordinator) -> None:
    key = new_key()
    first = coordinator.call(request_of(key, coordinator.token("zone_b").secret))
    second = coordinator.call(request_of(key))
    assert (first.zone, second.zone) == ("zone_b", "zone_b")
    assert first.certificate != second.certificate


def test_key_whose_certificate_has_expired_needs_a_token(coordinator: Coordinator) -> None:
    key = new_key()
    coordinator.call(request_of(key, coordinator.token().secret))
    past = coordinator.authority.sign_zone("zone_a", key.public_key(), days=0)
    ZoneKeys(coordinator.authority.folder).note_certificate("zone_a", past)
    assert refusal(lambda: coordinator.call(request_of(key))) == REFUSED
    assert coordinator.call(request_of(key, coordinator.token().secret)).zone == "zone_a"


def test_two_zones_at_the_same_moment_with_one_token(coordinator: Coordinator) -> None:
    secret = coordinator.token().secret
    gate = threading.Barrier(4)
    zones: list[str] = []
    answers: list[tuple[grpc.StatusCode, str]] = []

    def call() -> None:
        request = request_of(new_key(), secret)
        gate.wait(10)
        try:
            zones.append(coordinator.call(request).zone)
        except grpc.RpcError as error:
            answers.append((error.code(), str(error.details())))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert zones == ["zone_a"]
    assert answers == [REFUSED] * 3
    assert len(coordinator.registrations.calls) == 1


def test_zones_at_the_same_moment_get_different_names(coordinator: Coordinator) -> None:
    requests = [request_of(new_key(), coordinator.token().secret) for _ in ZONES]
    zones: list[str] = []

    def call(request: EnrolRequest) -> None:
        zones.append(coordinator.call(request).zone)

    threads = [threading.Thread(target=call, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(zones) == list(ZONES)


def test_host_that_was_refused_often_is_not_heard_for_a_while(tmp_path: Path) -> None:
    clock = [0.0]
    limit = RefusalLimit(limit=3, window_s=60.0, now=lambda: clock[0])
    with serve_enrolment(tmp_path / "pki", limit) as running:
        good = request_of(new_key(), running.token().secret)
        for _ in range(3):
            assert refusal(lambda: running.call(request_of(new_key(), "a" * 32))) == REFUSED
        answer = refusal(lambda: running.call(good))
        assert answer == (grpc.StatusCode.RESOURCE_EXHAUSTED, "too many refusals, wait a minute")
        clock[0] = 61.0
        assert running.call(good).zone == "zone_a"


def test_hosts_are_limited_apart_and_remembered_within_a_bound() -> None:
    limit = RefusalLimit(limit=1, max_hosts=2, now=lambda: 0.0)
    for host in ("a", "b"):
        limit.count(host)
    assert limit.is_reached("a")
    assert not limit.is_reached("c")
    limit.count("c")
    assert not limit.is_reached("a")


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:51234", "10.0.0.7"),
        ("ipv6:%5B2001:db8::1:2%5D:443", "2001:db8::/64"),
        ("ipv6:[fe80::1%25eth0]:443", "fe80::/64"),
        ("unix:", "unix"),
    ],
)
def test_host_of_a_peer(peer: str, host: str) -> None:
    assert _host(peer) == host


def test_caller_without_trust_learns_the_ca_only(coordinator: Coordinator) -> None:
    credentials = grpc.ssl_channel_credentials(coordinator.authority.roots())
    with grpc.secure_channel(coordinator.address, credentials) as channel:
        reply = EnrolmentStub(channel).Authority(AuthorityRequest(), timeout=10)
    assert reply.ca == coordinator.authority.roots()
    assert b"PRIVATE" not in reply.ca


def test_plain_text_is_refused(coordinator: Coordinator) -> None:
    with grpc.insecure_channel(coordinator.address) as channel:
        call = EnrolmentStub(channel).Enrol
        code, _ = refusal(lambda: call(request_of(new_key()), timeout=10))
    assert code is grpc.StatusCode.UNAVAILABLE


def test_port_in_use_is_one_line(coordinator: Coordinator) -> None:
    message = re.escape(f"{coordinator.address}: enrolment cannot listen there, expected a free")
    with pytest.raises(SecurityError, match=message):
        EnrolmentServer(coordinator.service, coordinator.authority.files, coordinator.address)


def test_port_is_free_after_closing(tmp_path: Path) -> None:
    with serve_enrolment(tmp_path / "pki") as running:
        port = int(running.address.rpartition(":")[2])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        assert other.getsockname()[1] == port


def test_neither_log_nor_answer_holds_a_secret(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = coordinator.token().secret
    key = new_key()
    reply = coordinator.call(request_of(key, secret))
    refusal(lambda: coordinator.call(request_of(new_key(), secret)))
    assert secret not in caplog.text
    assert "PRIVATE KEY" not in caplog.text
    assert b"PRIVATE KEY" not in reply.SerializeToString()
    assert secret.encode() not in reply.SerializeToString()
    number = key.private_numbers().private_value
    assert number.to_bytes(48, "big") not in request_of(key, secret).SerializeToString()


# Which key is which zone.


def test_revoked_key_is_refused_for_good_and_its_zone_is_free(coordinator: Coordinator) -> None:
    keys = ZoneKeys(coordinator.authority.folder)
    old, new = new_key(), new_key()
    reply = coordinator.call(request_of(old, coordinator.token().secret))
    assert keys.zone_of_certificate(reply.certificate) == "zone_a"
    assert keys.revoke("zone_a") == old.public_key()
    with pytest.raises(SecurityError, match=r"key [0-9a-f]{8} was revoked, expected the key of a"):
        keys.zone_of_certificate(reply.certificate)
    assert coordinator.call(request_of(new, coordinator.token("zone_a").secret)).zone == "zone_a"
    assert [known.public_key for known in keys.all()] == [new.public_key()]
    assert keys.revoked() == [old.public_key()]
    assert refusal(lambda: coordinator.call(request_of(old))) == REFUSED


def test_revoking_a_zone_without_a_key_names_those_that_have_one(coordinator: Coordinator) -> None:
    keys = ZoneKeys(coordinator.authority.folder)
    with pytest.raises(SecurityError, match="no key of zone zone_b, expected one of: none has one"):
        keys.revoke("zone_b")
    keys.assign(new_key().public_key(), "zone_a", ZONES)
    with pytest.raises(SecurityError, match="no key of zone zone_b, expected one of: zone_a"):
        keys.revoke("zone_b")


def test_certificate_of_a_key_that_never_enrolled_is_nobodys(coordinator: Coordinator) -> None:
    """Signed by the CA, yet not let in: made by hand, or enrolled elsewhere."""
    keys = ZoneKeys(coordinator.authority.folder)
    certificate = coordinator.authority.sign_zone("zone_a", new_key().public_key())
    with pytest.raises(SecurityError, match=r"key [0-9a-f]{8} is unknown, expected the key of a z"):
        keys.zone_of_certificate(certificates_to_pem([certificate]))
    with pytest.raises(SecurityError, match="not a certificate"):
        keys.zone_of_certificate(b"hello")


def test_record_that_is_broken_is_named(coordinator: Coordinator) -> None:
    keys = ZoneKeys(coordinator.authority.folder)
    keys.assign(new_key().public_key(), "zone_a", ZONES)
    path = coordinator.authority.folder / "zones" / "zone_a.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("{")
    with pytest.raises(SecurityError, match=r"zone_a\.json: half-written or not ours, expected"):
        keys.all()


def test_zone_that_was_revoked_meanwhile_gets_no_certificate_noted(
    coordinator: Coordinator,
) -> None:
    keys = ZoneKeys(coordinator.authority.folder)
    key = new_key().public_key()
    keys.assign(key, "zone_a", ZONES)
    certificate = coordinator.authority.sign_zone("zone_a", key)
    keys.revoke("zone_a")
    with pytest.raises(Refused, match="was revoked"):
        keys.note_certificate("zone_a", certificate)


def test_no_pickle_is_loaded_on_the_way(tmp_path: Path) -> None:
    """tests/test_imports.py forbids the import; here what others import is watched as well."""
    code = """
import sys
from pathlib import Path
events = []
sys.addaudithook(lambda event, args: events.append(event) if "pickle" in event else None)
from pki import request_of, serve_enrolment
from zones.keys import new_key
with serve_enrolment(Path(sys.argv[1])) as running:
    assert running.call(request_of(new_key(), running.token().secret)).zone == "zone_a"
assert events == [], events
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "pki")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr


def test_offer_is_what_zones_are_told(coordinator: Coordinator) -> None:
    key = new_key()
    reply = coordinator.call(request_of(key, coordinator.token().secret))
    until = x509.load_pem_x509_certificate(reply.certificate).not_valid_after_utc
    assert abs(until - utc_now() - dt.timedelta(days=30)) < dt.timedelta(minutes=5)
    assert abs(reply.clock_s - utc_now().timestamp()) < 60
