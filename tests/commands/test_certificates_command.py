"""`marl-sched certificates`: what it prints, what it refuses, in one line each."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from federation.certificates import open_authority
from federation.join_tokens import JoinTokens
from federation.zone_keys import ZoneKeys
from marl_sched.cli import run
from zones.join_token import parse_join_token
from zones.keys import new_key

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, capsys: Capture) -> Path:
    path = tmp_path / "pki"
    assert run(["certificates", str(path), "--host", "superlink"]) == 0
    capsys.readouterr()
    return path


def test_first_call_makes_all_and_says_what_and_what_next(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "new" / "pki"
    assert run(["certificates", str(path), "--host", "superlink", "--host", "10.0.0.7"]) == 0
    out, err = capsys.readouterr()
    ca, server, following = out.splitlines()
    assert ca.startswith(f"{path}/ca.pem: CN=marl-sched CA ")
    assert server.startswith(f"{path}/server.pem: superlink, localhost, 10.0.0.7, 127.0.0.1, until")
    assert following == f"next: marl-sched certificates {path} --join-token"
    assert err == ""


def test_second_call_changes_nothing(folder: Path) -> None:
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert run(["certificates", str(folder)]) == 0
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_tilde_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["certificates", "~/pki"]) == 0
    assert (tmp_path / "pki" / "ca.pem").exists()
    assert "~" not in capsys.readouterr().out


def test_renewing_says_that_listeners_are_to_be_restarted(folder: Path, capsys: Capture) -> None:
    before = (folder / "server.pem").read_bytes()
    assert run(["certificates", str(folder), "--renew", "--host", "other", "--days", "9"]) == 0
    out = capsys.readouterr().out
    assert f"{folder}/server.pem: other, localhost, 127.0.0.1, until" in out
    assert "next: restart the coordinator" in out
    assert (folder / "server.pem").read_bytes() != before


def test_ca_is_changed_over_step_by_step(folder: Path, capsys: Capture) -> None:
    assert run(["certificates", str(folder), "--renew-ca"]) == 0
    assert capsys.readouterr().out.count("ca.pem: CN=marl-sched CA") == 2
    assert run(["certificates", str(folder), "--retire-ca"]) == 1
    assert "signed by the CA that would be retired" in capsys.readouterr().err
    assert run(["certificates", str(folder), "--renew"]) == 0
    capsys.readouterr()
    assert run(["certificates", str(folder), "--retire-ca"]) == 0
    assert capsys.readouterr().out.count("ca.pem: CN=marl-sched CA") == 1


def test_join_token_is_all_there_is_on_stdout(folder: Path, capsys: Capture) -> None:
    assert run(["certificates", str(folder), "--join-token", "--zone", "zone_b"]) == 0
    out, err = capsys.readouterr()
    token = parse_join_token(out)
    assert token.ca_fingerprint == open_authority(folder).files.load().ca_fingerprint
    assert JoinTokens(folder).find(token.secret).zone == "zone_b"
    assert err == "for a key of zone zone_b, once, within 60 minutes; only its hash is kept\n"
    kept = [p.read_text() for p in folder.rglob("*") if p.is_file()]
    assert not any(token.secret in text for text in kept)


def test_revoking_says_how_the_zone_gets_another_key(folder: Path, capsys: Capture) -> None:
    ZoneKeys(folder).assign(new_key().public_key(), "zone_a", ["zone_a"])
    assert run(["certificates", str(folder), "--revoke", "zone_a"]) == 0
    out = capsys.readouterr().out
    assert re.search("zone_a: its key [0-9a-f]{8} is refused from now on", out)
    assert f"next: marl-sched certificates {folder} --join-token --zone zone_a" in out
    assert len(ZoneKeys(folder).revoked()) == 1


def test_token_for_no_zone_says_that_it_makes_a_free_key(folder: Path, capsys: Capture) -> None:
    assert run(["certificates", str(folder), "--join-token"]) == 0
    assert capsys.readouterr().err.startswith("for a free key, for any zone, once, within 60 min")


def test_keys_of_zones_and_free_ones_are_listed_and_revoked_as_listed(
    folder: Path, capsys: Capture
) -> None:
    keys = ZoneKeys(folder)
    for zone in ("", "zone_b"):
        key = new_key().public_key()
        keys.assign(key, zone, ["zone_a", "zone_b"])
        keys.note_certificate(zone, open_authority(folder).sign_zone(zone, key))
    keys.assign(new_key().public_key(), "zone_a", ["zone_a", "zone_b"])
    assert run(["certificates", str(folder)]) == 0
    listed = capsys.readouterr().out.splitlines()[2:-1]
    patterns = [
        "key [0-9a-f]{8} of zone zone_a, no certificate yet",
        "key [0-9a-f]{8} of zone zone_b, until 20.* UTC",
        "free key [0-9a-f]{8}, until 20.* UTC",
    ]
    assert len(listed) == len(patterns)
    assert all(map(re.fullmatch, patterns, listed))
    label = listed[2].split()[2].rstrip(",")
    assert run(["certificates", str(folder), "--revoke", label]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [
        f"free key {label} is refused from now on",
        f"next: marl-sched certificates {folder} --join-token",
    ]
    assert run(["certificates", str(folder)]) == 0
    out = capsys.readouterr().out
    assert label not in out
    assert "revoked: 1\n" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--renew", "--join-token"], "--renew and --join-token, expected one of them at a time"),
        (["--zone", "zone_a"], "--zone is for --join-token"),
        (["--join-token", "--host", "x"], "--host does not go with --join-token"),
        (["--join-token", "--zone", "../x"], "--zone '../x', expected a zone's name"),
        (["--days", "0"], "Invalid value for '--days'"),
        (["--join-token", "--valid-minutes", "99999"], "Invalid value for '--valid-minutes'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    options: list[str], message: str, folder: Path, capsys: Capture
) -> None:
    assert run(["certificates", str(folder), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "elsewhere"], "server.pem: for superlink, localhost, 127.0.0.1; expected a"),
        (["--host", "a b"], "--host 'a b': not a host, expected a DNS name or an IP address"),
        (["--revoke", "zone_a"], "no key of zone zone_a, expected one of: none has one"),
    ],
)
def test_failure_is_one_line(
    options: list[str], message: str, folder: Path, capsys: Capture
) -> None:
    assert run(["certificates", str(folder), *options]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("action", ["--join-token", "--renew", "--renew-ca", "--retire-ca"])
def test_action_without_a_ca_names_the_folder_and_makes_nothing(
    action: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "none"
    assert run(["certificates", str(path), action]) == 1
    assert f"{path}: no ca.pem in it, expected a folder made by" in capsys.readouterr().err
    assert not path.exists()


def test_folder_of_another_kind_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert run(["certificates", str(tmp_path)]) == 1
    assert "holds notes.txt, expected a new or empty folder" in capsys.readouterr().err


def test_folder_that_cannot_be_made_is_named(capsys: Capture) -> None:
    assert run(["certificates", "/proc/pki"]) == 1
    assert capsys.readouterr().err.startswith("error: /proc/pki: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_token_that_cannot_be_printed_is_one_line(folder: Path) -> None:
    program = Path(sys.executable).with_name("marl-sched")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [str(program), "certificates", str(folder), "--join-token"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: No space left on device"


def test_no_private_key_is_printed_and_all_are_private(folder: Path, capsys: Capture) -> None:
    before = os.umask(0)
    try:
        for action in ([], ["--renew"], ["--renew-ca"], ["--join-token"]):
            assert run(["certificates", str(folder), *action]) == 0
    finally:
        os.umask(before)
    out, err = capsys.readouterr()
    assert "PRIVATE" not in out + err
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*")}
    public = {"ca.pem": 0o644, "server.pem": 0o644}
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == public
