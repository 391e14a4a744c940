"""Compiled kernels, kept on disk under a name that changes with their sources.

numba keys its cache by the file of the function it compiles, so a cached caller does not notice
that a kernel it calls in another file has changed. Here the folder's name carries a hash of all
kernel sources and the versions of Python and numba: a stale kernel is in another folder.
"""

import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

_logger = logging.getLogger(__name__)
_F = TypeVar("_F", bound=Callable[..., Any])


def sources_hash(root: Path) -> str:
    """Return a hash of every file in a folder named `kernels` below `root`."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {numba.__version__}".encode())
    for path in sorted(root.rglob("kernels/*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    base = os.environ.get("MARL_SCHED_KERNEL_CACHE") or os.environ.get("NUMBA_CACHE_DIR")
    if base is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        base = str(Path(home) / "marl-sched" / "kernels")
    folder = Path(base) / sources_hash(Path(__file__).parent)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        fallback = Path(tempfile.gettempdir()) / f"marl-sched-kernels-{os.getuid()}" / folder.name
        fallback.mkdir(parents=True, exist_ok=True, mode=0o700)
        _logger.warning("%s is not writable: compiled kernels go to %s", folder, fallback)
        return fallback


CACHE_FOLDER = _cache_folder()
"""Where this process reads and writes compiled kernels."""


def is_cold() -> bool:
    """Return whether no kernel has been compiled for these sources yet."""
    return not any(CACHE_FOLDER.rglob("*.nbi"))


def kernel(function: _F) -> _F:
    """Compile a function with numba, without the GIL, cached in CACHE_FOLDER."""
    return _compile(function, forceinline=False)


def inlined(function: _F) -> _F:
    """Compile a small function that its callers take in whole.

    A state of some forty arrays is passed as hundreds of words: a call would cost more than the work.
    """
    return _compile(function, forceinline=True)


def _compile(function: _F, forceinline: bool) -> _F:
    outside = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(CACHE_FOLDER)
    try:
        compiled: _F = numba.njit(
            cache=True, nogil=True, forceinline=forceinline, error_model="numpy"
        )(function)
    finally:
        numba.config.CACHE_DIR = outside
    return compiled
