"""Write files so that neither a killed process nor a second one harms what is there."""

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from marl_sched.errors import RunError

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a disk that takes no more."""


def write_atomically(
    path: Path,
    write: Callable[[IO[bytes]], object],
    mode: int = 0o666,
    is_lasting: bool = True,
) -> None:
    """Replace `path` by what `write` writes, in one step.

    The bytes reach the disk before the name does: after a crash `path` holds the old content or the
    new one, never a part. What a killed write leaves ends in `.tmp`; the next write takes it over.

    Args:
        path: The file to create or replace; its folder exists.
        write: Writes the content to the binary file it is given.
        mode: Permissions of the file from its first byte on, less those of the umask.
        is_lasting: Wait for the disk. Else a crash of the host may leave the file empty.

    Raises:
        OSError: It cannot be written; names the file.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    with naming(path):
        temporary.unlink(missing_ok=True)  # it would keep its own permissions
        try:
            with _create(temporary, mode) as file:
                write(file)
                file.flush()
                if is_lasting:
                    os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def create_once(path: Path, content: bytes, mode: int = 0o666) -> bool:
    """Create `path` with all of its content in one step, unless it exists.

    Of several processes that try at the same moment one succeeds.

    Returns:
        Whether this call created it.

    Raises:
        OSError: It cannot be written; names the file.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    with naming(path):
        try:
            with _create(temporary, mode) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    return True


def _create(path: Path, mode: int) -> IO[bytes]:
    return open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode), "wb")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let every OSError of the block name `path`: a full disk is reported without any name."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def require_space(folder: Path, n_bytes: int = 1 << 16) -> None:
    """Check that a folder's disk still takes something.

    Raises:
        RunError: It is full. What else may be wrong with it is not looked for.
    """
    probe = folder / f"space-{secrets.token_hex(4)}.tmp"
    try:
        with _create(probe, 0o600) as file:
            file.write(bytes(n_bytes))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in FULL_DISK:
            raise RunError(f"{folder}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep a second process out of a folder; the lock ends with the process, however it ends.

    Raises:
        RunError: There is no such folder, or another process is at work in it.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise RunError(f"{folder}: cannot be opened: {error.strerror}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{folder}: another process is at work there") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)
