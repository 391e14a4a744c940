"""The enrolment service over real TLS: who is let in, who is refused, and what is told."""

import datetime as dt
import json
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
from federation.zone_keys import ZoneKey, ZoneKeys
from marl_sched.errors import SecurityError
from zones.chains import certificates_to_pem, is_issued, load_certificates, utc_now
from zones.keys import fingerprint, new_key, public_to_pem, read_file, write_private
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


@pytest.mark.parametrize("wish", ["", "zone_b"])
def test_token_for_no_zone_makes_a_free_key_whatever_its_owner_wants_to_be(
    wish: str, coordinator: Coordinator
) -> None:
    key = new_key()
    reply = coordinator.call(request_of(key, coordinator.token("").secret, wish))
    assert reply.zone == ""
    certificate = x509.load_pem_x509_certificate(reply.certificate)
    assert certificate.subject.rfc4514_string() == "CN=(free)"
    assert coordinator.registrations.calls == [(public_to_pem(key.public_key()), "")]
    keys = ZoneKeys(coordinator.authority.folder)
    assert keys.zone_of_certificate(reply.certificate) == ""
    (known,) = keys.all()
    assert (known.zone, known.public_key) == ("", key.public_key())
    assert known.expires == certificate.not_valid_after_utc


def test_zones_named_by_tokens_and_free_keys_do_not_take_each_others_place(
    coordinator: Coordinator,
) -> None:
    tokens = ["", "zone_b", "", "zone_a", ""]
    replies = [
        coordinator.call(request_of(new_key(), coordinator.token(zone).secret)).zone
        for zone in tokens
    ]
    assert replies == tokens
    known = ZoneKeys(coordinator.authority.folder).all()
    assert [one.zone for one in known] == ["zone_a", "zone_b", "", "", ""]


def test_zone_that_joins_the_configuration_is_let_in_from_then_on(
    coordinator: Coordinator,
) -> None:
    request = request_of(new_key(), coordinator.token("zone_x").secret)
    assert refusal(lambda: coordinator.call(request)) == REFUSED
    coordinator.service.use_zones((*ZONES, "zone_x"))
    assert coordinator.call(request).zone == "zone_x"


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
    return request_of(new_key(), coordinator.token("").secret, "../../zone_a")


def zone_that_is_not_there(coordinator: Coordinator) -> EnrolRequest:
    return request_of(new_key(), coordinator.token("zone_x").secret)


def taken_zone(coordinator: Coordinator) -> EnrolRequest:
    coordinator.call(request_of(new_key(), coordinator.token().secret, "zone_a"))
    return request_of(new_key(), coordinator.token("zone_a").secret, "zone_a")


def zone_of_another(coordinator: Coordinator) -> EnrolRequest:
    key = new_key()
    coordinator.call(request_of(key, coordinator.token().secret, "zone_a"))
    return request_of(key, coordinator.token("zone_b").secret, "zone_b")


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
    no_such_zone: "'../../zone_a' is not the name of a zone",
    zone_that_is_not_there: "'zone_x' is not one of the zones zone_a, zone_b, zone_c",
    taken_zone: "zone_a has a key, to be revoked before",
    zone_of_another: "the key of zone_a asks for zone_b",
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


