"""The configuration of a run that is to begin: what it corrects is looked up and written out."""

from collections.abc import Iterable
from pathlib import Path

from marl_sched.agents.tuned import load_tuned, tuned_path
from marl_sched.config import Experiment, load_config
from marl_sched.observation import Layout
from marl_sched.quantile_choice import with_number


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


def resolved_like(experiment: Experiment, running: Experiment) -> Experiment:
    """Return an experiment with what was looked up and found for a run of it.

    That is the prior's weights and the number of quantiles, where it names none.
    """
    if _asks_for_weights(experiment):
        experiment = _with_weights(experiment, running.agent.prior_weights)
    if experiment.agent.finds_quantiles:
        experiment = with_number(experiment, running.agent.quantile_count)
    return experiment


def _asks_for_weights(experiment: Experiment) -> bool:
    return experiment.agent.has_prior and experiment.agent.prior_weights is None


def _with_weights(experiment: Experiment, weights: dict[str, float] | None) -> Experiment:
    agent = experiment.agent.model_copy(update={"prior_weights": weights})
    return experiment.model_copy(update={"agent": agent})
