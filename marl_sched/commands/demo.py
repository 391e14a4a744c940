"""`marl-sched demo`: train on the real sample and compare, in minutes."""

import shutil
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from federation.run_result import describe
from marl_sched.commands.evaluating import evaluate_and_report, make_factories
from marl_sched.commands.options import RUNS, command_line, folder_of
from marl_sched.commands.table import LEARNED, print_table
from marl_sched.commands.training import train_with_progress
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import load_config
from marl_sched.evaluation import EVALUATION_FILE
from marl_sched.run_folder import RunFolder, require_new


def demo(
    out: Annotated[
        Path,
        typer.Option(
            metavar="RUN",
            help="Folder to write; replaced if it is a finished demo.",
            parser=folder_of,
        ),
    ] = RUNS / "demo",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a demo that was stopped.")
    ] = False,
) -> None:
    """Train three zones on a real hour of Alibaba's cluster and compare them with rules.

    Examples:
        marl-sched demo
        marl-sched demo --out runs/my-demo
    """
    config = Path(str(files("marl_sched") / "data" / "demo.yaml"))
    experiment = load_config(config)
    if not resume:
        if RunFolder(out).is_of(experiment) and (out / EVALUATION_FILE).exists():
            shutil.rmtree(out)
        require_new(out, experiment)
    typer.echo(f"watch: {command_line('dashboard', out)}", err=True)
    warm_up()
    result = train_with_progress(experiment, out, resume)
    typer.echo(f"trained: {describe(result)}", err=True)
    rules = [name for name in experiment.evaluation.policies if name != LEARNED]
    factories = make_factories(experiment, rules, [out])
    evaluation = evaluate_and_report(experiment, factories, out, [out], "marl-sched demo")
    print_table(evaluation)
    typer.echo(f"wrote {out}: report.md, evaluation.json, metrics.jsonl, checkpoints and plots")
    typer.echo(f"next: read {out}/report.md, or train on your own cluster: configs/demo.yaml")
