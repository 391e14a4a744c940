"""What Linux says of processes, from files that were made up and from a real process."""

import subprocess
import sys
from pathlib import Path

import pytest

from federation.scaling.processes import usage_by_name


def add(proc: Path, pid: int, parent: int, ticks: int, peak_kib: int, state: str = "S") -> None:
    """Write a process that was in user mode for some ticks, and in a child's for one."""
    folder = proc / str(pid)
    folder.mkdir()
    numbers = [0] * 40
    numbers[0], numbers[10], numbers[12] = parent, ticks, 1
    (folder / "stat").write_text(f"{pid} (a (b) c) {state} {' '.join(map(str, numbers))}\n")
    (folder / "status").write_text(f"Name: x\nVmHWM:\t{peak_kib} kB\n")


def test_what_a_process_has_started_counts_as_its_own(tmp_path: Path) -> None:
    add(tmp_path, 10, 1, 100, 2048)
    add(tmp_path, 11, 10, 50, 1024)
    add(tmp_path, 12, 11, 25, 1024)
    add(tmp_path, 99, 1, 7000, 9999)
    found = usage_by_name({"zone-a": 10}, tmp_path)
    assert found["zone-a"].cpu_s == pytest.approx((175 + 3) / 100)
    assert found["zone-a"].peak_mib == pytest.approx(4.0)


def test_what_the_superexec_has_started_is_the_serverapp(tmp_path: Path) -> None:
    add(tmp_path, 20, 1, 10, 1024)
    add(tmp_path, 21, 20, 300, 2048)
    found = usage_by_name({"superexec": 20}, tmp_path)
    assert found["superexec"].cpu_s == pytest.approx(0.11)
    assert found["serverapp"].cpu_s == pytest.approx(3.01)


def test_of_ended_processes_nothing_is_said(tmp_path: Path) -> None:
    add(tmp_path, 30, 1, 10, 1024, state="Z")
    assert usage_by_name({"zone-a": 30, "zone-b": 31}, tmp_path) == {}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux has /proc")
def test_a_real_process_is_found() -> None:
    code = "sum(range(3_000_000)); print('done', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        found = usage_by_name({"it": process.pid})["it"]
        process.communicate(b"\n", timeout=30)
    assert found.cpu_s > 0
    assert found.peak_mib > 3
