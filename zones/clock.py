"""What a piece of work costs: seconds on the wall and of the CPU, and the process's memory."""

import resource
import time
from contextlib import suppress
from pathlib import Path


class Clock:
    """Seconds since it was made, on the wall and of this thread's CPU."""

    def __init__(self) -> None:
        """Start now."""
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    @property
    def seconds(self) -> float:
        """Seconds on the wall so far."""
        return time.perf_counter() - self._wall

    def timing(self) -> dict[str, float]:
        """Return the figures so far, by their names in timing.jsonl."""
        return {
            "zone_s": round(self.seconds, 3),
            "cpu_s": round(time.thread_time() - self._cpu, 3),
            "process_cpu_s": round(time.process_time(), 3),
            "process_peak_mib": round(_peak_kib() / 1024, 1),
        }


def _peak_kib() -> int:
    """Return the most memory this process has had: getrusage starts from its parent's."""
    with suppress(OSError), Path("/proc/self/status").open(encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
