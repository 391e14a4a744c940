"""`marl-sched trace convert`: a raw trace becomes a task table, and every row is accounted for."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from marl_sched.commands.options import command_line, folder_of
from marl_sched.commands.progress import Progress
from marl_sched.commands.trace_output import ForceOption, OutOption, refuse_to_replace
from marl_sched.commands.trace_text import print_account
from marl_sched.workload.raw.account import Account, account_path
from marl_sched.workload.raw.convert import Conversion
from marl_sched.workload.raw.convert import convert as convert_trace

_MEGABYTE = 1_000_000
_MOST_DIGITS = 18


def amounts_of(texts: Iterable[str]) -> dict[str, int]:
    """Parse `cpu_milli=96000,memory_mib=393216`, given at once or one by one."""
    amounts: dict[str, int] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, _, amount = (word.strip() for word in part.partition("="))
        is_number = amount.isascii() and amount.isdigit() and len(amount) <= _MOST_DIGITS
        if not name or not is_number or int(amount) == 0 or name in amounts:
            raise typer.BadParameter(
                f"--reference {part!r}, expected RESOURCE=AMOUNT,... with every resource once and "
                "integers > 0"
            )
        amounts[name] = int(amount)
    return amounts


def convert(  # noqa: PLR0913 - one parameter an option
    name: Annotated[str, typer.Argument(metavar="FORMAT", help="See `trace formats`.")],
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A folder with files by their published names, a file, or TABLE=FILE.",
        ),
    ],
    out: OutOption,
    rules: Annotated[
        list[str],
        typer.Option(
            "--rule",
            metavar="RULE=ACTION",
            help="Turn a rule; `trace formats FORMAT` lists them; may be repeated.",
            default_factory=list,
            show_default=False,
        ),
    ],
    reference: Annotated[
        list[str],
        typer.Option(
            metavar="RESOURCE=AMOUNT,...",
            help="The trace's largest machine, which relative amounts are relative to.",
            default_factory=list,
            show_default=False,
        ),
    ],
    mapping: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What the columns mean, for a format that needs it.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Turn a raw trace into a task table, and say where every row went.

    Examples:
        marl-sched trace convert openb ~/traces/openb --out openb.parquet
        marl-sched trace convert alibaba-v2018 batch_task=tasks.csv --out v2018.parquet
        marl-sched trace convert spar ~/spar --out hour.parquet --rule child-before-parent=drop-edge
        marl-sched trace convert spar ~/spar --out hour.parquet --reference memory_mib=524288
    """
    outputs = (out, out.with_name(f"{out.stem}.zones.yaml"), account_path(out))
    refuse_to_replace(outputs, force)
    wish = Conversion(
        format=name,
        sources=tuple(sources),
        out=out,
        turned=tuple(rules),
        reference=amounts_of(reference),
        mapping=mapping,
    )
    with ExitStack() as stack:
        megabytes = _Megabytes(stack)
        converted = convert_trace(wish, megabytes.expect, megabytes.count)
    for path in outputs:  # what an earlier conversion left is of another table
        if path not in converted.files:
            path.unlink(missing_ok=True)
    _warn_of_cuts(converted.account)
    print_account(converted.account)
    typer.echo(f"wrote {', '.join(map(str, converted.files))}")
    if out in converted.files:
        typer.echo(f"next: {command_line('trace', 'info', out)}")
    else:
        typer.echo(f"next: paste the zones of {converted.files[0]} into a configuration")


class _Megabytes:
    """Progress over files, told in bytes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._n_bytes = self._n_said = 0
        self._progress: Progress | None = None

    def expect(self, files: Iterable[Path]) -> None:
        """Show how much there is to read."""
        total = sum(path.stat().st_size for path in files) // _MEGABYTE
        progress = Progress("convert", total=total, unit="MB read")
        self._progress = self._stack.enter_context(progress)

    def count(self, n_bytes: int) -> None:
        """Count what was read."""
        self._n_bytes += n_bytes
        steps = self._n_bytes // _MEGABYTE - self._n_said
        if self._progress is not None and steps:
            self._n_said += steps
            self._progress.advance(steps)


def _warn_of_cuts(account: Account) -> None:
    for table in account.tables.values():
        if n_cut := table.found["file-cut-short"]:
            typer.echo(
                f"warning: {table.name}: {n_cut} of {', '.join(table.files)} is cut short or "
                "damaged; only the rows before that were read",
                err=True,
            )
