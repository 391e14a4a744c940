"""Arguments and options that several commands share."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

RUNS = Path("runs")
"""Where runs are written unless told otherwise."""


def folder_of(text: str | Path) -> Path:
    """Parse an option that names a folder: `--out=~/x` reaches us with its tilde."""
    if not str(text).strip():
        raise typer.BadParameter("an empty name, expected a folder")
    return Path(text).expanduser()


def tuned_folder(config: Path) -> Path:
    """Return where the tuned weights of a configuration are: beside it, wherever we are run."""
    return config.parent / "tuned"


def command_line(*words: str | Path, overrides: Iterable[str] = ()) -> str:
    """Return a command of ours as it is typed, with the overrides it needs."""
    settings = [part for override in overrides for part in ("--set", override)]
    return shlex.join(["marl-sched", *map(str, words), *settings])


ConfigArgument = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A YAML file; docs/configuration.md has all keys.")
]
SetOption = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace one value of the file, as in zones[0].load=0.9; may be repeated.",
        default_factory=list,
        show_default=False,
    ),
]
