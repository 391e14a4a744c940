"""`marl-sched trace`: raw traces become task tables; task tables are described or generated."""

from typing import Annotated

import typer

from marl_sched.commands.trace_convert import convert
from marl_sched.commands.trace_generate import generate
from marl_sched.commands.trace_info import info
from marl_sched.commands.trace_text import print_format, print_formats
from marl_sched.workload.raw.convert import find_format
from marl_sched.workload.raw.registry import FORMATS

trace = typer.Typer(add_completion=False)
trace.command("convert", short_help="Turn a raw trace into a task table.")(convert)
trace.command("info", short_help="Describe a task table.")(info)
trace.command("generate", short_help="Generate a task table like a published trace's.")(generate)


@trace.callback(invoke_without_command=True)
def trace_help(context: typer.Context) -> None:
    """Turn raw traces into task tables, describe them, or generate tables like them.

    Examples:
        marl-sched trace formats
        marl-sched trace convert openb ~/traces/openb --out openb.parquet
        marl-sched trace info openb.parquet --config configs/openb.yaml
        marl-sched trace generate alibaba-v2018 --hours 2 --out generated.parquet
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@trace.command("formats", short_help="List the formats of raw traces.")
def formats(
    name: Annotated[
        str | None,
        typer.Argument(metavar="FORMAT", help="Show all of one.", show_default=False),
    ] = None,
) -> None:
    """List the formats of raw traces, or the tables, rules and actions of one.

    Examples:
        marl-sched trace formats
        marl-sched trace formats alibaba-v2018
    """
    if name is None:
        print_formats(FORMATS.values())
    else:
        print_format(find_format(name))
