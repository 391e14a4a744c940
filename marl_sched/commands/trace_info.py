"""`marl-sched trace info`: what a task table is like, and the load it would be on a cluster."""

import json
from pathlib import Path
from typing import Annotated

import typer

from marl_sched.commands.options import SetOption, folder_of
from marl_sched.commands.trace_text import print_description, print_load
from marl_sched.config import load_config
from marl_sched.errors import ConfigError
from marl_sched.trace_plots import plot_trace
from marl_sched.workload.figures.cluster_load import cluster_load
from marl_sched.workload.figures.describe import describe
from marl_sched.workload.traces.tasks import PACKAGE, load_tasks, read_info, task_path

_LARGE_BYTES = 50_000_000


def info(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A task table, or package:NAME for our samples.")
    ],
    overrides: SetOption,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG",
            help="Also tell the load on the cluster of this configuration.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also draw plots here.", parser=folder_of, show_default=False
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as one JSON object.")
    ] = False,
) -> None:
    """Describe a task table: sizes, durations, requests, arrivals, DAGs, load on a cluster.

    Examples:
        marl-sched trace info package:alibaba-v2018-hour
        marl-sched trace info openb.parquet --config configs/openb.yaml --out plots
        marl-sched trace info openb.parquet --json | jq .arrivals.dispersion
    """
    if overrides and config is None:
        raise typer.BadParameter("--set needs --config CONFIG")
    experiment = None if config is None else load_config(config, overrides)
    path = task_path(table) if table.startswith(PACKAGE) else folder_of(table)
    found, _ = read_info(path)
    if path.stat().st_size > _LARGE_BYTES:
        typer.echo(f"measuring {path}, some seconds a million tasks ...", err=True)
    tasks = load_tasks(str(path))
    load = None
    if experiment is not None:
        try:
            load = cluster_load(tasks, experiment)
        except ConfigError as error:
            raise ConfigError(f"{config}: {error}") from None
    description = describe(tasks)
    plots = [] if out is None else plot_trace(description, tasks, load, out)
    if as_json:
        figures = {"table": table, **found.model_dump(), **description.as_json()}
        if load is not None:
            figures["load"] = load.as_json()
        typer.echo(json.dumps(figures, indent=1))
    else:
        print_description(table, found, description)
        if load is not None:
            print_load(load)
    if plots:
        typer.echo(f"wrote {', '.join(map(str, plots))}", err=as_json)
