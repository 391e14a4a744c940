import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from run_files import RunFiles
from served import BOUND_S, ask, port_of, watching

from dashboard.serving import address_of, listen
from marl_sched.cli import run as run_command

Capture = pytest.CaptureFixture[str]
MAIN = "from marl_sched.cli import main; main()"


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `marl-sched dashboard`; yield the process and the address that it prints."""
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, "dashboard", *arguments, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None, process.stderr and process.stderr.read()
            yield process, found.group()
        finally:
            process.kill()


def refusal(capsys: Capture, *arguments: str) -> str:
    """Return the one line that a command line is refused with."""
    assert run_command(["dashboard", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_a_run_that_does_not_exist_is_named_with_what_to_do(
    tmp_path: Path, capsys: Capture
) -> None:
    error = refusal(capsys, str(tmp_path / "nowhere"))
    assert "nowhere: no such run; make it: marl-sched train CONFIG --out" in error
    assert "--wait" in error


@pytest.mark.parametrize("wait", [[], ["--wait"]])
def test_a_comparison_is_told_from_a_run(wait: list[str], tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "study.yaml").touch()
    (tmp_path / "config.yaml").touch()
    error = refusal(capsys, str(tmp_path), *wait)
    assert "a comparison of many runs (see " in error
    assert f"expected one of those in {tmp_path / 'runs'}" in error


def test_a_folder_without_a_run_is_named(tmp_path: Path, capsys: Capture) -> None:
    assert "no run in it (no config.yaml)" in refusal(capsys, str(tmp_path))


def test_a_file_is_no_run_even_to_wait_for(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "file"
    path.write_text("")
    assert "not a folder" in refusal(capsys, str(path), "--wait")


@pytest.mark.network
def test_a_taken_port_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    run = RunFiles(tmp_path / "run").create()
    with listen("127.0.0.1", 0) as listener:
        port = str(port_of(address_of(listener)))
        error = refusal(capsys, str(run.folder), "--port", port)
    assert f"port {port} of 127.0.0.1 is taken by another program" in error


@pytest.mark.network
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_a_run_that_begins_later_until_it_is_told_to_end(
    tmp_path: Path, number: signal.Signals
) -> None:
    run = RunFiles(tmp_path / "run")
    with (
        started(str(run.folder), "--wait", "--no-baseline") as (process, address),
        watching(address) as stream,
    ):
        assert stream.state()["sections"]["run"]["state"] == "waiting"
        run.create()
        assert stream.until("run")["name"] == "made-up"
        process.send_signal(number)
        assert process.wait(BOUND_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.network
def test_by_default_only_names_of_this_host_are_served(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run").create()
    with started(str(run.folder), "--no-baseline") as (_, address):
        assert ask(address, "/", Host="evil.example")[0] == 403
    with started(str(run.folder), "--no-baseline", "--host", "127.0.0.1") as (_, address):
        assert ask(address, "/", Host="cluster.example")[0] == 200
    local = ("--host", "127.0.0.1", "--local-names")
    with started(str(run.folder), "--no-baseline", *local) as (_, address):
        assert ask(address, "/", Host="cluster.example")[0] == 403
        assert ask(address, "/", Host="127.0.0.1:8080")[0] == 200


@pytest.mark.network
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see children")
def test_kube_default_is_played_last_and_does_not_outlive_a_killed_dashboard(
    tmp_path: Path,
) -> None:
    run = RunFiles(tmp_path / "run")
    training = run.experiment.training.model_copy(update={"validation_episodes": 1_000_000})
    run.experiment = run.experiment.model_copy(update={"training": training})
    run.create()
    with started(str(run.folder)) as (process, address), watching(address) as stream:
        while stream.until("comparison")["state"] != "computing":
            pass
        deadline = time.monotonic() + BOUND_S
        while [os.getpriority(os.PRIO_PROCESS, c) for c in children_of(process.pid)] != [19]:
            assert time.monotonic() < deadline
        (child,) = children_of(process.pid)
        process.kill()
        process.wait(BOUND_S)
    assert ends(child)


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def ends(pid: int) -> bool:
    """Wait for the end of a process that is not our child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], BOUND_S)[0])
    finally:
        os.close(handle)
