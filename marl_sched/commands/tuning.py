"""`marl-sched tune`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from marl_sched.agents.tuned import tuned_path
from marl_sched.commands.options import (
    ConfigArgument,
    SetOption,
    command_line,
    folder_of,
    tuned_folder,
)
from marl_sched.commands.progress import Progress
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Tuning, load_config
from marl_sched.errors import RunError
from marl_sched.tuning import tune as run_tuning


def tune(
    config: ConfigArgument,
    overrides: SetOption,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes to score on; no influence on the result.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where to write NAME.json; default: `tuned` beside the configuration.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Weights tuned for another configuration, to begin at; default: hand-set ones.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Tune the weights of the rule `tuned`: random search, then steps around the best.

    Examples:
        marl-sched tune configs/base.yaml --jobs 2
        marl-sched tune configs/demo.yaml --set tuning.evaluations=50
        marl-sched tune configs/dense.yaml --start configs/tuned/base.json
    """
    experiment = load_config(config, overrides)
    folder = tuned_folder(config) if out is None else out
    _refuse_weaker(tuned_path(experiment, folder), experiment.tuning)
    warm_up()
    total = experiment.tuning.evaluations
    with Progress("tune", total=total, unit="evaluations") as progress:
        best = float("inf")

        def say(number: int, objective: float, best_objective: float) -> None:
            nonlocal best
            best = min(best, best_objective)
            progress.advance(1, f"best objective {best:.4f}")

        try:
            path = run_tuning(experiment, folder, jobs, say, start)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "stopped; what was evaluated is kept, the same command goes on from there"
            ) from None
    typer.echo(f"wrote {path}: objective {best:.4f} on {experiment.tuning.episodes} tune episodes")
    following = ("evaluate", config, "--policies", "kube-default,tuned")
    typer.echo(f"next: {command_line(*following, overrides=overrides)}")


def _refuse_weaker(path: Path, tuning: Tuning) -> None:
    """Keep weights that were tuned harder from being replaced by ones tuned in passing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        evaluations, episodes = int(found["evaluations"]), int(found["episodes"])
    except (OSError, ValueError, KeyError, TypeError):
        return  # nothing there, or nothing of ours to keep
    if evaluations * episodes > tuning.evaluations * tuning.episodes:
        raise RunError(
            f"{path}: was tuned with {evaluations} evaluations on {episodes} episodes, more than "
            f"{tuning.evaluations} on {tuning.episodes}; give --out FOLDER, or delete it"
        )
