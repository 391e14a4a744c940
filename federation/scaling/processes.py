"""CPU seconds and memory of processes, as Linux counts them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM, _CHILD_USER, _CHILD_SYSTEM = 1, 11, 12, 13, 14
"""Fields of /proc/PID/stat, counted from the state on."""
SERVERAPP, SUPEREXEC = "serverapp", "superexec"


@dataclass(frozen=True)
class Usage:
    """What a process has used.

    Attributes:
        cpu_s: CPU seconds, those of its ended children included.
        peak_mib: The most memory it has had.
    """

    cpu_s: float
    peak_mib: float


def usage_by_name(pids: Mapping[str, int], proc: Path = _PROC) -> dict[str, Usage]:
    """Return what processes and all that they have started have used.

    What the SuperExec has started is the ServerApp, and is named so.

    Args:
        pids: Process ids by name; of those that have ended nothing is said.
        proc: Where Linux shows processes.
    """
    stats = _stats(proc)
    found: dict[str, Usage] = {}
    for name, pid in pids.items():
        below = _below(pid, stats)
        if name == SUPEREXEC:
            found |= _usage(SERVERAPP, below, stats, proc)
            below = []
        found |= _usage(name, [pid, *below], stats, proc)
    return found


def _usage(
    name: str, pids: list[int], stats: Mapping[int, list[int]], proc: Path
) -> dict[str, Usage]:
    alive = [pid for pid in pids if pid in stats]
    if not alive:
        return {}
    fields = (_USER, _SYSTEM, _CHILD_USER, _CHILD_SYSTEM)
    ticks = sum(stats[pid][field] for pid in alive for field in fields)
    return {name: Usage(ticks / _TICKS, sum(_peak_kib(pid, proc) for pid in alive) / 1024)}


def _stats(proc: Path) -> dict[int, list[int]]:
    """Return the numbers of every process's stat, 0 for the state, from the state on."""
    found = {}
    for path in proc.glob("[0-9]*/stat"):
        try:
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError:  # it has ended
            continue
        state, *numbers = text.rpartition(")")[2].split()
        if state != "Z":
            found[int(path.parent.name)] = [0, *map(int, numbers)]
    return found


def _below(pid: int, stats: Mapping[int, list[int]]) -> list[int]:
    """Return all processes that one has started, and those that they have."""
    children = [child for child, fields in stats.items() if fields[_PARENT] == pid]
    return [*children, *(below for child in children for below in _below(child, stats))]


def _peak_kib(pid: int, proc: Path) -> int:
    try:
        lines = (proc / str(pid) / "status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return next((int(x.split()[1]) for x in lines.splitlines() if x.startswith("VmHWM:")), 0)
