"""`marl-sched train`."""

from collections.abc import Mapping, Sequence
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
from marl_sched.comparing.folder import refuse_comparison
from marl_sched.config import Experiment, load_config
from marl_sched.errors import ConfigError
from marl_sched.files import alone_in
from marl_sched.run_folder import RunFolder
from marl_sched.starting import keep_start, policy_files, require_start, with_prior_of
from marl_sched.training_config import load_of_run


def train(  # noqa: PLR0913 - one parameter an option
    config: ConfigArgument,
    overrides: SetOption,
    takes: Annotated[
        list[str],
        typer.Option(
            metavar="ZONE=ZONE",
            help="With --from: the zone on the left begins with the policy of the one on the "
            "right; with nothing on the right, with drawn weights. May be repeated.",
            default_factory=list,
            show_default=False,
        ),
    ],
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
    origin: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Begin with the published policies of another run, not with drawn weights.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    metrics: MetricsOption = "",
    tensorboard: TensorBoardOption = False,
) -> None:
    """Train the zones' agents and average them, all in this process.

    Examples:
        marl-sched train configs/demo.yaml
        marl-sched train configs/base.yaml --set seed=2 --out runs/base-2
        marl-sched train configs/base.yaml --resume
        marl-sched train configs/disjoint-new-zone.yaml --from runs/disjoint
    """
    pairs = _zone_pairs(takes)
    if pairs and origin is None:
        raise typer.BadParameter(f"--takes {takes[0]}, expected --from RUN with it")
    folder = RUNS / load_config(config, overrides).name if out is None else out
    if origin is None:
        experiment = load_of_run(config, overrides, folder, resume)
    else:
        refuse_comparison(folder)
        experiment = with_prior_of(load_config(config, overrides), origin)
        if experiment.agent.finds_quantiles:
            raise ConfigError(
                f"{config}: agent.n_quantiles = auto, expected the number of {origin} with --from"
            )
    experiment = require_startable(experiment, folder, resume)
    if origin is not None:
        files = policy_files(origin, experiment.zone_names, pairs)
        run = RunFolder(folder) if resume else RunFolder.create(folder, experiment)
        with alone_in(folder):
            (require_start if run.has_rounds else keep_start)(run, experiment, files)
    typer.echo(f"watch: {command_line('dashboard', folder)}", err=True)
    warm_up()
    experiment = found_quantiles(experiment, folder)
    with observed(experiment, folder, metrics, tensorboard) as note:
        result = train_with_progress(experiment, folder, resume or origin is not None, note)
    typer.echo(f"wrote {folder}: {describe(result)}")
    following = command_line("evaluate", config, "--run", folder, overrides=overrides)
    typer.echo(f"next: {following}")


def _zone_pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return zone -> zone of ZONE=ZONE."""
    pairs = {}
    for text in texts:
        zone, separator, other = text.partition("=")
        if not separator or not zone.strip():
            raise typer.BadParameter(f"--takes {text}, expected ZONE=ZONE or ZONE=")
        pairs[zone.strip()] = other.strip()
    return pairs


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
