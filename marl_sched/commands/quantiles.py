"""What `train` and `federate` do first where `agent.n_quantiles` is auto."""

from pathlib import Path

import typer

from federation.quantile_pilots import find_quantiles
from federation.session import RoundDone
from marl_sched.commands.progress import Progress
from marl_sched.config import Experiment
from marl_sched.errors import RunError
from marl_sched.quantile_choice import REFERENCE, TRIED, Figures, pilot_rounds, with_known_number
from marl_sched.run_folder import QUANTILES_FILE, RunFolder, require_new


def require_startable(experiment: Experiment, folder: Path, resume: bool) -> Experiment:
    """Check that a run may begin, or go on, in a folder, before the long work it is for.

    Returns:
        The experiment, with the number of quantiles that was found for this folder, if any.

    Raises:
        RunError: It may not.
    """
    experiment = with_known_number(experiment, folder)
    if not resume:
        require_new(folder, experiment)
    elif experiment.agent.finds_quantiles:
        if not RunFolder(folder).config_path.exists():
            raise RunError(f"{folder}: no run to resume, it has not begun; leave out --resume")
        raise RunError(
            f"{folder}: no {QUANTILES_FILE}, the run did not begin with agent.n_quantiles = auto; "
            "expected the number in its config.yaml"
        )
    return experiment


def found_quantiles(experiment: Experiment, folder: Path) -> Experiment:
    """Find the number of quantiles, if it is to be found, saying what was tried."""
    if not experiment.agent.finds_quantiles:
        return experiment
    total = len(TRIED) * experiment.agent.pilot_seeds * pilot_rounds(experiment)
    with Progress("pilots", total=total, unit="rounds at most") as progress:

        def say(event: RoundDone) -> None:
            progress.advance(1 if event.n_decisions else 0)

        try:
            found = find_quantiles(experiment, folder, _tell, say)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; the pilots that are done are in {folder}; go on with the same command"
            ) from None
    typer.echo(
        f"agent.n_quantiles: {found.agent.quantile_count}, the smallest within "
        f"{experiment.agent.quantiles_tolerance:.1%} of {REFERENCE} ({folder / QUANTILES_FILE})",
        err=True,
    )
    return found


def _tell(figures: Figures) -> None:
    """Say what a number of quantiles has reached."""
    line = f"quantiles {figures.n_quantiles}: validation objective {figures.objective:.4f}"
    if figures.n_quantiles != REFERENCE and figures.ratio is not None:
        line += (
            f", {figures.ratio:.3f} [{figures.ci95_low:.3f}, {figures.ci95_high:.3f}] of that of "
            f"{REFERENCE}"
        )
    typer.echo(line, err=True)
