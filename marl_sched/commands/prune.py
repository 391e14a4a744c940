"""`marl-sched prune`."""

from pathlib import Path
from typing import Annotated

import typer

from marl_sched.commands.options import command_line, folder_of
from marl_sched.commands.warm_up import warm_up
from marl_sched.pruning import (
    PRUNING_FILE,
    Pruned,
    open_run,
    prune_all,
    sizes,
    write_pruned,
)
from marl_sched.run_folder import RunFolder, require_new


def prune(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A training run with a published policy.")
    ],
    keep: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of every hidden layer that is left; 1: only what has no influence goes.",
        ),
    ] = 0.5,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            help="Validation episodes that both are played in; default: those of the run.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where to write; default: RUN-pruned.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a run's network smaller, and say what that costs and saves.

    Examples:
        marl-sched prune runs/base --keep 0.5
        marl-sched prune runs/base --keep 1 --out runs/base-folded

    Whole hidden units are taken out, those first that the others can best make up for. What is
    written is a run's folder to `evaluate --run`.
    """
    if not 0 < keep <= 1:
        raise typer.BadParameter(f"--keep {keep}, expected a number > 0 and at most 1")
    folder = run.with_name(f"{run.name}-pruned") if out is None else out
    require_new(folder)
    experiment, policies = open_run(run)
    n_episodes = episodes or experiment.training.validation_episodes or experiment.tuning.episodes
    warm_up()
    pruned = prune_all(policies, experiment, n_episodes, keep)
    write_pruned(run, folder, pruned, keep, n_episodes)
    _print(pruned, n_episodes)
    typer.echo(f"wrote {folder}: {PRUNING_FILE}, checkpoints")
    config = RunFolder(folder).config_path
    typer.echo(f"next: {command_line('evaluate', config, '--run', folder)}")


def _print(pruned: Pruned, n_episodes: int) -> None:
    """Print sizes, loss and speed."""
    found: dict[str, list[str]] = {}
    for zone, policy in pruned.before.items():
        before, after = sizes(policy), sizes(pruned.after[zone])
        words = f"hidden {before['hidden']} -> {after['hidden']}"
        if before["value_hidden"]:
            words += f", value {before['value_hidden']} -> {after['value_hidden']}"
        words += f", {before['parameters']:,} -> {after['parameters']:,} parameters"
        found.setdefault(words, []).append(zone)
    for words, zones in found.items():
        typer.echo(f"{', '.join(zones)}: {words}")
    typer.echo(f"decisions taken otherwise: {pruned.changed:.1%} of those recorded")
    (before_j, after_j), ratio = pruned.objectives, pruned.ratio
    line = f"objective on {n_episodes} validation episodes: {before_j:.4f} -> {after_j:.4f}"
    if ratio.ratio is not None:
        line += f", ratio {ratio.ratio:.3f} [{ratio.ci95_low:.3f}, {ratio.ci95_high:.3f}]"
    typer.echo(line)
    typer.echo(f"a decision in play: {pruned.decision_us[0]:.1f} -> {pruned.decision_us[1]:.1f} us")
