"""Zones that come by token to a live secured run, by the commands: named, spare, replicas."""

import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from federate_process import COMMAND, ZONES, Federate, experiment_of, federate
from superlink import WAIT_S, free_ports, processes

from federation.local_run import train
from marl_sched.cli import run as run_command
from marl_sched.run_folder import RunFolder

pytestmark = [pytest.mark.network, pytest.mark.processes]

NEIGHBOUR = "127.0.0.2"
"""An address of this host that stands for that of another."""
NETWORK = "10.203.77"
END_S = 20.0


@dataclass
class Zones:
    """Processes of `marl-sched zone`, their folders and their logs."""

    folder: Path
    enrolment: str
    start_process: Callable[..., "subprocess.Popen[bytes]"]
    started: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, name: str, *options: str | Path, token: str = "", prefix: str = "") -> None:
        command = [*prefix.split(), *COMMAND, "zone", "--enrol", self.enrolment]
        state = ("--state", self.folder / name, "--wait-s", "60")
        environment = {"MARL_SCHED_JOIN_TOKEN": token} if token else {}
        self.started[name] = self.start_process(
            *command, *state, *options, log=self.log_of(name), **environment
        )

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def said(self, name: str) -> str:
        return self.log_of(name).read_text()

    def ready(self, name: str) -> dict[str, object]:
        try:
            found: dict[str, object] = json.loads((self.folder / name / "ready").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def end(self) -> None:
        """End all that run; each says good-bye and is gone."""
        for process in self.started.values():
            if process.poll() is None:
                process.terminate()
        for name, process in self.started.items():
            if process.poll() != -signal.SIGKILL:
                assert process.wait(END_S) == 0, self.said(name)


@contextmanager
def zones_of(folder: Path, host: str, enrolment_port: int) -> Iterator[Zones]:
    folder.mkdir()
    with processes() as start:
        yield Zones(folder, f"{host}:{enrolment_port}", start)


def options_of(host: str, *more: str | Path) -> tuple[list[str], int]:
    """Return options of a secured run for zones elsewhere, and its enrolment port."""
    fleet, exchange, enrolment = free_ports(3)
    options = ["--secure", "--zones-elsewhere", "--host", host, "--public-host", host]
    ports = ["--fleet-port", fleet, "--exchange-port", exchange, "--enrolment-port", enrolment]
    return [*options, *map(str, ports), *map(str, more)], enrolment


def token_for(pki: Path, zone: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Make a token by the command, as its user does."""
    options = ("--zone", zone) if zone else ()
    assert run_command(["certificates", str(pki), "--join-token", *options]) == 0
    return capsys.readouterr().out.strip()


def rounds_of(run: Federate) -> list[int]:
    return sorted({int(str(line["round"])) for line in run.lines("train")})


def joined(run: Federate) -> list[tuple[object, object]]:
    return [(event["zone"], event["epoch"]) for event in run.events("joined")]


def test_spare_with_a_token_for_any_zone_takes_over_for_a_killed_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n_rounds = 16  # enough for a fault in round 7, few enough for a busy machine
    pki = tmp_path / "pki"
    assert run_command(["certificates", str(pki), "--host", NEIGHBOUR]) == 0
    capsys.readouterr()
    experiment = experiment_of(rounds=n_rounds, episodes_per_round=4)
    options, port = options_of(NEIGHBOUR, "--certificates", pki)
    with (
        federate(tmp_path / "run", experiment, *options) as run,
        zones_of(tmp_path / "zones", NEIGHBOUR, port) as zones,
    ):
        tokens = {zone: token_for(pki, zone, capsys) for zone in (*ZONES, "")}
        claim = token_for(pki, "", capsys)
        for zone in ZONES:
            zones.start(zone, token=tokens[zone])
        run.wait_for(lambda: len(run.events("joined")) == len(ZONES), "zones")
        zones.start("claimant", "--zone", "b", token=claim)
        assert zones.started.pop("claimant").wait(WAIT_S) == 1
        assert "zone b has a key of its own, and this is another" in zones.said("claimant")
        zones.start("spare", token=tokens[""])
        run.wait_for(lambda: "online as node" in zones.said("spare"), "spare")
        run.wait_for_round(run.last_round + random.Random(6).randrange(1, 3))
        run.wait_for(lambda: zones.ready("b").get("state") == "working", "work of zone b")
        zones.started["b"].kill()
        assert run.wait() == 0, run.output
        assert run.nothing_is_left()
        assert rounds_of(run) == list(range(1, n_rounds + 1))
        assert [line["zone"] for line in run.lines("lost")] == ["b"]
        assert joined(run)[len(ZONES) :] == [("b", 2)]
        assert "b: ready, epoch 2" in zones.said("spare")
        last = RunFolder(run.folder).last_checkpoint()
        assert last is not None
        assert (last.zones["b"]["epoch"], last.zones["b"]["last_round"]) == (2, n_rounds)
        zones.end()
        said = run.output + "".join(zones.said(name) for name in zones.started)
        logs = (run.folder / "federation").rglob("*.log")
        said += "".join(path.read_text(errors="replace") for path in logs)
        assert not any(text.partition("-")[0] in said for text in tokens.values())
    assert run_command(["certificates", str(pki)]) == 0
    listed = capsys.readouterr().out
    assert all(f" of zone {zone}, until " in listed for zone in ZONES)
    assert listed.count("free key ") == 2


def test_revoked_zone_is_out_of_a_live_run_at_once_and_a_spare_takes_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n_rounds = 12
    options, port = options_of(NEIGHBOUR)
    experiment = experiment_of(rounds=n_rounds, episodes_per_round=4)
    with (
        federate(tmp_path / "run", experiment, *options) as run,
        zones_of(tmp_path / "zones", NEIGHBOUR, port) as zones,
    ):
        pki = run.folder / "federation" / "pki"
        run.wait_for(lambda: (pki / "server.pem").exists(), "certificates")
        for zone in ZONES:
            zones.start(zone, token=token_for(pki, zone, capsys))
        run.wait_for(lambda: len(run.events("joined")) == len(ZONES), "zones")
        zones.start("spare", token=token_for(pki, "", capsys))
        run.wait_for(lambda: "online as node" in zones.said("spare"), "spare")
        assert run_command(["certificates", str(pki), "--revoke", "c"]) == 0
        run.wait_for(lambda: ("c", 2) in joined(run), "takeover")
        assert "was revoked: its node is put out" in run.output
        run.wait_for(lambda: "SuperLink has forgotten this node" in zones.said("c"), "its end")
        zones.started["c"].kill()
        zones.started["c"].wait(END_S)
        zones.start("c")
        assert zones.started["c"].wait(END_S) == 1
        error = zones.said("c").splitlines()[-1]
        assert error.startswith(f"error: {tmp_path / 'zones' / 'c'}: its key was revoked by")
        assert run.wait() == 0, run.output
        assert rounds_of(run) == list(range(1, n_rounds + 1))
        del zones.started["c"]
        zones.end()


def test_replicas_that_are_started_alike_share_a_folder_of_tokens(tmp_path: Path) -> None:
    n_rounds = 5
    join = tmp_path / "join"
    trained = tmp_path / "trained"
    experiment = experiment_of(rounds=n_rounds)
    train(experiment, trained)
    options, port = options_of(NEIGHBOUR, "--join-folder", join, "--join-tokens", "2")
    with zones_of(tmp_path / "zones", NEIGHBOUR, port) as zones:
        for number in range(len(ZONES)):  # before there is anybody to enrol with, or a folder
            zones.start(f"replica-{number}", "--join-folder", join)
        with federate(tmp_path / "run", experiment, *options) as run:
            assert run.wait() == 0, run.output
            assert run.nothing_is_left()
            assert sorted(joined(run)) == [(zone, 1) for zone in ZONES]
            text = (run.folder / "metrics.jsonl").read_text()
            assert text == (trained / "metrics.jsonl").read_text()
            assert list(join.iterdir()) == []
            pki = run.folder / "federation" / "pki"
            assert len(list((pki / "free").iterdir())) == len(ZONES)
            assert {path.suffix for path in (pki / "tokens").iterdir()} == {".json", ".used"}
            n_used = len(list((pki / "tokens").glob("*.used")))
            assert n_used == len(list((pki / "tokens").glob("*.json"))) == len(ZONES)
        zones.end()


@contextmanager
def namespace() -> Iterator[tuple[str, str]]:
    """Make a network namespace; yield the command that runs a program there, and our address."""
    ip = shutil.which("ip")
    if ip is None or os.geteuid() != 0:
        pytest.skip("only root, with ip, can make a network namespace")
    name = f"zone-{os.getpid()}"
    inner, outer = f"vi{os.getpid() % 100_000}", f"vo{os.getpid() % 100_000}"

    def call(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([ip, *arguments], capture_output=True, text=True, check=False)

    with ExitStack() as stack:
        made = call("netns", "add", name)
        if made.returncode:
            pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
        stack.callback(call, "netns", "delete", name)
        linked = call("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        if linked.returncode:
            pytest.skip(f"no veth pair can be made here: {linked.stderr.strip()}")
        stack.callback(call, "link", "delete", outer)
        for arguments in (
            ("address", "add", f"{NETWORK}.1/24", "dev", outer),
            ("link", "set", outer, "up"),
            ("-n", name, "address", "add", f"{NETWORK}.2/24", "dev", inner),
            ("-n", name, "link", "set", inner, "up"),
            ("-n", name, "link", "set", "lo", "up"),
        ):
            done = call(*arguments)
            assert done.returncode == 0, done.stderr
        yield f"{ip} netns exec {name}", f"{NETWORK}.1"


def test_zone_on_another_host_takes_part_as_one_on_this(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n_rounds = 5
    trained = tmp_path / "trained"
    experiment = experiment_of(rounds=n_rounds)
    train(experiment, trained)
    with namespace() as (inside, host):
        options, port = options_of(host)
        with (
            federate(tmp_path / "run", experiment, *options) as run,
            zones_of(tmp_path / "zones", host, port) as zones,
        ):
            pki = run.folder / "federation" / "pki"
            run.wait_for(lambda: (pki / "server.pem").exists(), "certificates")
            for zone in ZONES:
                prefix = inside if zone == "b" else ""
                zones.start(zone, token=token_for(pki, zone, capsys), prefix=prefix)
            run.wait_for(lambda: len(run.events("joined")) == len(ZONES), "zones")
            pid = zones.started["b"].pid
            assert Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
            assert run.wait() == 0, run.output
            text = (run.folder / "metrics.jsonl").read_text()
            assert text == (trained / "metrics.jsonl").read_text()
            zones.end()
