"""The configuration of a run that begins or goes on: what it corrects is looked up once.

The weights of the prior are written out into the run's config.yaml, and stay those of the run when
the rule is tuned again.
"""

from collections.abc import Iterable
from pathlib import Path

from marl_sched.agents.tuned import load_tuned, tuned_path
from marl_sched.comparing.folder import refuse_comparison
from marl_sched.config import Experiment, load_config
from marl_sched.config.learning import CENTRAL
from marl_sched.errors import ConfigError
from marl_sched.observation import Layout
from marl_sched.quantile_choice import with_number
from marl_sched.run_folder import RunFolder


def load_for_training(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """Load an experiment to train it: a prior without weights gets those beside the file.

    `tune` has written them to tuned/NAME.json there; without that file the prior stays the hand-set
    one.

    Args:
        path: A YAML file.
        overrides: As of `load_config`.

    Raises:
        ConfigError: The configuration or the file of weights is not valid.
    """
    experiment = load_config(path, overrides)
    weights_path = tuned_path(experiment, Path(path).parent / "tuned")
    if not _asks_for_weights(experiment) or not weights_path.exists():
        return experiment
    layout = Layout(tuple(experiment.resources))
    weights = load_tuned(weights_path, layout)
    return _with_weights(experiment, weights)


def load_of_run(
    path: str | Path, overrides: Iterable[str], folder: Path, resume: bool
) -> Experiment:
    """Load the experiment of a run: one that goes on keeps the prior's weights that it began with.

    Args:
        path: A YAML file.
        overrides: As of `load_config`.
        folder: The folder of the run.
        resume: Whether to go on with the run that is there, if there is one.

    Raises:
        RunError: The folder is that of a comparison.
        ConfigError: The configuration, or for a run that begins the file of weights, is not valid.
    """
    refuse_comparison(folder)
    running = RunFolder(folder).config_path
    if not resume or not running.is_file():
        return load_for_training(path, overrides)
    experiment = load_config(path, overrides)
    try:
        return with_weights_of(experiment, load_config(running))
    except ConfigError:  # to open the folder says more
        return experiment


def require_learners_apart(experiment: Experiment) -> None:
    """Check that every zone can learn in a process of its own.

    Raises:
        ConfigError: One learner is to have the decisions of all.
    """
    if experiment.federation.strategy == CENTRAL:
        raise ConfigError(
            f"{experiment.name}: federation.strategy = {CENTRAL}, expected another one where zones "
            "have processes of their own: one learner needs all decisions in one process, as "
            "`marl-sched train` has them"
        )


def with_weights_of(experiment: Experiment, running: Experiment) -> Experiment:
    """Return an experiment with the prior's weights that a run of it has, if it names none."""
    if not _asks_for_weights(experiment):
        return experiment
    return _with_weights(experiment, running.agent.prior_weights)


def resolved_like(experiment: Experiment, running: Experiment) -> Experiment:
    """Return an experiment with what was looked up and found for a run of it.

    That is the prior's weights and the number of quantiles, where it names none.
    """
    experiment = with_weights_of(experiment, running)
    if experiment.agent.finds_quantiles:
        experiment = with_number(experiment, running.agent.quantile_count)
    return experiment


def _asks_for_weights(experiment: Experiment) -> bool:
    return experiment.agent.has_prior and experiment.agent.prior_weights is None


def _with_weights(experiment: Experiment, weights: dict[str, float] | None) -> Experiment:
    agent = experiment.agent.model_copy(update={"prior_weights": weights})
    return experiment.model_copy(update={"agent": agent})
