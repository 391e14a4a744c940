"""The tables of `scaleout` on stdout: whole in a file or pipe, as wide as the terminal on one."""

from collections.abc import Mapping, Sequence

import typer
from rich.console import Console
from rich.table import Table

from marl_sched.scaling.cases import Case
from marl_sched.scaling.measured import COORDINATOR, SPLIT, Measured
from marl_sched.scaling.study import Projection, Study, equal_objectives

_WIDE = 1000
_GROWTH = "CPU seconds per 1,000 decisions at {} zones over those at 2: {:.3f}"
_MEGA = 1e6


def print_study(
    study: Study, projection: Projection | None, console: Console | None = None
) -> None:
    """Print costs, where seconds go, objectives, the projection, and what all that cannot show."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    _print(console, "Cost, means over timed rounds", _costs(study.runs))
    _print(console, "Where a round's wall seconds go", _seconds(study.runs))
    _print(console, "Bytes a round, and the most memory of a process", _sizes(study.runs))
    objectives = _objectives(study.runs)
    if objectives.row_count:
        title = "Validation objective (lower is better), and over kube-default's on its episodes"
        _print(console, title, objectives)
    growth = study.cpu_growth
    if growth is not None:
        typer.echo(_GROWTH.format(study.federated[-1].n_zones, growth))
    equal = study.cpu_growth_at_equal_speed
    if equal is not None:
        typer.echo(f"the same with the machine as quick in all runs: {equal:.3f}")
    if projection is not None:
        _print(
            console,
            "Projected by the cost model, on as many cores as processes",
            _projected(projection),
        )
        for line in _of_model(projection):
            typer.echo(line)
    for caveat in study.caveats():
        typer.echo(f"note: {caveat}")


def _print(console: Console, title: str, table: Table) -> None:
    if console.is_terminal:  # a word a line, or the columns do not fit
        for column in table.columns:
            column.header = str(column.header).replace(" ", "\n")
    typer.echo(title)
    console.print(table)
    typer.echo("")


def _table(columns: Sequence[str], n_left: int = 1) -> Table:
    table = Table(title=None, box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < n_left else "right")
    return table


def _place(case: Case) -> list[str]:
    return [str(case.n_zones), case.variant]


def _costs(runs: Mapping[Case, Measured]) -> Table:
    table = _table(
        [
            "zones",
            "variant",
            "machines",
            "rounds timed",
            "decisions a round",
            "decisions/s, all",
            "decisions/s a zone",
            "CPU s per 1,000 decisions: zones",
            "coordinator",
            "all",
            "CPU s a round",
            "fixed work, CPU ms",
        ],
        2,
    )
    for case, run in runs.items():
        coordinator = sum(run.coordinator_cpu_s.values())
        table.add_row(
            *_place(case),
            str(run.n_machines),
            str(run.n_timed),
            f"{run.n_decisions:,.0f}",
            f"{run.decisions_per_s:,.0f}",
            f"{run.decisions_per_s / run.n_zones:,.0f}",
            f"{run.cpu_per_1000(run.zone_cpu_s):.3f}",
            f"{run.cpu_per_1000(coordinator):.3f}",
            f"{run.cpu_per_1000(run.cpu_s):.3f}",
            f"{run.cpu_s:.2f}",
            "-" if run.probe_s is None else f"{1000 * run.probe_s:.2f}",
        )
    return table


def _seconds(runs: Mapping[Case, Measured]) -> Table:
    table = _table(["zones", "variant", "round, s", *(f"{part}, s" for part in SPLIT)], 2)
    for case, run in runs.items():
        parts = (f"{run.split_s[part]:.2f}" for part in SPLIT)
        table.add_row(*_place(case), f"{run.seconds:.2f}", *parts)
    return table


def _sizes(runs: Mapping[Case, Measured]) -> Table:
    columns = ["zones", "variant", "weights, MB a round", "exchange, MB a round", "a zone, MiB"]
    table = _table([*columns, *(f"{name}, MiB" for name in COORDINATOR)], 2)
    for case, run in runs.items():
        table.add_row(
            *_place(case),
            f"{run.weight_bytes / _MEGA:.2f}",
            f"{run.exchange_bytes / _MEGA:.2f}",
            f"{run.zone_mib:.0f}",
            *(f"{run.coordinator_mib[name]:.0f}" for name in COORDINATOR),
        )
    return table


def _objectives(runs: Mapping[Case, Measured]) -> Table:
    columns = ["zones", "variant", "kube-default", "at decisions", "objective", "over kube-default"]
    table = _table([*columns, "at wall s", "objective", "over kube-default"], 2)
    for row in equal_objectives(runs):
        table.add_row(
            *_place(row.case),
            _number(row.baseline),
            f"{row.n_decisions:,}",
            _number(row.at_decisions),
            _number(row.over_baseline(row.at_decisions)),
            f"{row.seconds:.1f}",
            _number(row.at_seconds),
            _number(row.over_baseline(row.at_seconds)),
        )
    return table


def _projected(projection: Projection) -> Table:
    table = _table(
        [
            "zones",
            "CPU s per 1,000 decisions",
            "CPU s a round: zones",
            "coordinator",
            "round, s",
            "of it the hub, s",
            "decisions/s, all",
            "exchange, MB a round",
            "coordinator, MiB",
        ]
    )
    for size in projection.sizes:
        table.add_row(
            str(size.n_zones),
            f"{size.cpu_per_1000:.3f}",
            f"{size.zone_cpu_s:,.1f}",
            f"{size.coordinator_cpu_s:,.1f}",
            f"{size.seconds:,.1f}",
            f"{size.hub_s:,.1f}",
            f"{size.decisions_per_s:,.0f}",
            f"{size.exchange_bytes / _MEGA:,.1f}",
            f"{size.coordinator_mib:,.0f}",
        )
    return table


def _of_model(projection: Projection) -> list[str]:
    """Say what the model is made of, how wrong it was, and where it must not be believed."""
    model = projection.model
    sizes = ", ".join(map(str, model.sizes))
    lines = [
        f"fitted to {sizes} zones, CPU s a round: zones = {_sum(model.zones)}; ServerApp and hub = "
        f"{_sum(model.server)}; Flower's link = {_sum(model.link)}"
    ]
    error = projection.error
    if error is None:
        lines.append("error on a size it has not seen: not known, expected three sizes or more")
    else:
        errors = ", ".join(f"{name} {value:+.1%}" for name, value in error.errors.items())
        known = ", ".join(map(str, error.sizes))
        lines.append(f"error at {error.n_zones} zones when fitted to {known}: {errors}")
    if projection.hub_limit is not None:
        lines.append(
            f"from {projection.hub_limit} zones on a zone waits longer for the one hub's work than "
            "it works itself"
        )
    far = max(size.n_zones for size in projection.sizes) / max(model.sizes)
    if far > 1:
        lines.append(
            f"note: the largest projected size is {far:.0f} times the largest measured one. No "
            "network, no unequally slow zones, and nothing that begins only at that size is in "
            "the model."
        )
    return lines


def _sum(coefficients: Mapping[str, float]) -> str:
    return " + ".join(f"{value:.4g} x {name}" for name, value in coefficients.items()) or "0"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
