"""`marl-sched scaleout`."""

import json
import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar, get_args

import typer

from federation.events import Event
from federation.scaling.running import CaseRun
from marl_sched.commands.options import RUNS, ConfigArgument, SetOption, command_line, folder_of
from marl_sched.commands.progress import Progress
from marl_sched.commands.scaleout_table import print_study
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import load_config
from marl_sched.errors import ConfigError
from marl_sched.scaling.cases import Beside, Case, Length, cases_of, configured
from marl_sched.scaling.measured import Measured
from marl_sched.scaling.plots import plot_study
from marl_sched.scaling.shared_load import zone_jobs
from marl_sched.scaling.sizes import Mode
from marl_sched.scaling.study import STUDY_FILE, Study

Word = TypeVar("Word")

_MAX_ZONES = 64
"""Most zones that one host is asked to run; more are projected."""
_MAX_PROJECTED = 10_000
_MIN_ROUNDS = 2
_MIN_SIZES = 2


def scaleout(  # noqa: PLR0913 - one parameter an option
    config: ConfigArgument,
    overrides: SetOption,
    zones: Annotated[
        str, typer.Option(metavar="N,N,...", help="Sizes to run, in zones.")
    ] = "1,2,4,8",
    mode: Annotated[
        str,
        typer.Option(
            metavar="weak|strong",
            help="weak: every zone as large as the file's; strong: the file's machines and load, "
            "dealt over the zones.",
        ),
    ] = "weak",
    rounds: Annotated[
        int,
        typer.Option(min=_MIN_ROUNDS, max=1000, help="Rounds of a run; the first is not timed."),
    ] = 6,
    validation_episodes: Annotated[
        int,
        typer.Option(min=0, max=10_000, help="Episodes that score every second round's weights."),
    ] = 16,
    beside: Annotated[
        str,
        typer.Option(
            metavar="all|largest|none",
            help="Sizes at which one learner for all machines, and zones that never average, run "
            "too.",
        ),
    ] = "all",
    project: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Larger sizes that a cost model speaks of, fitted to those that ran.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder to write, or to go on in; default: runs/scaleout-NAME.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Run the federation at several sizes, measure what it costs, and project larger ones.

    Examples:
        marl-sched scaleout configs/base.yaml --zones 1,2,4,8
        marl-sched scaleout configs/base.yaml --mode strong --beside none
        marl-sched scaleout configs/base.yaml --project 16,64,256,1000

    Every size runs with real processes, as `federate` does. What has run is not run again: the same
    command goes on where it was stopped, or adds sizes.
    """
    sizes = _sizes("--zones", zones, _MAX_ZONES)
    larger = [] if project is None else _sizes("--project", project, _MAX_PROJECTED)
    scaling = _one_of("--mode", mode, get_args(Mode))
    which = _one_of("--beside", beside, get_args(Beside))
    experiment = load_config(config, overrides)
    if experiment.agent.finds_quantiles:
        raise ConfigError(
            f"{config}: agent.n_quantiles = auto, expected an integer > 0: every size is to learn "
            "the same"
        )
    if larger and len(sizes) < _MIN_SIZES:
        raise typer.BadParameter(f"--project with --zones {zones}, expected two sizes or more")
    folder = RUNS / f"scaleout-{experiment.name}" if out is None else out
    length = Length(rounds, validation_episodes)
    runs = [
        CaseRun(case, configured(experiment, case, length), folder / case.name)
        for case in cases_of(sizes, scaling, which)
    ]
    found = {run.case: run.done() for run in runs}
    warm_up()
    for name in ("flwr", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
    found |= _carry_out([run for run in runs if found[run.case] is None], length, folder)
    measured = {case: run for case, run in found.items() if run is not None}
    study = Study(scaling, measured, _n_cores(), zone_jobs(experiment))
    projection = study.project(larger) if larger else None
    study.save(folder, projection)
    plots = plot_study(study, projection, folder)
    if as_json:
        typer.echo(json.dumps(study.as_json(projection), indent=1, allow_nan=False))
    else:
        print_study(study, projection)
    names = ", ".join(path.name for path in plots)
    typer.echo(f"wrote {folder}: {STUDY_FILE}, {names}, a folder a run", err=as_json)
    if not larger:
        command = command_line("scaleout", config, overrides=overrides)
        typer.echo(f"next: {command} ... --project 16,64,256,1000", err=as_json)


def _carry_out(runs: Sequence[CaseRun], length: Length, folder: Path) -> dict[Case, Measured]:
    """Run what has not run yet, one after the other, with a progress bar."""
    measured: dict[Case, Measured] = {}
    with Progress("scaleout", total=len(runs) * length.rounds, unit="rounds") as progress:
        try:
            for run in runs:
                measured[run.case] = run.run(partial(_note, progress, run.case))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; what has run is in {folder}; go on with the same command"
            ) from None
    return measured


def _note(progress: Progress, case: Case, event: Event) -> None:
    """Tell of an event of a run."""
    what = case.name
    match event["kind"]:
        case "round" if event["n_decisions"]:
            progress.advance(1, what)
        case "lost":
            typer.echo(f"{what}: lost zone {event['zone']}: {event['reason']}", err=True)
        case "died":
            typer.echo(f"{what}: {event['process']} died: {event['how']}", err=True)
        case "again":
            typer.echo(f"{what}: the ServerApp is started again: {event['reason']}", err=True)


def _sizes(option: str, text: str, largest: int) -> list[int]:
    """Return numbers of zones, ascending, each once."""
    parts = [part.strip() for part in text.split(",")]
    is_fine = all(part.isascii() and part.isdigit() and len(part) < 9 for part in parts)
    if not is_fine or not all(0 < int(part) <= largest for part in parts):
        raise typer.BadParameter(
            f"{option} {text!r}, expected numbers of 1 to {largest} with commas between"
        )
    return sorted({int(part) for part in parts})


def _one_of(option: str, text: str, allowed: tuple[Word, ...]) -> Word:
    for word in allowed:
        if text == word:
            return word
    raise typer.BadParameter(f"{option} {text!r}, expected {' or '.join(map(str, allowed))}")


def _n_cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
