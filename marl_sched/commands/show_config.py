"""`marl-sched show-config`."""

from pathlib import Path
from typing import Annotated

import typer

from marl_sched.commands.options import SetOption
from marl_sched.config.loading import dump_config, json_schema, load_config


def show_config(
    overrides: SetOption,
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="A YAML file.", show_default=False)
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of such files for editors.")
    ] = False,
) -> None:
    """Print a configuration with every default written out, or the JSON schema.

    Examples:
        marl-sched show-config configs/base.yaml
        marl-sched show-config configs/base.yaml --set zones[0].load=0.9 > my.yaml
        marl-sched show-config --schema > docs/config.schema.json
    """
    if (config is None) != schema:
        raise typer.BadParameter("expected a CONFIG, or --schema alone")
    text = json_schema() if config is None else dump_config(load_config(config, overrides))
    typer.echo(text, nl=False)
