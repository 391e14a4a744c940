"""What the header of a log in the Standard Workload Format says of its machines.

Shapes: M machines.
"""

import re
from pathlib import Path

import numpy as np

from marl_sched.workload.raw.unpack import CutShort, unpacked
from marl_sched.workload.table import Int

MOST_PROCESSORS = 2**24
_MOST_MACHINES = 2**20
_CPU_AND_MEMORY = 2
_HEADER = re.compile(rb"^[ \t]*;[ \t]*(MaxNodes|MaxProcs|UnixStartTime)[ \t]*:[ \t]*(\d{1,12})\b")


def read_header(path: Path) -> dict[str, int]:
    """Return the numbers of a log's header comments that matter here; the first of a kind counts.

    Raises:
        TraceError: There is no such file, or it is not text.
    """
    found: dict[str, int] = {}
    content = unpacked(path, lambda _: None)
    try:
        first = next(content, b"")
    except CutShort:
        return found
    finally:
        content.close()  # type: ignore[attr-defined]  # a generator
    for line in first.splitlines():
        if line.strip() and not line.lstrip().startswith(b";"):
            break
        if match := _HEADER.match(line):
            found.setdefault(match[1].decode(), int(match[2]))
    return found


def machines_of(header: dict[str, int], memory_mib: int) -> Int:
    """Return the machines (M, 2) of a header, cpu_milli and memory_mib; (0, 2) if it tells none.

    MaxProcs are shared out among MaxNodes machines; without MaxProcs a machine has one.

    Args:
        header: As `read_header` returns it.
        memory_mib: Memory of a processor.
    """
    n_machines = header.get("MaxNodes", 0)
    n_processors = header.get("MaxProcs", n_machines)
    is_possible = 1 <= n_machines <= n_processors <= MOST_PROCESSORS
    if not is_possible or n_machines > _MOST_MACHINES:
        return np.zeros((0, _CPU_AND_MEMORY), np.int64)
    processors = np.full(n_machines, n_processors // n_machines, np.int64)
    processors[: n_processors % n_machines] += 1
    return np.column_stack([1000 * processors, np.maximum(1, memory_mib) * processors])
