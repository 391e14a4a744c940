"""`marl-sched demo`: train on the real sample and compare, in minutes."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from federation.processes import Child, end_all, free_port
from federation.programs import LOOPBACK
from federation.run_result import describe
from marl_sched.commands.evaluating import evaluate_and_report, make_factories
from marl_sched.commands.options import RUNS, command_line, folder_of
from marl_sched.commands.table import LEARNED, print_table
from marl_sched.commands.training import train_with_progress
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Experiment
from marl_sched.errors import RunError
from marl_sched.evaluation import EVALUATION_FILE
from marl_sched.run_folder import RunFolder, require_new
from marl_sched.training_config import load_for_training

_PORT = 8080
"""Of the page; a free one if that is taken."""
_END_S = 3.0


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
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Serve the live page while the demo runs.")
    ] = True,
) -> None:
    """Train three zones on a real hour of Alibaba's cluster and compare them with rules.

    Examples:
        marl-sched demo
        marl-sched demo --out runs/my-demo
    """
    config = Path(str(files("marl_sched") / "data" / "demo.yaml"))
    experiment = load_for_training(config)
    if not resume:
        if RunFolder(out).is_of(experiment) and (out / EVALUATION_FILE).exists():
            shutil.rmtree(out)
        require_new(out, experiment)
    with _page(out) if page else nullcontext():
        _carry_out(experiment, out, resume)
    typer.echo(f"wrote {out}: report.md, evaluation.json, metrics.jsonl, checkpoints and plots")
    typer.echo(f"next: {command_line('dashboard', out)}, or your own cluster: configs/demo.yaml")


def _carry_out(experiment: Experiment, out: Path, resume: bool) -> None:
    warm_up()
    result = train_with_progress(experiment, out, resume)
    typer.echo(f"trained: {describe(result)}", err=True)
    rules = [name for name in experiment.evaluation.policies if name != LEARNED]
    factories = make_factories(experiment, rules, [out])
    evaluation = evaluate_and_report(experiment, factories, out, [out], "marl-sched demo")
    print_table(evaluation)


@contextmanager
def _page(run: Path) -> Iterator[None]:
    """Serve the page of a run, in a process that ends with the block, and say where."""
    try:
        port = free_port(LOOPBACK, _PORT, "the page")
    except RunError:
        port = free_port(LOOPBACK, 0, "the page")
    program = str(Path(sys.executable).parent / "marl-sched")
    command = [program, "dashboard", str(run), "--wait", "--port", str(port)]
    with TemporaryDirectory() as folder:
        child = Child("page", command, Path(folder) / "page.log", os.environ)
        child.start()
        typer.echo(f"watch: http://{LOOPBACK}:{port}", err=True)
        try:
            yield
        finally:
            end_all([child], _END_S)
