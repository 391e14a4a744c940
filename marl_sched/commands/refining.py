"""`marl-sched refine`."""

from pathlib import Path
from typing import Annotated

import typer

from marl_sched.commands.options import ConfigArgument, SetOption, command_line, folder_of
from marl_sched.commands.progress import Progress
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import load_config
from marl_sched.errors import RunError
from marl_sched.refining import refine as run_refining


def refine(
    config: ConfigArgument,
    overrides: SetOption,
    run: Annotated[
        list[Path],
        typer.Option(
            metavar="RUN",
            help="A training run; of several, the corrections of the rule are added up.",
            parser=folder_of,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where to write; read as a run is.", parser=folder_of),
    ],
    evaluations: Annotated[
        int, typer.Option(min=1, help="Points to score; 1 adds up and searches nothing.")
    ] = 60,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes to score on; no influence on the result.")
    ] = 1,
) -> None:
    """Refine what trained policies decide by: margin, shares and rule, on the tune split.

    Examples:
        marl-sched refine configs/base.yaml --run runs/base --out runs/base-refined --jobs 2
        marl-sched refine configs/base.yaml --run runs/a --run runs/b --evaluations 1 --out runs/sum
    """
    experiment = load_config(config, overrides)
    if out.resolve() in [path.resolve() for path in run]:
        raise RunError(f"--out {out}: is a run that is refined; give another folder")
    warm_up()
    with Progress("refine", total=evaluations, unit="evaluations") as progress:

        def say(number: int, total: int, best_objective: float) -> None:
            progress.advance(1, f"best objective {best_objective:.4f}")

        try:
            path = run_refining(experiment, run, out, evaluations, jobs, say)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "stopped; what was evaluated is kept, the same command goes on from there"
            ) from None
    typer.echo(f"wrote {path}")
    following = command_line("evaluate", config, "--run", out, overrides=overrides)
    typer.echo(f"next: {following}")
