"""What the `trace` commands print: accounts, formats, figures of a trace.

Tables are as wide as they need in a file or pipe; on a terminal that is too narrow, quantiles are
left out and long texts are wrapped.
"""

from collections.abc import Callable, Iterable, Sequence

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from marl_sched.workload.figures.arrival_figures import Arrivals
from marl_sched.workload.figures.cluster_load import WINDOW_S, ClusterLoad
from marl_sched.workload.figures.describe import Description
from marl_sched.workload.figures.samples import QUANTILES
from marl_sched.workload.raw.account import Account, TableAccount
from marl_sched.workload.raw.formats import Format
from marl_sched.workload.traces.tasks import TraceInfo

_UNBOUNDED = 1000
_SCARCE = ("p10", "p99.9", "p25", "p95", "p75")
"""Quantiles that a narrow terminal does without, the first to go first."""


def print_account(account: Account) -> None:
    """Print where the rows of every table went."""
    for table in account.tables.values():
        dropped = sum(table.dropped.values())
        typer.echo(
            f"{table.name} ({', '.join(table.files)}): {table.rows_read:,} rows read, "
            f"{table.rows_kept:,} kept, {dropped:,} dropped"
        )
        _print_rules(table)
    facts = account.facts
    if "n_jobs" in facts:
        typer.echo(
            f"tasks: {facts['n_jobs']:,} jobs, {facts['n_tasks']:,} tasks, "
            f"{facts['n_instances']:,} instances, {facts['n_edges']:,} edges"
        )
    if "n_machines" in facts:
        typer.echo(f"machines: {facts['n_machines']:,} in {facts['n_zones']:,} zones")


def _print_rules(table: TableAccount) -> None:
    listing = _listing("  rule", "action", "found", "of", "dropped", "what it means")
    for name, rule in table.rules:
        found, dropped = table.found[name], table.dropped[name]
        if found or dropped:
            action = table.rules.action(name)
            listing.add_row(f"  {name}", action, f"{found:,}", rule.of, f"{dropped:,}", rule.what)
    if listing.row_count:
        _print(listing)


def print_formats(formats: Iterable[Format]) -> None:
    """Print a line a format."""
    listing = _listing("format", "tables", "title")
    for found in formats:
        listing.add_row(found.name, ", ".join(table.name for table in found.tables), found.title)
    _print(listing)
    typer.echo("more on one: marl-sched trace formats FORMAT")


def print_format(found: Format) -> None:
    """Print all there is to know of a format."""
    typer.echo(f"{found.name}: {found.title}\n")
    tables = _listing("table", "file names", "a row is")
    for table in found.tables:
        tables.add_row(table.name, " ".join(table.patterns), table.what)
    _print(tables)
    rules = _listing("rule", "actions, default first", "counts", "what falls under it")
    for rule in found.rules:
        rules.add_row(rule.name, ", ".join(rule.actions), rule.of, rule.what)
    typer.echo("")
    _print(rules)
    if found.reference:
        amounts = ",".join(f"{name}={amount}" for name, amount in found.reference.items())
        typer.echo(f"\nlargest machine, if you do not know better: --reference {amounts}")
    else:
        typer.echo("\nall amounts are absolute: it takes no --reference")
    if found.needs_mapping:
        typer.echo("it needs --mapping FILE")


def print_description(name: str, info: TraceInfo, found: Description) -> None:
    """Print the figures of a trace."""
    typer.echo(
        f"{name} ({info.format}): {found.n_jobs:,} jobs, {found.n_tasks:,} tasks, "
        f"{found.n_instances:,} instances, {found.n_edges:,} edges over "
        f"{_time(found.arrivals.span_s)} from second {found.first_arrival_s:.10g} on\n"
    )
    _print_fitting(lambda quantiles: _distributions(found, quantiles))
    if not found.is_use_known:
        typer.echo("real use is not known: the request stands for it")
    tops = ", ".join(f"{share:.1%} in the top {n}" for n, share in found.top_jobs.items())
    typer.echo(f"\nrequested core-seconds by jobs: {tops}")
    _print_arrivals(found.arrivals)
    typer.echo(f"jobs with an edge: {found.dag_job_share:.1%}")
    known = [
        f"{pair} {'-' if value is None else format(value, '.2f')}"
        for pair, value in found.correlations.items()
    ]
    typer.echo(f"rank correlations over tasks: {', '.join(known)}")


def _print_arrivals(arrivals: Arrivals) -> None:
    variation = "" if arrivals.gap_cv is None else f", gaps vary by {arrivals.gap_cv:.2f} (CV)"
    typer.echo(f"arrivals: {_number(arrivals.rate_per_s)} jobs/s{variation}")
    known = [f"{value:.1f} at {span} s" for span, value in arrivals.dispersion.items()]
    left = [f"none at {span} s ({reason})" for span, reason in arrivals.left_out.items()]
    typer.echo(f"index of dispersion of counts (1: Poisson): {', '.join([*known, *left])}")


def _distributions(found: Description, quantiles: Sequence[str]) -> Table:
    listing = _listing("quantity", "unit", numbers=("mean", *quantiles, "max"))
    for name, sample in found.samples.items():
        values = [sample.mean, *(sample.quantile(QUANTILES[q]) for q in quantiles), sample.largest]
        listing.add_row(name, sample.unit, *map(_number, values))
    return listing


def print_load(load: ClusterLoad) -> None:
    """Print the load of a trace on every zone of a configuration, and on all together."""
    columns = [f"{kind} {name}" for name in load.resources for kind in ("mean", "max")]
    listing = _listing("load on", "binding", numbers=(*columns, "too large"))
    for place in (load.cluster, *load.zones):
        cells = []
        for number in range(len(load.resources)):
            largest = place.largest(number)
            cells.append(_number(float(place.mean[number])))
            cells.append("-" if largest is None else _number(largest))
        too_large = f"{place.too_large:.2%}"
        listing.add_row(place.name, load.resources[place.binding], *cells, too_large)
    typer.echo("")
    _print(listing)
    typer.echo(
        "load: requested work over capacity with background use, had the cluster, or a zone alone, "
        f"all of the trace's jobs;\nmax: over windows of {WINDOW_S:g} s; "
        "too large: share of tasks that no machine holds"
    )


def _listing(*texts: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(title=None, box=None, pad_edge=False)
    for text in texts:
        is_number = text in ("found", "dropped")
        table.add_column(text, justify="right" if is_number else "left", overflow="fold")
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    return table


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_UNBOUNDED)


def _print(table: Table) -> None:
    _console().print(table, highlight=False)


def _print_fitting(build: Callable[[Sequence[str]], Table]) -> None:
    """Print a table with as many of the quantiles as the terminal has room for."""
    console = _console()
    wide = console.options.update(width=_UNBOUNDED, max_width=_UNBOUNDED)
    for n_dropped in range(len(_SCARCE) + 1):
        shown = [name for name in QUANTILES if name not in _SCARCE[:n_dropped]]
        table = build(shown)
        if Measurement.get(console, wide, table).maximum <= console.width:
            break
    console.print(table, highlight=False)
    if len(shown) < len(QUANTILES):
        typer.echo("more quantiles: --json, or a wider terminal")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"


def _time(seconds: float) -> str:
    for unit, length_s in (("days", 86_400.0), ("h", 3600.0)):
        if seconds >= 1.5 * length_s:
            return f"{seconds / length_s:.1f} {unit}"
    return f"{seconds:,.0f} s"
