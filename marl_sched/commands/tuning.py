"""`marl-sched tune`."""

from typing import Annotated

import typer

from marl_sched.commands.options import ConfigArgument, SetOption, command_line, tuned_folder
from marl_sched.commands.progress import Progress
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import load_config
from marl_sched.tuning import tune as run_tuning


def tune(
    config: ConfigArgument,
    overrides: SetOption,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes to score on; no influence on the result.")
    ] = 1,
) -> None:
    """Tune the weights of the rule `tuned`: random search, then steps around the best.

    Examples:
        marl-sched tune configs/base.yaml --jobs 2
        marl-sched tune configs/demo.yaml --set tuning.evaluations=50
    """
    experiment = load_config(config, overrides)
    warm_up()
    total = experiment.tuning.evaluations
    with Progress("tune", total=total, unit="evaluations") as progress:
        best = float("inf")

        def say(number: int, objective: float, best_objective: float) -> None:
            nonlocal best
            best = min(best, best_objective)
            progress.advance(1, f"best objective {best:.4f}")

        try:
            path = run_tuning(experiment, tuned_folder(config), jobs, say)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "stopped; what was evaluated is kept, the same command goes on from there"
            ) from None
    typer.echo(f"wrote {path}: objective {best:.4f} on {experiment.tuning.episodes} tune episodes")
    following = ("evaluate", config, "--policies", "kube-default,tuned")
    typer.echo(f"next: {command_line(*following, overrides=overrides)}")
