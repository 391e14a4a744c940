"""A zone enrols over real TLS: what it keeps, whom it trusts, and how it goes on."""

import contextlib
import datetime as dt
import json
import logging
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pki import DAY, Coordinator, call_echo, self_signed, serve_echo, serve_enrolment

from federation.certificates import Authority, change_authority, make_authority
from federation.enrolment import RefusalLimit
from federation.server_tls import ServerTls
from federation.zone_keys import ZoneKeys
from marl_sched.errors import RunError, SecurityError
from marl_sched.files import alone_in
from zones.chains import certificates_to_pem, utc_now
from zones.enrolment_client import Coordinator as Wanted
from zones.enrolment_client import EnrolmentStopped, NotReached, enrol
from zones.identity import load_identity, needs_token
from zones.join_token import JoinToken, new_secret
from zones.keys import fingerprint, key_to_openssh, key_to_pem, new_key, write_private
from zones.proto.enrolment_pb2 import AuthorityReply, AuthorityRequest, EnrolReply, EnrolRequest
from zones.proto.enrolment_pb2_grpc import EnrolmentServicer, add_EnrolmentServicer_to_server
from zones.tls import split_address

pytestmark = pytest.mark.network


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with serve_enrolment(tmp_path / "pki") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "zone"


def wanted(coordinator: Coordinator, ca: Path | None = None) -> Wanted:
    return Wanted(coordinator.address, ca, timeout_s=10.0)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_zone_enrols_with_nothing_but_a_token(coordinator: Coordinator, folder: Path) -> None:
    identity = enrol(wanted(coordinator), folder, "zone_b", coordinator.token("zone_b"))
    assert identity.zone == "zone_b"
    assert identity.ca == coordinator.authority.roots()
    assert (identity.fleet_address, identity.exchange_address) == (
        "localhost:9092",
        "localhost:9093",
    )
    assert load_identity(folder) == identity


def test_what_it_keeps_is_private_whatever_the_umask(
    coordinator: Coordinator, folder: Path
) -> None:
    before = os.umask(0)
    try:
        enrol(wanted(coordinator), folder, token=coordinator.token())
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
    names = ("node_key", "ca.pem", "certificate.pem", "zone.json")
    assert modes == dict.fromkeys(names, 0o600)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_key_is_one_that_flower_reads(coordinator: Coordinator, folder: Path) -> None:
    identity = enrol(wanted(coordinator), folder, token=coordinator.token())
    key = serialization.load_ssh_private_key(identity.key_path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP384R1)
    (registered,) = coordinator.registrations.calls
    assert serialization.load_pem_public_key(registered[0]) == key.public_key()


def test_identity_passes_mutual_tls(coordinator: Coordinator, folder: Path) -> None:
    identity = enrol(wanted(coordinator), folder, token=coordinator.token())
    tls = coordinator.authority.files.load()
    with serve_echo(tls.credentials(client_ca=coordinator.authority.roots())) as address:
        shown = call_echo(address, identity.credentials())
    assert ZoneKeys(coordinator.authority.folder).zone_of_certificate(shown) == identity.zone


def test_zone_enrols_by_a_file_of_the_ca(coordinator: Coordinator, folder: Path) -> None:
    ca = coordinator.authority.files.ca
    token = replace(coordinator.token(), ca_fingerprint=bytes(32))
    assert enrol(wanted(coordinator, ca), folder, token=token).zone == "zone_a"


def test_restart_renews_without_a_token_and_keeps_the_key(
    coordinator: Coordinator, folder: Path
) -> None:
    first = enrol(wanted(coordinator), folder, token=coordinator.token())
    second = enrol(wanted(coordinator), folder)
    assert (second.zone, second.key) == (first.zone, first.key)
    assert second.certificate != first.certificate


