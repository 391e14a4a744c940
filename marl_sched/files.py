"""Write a file whole or not at all, so that a process killed at any point harms nothing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Replace `path` by what `write` writes, in one step.

    The bytes reach the disk before the name does: after a crash `path` holds the old content or the
    new one, never a part. What is left over of an interrupted write ends in `.tmp`.

    Args:
        path: The file to create or replace; its folder exists.
        write: Writes the content to the binary file it is given.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
