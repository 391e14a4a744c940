"""Give freed memory back: a zone lives for days beside others on one host."""

import ctypes
import ctypes.util

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1 << 20


def give_back_freed_memory() -> None:
    """Let glibc return large blocks to the system at once, and keep one heap for all threads.

    Left alone it learns to keep what is freed, and keeps it for each thread. Elsewhere than on
    glibc nothing changes.
    """
    name = ctypes.util.find_library("c")
    if name is None:
        return
    mallopt = getattr(ctypes.CDLL(name), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
