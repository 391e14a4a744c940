"""Short trainings that say how many quantiles are enough, before a run of `n_quantiles: auto`.

    pilots of 32 quantiles, then of 1, 2, 4, ...  -->  RUN/quantiles.json  -->  a run with a number

They run here, in one process, whether the run itself will be `train` or `federate`: both get the
same number. A pilot's folder, RUN/pilots/..., goes once its figures are written down.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from federation.local_run import train
from federation.session import Progress
from marl_sched.agents.policies import load_policy
from marl_sched.config import Experiment
from marl_sched.evaluation import EpisodePlayer
from marl_sched.files import alone_in
from marl_sched.observation import Layout
from marl_sched.quantile_choice import (
    Figures,
    Pilot,
    Search,
    pilot_experiment,
    with_known_number,
    with_number,
)
from marl_sched.run_folder import PILOTS_FOLDER, RunFolder

Tell = Callable[[Figures], None]
"""Told what a number of quantiles has reached, after every pilot."""


def find_quantiles(
    experiment: Experiment,
    run_dir: Path,
    tell: Tell | None = None,
    progress: Progress | None = None,
) -> Experiment:
    """Return an experiment with a number of quantiles, by pilots if it leaves it to be found.

    Args:
        experiment: Of any kind; one with a number is returned as it is.
        run_dir: Folder of the run that is to begin; created if need be.
        tell: Told what was found.
        progress: Called after every round of a pilot.

    Raises:
        RunError: The folder is in use, or holds pilots of another configuration.
        KeyboardInterrupt: Ctrl-C; what is done is kept.
    """
    experiment = with_known_number(experiment, run_dir)
    if not experiment.agent.finds_quantiles:
        return experiment
    run_dir.mkdir(parents=True, exist_ok=True)
    with alone_in(run_dir):
        search = Search.open(experiment, run_dir)
        while (due := search.due()) is not None:
            folder = run_dir / PILOTS_FOLDER / f"quantiles-{due[0]}-seed-{due[1]}"
            search.pilots.append(_pilot(experiment, folder, *due, progress))
            search.save(run_dir)
            shutil.rmtree(folder)
            if tell is not None:
                tell(search.figures(due[0]))
        shutil.rmtree(run_dir / PILOTS_FOLDER, ignore_errors=True)
    choice = search.choice
    assert choice is not None
    return with_number(experiment, choice)


def _pilot(
    experiment: Experiment, folder: Path, n_quantiles: int, seed: int, progress: Progress | None
) -> Pilot:
    """Train a pilot, or go on with it, and play the validation episodes."""
    trained = pilot_experiment(experiment, n_quantiles, seed)
    train(trained, folder, resume=RunFolder(folder).has_rounds, progress=progress)
    layout = Layout(tuple(experiment.resources))
    files = RunFolder(folder).policy_paths(experiment.zone_names)
    policies = {zone: load_policy(path, layout) for zone, path in files.items()}
    player = EpisodePlayer(experiment, experiment.evaluation.replicas)
    episodes = range(experiment.training.validation_episodes)
    played = player.play(lambda zone: policies[zone], "validation", episodes)
    objectives: list[float] = np.asarray(played["objective"]).tolist()
    return Pilot(n_quantiles, seed, objectives)