@pytest.mark.parametrize("name", ["ca.pem", "certificate.pem", "zone.json"])
def test_enrolment_that_was_cut_off_goes_on_with_the_same_key(
    name: str, coordinator: Coordinator, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has let the key in, and the zone was killed before it had kept that."""
    token = coordinator.token()
    replace_file = Path.replace

    def replacing(self: Path, target: Path) -> Path:
        if Path(target).name == name:
            raise KeyboardInterrupt
        return replace_file(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replacing)
        with pytest.raises(KeyboardInterrupt):
            enrol(wanted(coordinator), folder, token=token)
    key = (folder / "node_key").read_bytes()
    assert not (folder / "zone.json").exists()
    assert enrol(wanted(coordinator), folder, token=token).zone == "zone_a"
    assert (folder / "node_key").read_bytes() == key
    assert len(ZoneKeys(coordinator.authority.folder).all()) == 1


def test_coordinator_that_is_away_does_not_stop_a_zone_that_is_enrolled(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve_enrolment(tmp_path / "pki") as running:
        first = enrol(wanted(running), folder, token=running.token())
    second = enrol(Wanted(running.address, timeout_s=0.5), folder)
    assert second == first
    assert "the certificate of zone_a is not renewed now" in caplog.text


def nobody() -> JoinToken:
    return JoinToken(new_secret(), bytes(32))


@pytest.fixture
def closed_address() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_coordinator_that_is_away_is_one_line_within_the_bound(
    closed_address: str, folder: Path
) -> None:
    start = time.monotonic()
    with pytest.raises(NotReached, match=f"{closed_address}: not reached: Connection refused"):
        enrol(Wanted(closed_address, timeout_s=1.5), folder, token=nobody())
    assert time.monotonic() - start < 10


def test_coordinator_that_says_nothing_is_one_line_within_the_bound(folder: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NotReached, match=r"not reached: .*timed out"):
            enrol(Wanted(address, timeout_s=1.0), folder, token=nobody())


def test_zone_waits_for_flower_to_come_back(coordinator: Coordinator, folder: Path) -> None:
    coordinator.registrations.failures = 2
    assert enrol(wanted(coordinator), folder, token=coordinator.token()).zone == "zone_a"


# Whom it trusts.


def test_token_of_another_coordinator_is_told_before_the_secret_is_sent(
    coordinator: Coordinator, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve_enrolment(tmp_path / "other") as other:
        token = other.token()
    with pytest.raises(SecurityError, match="has another CA than the one the join token names"):
        enrol(wanted(coordinator), folder, token=token)
    assert "refused" not in caplog.text


def test_other_ca_than_that_of_the_file_is_told(
    coordinator: Coordinator, folder: Path, tmp_path: Path
) -> None:
    ca = make_authority(tmp_path / "other").files.ca
    with pytest.raises(SecurityError, match=f"certificate of {coordinator.address}: not signed by"):
        enrol(wanted(coordinator, ca), folder, token=coordinator.token())


class Impostor(EnrolmentServicer):
    """Stands between a zone and its coordinator, or answers as it likes."""

    def __init__(self, ca: bytes, answer: Callable[[EnrolRequest], EnrolReply]) -> None:
        self.ca = ca
        self.answer = answer
        self.n_requests = 0

    def Authority(self, request: AuthorityRequest, context: grpc.ServicerContext) -> AuthorityReply:
        return AuthorityReply(ca=self.ca)

    def Enrol(self, request: EnrolRequest, context: grpc.ServicerContext) -> EnrolReply:
        self.n_requests += 1
        return self.answer(request)


@contextlib.contextmanager
def serve(impostor: Impostor, tls: ServerTls) -> Iterator[str]:
    with futures.ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        add_EnrolmentServicer_to_server(impostor, server)
        port = server.add_secure_port("127.0.0.1:0", tls.credentials())
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


def stranger_tls(hosts: Sequence[str], until: dt.datetime | None = None) -> ServerTls:
    key = new_key()
    certificate = self_signed(key, hosts, until)
    pem = certificates_to_pem([certificate])
    return ServerTls(pem, pem, key_to_pem(key), fingerprint(key.public_key()))


def test_impostor_with_the_right_ca_in_its_answer_gets_no_secret(
    coordinator: Coordinator, folder: Path
) -> None:
    """The CA's certificate is public: showing it proves nothing."""
    impostor = Impostor(coordinator.authority.roots(), lambda request: EnrolReply())
    message = "not signed by the CA of the join token"
    stranger = stranger_tls(["127.0.0.1"])
    with serve(impostor, stranger) as address, pytest.raises(SecurityError, match=message):
        enrol(Wanted(address, timeout_s=5.0), folder, token=coordinator.token())
    assert impostor.n_requests == 0


def test_certificate_for_another_host_is_told_with_its_names(folder: Path) -> None:
    tls = stranger_tls(["superlink", "10.0.0.1"])
    impostor = Impostor(tls.ca, lambda request: EnrolReply())
    with serve(impostor, tls) as address:
        message = r"for superlink, 10\.0\.0\.1; expected a certificate for 127\.0\.0\.1"
        token = JoinToken(new_secret(), tls.ca_fingerprint)
        with pytest.raises(SecurityError, match=message):
            enrol(Wanted(address, timeout_s=5.0), folder, token=token)
        write_private(folder / "given.pem", tls.ca)
        with pytest.raises(SecurityError, match=message):
            enrol(Wanted(address, folder / "given.pem", 5.0), folder, token=token)
    assert impostor.n_requests == 0


def test_expired_certificate_of_the_coordinator_is_told(folder: Path) -> None:
    tls = stranger_tls(["127.0.0.1"], until=utc_now() - DAY)
    with serve(Impostor(tls.ca, lambda request: EnrolReply()), tls) as address:
        token = JoinToken(new_secret(), tls.ca_fingerprint)
        with pytest.raises(SecurityError, match=f"certificate of {address}: expired at .* clock"):
            enrol(Wanted(address, timeout_s=5.0), folder, token=token)


# What it makes of the answer.


def refusal_of(answer: Callable[[EnrolRequest], EnrolReply], pki: Path, folder: Path) -> str:
    """Return what a zone says to an answer of a coordinator that has the right certificate."""
    authority = make_authority(pki)
    tls = authority.files.load()
    with serve(Impostor(tls.ca, answer), tls) as address:
        token = JoinToken(new_secret(), tls.ca_fingerprint)
        with pytest.raises(SecurityError) as raised:
            enrol(Wanted(address, timeout_s=5.0), folder, "zone_a", token)
    return str(raised.value)


def good_answer(pki: Path, request: EnrolRequest, **changes: Any) -> EnrolReply:
    authority = Authority(pki)
    key = x509.load_der_x509_csr(request.certificate_request).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    fields = {
        "zone": "zone_a",
        "ca": authority.roots(),
        "certificate": certificates_to_pem([authority.sign_zone("zone_a", key)]),
        "fleet_address": "localhost:9092",
        "exchange_address": "localhost:9093",
        "clock_s": int(time.time()),
    }
    return EnrolReply(**{**fields, **changes})


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "zone": ({"zone": "zone_b"}, "the coordinator's answer: zone 'zone_b', expected 'zone_a'"),
    "no certificate": ({"certificate": b""}, "the coordinator's answer: not a certificate"),
    "garbage": ({"ca": b"hello"}, "the coordinator's answer: not a certificate"),
    "another key": (
        {"certificate": certificates_to_pem([self_signed(new_key(), ["zone_a"])])},
        "node_key: does not match the coordinator's answer",
    ),
    "address": ({"fleet_address": "http://x"}, "'http://x': not an address, expected HOST:PORT"),
    "too large": ({"ca": b"x" * 1_000_000}, "RESOURCE_EXHAUSTED"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_answer_that_is_wrong_is_one_line_and_not_kept(
    name: str, tmp_path: Path, folder: Path
) -> None:
    changes, message = HOSTILE[name]
    pki = tmp_path / "pki"
    said = refusal_of(lambda request: good_answer(pki, request, **changes), pki, folder)
    assert message in said
    assert "\n" not in said
    assert not (folder / "zone.json").exists()


@pytest.mark.parametrize("off_s", [-20, 600])
def test_clocks_that_flower_would_refuse_are_told_with_both_times(
    off_s: int, tmp_path: Path, folder: Path
) -> None:
    pki = tmp_path / "pki"
    clock_s = int(time.time()) + off_s
    said = refusal_of(lambda request: good_answer(pki, request, clock_s=clock_s), pki, folder)
    there = dt.datetime.fromtimestamp(clock_s, dt.UTC)
    assert said.startswith("this host's clock says 20")
    assert f"{there:%Y-%m-%d %H:%M:%S} UTC; expected at most 5 s ahead or 305 s behind" in said
    assert load_identity(folder).zone == "zone_a"


def test_refusal_is_one_line_that_says_what_is_allowed(
    coordinator: Coordinator, folder: Path
) -> None:
    token = coordinator.token(now=utc_now() - DAY)
    message = "enrolment refused, expected a join token that is not used, not expired and for this"
    with pytest.raises(SecurityError, match=message):
        enrol(wanted(coordinator), folder, token=token)


def test_too_many_tries_are_one_line(tmp_path: Path, folder: Path) -> None:
    with serve_enrolment(tmp_path / "pki", RefusalLimit(limit=1)) as running:
        token = replace(running.token(), secret=new_secret())
        with pytest.raises(SecurityError, match="enrolment refused"):
            enrol(wanted(running), folder, token=token)
        with pytest.raises(SecurityError, match="too many refusals, wait a minute"):
            enrol(wanted(running), folder, token=token)


def test_zone_that_was_revoked_does_not_go_on_with_what_it_has(
    coordinator: Coordinator, folder: Path
) -> None:
    enrol(wanted(coordinator), folder, token=coordinator.token())
    ZoneKeys(coordinator.authority.folder).revoke("zone_a")
    message = rf"{folder}: its key was revoked by the coordinator, {coordinator.address}; expected"
    for token in (None, coordinator.token()):
        with pytest.raises(SecurityError, match=message):
            enrol(wanted(coordinator), folder, token=token)


def test_zone_of_a_host_that_was_refused_often_goes_on_with_what_it_has(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve_enrolment(tmp_path / "pki", RefusalLimit(limit=1)) as running:
        first = enrol(wanted(running), folder, token=running.token())
        other = replace(running.token(), secret=new_secret())
        with pytest.raises(SecurityError, match="enrolment refused"):
            enrol(wanted(running), tmp_path / "other", token=other)
        assert enrol(wanted(running), folder) == first
    assert "too many refusals" in caplog.text
    assert "the certificate of zone_a is not renewed now" in caplog.text


def test_wait_for_the_coordinator_ends_when_the_process_is_to_stop(
    closed_address: str, folder: Path
) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(EnrolmentStopped):
        enrol(Wanted(closed_address, timeout_s=600.0, stop=stop), folder, token=nobody())


# Free keys.


def test_free_zone_is_of_no_zone_and_renews_like_any_other(
    coordinator: Coordinator, folder: Path
) -> None:
    first = enrol(wanted(coordinator), folder, token=coordinator.token(""))
    second = enrol(wanted(coordinator), folder)
    assert first.zone == second.zone == load_identity(folder).zone == ""
    assert second.certificate != first.certificate
    assert len(ZoneKeys(coordinator.authority.folder).all()) == 1
    tls = coordinator.authority.files.load()
    with serve_echo(tls.credentials(client_ca=coordinator.authority.roots())) as address:
        shown = call_echo(address, second.credentials())
    assert ZoneKeys(coordinator.authority.folder).zone_of_certificate(shown) == ""


def test_free_zone_may_be_started_for_any_zone(coordinator: Coordinator, folder: Path) -> None:
    enrol(wanted(coordinator), folder, "zone_b", coordinator.token(""))
    assert enrol(wanted(coordinator), folder, "zone_c").zone == ""


def test_token_is_needed_until_enrolled_and_once_the_certificate_has_expired(
    coordinator: Coordinator, folder: Path
) -> None:
    assert needs_token(folder)
    enrol(wanted(coordinator), folder, token=coordinator.token(""))
    assert not needs_token(folder)
    assert needs_token(folder, now=utc_now() + 31 * DAY)


def test_zone_goes_through_a_changeover_of_the_ca(tmp_path: Path, folder: Path) -> None:
    """Restarted at every step of docs/security.md, it needs neither token nor hand."""
    pki = tmp_path / "pki"
    with serve_enrolment(pki) as running:
        first = enrol(wanted(running), folder, token=running.token())
    steps: list[Callable[[Authority], None]] = [
        Authority.renew_ca,
        Authority.renew_server,
        Authority.retire_ca,
    ]
    for step in steps:
        change_authority(pki, step)
        with serve_enrolment(pki) as running:
            last = enrol(wanted(running), folder)
            tls = running.authority.files.load()
            with serve_echo(tls.credentials(client_ca=running.authority.roots())) as address:
                assert call_echo(address, last.credentials())
    assert (last.zone, last.key) == (first.zone, first.key)
    assert last.ca != first.ca


def test_zone_that_missed_a_changeover_comes_back_with_a_token(
    tmp_path: Path, folder: Path
) -> None:
    pki = tmp_path / "pki"
    with serve_enrolment(pki) as running:
        first = enrol(wanted(running), folder, token=running.token())
    for step in (Authority.renew_ca, Authority.renew_server, Authority.retire_ca):
        change_authority(pki, step)
    with serve_enrolment(pki) as running:
        with pytest.raises(SecurityError, match=r"not signed by the CA of .*zone/ca\.pem"):
            enrol(wanted(running), folder, token=running.token())
        (folder / "ca.pem").unlink()
        last = enrol(wanted(running), folder, token=running.token())
    assert (last.zone, last.key) == (first.zone, first.key)


# What is in its own folder.


def test_zone_without_token_is_told_how_to_get_one(coordinator: Coordinator, folder: Path) -> None:
    with pytest.raises(SecurityError, match="zone: not enrolled yet, expected a join token"):
        enrol(wanted(coordinator), folder)


def test_folder_of_another_zone_is_named(coordinator: Coordinator, folder: Path) -> None:
    enrol(wanted(coordinator), folder, "zone_a", coordinator.token())
    with pytest.raises(SecurityError, match="zone: enrolled as zone_a, not as zone_b; expected"):
        enrol(wanted(coordinator), folder, "zone_b", coordinator.token())


def test_second_process_in_the_folder_is_refused(coordinator: Coordinator, folder: Path) -> None:
    folder.mkdir(0o700)
    with alone_in(folder), pytest.raises(RunError, match="another process is at work there"):
        enrol(wanted(coordinator), folder, token=coordinator.token())


def test_own_certificate_that_has_expired_is_told_with_both_times(
    coordinator: Coordinator, folder: Path
) -> None:
    enrol(wanted(coordinator), folder, token=coordinator.token())
    with pytest.raises(SecurityError, match=r"certificate\.pem: expired at .*clock says"):
        load_identity(folder, now=utc_now() + 31 * DAY)


def p256(folder: Path) -> None:
    write_private(folder / "node_key", key_to_openssh(ec.generate_private_key(ec.SECP256R1())))


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "other format": (
        lambda folder: write_private(folder / "node_key", key_to_pem(new_key())),
        "node_key: an EC key on secp384r1 in PKCS #8 format, expected an EC P-384 private key in",
    ),
    "other curve": (
        p256,
        "node_key: an EC key on secp256r1 in OpenSSH format, expected an EC P-38",
    ),
    "readable key": (
        lambda folder: (folder / "node_key").chmod(0o644),
        "node_key: mode 0644, others than its owner have access; expected 0600",
    ),
    "another key": (
        lambda folder: write_private(folder / "node_key", key_to_openssh(new_key())),
        r"node_key: does not match .*certificate\.pem",
    ),
    "no certificate": (
        lambda folder: (folder / "certificate.pem").unlink(),
        r"certificate\.pem: cannot be read: No such file or directory, expected certificates in",
    ),
    "empty CA": (
        lambda folder: (folder / "ca.pem").write_bytes(b""),
        r"ca\.pem: empty, expected certificates in PEM",
    ),
    "half a record": (
        lambda folder: (folder / "zone.json").write_text('{"format"'),
        r"zone\.json: half-written or not ours, expected what an enrolment wrote",
    ),
    "other record": (
        lambda folder: (folder / "zone.json").write_text(json.dumps({"format": 9})),
        r"zone\.json: half-written or not ours",
    ),
    "not enrolled": (
        lambda folder: (folder / "zone.json").unlink(),
        r"zone\.json: cannot be read: No such file",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_one_line_that_names_it(
    name: str, coordinator: Coordinator, folder: Path
) -> None:
    enrol(wanted(coordinator), folder, token=coordinator.token())
    change, message = BAD[name]
    change(folder)
    with pytest.raises(SecurityError, match=message) as raised:
        load_identity(folder)
    assert "\n" not in str(raised.value)
    assert "PRIVATE" not in str(raised.value)


@pytest.mark.parametrize(
    "address",
    ["", "x", "x:", ":1", "x:0", "x:65536", "x:1.5", "a:b:1", "http://x:1", "x:-1", "x:²"],
)
def test_text_that_is_no_address_is_named(address: str) -> None:
    with pytest.raises(SecurityError, match="not an address, expected HOST:PORT"):
        split_address(address)


def test_addresses_are_split() -> None:
    assert split_address("superlink:9099") == ("superlink", 9099)
    assert split_address("[::1]:9099") == ("::1", 9099)


def test_no_secret_is_logged_or_printed(
    coordinator: Coordinator, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = coordinator.token()
    identity = enrol(wanted(coordinator), folder, token=token)
    text = caplog.text + repr(identity) + repr(token)
    assert "PRIVATE KEY" not in text
    assert token.secret not in text
    assert not any(token.secret.encode() in content for content in contents(folder).values())


def test_whole_enrolment_in_a_process_of_its_own(coordinator: Coordinator, folder: Path) -> None:
    code = """
import sys
from pathlib import Path
from zones.enrolment_client import Coordinator, enrol
from zones.join_token import parse_join_token
print(enrol(Coordinator(sys.argv[1]), Path(sys.argv[2]), token=parse_join_token(sys.argv[3])).zone)
assert "flwr" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code, coordinator.address, str(folder), coordinator.token().text()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "zone_a\n"), done.stderr
