"""Options of the `trace` commands that write a task table."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from marl_sched.commands.options import folder_of
from marl_sched.errors import RunError

SUFFIX = ".parquet"


def table_file(text: str | Path) -> Path:
    """Parse an option that names a task table to write."""
    path = folder_of(text)
    if path.suffix != SUFFIX:
        raise typer.BadParameter(f"{path}, expected a name that ends in {SUFFIX}")
    return path


OutOption = Annotated[
    Path,
    typer.Option(metavar="X.parquet", help="The task table to write.", parser=table_file),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace what is there under that name.")
]


def refuse_to_replace(outputs: Iterable[Path], force: bool) -> None:
    """Check that files may be written.

    Raises:
        RunError: One is there already and is not to be replaced, or its folder is missing.
    """
    for path in outputs:
        if path.is_dir():
            raise RunError(f"{path}: is a folder, expected a file to write")
        if path.exists() and not force:
            raise RunError(f"{path}: exists already; --force replaces it")
        if not path.parent.is_dir():
            raise RunError(f"{path}: there is no folder {path.parent}")
