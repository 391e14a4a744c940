"""Strangers at every port of a secured run: real processes, all refused, and the run goes on."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from federate_process import COMMAND, LIMIT_S, ZONES, Federate, experiment_of, federate

from federation.certificates import Authority, make_authority
from federation.join_tokens import JoinTokens
from zones.chains import certificates_to_pem
from zones.join_token import JoinToken
from zones.keys import key_to_pem, load_key, new_key, write_private

pytestmark = [pytest.mark.network, pytest.mark.processes]

STRANGER_S = 60.0
"""Longest a stranger may take to give up; each is told to wait ten seconds at most."""

# Calls whatever is at a port: whoever gets past the handshake is told UNIMPLEMENTED.
KNOCK = """
import sys, grpc
address, *files = sys.argv[1:]
read = [open(name, "rb").read() if name else None for name in files]
channel = (
    grpc.secure_channel(address, grpc.ssl_channel_credentials(*read))
    if files
    else grpc.insecure_channel(address)
)
try:
    channel.unary_unary("/stranger/Knock")(b"", timeout=10)
except grpc.RpcError as error:
    print(error.code().name)
"""


@dataclass
class Run:
    """A secured run, its ports, and a stranger's own CA and keys."""

    federate: Federate
    folder: Path
    ports: dict[str, int]
    other: Authority
    started: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)

    @property
    def pki(self) -> Path:
        return self.federate.folder / "federation" / "pki"

    @property
    def ca(self) -> str:
        return str(self.pki / "ca.pem")

    def at(self, port: str) -> str:
        return f"127.0.0.1:{self.ports[port]}"

    def zone(self, what: str, *options: str, token: str = "") -> None:
        """Start a zone's process that should not get in."""
        state = self.folder / f"stranger-{len(self.started)}"
        command = [*COMMAND, "zone", *options, "--state", str(state), "--wait-s", "10"]
        self._start(what, command, {"MARL_SCHED_JOIN_TOKEN": token} if token else {})

    def knock(self, what: str, port: str, *files: str) -> None:
        """Start a process that calls a port with CA, key and certificate, or in plain text."""
        self._start(
            what, [sys.executable, "-c", KNOCK, self.at(port), *files], {"GRPC_VERBOSITY": "NONE"}
        )

    def ends(self) -> dict[str, tuple[int, str]]:
        """Wait for all strangers; return exit codes and what they have said."""
        found = {}
        for what, process in self.started.items():
            said, _ = process.communicate(timeout=STRANGER_S)
            found[what] = (process.returncode, said)
        return found

    def _start(self, what: str, command: list[str], env: dict[str, str]) -> None:
        self.started[what] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **env},
        )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One run for all strangers."""
    folder = tmp_path_factory.mktemp("secured")
    names = ("fleet", "exchange", "enrolment", "control")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    options = [text for name in names for text in (f"--{name}-port", str(ports[name]))]
    experiment = experiment_of(rounds=5000, episodes_per_round=4)
    other = make_authority(folder / "other")
    with federate(folder / "run", experiment, "--secure", *options) as started:
        started.wait_for_round(1)
        yield Run(started, folder, ports, other)
        started.process.send_signal(signal.SIGINT)
        assert started.wait() == 130
        assert started.nothing_is_left()


@pytest.fixture
def run(shared: Run, tmp_path: Path) -> Iterator[Run]:
    """The run, with strangers of this test alone."""
    started = replace(shared, folder=tmp_path, started={})
    started.federate._deadline = time.monotonic() + LIMIT_S
    try:
        yield started
    finally:
        for process in started.started.values():
            process.kill()
            process.communicate()


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def credentials_of(authority: Authority, folder: Path, zone: str = "b") -> tuple[str, str]:
    """Write a key and a certificate for a zone that an authority has signed; return the paths."""
    key = new_key()
    folder.mkdir()
    write_private(folder / "key.pem", key_to_pem(key))
    chain = certificates_to_pem((authority.sign_zone(zone, key.public_key()),))
    (folder / "certificate.pem").write_bytes(chain)
    return str(folder / "key.pem"), str(folder / "certificate.pem")


def require_untouched(run: Run) -> None:
    """The run goes on with the zones that it had, and has lost nothing."""
    number = run.federate.last_round + 2
    run.federate.wait_for_round(number)
    last = [line for line in run.federate.lines("train") if line["round"] == number]
    assert [(line["zone"], line["attempt"]) for line in last] == [(zone, 1) for zone in ZONES]
    assert sorted(str(x["zone"]) for x in run.federate.events("joined")) == list(ZONES)
    for kind in ("lost", "left", "refused", "problem"):
        assert not run.federate.events(kind)
    assert len(list((run.pki / "zones").glob("*"))) == len(ZONES)


def test_strangers_at_the_fleet_port_are_refused(run: Run) -> None:
    link = ("--superlink", run.at("fleet"))
    run.zone("plain", *link, "--insecure")
    run.zone("other CA", *link, "--ca", str(run.other.files.ca))
    run.zone("unregistered key", *link, "--ca", run.ca)
    ends = run.ends()
    assert {code for code, _ in ends.values()} == {1}, ends
    assert "speaks TLS, expected plain text with --insecure" in ends["plain"][1]
    assert str(run.other.files.ca) in ends["other CA"][1]
    assert "it is not registered with the SuperLink" in ends["unregistered key"][1]
    assert all("Traceback" not in said for _, said in ends.values())
    require_untouched(run)


def test_strangers_at_the_enrolment_port_are_refused(run: Run) -> None:
    enrol = ("--enrol", run.at("enrolment"))
    run.zone("no token", *enrol, "--ca", run.ca)
    run.zone("other CA", *enrol, "--ca", str(run.other.files.ca))
    secret = JoinTokens(run.other.folder).create("", 60)
    token = JoinToken(secret, run.other.files.load().ca_fingerprint).text()
    run.zone("token of another", *enrol, token=token)
    run.zone("unknown token", *enrol, "--ca", run.ca, token=token)
    run.knock("plain", "enrolment")
    ends = run.ends()
    assert ends.pop("plain") == (0, "UNAVAILABLE\n")
    assert {code for code, _ in ends.values()} == {1}, ends
    for what in ("no token", "unknown token"):
        assert "enrolment refused" in ends[what][1]
    assert str(run.other.files.ca) in ends["other CA"][1]
    assert "has another CA than the one the join token names" in ends["token of another"][1]
    assert all("Traceback" not in said for _, said in ends.values())
    assert "refused: unknown token" in run.federate.output
    require_untouched(run)


def test_strangers_at_the_exchange_and_control_ports_are_refused(run: Run) -> None:
    other_ca = str(run.other.files.ca)
    forged = credentials_of(run.other, run.folder / "forged")
    run.knock("exchange, plain", "exchange")
    run.knock("exchange, other CA", "exchange", other_ca, *forged)
    run.knock("exchange, no certificate", "exchange", run.ca)
    run.knock("exchange, certificate of another CA", "exchange", run.ca, *forged)
    run.knock("control, plain", "control")
    run.knock("control, other CA", "control", other_ca)
    ends = run.ends()
    assert set(ends.values()) == {(0, "UNAVAILABLE\n")}, ends
    # The same call from one who is known gets through: it is not the call that is refused.
    zone = run.federate.folder / "federation" / "zones" / "b"
    key = run.folder / "key.pem"
    write_private(key, key_to_pem(load_key(zone / "node_key", is_node_key=True)))
    run.started.clear()
    run.knock("a zone", "exchange", run.ca, str(key), str(zone / "certificate.pem"))
    assert run.ends()["a zone"] == (0, "UNIMPLEMENTED\n")
    require_untouched(run)
