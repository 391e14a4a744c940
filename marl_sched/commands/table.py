"""The table of an evaluation on stdout: whole in a file or pipe, as wide as the terminal on one."""

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from marl_sched.evaluation import Evaluation

_INTERVAL = "95%_interval"
# Those that do not fit the terminal are left out, from the last on.
_COLUMNS = (
    "objective",
    _INTERVAL,
    "late_start_rate",
    "finish_violation_rate",
    "mean_slowdown",
    "zone_imbalance_cpu",
    "zone_imbalance_memory",
    "cost",
    "creation_success_rate",
    "mean_completion_s",
)
_UNBOUNDED = 1000
LEARNED = "learned"


def print_table(evaluation: Evaluation, console: Console | None = None) -> None:
    """Print the main metrics of every policy to stdout, best objective first."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(width=_UNBOUNDED)
    n_columns = len(_COLUMNS)
    while n_columns > 1 and _width(_table(evaluation, n_columns, console), console) > console.width:
        n_columns -= 1
    console.print(_table(evaluation, n_columns, console))
    if n_columns < len(_COLUMNS):
        left_out = ", ".join(_COLUMNS[n_columns:]).replace("_", " ")
        typer.echo(f"more columns are in report.md: {left_out}")
    for ratio in evaluation.ratios:
        if ratio.policy == LEARNED and ratio.metric == "objective" and ratio.ratio is not None:
            typer.echo(
                f"objective of learned over {ratio.baseline}: {ratio.ratio:.3f} "
                f"[{_number(ratio.ci95_low)}, {_number(ratio.ci95_high)}]"
            )


def _table(evaluation: Evaluation, n_columns: int, console: Console) -> Table:
    """Return the table; on a terminal its headers are a word a line."""
    space = "\n" if console.is_terminal else " "
    rows = {(row.policy, row.metric): row for row in evaluation.rows}
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for column in _COLUMNS[:n_columns]:
        table.add_column(column.replace("_", space), justify="right", no_wrap=True)
    order = sorted(evaluation.metrics, key=lambda name: rows[name, "objective"].mean or 0.0)
    for name in order:
        objective = rows[name, "objective"]
        interval = f"{_number(objective.ci95_low)} .. {_number(objective.ci95_high)}"
        cells = [
            interval if column == _INTERVAL else _number(rows[name, column].mean)
            for column in _COLUMNS[:n_columns]
        ]
        table.add_row(name, *cells)
    return table


def _width(table: Table, console: Console) -> int:
    wide = console.options.update(width=_UNBOUNDED, max_width=_UNBOUNDED)
    return Measurement.get(console, wide, table).maximum


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
