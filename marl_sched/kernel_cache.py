"""Compiled kernels, kept on disk under a name that changes with their sources.

numba keys its cache by the file of the function it compiles, so a cached caller does not notice
that a kernel it calls in another file has changed, nor a constant that it imports. Here the
folder's name carries a hash of all kernel sources, of the modules of ours that they import, and the
versions of Python and numba: a stale kernel is in another folder.
"""

import ast
import contextlib
import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.extending import register_jitable

_logger = logging.getLogger(__name__)
_F = TypeVar("_F", bound=Callable[..., Any])

_WARM = "warm"
"""File that says that a folder has all kernels."""


def sources_hash(root: Path) -> str:
    """Return a hash of the files that kernels are compiled from.

    These are every file in a folder named `kernels` below the package folder `root`, and every
    module of the package that they import, directly or not: constants are compiled in.
    """
    digest = hashlib.sha256(f"{sys.version_info[:2]} {numba.__version__}".encode())
    found: set[Path] = set()
    new = set(root.rglob("kernels/*.py"))
    while new:
        found |= new
        new = {module for path in new for module in _imported(path, root)} - found
    for path in sorted(found):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _imported(path: Path, root: Path) -> Iterator[Path]:
    """Yield the files of the package `root` that a file's absolute imports name."""
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            file = root.parent.joinpath(*name.split("."))
            for candidate in (file.with_suffix(".py"), file / "__init__.py"):
                if file.is_relative_to(root) and candidate.is_file():
                    yield candidate


def _cache_folder() -> Path:
    base = os.environ.get("MARL_SCHED_KERNEL_CACHE") or os.environ.get("NUMBA_CACHE_DIR")
    if base is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        base = str(Path(home) / "marl-sched" / "kernels")
    root = Path(__file__).resolve().parent
    # numba also keys by the file's place: two checkouts of equal sources share no kernel.
    place = hashlib.sha256(str(root).encode()).hexdigest()[:8]
    folder = Path(base) / f"{sources_hash(root)}-{place}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        own = Path(tempfile.gettempdir()) / f"marl-sched-kernels-{os.getuid()}"
        own.mkdir(exist_ok=True, mode=0o700)
        if own.stat().st_uid != os.getuid():  # compiled code is loaded from there
            own = Path(tempfile.mkdtemp(prefix=own.name))
        fallback = own / folder.name
        fallback.mkdir(exist_ok=True)
        if _is_warm(folder):  # as in an image: numba wants a folder that it could write to
            _link_all(folder, fallback)
        else:
            _logger.warning("%s is not writable: compiled kernels go to %s", folder, fallback)
        return fallback


def _is_warm(folder: Path) -> bool:
    """Return whether the kernels of these sources have all been compiled into a folder."""
    try:
        return (folder / _WARM).read_text(encoding="utf-8") == _stamps()
    except OSError:
        return False


def _link_all(folder: Path, other: Path) -> None:
    """Put a link to every file of a folder into another one, where there is none yet."""
    for path in sorted(folder.rglob("*")):
        link = other / path.relative_to(folder)
        with contextlib.suppress(FileExistsError):
            if path.is_dir():
                link.mkdir()
            else:
                link.symlink_to(path)


def _stamps() -> str:
    """Return what numba tells a source file's versions apart by: a fresh checkout is another."""
    root = Path(__file__).resolve().parent
    files = ((path, path.stat()) for path in sorted(root.rglob("kernels/*.py")))
    return "".join(f"{path} {stat.st_mtime_ns} {stat.st_size}\n" for path, stat in files)


CACHE_FOLDER = _cache_folder()
"""Where this process reads and writes compiled kernels."""


def is_cold() -> bool:
    """Return whether the kernels of these sources have not all been compiled yet."""
    return not _is_warm(CACHE_FOLDER)


def mark_warm() -> None:
    """Note that all kernels of these sources are compiled."""
    (CACHE_FOLDER / _WARM).write_text(_stamps(), encoding="utf-8")


_KERNELS: list[Any] = []


def kernel(function: _F) -> _F:
    """Compile a function that Python calls, without the GIL, cached in CACHE_FOLDER."""
    config: Any = numba.config
    outside = config.CACHE_DIR
    config.CACHE_DIR = str(CACHE_FOLDER)
    try:
        decorate = numba.njit(cache=True, nogil=True, error_model="numpy")
        compiled = decorate(function)
    finally:
        config.CACHE_DIR = outside
    _KERNELS.append(compiled)
    return cast(_F, compiled)


def drop_intermediate_code() -> int:
    """Let go of what numba keeps of loaded kernels to build others from, a megabyte of each.

    Their machine code stays. For a process whose kernels are all compiled: none that calls another
    can be compiled in it any more. numba has no public name for it.

    Returns:
        How many kernels had any.
    """
    libraries = [found.library for kernel in _KERNELS for found in kernel.overloads.values()]
    having = [library for library in libraries if getattr(library, "_shared_module", None)]
    for library in having:
        library._shared_module = None
    return len(having)


_UNCOUNTED: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}
"""Options of what only kernels call. The kernel's caller holds all arrays, so nothing below it need
count references to them: with the forty arrays of a state that is a third of the time. In return
such a function makes no arrays (numba refuses) and returns none."""


def inner(function: _F) -> _F:
    """Let kernels call a function, which is compiled as a part of them.

    It may take arrays and views of them, but neither make nor return any. Without the entry from
    Python and the file that every kernel has, a function of forty arrays compiles in half the time.
    """
    return register_jitable(**_UNCOUNTED)(function)


def inlined(function: _F) -> _F:
    """Let kernels take in a small function whole; for the rest as `inner`.

    A state of some forty arrays is passed as hundreds of words: a call would cost more than
    the work.
    """
    return register_jitable(forceinline=True, **_UNCOUNTED)(function)