@pytest.mark.parametrize("zone", ["zone_a", ""])
def test_owner_of_a_revoked_key_is_told_that_and_needs_the_key_to_be_told(
    zone: str, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    key = new_key()
    coordinator.call(request_of(key, coordinator.token(zone).secret))
    (known,) = ZoneKeys(coordinator.authority.folder).all()
    ZoneKeys(coordinator.authority.folder).revoke(zone or known.label)
    request = request_of(key, coordinator.token(zone).secret)
    answer = refusal(lambda: coordinator.call(request))
    assert answer == (grpc.StatusCode.PERMISSION_DENIED, "revoked")
    assert f"127.0.0.1: refused: key {known.label} was revoked" in caplog.text
    content = bytearray(request.certificate_request)
    content[-5] ^= 1
    request.certificate_request = bytes(content)
    assert refusal(lambda: coordinator.call(request)) == REFUSED


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


def test_zones_at_the_same_moment_are_all_let_in(coordinator: Coordinator) -> None:
    requests = [request_of(new_key(), coordinator.token(zone).secret) for zone in ("", *ZONES, "")]
    zones: list[str] = []

    def call(request: EnrolRequest) -> None:
        zones.append(coordinator.call(request).zone)

    threads = [threading.Thread(target=call, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(zones) == ["", "", *ZONES]
    assert len(ZoneKeys(coordinator.authority.folder).all()) == len(zones)


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
    assert keys.revoke("zone_a").public_key == old.public_key()
    with pytest.raises(SecurityError, match=r"key [0-9a-f]{8} was revoked, expected the key of a"):
        keys.zone_of_certificate(reply.certificate)
    assert coordinator.call(request_of(new, coordinator.token("zone_a").secret)).zone == "zone_a"
    assert [known.public_key for known in keys.all()] == [new.public_key()]
    assert keys.revoked() == {fingerprint(old.public_key()).hex()}
    assert refusal(lambda: coordinator.call(request_of(old)))[1] == "revoked"


def test_revoking_a_zone_without_a_key_names_those_that_have_one(coordinator: Coordinator) -> None:
    keys = ZoneKeys(coordinator.authority.folder)
    with pytest.raises(SecurityError, match="no key of zone zone_b, expected one of: none has one"):
        keys.revoke("zone_b")
    keys.assign(new_key().public_key(), "zone_a", ZONES)
    with pytest.raises(SecurityError, match="no key of zone zone_b, expected one of: zone_a; or"):
        keys.revoke("zone_b")


# Free keys.


def let_in(
    keys: ZoneKeys, zone: str = "", until: dt.datetime | None = None
) -> ec.EllipticCurvePublicKey:
    """Let a key in, with a certificate if it is said until when that is valid."""
    key = new_key().public_key()
    keys.assign(key, zone, ZONES)
    if until is not None:
        keys._write(ZoneKey(zone, key, until))
    return key


def test_free_key_is_revoked_by_the_beginning_of_its_fingerprint(tmp_path: Path) -> None:
    keys = ZoneKeys(tmp_path)
    first, second = let_in(keys), let_in(keys)
    named = let_in(keys, "zone_a")
    label = fingerprint(second).hex()[:8]
    assert keys.revoke(label).public_key == second
    assert [known.public_key for known in keys.all()] == [named, first]
    with pytest.raises(Refused, match=f"key {label} was revoked"):
        keys.find(second)
    with pytest.raises(SecurityError, match=rf"no key of zone {label}, .* \(1 are free\)"):
        keys.revoke(label)
    assert keys.revoke(fingerprint(named).hex()).zone == "zone_a"


@pytest.mark.parametrize("which", ["", "1234567", "g" * 8, "../zone_a", "0" * 65])
def test_what_names_no_key_revokes_none(which: str, tmp_path: Path) -> None:
    keys = ZoneKeys(tmp_path)
    let_in(keys)
    with pytest.raises(SecurityError, match="no key of zone"):
        keys.revoke(which)
    assert len(keys.all()) == 1


def test_beginning_of_two_keys_revokes_neither(tmp_path: Path) -> None:
    keys = ZoneKeys(tmp_path)
    for _ in range(2):
        let_in(keys)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ZoneKey, "fingerprint", property(lambda known: "0" * 64))
        with pytest.raises(SecurityError, match="begins the fingerprints of 2 keys"):
            keys.revoke("0" * 8)
    assert len(keys.all()) == 2


def test_free_keys_have_a_bound_and_expired_ones_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federation.zone_keys.N_SPARES", 2)
    keys = ZoneKeys(tmp_path)
    n_most = len(ZONES) + 2
    living = [let_in(keys, until=utc_now() + DAY) for _ in range(n_most - 1)]
    expired = let_in(keys, until=utc_now() - DAY)
    living.append(let_in(keys))
    assert expired not in [known.public_key for known in keys.all()]
    with pytest.raises(
        Refused, match=f"{n_most} free keys are in, expected fewer than {n_most}: 2"
    ):
        let_in(keys)
    assert let_in(keys, "zone_a") in [known.public_key for known in keys.all()]
    assert keys.assign(living[0], "", ZONES) == ""
    keys.revoke(fingerprint(living[0]).hex())
    let_in(keys)


def test_free_key_that_never_got_a_certificate_makes_room_once_its_token_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federation.zone_keys.N_SPARES", 1 - len(ZONES))
    keys = ZoneKeys(tmp_path)
    let_in(keys)
    (path,) = (tmp_path / "free").iterdir()
    past = (utc_now() - 8 * DAY).timestamp()
    os.utime(path, (past, past))
    new = let_in(keys)
    assert [known.public_key for known in keys.all()] == [new]


def test_free_keys_beyond_the_bound_are_refused_with_the_reason_in_the_log(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("federation.zone_keys.N_SPARES", 1 - len(ZONES))
    key = new_key()
    coordinator.call(request_of(key, coordinator.token("").secret))
    request = request_of(new_key(), coordinator.token("").secret)
    assert refusal(lambda: coordinator.call(request)) == REFUSED
    assert "refused: 1 free keys are in, expected fewer than 1" in caplog.text
    assert coordinator.call(request_of(key)).zone == ""


def test_free_key_whose_certificate_has_expired_becomes_what_its_new_token_says(
    coordinator: Coordinator,
) -> None:
    key = new_key()
    keys = ZoneKeys(coordinator.authority.folder)
    coordinator.call(request_of(key, coordinator.token("").secret))
    keys._write(ZoneKey("", key.public_key(), utc_now() - DAY))
    assert refusal(lambda: coordinator.call(request_of(key))) == REFUSED
    assert coordinator.call(request_of(key, coordinator.token("zone_b").secret)).zone == "zone_b"
    (known,) = keys.all()
    assert known.zone == "zone_b"


def test_key_of_a_zone_never_becomes_a_free_one(coordinator: Coordinator) -> None:
    key = new_key()
    keys = ZoneKeys(coordinator.authority.folder)
    coordinator.call(request_of(key, coordinator.token("zone_b").secret))
    keys._write(ZoneKey("zone_b", key.public_key(), utc_now() - DAY))
    assert coordinator.call(request_of(key, coordinator.token("").secret)).zone == "zone_b"


def test_key_that_is_put_out_while_all_are_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ZoneKeys(tmp_path)
    let_in(keys, "zone_a")
    other = let_in(keys, "zone_b")

    def racing(path: Path, kind: str, is_private: bool = False) -> bytes:
        if path.name == "zone_a.json":
            path.unlink(missing_ok=True)
        return read_file(path, kind, is_private)

    monkeypatch.setattr("federation.zone_keys.read_file", racing)
    assert [known.public_key for known in keys.all()] == [other]


def test_record_of_before_there_were_free_keys_is_read(tmp_path: Path) -> None:
    key = new_key().public_key()
    (tmp_path / "zones").mkdir(0o700)
    content = {
        "format": 1,
        "zone": "zone_a",
        "public_key": public_to_pem(key).decode(),
        "expires": 2_000_000_000,
    }
    write_private(tmp_path / "zones" / "zone_a.json", json.dumps(content).encode())
    (known,) = ZoneKeys(tmp_path).all()
    assert (known.zone, known.public_key) == ("zone_a", key)
    assert known.expires == dt.datetime(2033, 5, 18, 3, 33, 20, tzinfo=dt.UTC)


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
