"""Give freed memory back: a zone lives for days beside others on one host."""

import ctypes
import ctypes.util
from collections.abc import Callable
from functools import lru_cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1 << 18
_PR_SET_THP_DISABLE = 41


def give_back_freed_memory() -> None:
    """Let glibc return large blocks to the system at once, and keep one heap for all threads.

    Left alone it learns to keep what is freed, and keeps it for each thread. Huge pages, which
    numpy asks for, are left out: an array takes what has been written to, not two megabytes around
    it. Elsewhere than on glibc nothing changes.
    """
    prctl = _of_glibc("prctl")
    if prctl is not None:
        prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    mallopt = _of_glibc("mallopt")
    if mallopt is None:
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)


def trim() -> None:
    """Return the free pages between small blocks too: some milliseconds, for moments of rest."""
    malloc_trim = _of_glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


@lru_cache(maxsize=4)
def _of_glibc(function: str) -> Callable[..., int] | None:
    name = ctypes.util.find_library("c")
    found: Callable[..., int] | None = getattr(ctypes.CDLL(name), function, None) if name else None
    return found
