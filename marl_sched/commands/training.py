"""`marl-sched train`."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from federation.local_run import train as run_training
from federation.run_result import RunResult, describe
from federation.session import RoundDone
from marl_sched.commands.observing import MetricsOption, Note, TensorBoardOption, observed
from marl_sched.commands.options import (
    RUNS,
    ConfigArgument,
    SetOption,
    command_line,
    folder_of,
)
from marl_sched.commands.progress import Progress
from marl_sched.commands.quantiles import found_quantiles, require_startable
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Experiment
from marl_sched.training_config import load_for_training


def train(
    config: ConfigArgument,
    overrides: SetOption,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Folder to write; default: runs/NAME.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last whole round of the folder.")
    ] = False,
    metrics: MetricsOption = "",
    tensorboard: TensorBoardOption = False,
) -> None:
    """Train the zones' agents and average them, all in this process.

    Examples:
        marl-sched train configs/demo.yaml
        marl-sched train configs/base.yaml --set seed=2 --out runs/base-2
        marl-sched train configs/base.yaml --resume
    """
    experiment = load_for_training(config, overrides)
    folder = RUNS / experiment.name if out is None else out
    experiment = require_startable(experiment, folder, resume)
    typer.echo(f"watch: {command_line('dashboard', folder)}", err=True)
    warm_up()
    experiment = found_quantiles(experiment, folder)
    with observed(experiment, folder, metrics, tensorboard) as note:
        result = train_with_progress(experiment, folder, resume, note)
    typer.echo(f"wrote {folder}: {describe(result)}")
    following = command_line("evaluate", config, "--run", folder, overrides=overrides)
    typer.echo(f"next: {following}")


def _tell_nobody(event: Mapping[str, Any]) -> None:
    """Nobody observes."""


def train_with_progress(
    experiment: Experiment, folder: Path, resume: bool = False, note: Note = _tell_nobody
) -> RunResult:
    """Train with a progress bar; on Ctrl-C say how to go on."""
    rounds = experiment.training.rounds
    with Progress("train", total=rounds, unit="rounds") as progress:

        def say(event: RoundDone) -> None:
            scored = (
                "" if event.objective is None else f"validation objective {event.objective:.4f}"
            )
            for zone, reason in event.lost.items():
                typer.echo(f"lost zone {zone}: {reason}", err=True)
                note({"kind": "lost", "zone": zone, "reason": reason})
            note({"kind": "round", **asdict(event)})
            progress.advance(1 if event.n_decisions else 0, scored)

        try:
            return run_training(experiment, folder, resume=resume, progress=say)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; the last whole round is in {folder}; go on with the same command and "
                "--resume"
            ) from None
