"""What is wrong from the start, by the commands: one line, all gone, nothing left behind."""

import datetime as dt
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from federate_process import Federate, experiment_of, federate
from pki import DAY, self_signed

from federation.certificates import make_authority, open_authority
from federation.join_tokens import JoinTokens
from marl_sched.cli import run as run_command
from marl_sched.config import dump_config
from zones.chains import certificates_to_pem, utc_now
from zones.join_token import JoinToken
from zones.keys import key_to_pem, new_key, write_private

pytestmark = [pytest.mark.network, pytest.mark.processes]

Capture = pytest.CaptureFixture[str]
ZONE_S = 60.0
"""Longest a zone's process may take to give up."""
MAIN = "from marl_sched.cli import main; main()"
# The same command on a host whose clock is ten minutes behind, or that has another flwr.
LATE_CLOCK = f"""
import time
from types import SimpleNamespace
import zones.enrolment_client as client
# Not the clock of the whole process: gRPC counts its deadlines by it.
client.time = SimpleNamespace(time=lambda: time.time() - 600.0, monotonic=time.monotonic)
{MAIN}
"""
OTHER_FLOWER = f"""
import federation.greeting as greeting, federation.zone_host as host
host.software = lambda: greeting.software().replace("flwr 1.39.0", "flwr 1.38.0")
{MAIN}
"""


def refused(tmp_path: Path, capsys: Capture, *options: str | Path) -> str:
    """Run `federate` here; return its one line, after a look at what it has left."""
    config = tmp_path / "config.yaml"
    config.write_text(dump_config(experiment_of(1)))
    folder = tmp_path / "run"
    code = run_command(["federate", str(config), "--out", str(folder), *map(str, options)])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert (code, len(lines)) == (1, 1)
    assert not folder.exists()
    return lines[0]


def test_folder_without_certificates_is_named(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "pki").mkdir(mode=0o700)
    (tmp_path / "pki" / "ca.pem").write_text("")
    line = refused(tmp_path, capsys, "--secure", "--certificates", tmp_path / "pki")
    assert str(tmp_path / "pki") in line


def test_unreadable_certificate_is_named(tmp_path: Path, capsys: Capture) -> None:
    make_authority(tmp_path / "pki")
    (tmp_path / "pki" / "server.pem").write_text("nonsense")
    line = refused(tmp_path, capsys, "--secure", "--certificates", tmp_path / "pki")
    assert str(tmp_path / "pki" / "server.pem") in line


def test_expired_certificate_that_was_brought_is_named(tmp_path: Path, capsys: Capture) -> None:
    bring(tmp_path / "pki", ["127.0.0.1"], utc_now() - DAY)
    line = refused(tmp_path, capsys, "--secure", "--certificates", tmp_path / "pki")
    assert "expired at" in line


def test_certificate_for_another_host_is_named(tmp_path: Path, capsys: Capture) -> None:
    bring(tmp_path / "pki", ["elsewhere.example.org"])
    line = refused(tmp_path, capsys, "--secure", "--certificates", tmp_path / "pki")
    assert "elsewhere.example.org" in line
    assert "127.0.0.1" in line


def bring(folder: Path, hosts: list[str], expires: dt.datetime | None = None) -> None:
    """Put a server's certificate and its own CA into a folder, as an operator would."""
    folder.mkdir(mode=0o700)
    key = new_key()
    pem = certificates_to_pem((self_signed(key, hosts, expires),))
    for name in ("ca.pem", "server.pem"):
        (folder / name).write_bytes(pem)
    write_private(folder / "server.key", key_to_pem(key))


def test_superlink_that_never_comes_up_is_one_line(tmp_path: Path) -> None:
    with federate(tmp_path / "run", experiment_of(1)) as run:
        run.wait_for(lambda: bool(superlinks(run)), "a SuperLink")
        os.kill(superlinks(run)[0], signal.SIGSTOP)
        assert run.wait() == 1
        errors = [line for line in run.output.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert "superlink: no answer within 60 s" in errors[0]
        assert run.nothing_is_left()


def superlinks(run: Federate) -> list[int]:
    return [pid for pid, command in run.started().items() if "flower-superlink" in command]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federate]:
    """A run in plain text that waits for its zones."""
    with waiting(tmp_path_factory.mktemp("plain") / "run") as run:
        yield run


@contextmanager
def waiting(folder: Path, *options: str) -> Iterator[Federate]:
    """Run `federate` without zones; at its end nothing is left."""
    with federate(folder, experiment_of(3), "--zones-elsewhere", *options) as run:
        run.wait_for(lambda: bool(run.events("waiting")), "a wait for zones")
        yield run
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
        assert run.nothing_is_left()


@dataclass(frozen=True)
class Zone:
    """A zone's process and where it writes."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def refused(self) -> str:
        """Wait for its end; return its one line."""
        assert self.process.wait(ZONE_S) == 1, self.log.read_text()
        said = self.log.read_text()
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, said
        assert "Traceback" not in said
        return errors[0]


@contextmanager
def zone_of(run: Federate, state: Path, *options: str, program: str = MAIN) -> Iterator[Zone]:
    """Start a zone's process, as the run says that it is to be started."""
    found = re.search(r"--(superlink|enrol) (\S+)", run.output)
    assert found is not None
    where = (f"--{found[1]}", found[2]) + (("--insecure",) if found[1] == "superlink" else ())
    log = state.with_suffix(".log")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "zone", *where, *options, "--state", str(state)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        yield Zone(process, log)
    finally:
        process.kill()
        process.wait()


def test_zone_that_the_configuration_does_not_have_is_told_which_there_are(
    plain: Federate, tmp_path: Path
) -> None:
    with zone_of(plain, tmp_path / "x", "--zone", "x") as zone:
        assert "zone x is not in the configuration of run tiny: a, b, c" in zone.refused()


def test_zone_of_another_flower_is_told_both_versions(plain: Federate, tmp_path: Path) -> None:
    with zone_of(plain, tmp_path / "b", "--zone", "b", program=OTHER_FLOWER) as zone:
        line = zone.refused()
    assert "this host has" in line
    assert "flwr 1.38.0" in line
    assert "flwr 1.39.0" in line
    assert not any(event["zone"] == "b" for event in plain.events("joined"))


def test_second_process_for_a_zone_is_told_which_node_is_it(
    plain: Federate, tmp_path: Path
) -> None:
    with zone_of(plain, tmp_path / "first", "--zone", "a") as first:
        plain.wait_for(lambda: "a" in {e["zone"] for e in plain.events("joined")}, "zone a")
        with zone_of(plain, tmp_path / "second", "--zone", "a") as second:
            line = second.refused()
        assert "expected one process a zone" in line
        assert first.process.poll() is None


def test_zone_whose_clock_is_behind_is_told_so(tmp_path: Path) -> None:
    with waiting(tmp_path / "run", "--secure") as run:
        pki = run.folder / "federation" / "pki"
        secret = JoinTokens(pki).create("b", 10)
        token = JoinToken(secret, open_authority(pki).files.load().ca_fingerprint).text()
        options = ("--zone", "b", "--join-token", token)
        with zone_of(run, tmp_path / "b", *options, program=LATE_CLOCK) as zone:
            line = zone.refused()
        assert "clock" in line
        assert not run.events("joined")
