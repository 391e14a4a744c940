"""Three zones killed in one run, a zone that was stopped past its lease, and a full disk."""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from federate_process import COMMAND, ZONES, Federate, experiment_of, federate

from federation.fleet_link import LEASE_S
from marl_sched.run_folder import RunFolder

pytestmark = [pytest.mark.network, pytest.mark.processes]
TMPFS_MIB = 64
FULL_S = 75.0
"""Longest a run may take to end on a full disk."""


def rounds_of(run: Federate) -> list[int]:
    return sorted({int(str(line["round"])) for line in run.lines("train")})


def test_three_zones_killed_in_one_run_and_it_ends_with_all_rounds(tmp_path: Path) -> None:
    chance = random.Random(20)
    zones = chance.sample(ZONES, len(ZONES))
    moments = sorted(chance.sample(range(1, 9), len(ZONES)))
    n_rounds = 12
    with federate(tmp_path / "run", experiment_of(rounds=n_rounds, episodes_per_round=8)) as run:
        for zone, moment in zip(zones, moments, strict=True):
            run.wait_for_round(moment)
            pid = run.wait_until_working(zone)
            time.sleep(chance.uniform(0.0, 0.05))
            os.kill(pid, signal.SIGKILL)
        assert run.wait() == 0, run.output
        assert run.nothing_is_left()
        assert rounds_of(run) == list(range(1, n_rounds + 1))
        lost = run.lines("lost")
        assert {line["zone"] for line in lost} == set(ZONES)
        assert len({line["round"] for line in lost if line["zone"] in zones}) >= len(ZONES)
        for line in lost:
            assert f"lost zone {line['zone']} in round {line['round']}: " in run.output
        for zone in ZONES:
            assert f"zone-{zone} died: killed by SIGKILL" in run.output


def test_zone_stopped_past_its_lease_comes_back_against_the_spare_that_took_over(
    tmp_path: Path,
) -> None:
    port = free_port()
    experiment = experiment_of(rounds=100_000, episodes_per_round=4)
    moment = random.Random(4).randrange(1, 5)
    with ExitStack() as stack:
        run = stack.enter_context(federate(tmp_path / "run", experiment, "--fleet-port", str(port)))
        run.wait_for(lambda: len(run.events("joined")) == len(ZONES), "zones")
        log = stack.enter_context(spare(tmp_path, port))  # earlier, it would be a zone itself
        run.wait_for(lambda: "online as node" in log.read_text(), "spare")
        run.wait_for_round(run.last_round + moment)
        old = run.wait_until_working("b")
        os.kill(old, signal.SIGSTOP)
        stopped = time.monotonic()
        run.wait_for(lambda: len(run.events("joined")) > len(ZONES), "takeover")
        joined = run.events("joined")[-1]
        assert (joined["zone"], joined["epoch"]) == ("b", 2)
        other = run.wait_until_working("c")
        while time.monotonic() - stopped < LEASE_S + 2:  # slowly, or the run would be over before
            os.kill(other, signal.SIGSTOP)
            time.sleep(1.0)
            os.kill(other, signal.SIGCONT)
            time.sleep(0.1)
        # What it was at is void: the order is of an epoch that the spare has ended.
        assert [line["zone"] for line in run.lines("lost")] == ["b"]
        os.kill(old, signal.SIGCONT)
        run.wait_for(lambda: len(run.events("joined")) > len(ZONES) + 1, "return")
        joined = run.events("joined")[-1]
        assert (joined["zone"], joined["epoch"]) == ("b", 3)
        run.wait_for_round(run.last_round + 2)
        # Whether it had begun, or was about to send: nothing of its attempt counts.
        void = run.lines("lost")[0]["round"]
        attempts = [line["attempt"] for line in run.lines("train") if line["round"] == void]
        assert set(attempts) == {2}
        # It was started for this zone, so it is that again, and the spare a spare.
        assert len(run.events("joined")) == len(ZONES) + 2
        assert [line["zone"] for line in run.lines("lost")] == ["b"]
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130, run.output
        assert run.nothing_is_left()
        last = RunFolder(run.folder).last_checkpoint()
        assert last is not None
        assert rounds_of(run)[: last.round_number] == list(range(1, last.round_number + 1))
        assert (last.zones["b"]["epoch"], last.zones["b"]["last_round"]) == (3, last.round_number)
        assert "b: ready, epoch 2" in log.read_text()
        assert "zone-b died: " not in run.output
        assert "lost zone b in round " in run.output


def test_full_disk_ends_the_run_in_a_line_and_it_can_be_resumed(tmp_path: Path) -> None:
    n_rounds = 12
    moment = random.Random(7).randrange(2, 7)
    with (
        small_disk(tmp_path / "run") as disk,
        federate(disk, experiment_of(rounds=n_rounds, episodes_per_round=4)) as run,
    ):
        run.wait_for_round(moment)
        filler, begun = disk / "filler", time.monotonic()
        while run.process.poll() is None:  # what deleted files leave is taken too
            assert time.monotonic() - begun < FULL_S, run.output
            fill(filler)
            time.sleep(0.05)
        assert run.wait() == 1, run.output
        assert run.nothing_is_left()
        errors = [line for line in run.output.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, run.output
        assert "No space left on device" in errors[0]
        assert "Traceback" not in run.output
        committed = RunFolder(disk).last_checkpoint()
        assert committed is not None
        assert moment <= committed.round_number < n_rounds
        filler.unlink()
        run.resume()
        assert run.wait() == 0, run.output
        assert rounds_of(run) == list(range(1, n_rounds + 1))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def spare(folder: Path, port: int) -> Iterator[Path]:
    """A zone's process that is for no zone in particular; its log."""
    path = folder / "spare.log"
    command = [*COMMAND, "zone", "--superlink", f"127.0.0.1:{port}", "--insecure"]
    with path.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--state", str(folder / "spare")], stdout=log, stderr=log
        )
    try:
        yield path
    finally:
        process.kill()
        process.wait()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own at a folder."""
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("there is no mount here")
    command = [mount, "-t", "tmpfs", "-o", f"size={TMPFS_MIB}m", "tmpfs", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Let a file take all that is free."""
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
