"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

RUNS = Path("runs")
"""Where runs are written unless told otherwise."""

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
