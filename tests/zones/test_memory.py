import subprocess
import sys

PROGRAM = """
from pathlib import Path
from zones.memory import give_back_freed_memory, trim

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

give_back_freed_memory()
blocks = [bytes(3000) for _ in range(40_000)]
full = resident()
del blocks[:-1]
holed = resident()
trim()
print(full, holed, resident(), Path("/proc/self/status").read_text().split("THP_enabled:")[1][1])
"""


def _pages() -> tuple[int, int, int, int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    full, holed, trimmed, has_huge_pages = map(int, done.stdout.split())
    return full, holed, trimmed, has_huge_pages


def test_trimming_returns_what_lies_below_a_block_in_use() -> None:
    full, holed, trimmed, _ = _pages()
    n_bytes = 40_000 * 3000
    assert full - holed < n_bytes / 4096 / 10
    assert holed - trimmed > n_bytes / 4096 / 2


def test_a_zone_has_no_huge_pages() -> None:
    assert _pages()[3] == 0
