"""Read files that others write: appended to, replaced, half-written or gone."""

import json
import math
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

_CHUNK = 4 << 20
_MAX_LINE = 1 << 20
_TAIL = 64
"""Bytes before the position by which a file is known again."""

Line = dict[str, Any]


def finite(value: Any) -> float | None:
    """Return a number of a foreign file, None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def whole(value: Any) -> int | None:
    """Return an integer of a foreign file that JSON readers agree on, None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1 << 53:
        return None
    return value


def text(value: Any, longest: int = 400) -> str:
    """Return a text of a foreign file, cut off where it gets too long; empty for all else."""
    if not isinstance(value, str):
        return ""
    # A lone surrogate, which JSON can write, has no encoding.
    value = value[: longest + 1].encode("utf-8", "replace").decode("utf-8")
    return value if len(value) <= longest else f"{value[:longest]}…"


def open_file(path: Path) -> BinaryIO:
    """Open a file to read; a pipe, which one might wait for, is none.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError("expected a regular file")


def parse_object(raw: bytes) -> Line | None:
    """Return the JSON object of some bytes, None if they are none."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class LineFollower:
    """Follows a file of JSON lines.

    Attributes:
        n_broken: Whole lines that were no JSON object.
    """

    def __init__(self, path: Path, on_line: Callable[[Line], None], on_reset: Callable[[], None]):
        """Begin at the start of a file that need not exist.

        Args:
            path: The file.
            on_line: Told every whole line.
            on_reset: Told that the file is another one: what was told before does not hold.
        """
        self.path = path
        self.n_broken = 0
        self._on_line = on_line
        self._on_reset = on_reset
        self._position = 0
        self._tail = b""
        self._inode = 0
        self._is_skipping = False

    def poll(self) -> bool:
        """Tell what is new.

        Returns:
            Whether anything was.

        Raises:
            OSError: The file is there and cannot be read.
        """
        try:
            with open_file(self.path) as file:
                was_reset = self._find_place(file)
                n_read = 0
                while chunk := file.read(_CHUNK):
                    n_read += len(chunk)
                    if not self._take(chunk):
                        break
                    file.seek(self._position)
                return was_reset or n_read > 0
        except FileNotFoundError:
            return self._reset()

    def _find_place(self, file: Any) -> bool:
        """Go to where the last whole line ended, or to the start of a file that is another one."""
        inode = os.fstat(file.fileno()).st_ino
        file.seek(self._position - len(self._tail))
        is_other = inode != self._inode or file.read(len(self._tail)) != self._tail
        was_reset = is_other and self._reset()
        self._inode = inode
        file.seek(self._position)
        return was_reset

    def _reset(self) -> bool:
        if self._position == 0:
            return False
        self._position, self._tail, self.n_broken, self._is_skipping = 0, b"", 0, False
        self._on_reset()
        return True

    def _take(self, chunk: bytes) -> bool:
        """Tell the whole lines of what stands at the position; return whether it moved."""
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            if len(chunk) <= _MAX_LINE:
                return False
            self._is_skipping, end = True, len(chunk)
            self._advance(chunk)
            return True
        for line in chunk[: end - 1].split(b"\n"):
            self._tell(line)
        self._advance(chunk[:end])
        return True

    def _tell(self, line: bytes) -> None:
        if self._is_skipping:  # the rest of a line that was too long
            self._is_skipping = False
            self.n_broken += 1
            return
        found = parse_object(line) if len(line) <= _MAX_LINE else None
        if found is not None:
            self._on_line(found)
        elif line.strip():
            self.n_broken += 1

    def _advance(self, read: bytes) -> None:
        self._position += len(read)
        self._tail = (self._tail + read)[-_TAIL:]


@dataclass(frozen=True)
class Stamp:
    """By which a replaced file is known to be another one."""

    changed_ns: int
    size: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> "Stamp | None":
        """Return the stamp of a file, None if there is no file."""
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return cls(found.st_mtime_ns, found.st_size, found.st_ino)


class FileWatch:
    """Reads a small file again whenever it was replaced."""

    def __init__(self, path: Path, largest: int) -> None:
        """Watch a file that need not exist; more than `largest` bytes are not read."""
        self.path = path
        self._largest = largest
        self._stamp: Stamp | None = None
        self.content: bytes | None = None
        """What it holds; None while there is no file."""

    @property
    def changed_s(self) -> float | None:
        """When it was written, by the clock of this host; None while there is no file."""
        return None if self._stamp is None else self._stamp.changed_ns / 1e9

    def poll(self) -> bool:
        """Read the file if it is another one; return whether it is.

        Raises:
            OSError: It cannot be read, or is too large.
        """
        stamp = Stamp.of(self.path)
        if stamp == self._stamp:
            return False
        if stamp is None:
            self._stamp, self.content = None, None
            return True
        with open_file(self.path) as file:
            content = file.read(self._largest + 1)
        self._stamp = stamp
        if len(content) > self._largest:
            raise OSError(f"expected at most {self._largest} bytes")
        self.content = content
        return True
