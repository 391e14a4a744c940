"""The command line: finds the command, runs it, turns errors into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted.

Command modules are loaded by name when their command runs. This is the one place that imports on
demand: `marl-sched --help` waits for nothing heavy, the rules' commands not for torch and Flower.
"""

import errno
import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import cleandoc
from typing import Annotated, NoReturn, get_args

import click
import typer
from typer.core import TyperCommand, TyperGroup

from marl_sched import __version__
from marl_sched.commands import COMMANDS
from marl_sched.errors import MarlSchedError
from marl_sched.log_lines import LOG_FORMAT_VARIABLE, LogFormat, formatter

_DEBUG_HELP = "Show the traceback of an error."
_LOG_FORMATS = get_args(LogFormat)
_LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass
class Settings:
    """What holds for the whole command line."""

    debug: bool = False


class _Command(TyperCommand):
    """A command whose help is its docstring as it stands, examples first."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _format_help(self, ctx, formatter)


class _Group(TyperGroup):
    """A group of commands with the same form of help."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _format_help(self, ctx, formatter)


class _LazyGroup(_Group):
    """The commands of COMMANDS, each loaded when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            _refuse_command(args[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


app = typer.Typer(cls=_LazyGroup, add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help=_DEBUG_HELP)] = False,
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level",
            help=f"What is logged: {', '.join(_LOG_LEVELS)}; warning by default.",
            show_default=False,
        ),
    ] = "warning",
    log_format: Annotated[
        str,
        typer.Option(
            "--log-format",
            help=f"How it is logged: {', '.join(_LOG_FORMATS)} (one object a line, with zone and "
            "round); text by default.",
            envvar=LOG_FORMAT_VARIABLE,
            show_default=False,
        ),
    ] = "text",
) -> None:
    """Schedule the jobs of a multi-zone cluster by rules and by federated agents; compare them.

    Examples:
        marl-sched show-config configs/base.yaml
        marl-sched show-config configs/base.yaml --set seed=7
    """
    context.obj.debug |= debug
    if log_level not in _LOG_LEVELS:
        raise typer.BadParameter(f"--log-level {log_level}, expected {', '.join(_LOG_LEVELS)}")
    if log_format not in _LOG_FORMATS:
        raise typer.BadParameter(f"--log-format {log_format}, expected {', '.join(_LOG_FORMATS)}")
    logging.basicConfig(level=log_level.upper())
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter(log_format, "%(levelname)s %(name)s: %(message)s"))
    os.environ[LOG_FORMAT_VARIABLE] = log_format  # for the processes that a command starts
    if version:
        typer.echo(f"marl-sched {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> NoReturn:
    """Run the command line of this process; being terminated is like Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    settings = Settings()
    try:
        group = typer.main.get_command(app)
        with group.make_context("marl-sched", list(arguments), obj=settings) as context:
            group.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        hint = f" (see {where.command_path} --help)" if where is not None else ""
        return _fail(f"{error.format_message()}{hint}", error.exit_code, settings)
    except MarlSchedError as error:
        return _fail(str(error), error.exit_code, settings)
    except (KeyboardInterrupt, click.Abort) as interrupt:
        return _fail(str(interrupt) or "interrupted", 130, settings)
    except OSError as error:
        _drop_stdout()
        if error.errno == errno.EPIPE:  # the reader, such as head, has had enough
            return 1
        where = f"{error.filename}: " if error.filename is not None else ""
        return _fail(f"{where}{error.strerror or error}", 1, settings)
    except Exception as error:  # noqa: BLE001 - a bug; the user sees one line, --debug the rest
        name = type(error).__name__
        return _fail(f"internal: {name}: {error} (--debug shows where)", 1, settings)
    return 0


def _fail(message: str, exit_code: int, settings: Settings) -> int:
    if settings.debug:
        traceback.print_exc()
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    return exit_code


def _drop_stdout() -> None:
    """Drop what stdout no longer takes, or Python complains once more when it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse_command(name: str) -> NoReturn:
    close = get_close_matches(name, COMMANDS, n=1)
    guess = f"; did you mean {close[0]}?" if close else ""
    raise click.UsageError(f"no command {name}, expected one of {', '.join(COMMANDS)}{guess}")


def _load(name: str) -> click.Command:
    """Import a command's module and make its Click command."""
    module, _, attribute = COMMANDS[name].target.partition(":")
    target = getattr(importlib.import_module(f"marl_sched.commands.{module}"), attribute)
    if isinstance(target, typer.Typer):
        group = target
    else:
        group = typer.Typer(add_completion=False)
        group.command(name)(target)
    group.rich_markup_mode = None
    group.info.cls = _Group
    for info in group.registered_commands:
        info.cls = _Command
    command = typer.main.get_command(group)
    for leaf in _leaves(command):
        leaf.params.append(_debug_option())
    return command


def _leaves(command: click.Command) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from _leaves(child)
    else:
        yield command


def _debug_option() -> click.Option:
    """Return --debug as an option of a command: people add it at the end of a failed line."""

    def switch_on(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.ensure_object(Settings).debug |= value

    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, callback=switch_on, help=_DEBUG_HELP
    )


def _format_help(
    command: click.Command, context: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the docstring untouched, then usage and options: examples come first."""
    formatter.write(f"{cleandoc(command.help or '')}\n\n")
    command.format_usage(context, formatter)
    command.format_options(context, formatter)
    # Typer escapes the bracket of defaults for Rich, which does not print this page.
    formatter.buffer[:] = [part.replace("\\[", "[") for part in formatter.buffer]
