"""`marl-sched train`."""

from pathlib import Path
from typing import Annotated

import typer

from federation.local_run import RunResult
from federation.local_run import train as run_training
from federation.session import RoundDone
from marl_sched.commands.options import RUNS, ConfigArgument, SetOption
from marl_sched.commands.progress import Progress
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Experiment, load_config


def train(
    config: ConfigArgument,
    overrides: SetOption,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Folder to write; default: runs/NAME.", show_default=False
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last whole round of the folder.")
    ] = False,
) -> None:
    """Train the zones' agents and average them, all in this process.

    Examples:
        marl-sched train configs/demo.yaml
        marl-sched train configs/base.yaml --set seed=2 --out runs/base-2
        marl-sched train configs/base.yaml --resume
    """
    experiment = load_config(config, overrides)
    folder = RUNS / experiment.name if out is None else out
    warm_up()
    result = train_with_progress(experiment, folder, resume)
    typer.echo(f"wrote {folder}: {describe(result)}")
    typer.echo(f"next: marl-sched evaluate {config} --run {folder}")


def train_with_progress(experiment: Experiment, folder: Path, resume: bool = False) -> RunResult:
    """Train with a progress bar; on Ctrl-C say how to go on."""
    rounds = experiment.training.rounds
    with Progress("train", total=rounds, unit="rounds") as progress:

        def say(event: RoundDone) -> None:
            note = "" if event.objective is None else f"validation objective {event.objective:.4f}"
            for zone, reason in event.lost.items():
                typer.echo(f"lost zone {zone}: {reason}", err=True)
            progress.advance(1 if event.n_decisions else 0, note)

        try:
            return run_training(experiment, folder, resume=resume, progress=say)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; the last whole round is in {folder}; go on with the same command and "
                "--resume"
            ) from None


def describe(result: RunResult) -> str:
    """Say what a run has reached, in a line."""
    if result.objective is None:
        return f"{result.rounds} rounds, none validated"
    return (
        f"{result.rounds} rounds, best round {result.best_round} with a validation objective of "
        f"{result.objective:.4f}"
    )
