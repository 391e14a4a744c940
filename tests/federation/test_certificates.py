"""The CA's folder: how it is made, what is refused, and real handshakes with what it makes."""

import datetime as dt
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from pki import DAY, call_echo, self_signed, serve_echo

from federation.certificates import (
    Authority,
    change_authority,
    make_authority,
    open_authority,
)
from federation.server_tls import ServerFiles, ServerTls
from marl_sched.errors import SecurityError
from zones.chains import certificates_to_pem, load_certificates, names_of, utc_now
from zones.keys import key_to_pem, load_key, new_key, write_private, write_public

Change = Callable[[Path], object]
NOW = utc_now()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pki"


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def renew(folder: Path, *hosts: str) -> Authority:
    return change_authority(folder, lambda found: found.renew_server(hosts), hosts)


@pytest.mark.usefixtures("open_umask")
def test_private_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "pki"
    make_authority(folder)
    renew(folder)
    assert modes(folder) == {
        "ca.pem": 0o644,
        "ca.key": 0o600,
        "server.pem": 0o644,
        "server.key": 0o600,
        "superexec.secret": 0o600,
    }
    assert [stat.S_IMODE(p.stat().st_mode) for p in (folder, folder.parent)] == [0o700, 0o700]


@pytest.mark.usefixtures("open_umask")
def test_secret_is_never_readable_by_others_while_it_is_written(tmp_path: Path) -> None:
    """The trace of a new process shows every file that is opened to be created, with its mode."""
    code = """
import os, sys
from pathlib import Path
seen = []
def watch(event, args):
    if event == "open" and args[1] is None and args[2] & os.O_CREAT:
        seen.append(str(args[0]))
    assert event != "os.chmod", args
sys.addaudithook(watch)
real = os.open
def opening(path, flags, mode=0o777, **more):
    if flags & os.O_CREAT:
        assert mode == (0o644 if ".pem" in str(path) else 0o600), (path, oct(mode))
        assert flags & os.O_EXCL
    return real(path, flags, mode, **more)
os.open = opening
from federation.certificates import make_authority
make_authority(Path(sys.argv[1]))
print(len([path for path in seen if path.startswith(sys.argv[1])]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "pki")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "5"), done.stderr


def test_made_again_nothing_changes(folder: Path) -> None:
    make_authority(folder, ["coordinator"])
    before = contents(folder)
    make_authority(folder, ["coordinator"])
    make_authority(folder)
    open_authority(folder)
    assert contents(folder) == before


def test_server_certificate_is_for_the_hosts_and_for_loopback(folder: Path) -> None:
    authority = make_authority(folder, ["superlink", "10.1.2.3", "fd00::7", "localhost"])
    names = names_of(load_certificates(authority.files.certificate)[0])
    assert sorted(names) == ["10.1.2.3", "127.0.0.1", "fd00::7", "localhost", "superlink"]
    authority.files.load(["SuperLink", "fd00:0::7", "127.0.0.1"])


def test_renewing_keeps_the_ca_and_the_names(folder: Path) -> None:
    make_authority(folder, ["superlink"])
    before = contents(folder)
    renew(folder).files.load(["superlink"])
    after = contents(folder)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"server.pem", "server.key"}


def test_renewing_with_hosts_replaces_the_names(folder: Path) -> None:
    make_authority(folder, ["old"])
    names = names_of(load_certificates(renew(folder, "new").files.certificate)[0])
    assert "new" in names
    assert "old" not in names


def test_expired_server_certificate_is_renewed(folder: Path) -> None:
    make_authority(folder, days=1, now=NOW - 2 * DAY)
    with pytest.raises(SecurityError, match=r"server\.pem: expired at .*--renew"):
        open_authority(folder)
    renew(folder)
    open_authority(folder)


def test_leaf_is_not_valid_longer_than_its_ca(folder: Path) -> None:
    authority = make_authority(folder, days=9999)
    leaf = load_certificates(authority.files.certificate)[0]
    ca = load_certificates(authority.files.ca)[0]
    assert leaf.not_valid_after_utc == ca.not_valid_after_utc


def test_changeover_of_the_ca(folder: Path) -> None:
    """Old zones and new ones are served at every step, until the old CA is retired."""
    authority = make_authority(folder)
    old_zone = authority.sign_zone("zone_a", new_key().public_key())
    old_root = load_certificates(authority.files.ca)[0]
    first = authority.files.load()
    change_authority(folder, Authority.renew_ca)
    assert len(load_certificates(authority.files.ca)) == 2
    assert authority.files.load().ca_fingerprint == first.ca_fingerprint
    with pytest.raises(SecurityError, match="a changeover is under way"):
        change_authority(folder, Authority.renew_ca)
    with pytest.raises(SecurityError, match="signed by the CA that would be retired"):
        change_authority(folder, Authority.retire_ca)
    renew(folder)
    assert authority.files.load().ca_fingerprint != first.ca_fingerprint
    assert old_root in load_certificates(authority.files.ca)
    change_authority(folder, Authority.retire_ca)
    (new_root,) = load_certificates(open_authority(folder).files.ca)
    assert new_root != old_root
    assert old_zone.issuer == old_root.subject != new_root.subject


@pytest.mark.parametrize("step", [1, 2, 3])
def test_replacement_that_was_cut_off_is_finished_or_undone(
    step: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_authority(folder, ["superlink"])
    done = 0
    replace_file = Path.replace

    def replacing(self: Path, target: Path) -> Path:
        nonlocal done
        done += 1
        if done == step:
            raise KeyboardInterrupt
        return replace_file(self, target)

    monkeypatch.setattr(Path, "replace", replacing)
    with pytest.raises(KeyboardInterrupt):
        renew(folder)
    monkeypatch.undo()
    make_authority(folder, ["superlink"])
    assert set(contents(folder)) == {
        "ca.pem",
        "ca.key",
        "server.pem",
        "server.key",
        "superexec.secret",
    }


def test_ca_is_not_made_over_what_is_left_of_another(folder: Path) -> None:
    make_authority(folder)
    (folder / "ca.pem").unlink()
    before = contents(folder)
    with pytest.raises(SecurityError, match=r"ca\.key: no ca\.pem beside it, expected both"):
        make_authority(folder)
    assert contents(folder) == before


def test_without_the_ca_key_all_goes_on_but_making_certificates(folder: Path) -> None:
    make_authority(folder)
    (folder / "ca.key").unlink()
    authority = open_authority(folder)
    make_authority(folder)
    missing = r"ca\.key: no such file, expected the CA's private key"
    with pytest.raises(SecurityError, match=missing):
        renew(folder)
    with pytest.raises(SecurityError, match=missing):
        authority.sign_zone("zone_a", new_key().public_key())


def test_brought_ca_signs_the_rest(folder: Path) -> None:
    folder.mkdir(0o700)
    key = new_key()
    write_public(folder / "ca.pem", certificates_to_pem([self_signed(key, ["ca"])]))
    write_private(folder / "ca.key", key_to_pem(key))
    make_authority(folder, ["superlink"]).files.load(["superlink"])
    assert load_key(folder / "ca.key").public_key() == key.public_key()


def test_brought_server_certificate_is_read_from_where_it_is(folder: Path, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "company", ["superlink"])
    files = ServerFiles(tmp_path / "a.pem", tmp_path / "b.pem", tmp_path / "c.pem")
    for source, target in zip(
        (other.files.ca, other.files.certificate, other.files.key),
        (files.ca, files.certificate, files.key),
        strict=True,
    ):
        write_private(target, source.read_bytes())
    assert files.load(["superlink"]).ca == other.roots()


def test_folder_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(SecurityError, match=r"holds thesis\.tex, expected a new or empty folder"):
        make_authority(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_folder_that_others_may_write_to_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(SecurityError, match="mode 0770, others may write to it; expected 0700"):
        make_authority(folder)


def test_file_in_place_of_the_folder_is_named(folder: Path) -> None:
    folder.write_text("x")
    with pytest.raises(SecurityError, match="pki: a file, expected a folder"):
        make_authority(folder)


def test_folder_without_a_ca_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match=r"no ca\.pem in it, expected a folder made by"):
        open_authority(tmp_path)


@pytest.mark.parametrize(
    "host", ["", "a b", "https://x", "x:9092", "-x", "x" * 64, "ü.de", "a" * 200 + "!"]
)
def test_host_that_is_none_is_named_and_nothing_is_made(host: str, folder: Path) -> None:
    with pytest.raises(SecurityError, match="not a host, expected a DNS name or an IP address"):
        make_authority(folder, [host])
    assert not folder.exists()


def put(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def put_key(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey,
    password: bytes | None = None,
) -> Change:
    encryption = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password)
    )
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    return put("server.key", content)


def folder_instead(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def pipe_instead(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name, 0o600)

    return change


def stranger_ca(folder: Path) -> None:
    write_public(folder / "ca.pem", certificates_to_pem([self_signed(new_key(), ["ca"])]))
    (folder / "ca.key").unlink()


def zone_certificate(folder: Path) -> None:
    key = load_key(folder / "server.key")
    certificate = Authority(folder).sign_zone("zone_a", key.public_key())
    write_public(folder / "server.pem", certificates_to_pem([certificate]))


BAD: dict[str, tuple[Change, str]] = {
    "missing": (
        lambda folder: (folder / "server.pem").unlink(),
        r"server\.pem: cannot be read: No such file or directory, expected certificates in PEM",
    ),
    "missing key": (
        lambda folder: (folder / "server.key").unlink(),
        r"server\.key: cannot be read: No such file",
    ),
    "missing secret": (
        lambda folder: (folder / "superexec.secret").unlink(),
        r"superexec\.secret: cannot be read: No such file",
    ),
    "folder": (folder_instead("server.pem"), r"server\.pem: a folder, expected certificates"),
    "named pipe": (pipe_instead("server.key"), r"server\.key: not a regular file, expected an EC"),
    "empty": (put("server.pem", b""), r"server\.pem: empty, expected certificates in PEM"),
    "empty key": (put("server.key", b""), r"server\.key: empty, expected an EC private key"),
    "not PEM": (put("server.pem", b"hello"), r"server\.pem: not a certificate, expected cert"),
    "binary": (put("ca.pem", b"\xff\x00" * 99), r"ca\.pem: not a certificate, expected cert"),
    "huge": (put("ca.pem", b"x" * 99999), r"ca\.pem: more than 65536 bytes, expected cert"),
    "key not PEM": (put("server.key", b"hello"), r"server\.key: not a private key in PEM"),
    "RSA key": (
        put_key(rsa.generate_private_key(65537, 2048)),
        r"server\.key: a key of type RSA, expected an EC private key in PEM, not encrypted",
    ),
    "Ed25519 key": (
        put_key(ed25519.Ed25519PrivateKey.generate()),
        r"server\.key: a key of type Ed25519, expected an EC",
    ),
    "other curve": (
        put_key(ec.generate_private_key(ec.SECP521R1())),
        r"server\.key: an EC key on secp521r1, expected .* on P-256 or P-384",
    ),
    "encrypted key": (
        put_key(new_key(), b"secret"),
        r"server\.key: an encrypted key, expected an EC private key in PEM, not encrypted",
    ),
    "key of another": (put_key(new_key()), r"server\.key: does not match .*server\.pem"),
    "CA key of another": (
        lambda folder: write_private(folder / "ca.key", key_to_pem(new_key())),
        r"ca\.key: does not match .*ca\.pem",
    ),
    "readable key": (
        lambda folder: (folder / "server.key").chmod(0o640),
        r"server\.key: mode 0640, others than its owner have access; expected 0600 \(chmod 600",
    ),
    "readable CA key": (
        lambda folder: (folder / "ca.key").chmod(0o604),
        r"ca\.key: mode 0604, others than its owner have access; expected 0600",
    ),
    "other CA": (stranger_ca, r"server\.pem: not signed by the CA of .*ca\.pem, expected"),
    "a zone's certificate": (zone_certificate, r"server\.pem: not made for this use"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_one_line_that_names_it(name: str, folder: Path) -> None:
    make_authority(folder)
    change, message = BAD[name]
    change(folder)
    with pytest.raises(SecurityError, match=message) as raised:
        open_authority(folder)
    assert "\n" not in str(raised.value)
    assert "PRIVATE KEY" not in str(raised.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_key_of_another_user_is_refused(folder: Path) -> None:
    make_authority(folder)
    os.chown(folder / "server.key", 12345, -1)
    with pytest.raises(SecurityError, match=r"server\.key: belongs to user 12345, expected 0"):
        open_authority(folder)


def test_unreadable_file_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = make_authority(folder)
    opening = os.open

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith("server.key"):
            raise PermissionError(13, "Permission denied")
        return opening(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SecurityError, match=r"server\.key: cannot be read: Permission denied"):
        authority.files.load()


def test_disk_that_is_full_is_named_and_leaves_the_old_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_authority(folder)
    before = contents(folder)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*server\.key"):
        renew(folder)
    assert contents(folder) == before


def test_clock_that_is_behind_is_told_with_both_times(folder: Path) -> None:
    authority = make_authority(folder)
    first = load_certificates(authority.files.ca)[0].not_valid_before_utc
    clock = first - dt.timedelta(minutes=1)
    with pytest.raises(SecurityError) as raised:
        authority.files.load(now=clock)
    assert f"not valid before {first:%Y-%m-%d %H:%M:%S} UTC" in str(raised.value)
    assert f"this host's clock says {clock:%Y-%m-%d %H:%M:%S} UTC" in str(raised.value)


def test_clock_may_be_a_little_behind(folder: Path) -> None:
    found = make_authority(folder).files.load(now=utc_now() - dt.timedelta(minutes=9))
    assert isinstance(found, ServerTls)


def test_other_host_is_told_with_those_that_are_named(folder: Path) -> None:
    message = r"server\.pem: for superlink, localhost, 127\.0\.0\.1; expected a certificate for x"
    with pytest.raises(SecurityError, match=message):
        make_authority(folder, ["superlink"]).files.load(["x"])


def test_ca_that_has_expired_is_named(folder: Path) -> None:
    authority = make_authority(folder, days=9999)
    with pytest.raises(SecurityError, match=r"ca\.pem: expired at "):
        authority.files.load(now=NOW + 3651 * DAY)


# Handshakes.


@pytest.mark.network
def test_server_certificate_is_accepted_by_name_and_by_address(folder: Path) -> None:
    tls = make_authority(folder).files.load()
    credentials = grpc.ssl_channel_credentials(tls.ca)
    with serve_echo(tls.credentials()) as address:
        assert call_echo(address, credentials) == b""
        assert call_echo(address.replace("127.0.0.1", "localhost"), credentials) == b""


@pytest.mark.network
def test_caller_refuses_the_server_of_another_ca(folder: Path, tmp_path: Path) -> None:
    tls = make_authority(folder).files.load()
    other = make_authority(tmp_path / "other").roots()
    with serve_echo(tls.credentials()) as address:
        with pytest.raises(grpc.RpcError) as raised:
            call_echo(address, grpc.ssl_channel_credentials(other))
        assert "CERTIFICATE_VERIFY_FAILED" in str(raised.value)


@pytest.mark.network
def test_expired_server_certificate_is_refused(folder: Path) -> None:
    authority = make_authority(folder, days=1, now=NOW - 2 * DAY)
    tls = authority.files.load(now=NOW - 2 * DAY)
    with serve_echo(tls.credentials()) as address:
        with pytest.raises(grpc.RpcError) as raised:
            call_echo(address, grpc.ssl_channel_credentials(tls.ca))
        assert "certificate has expired" in str(raised.value)


@pytest.mark.network
def test_mutual_tls_lets_a_zone_in_and_shows_its_certificate(folder: Path) -> None:
    authority = make_authority(folder)
    tls = authority.files.load()
    key = new_key()
    pem = certificates_to_pem([authority.sign_zone("zone_a", key.public_key())])
    zone = grpc.ssl_channel_credentials(tls.ca, key_to_pem(key), pem)
    with serve_echo(tls.credentials(client_ca=authority.roots())) as address:
        assert call_echo(address, zone).strip() == pem.strip()


def no_certificate(authority: Authority) -> tuple[bytes, bytes] | None:
    return None


def of_a_stranger(authority: Authority) -> tuple[bytes, bytes]:
    key = new_key()
    return key_to_pem(key), certificates_to_pem([self_signed(key, ["zone_a"])])


def expired(authority: Authority) -> tuple[bytes, bytes]:
    key = new_key()
    certificate = authority.sign_zone("zone_a", key.public_key(), days=1, now=NOW - 2 * DAY)
    return key_to_pem(key), certificates_to_pem([certificate])


def of_the_server(authority: Authority) -> tuple[bytes, bytes]:
    return authority.files.key.read_bytes(), authority.files.certificate.read_bytes()


@pytest.mark.network
@pytest.mark.parametrize("shown", [no_certificate, of_a_stranger, expired, of_the_server])
def test_mutual_tls_refuses(
    shown: Callable[[Authority], tuple[bytes, bytes] | None], folder: Path
) -> None:
    authority = make_authority(folder, now=NOW - 3 * DAY)
    tls = authority.files.load()
    pair = shown(authority)
    caller = grpc.ssl_channel_credentials(tls.ca, *(pair or ()))
    with serve_echo(tls.credentials(client_ca=authority.roots())) as address:
        with pytest.raises(grpc.RpcError) as raised:
            call_echo(address, caller)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.network
def test_zone_cannot_pass_for_the_coordinator(folder: Path) -> None:
    authority = make_authority(folder)
    key = new_key()
    pem = certificates_to_pem([authority.sign_zone("localhost", key.public_key())])
    tls = replace(authority.files.load(), certificate=pem, key=key_to_pem(key))
    with serve_echo(tls.credentials()) as address:
        with pytest.raises(grpc.RpcError) as raised:
            call_echo(
                address.replace("127.0.0.1", "localhost"), grpc.ssl_channel_credentials(tls.ca)
            )
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_private_key_is_not_in_what_is_printed(folder: Path) -> None:
    tls = make_authority(folder).files.load()
    assert b"PRIVATE KEY" in tls.key
    assert "PRIVATE KEY" not in repr(tls)
