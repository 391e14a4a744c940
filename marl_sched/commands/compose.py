"""`marl-sched compose`."""

import typer

from marl_sched.commands.options import ConfigArgument
from marl_sched.compose_file import compose_file
from marl_sched.config import load_config


def compose(config: ConfigArgument) -> None:
    """Print a compose file that runs an experiment, with a named service for every zone.

    Examples:
        marl-sched compose configs/base.yaml > base-stack.yaml
        docker compose -f base-stack.yaml up
    """
    typer.echo(compose_file(load_config(config), config), nl=False)
