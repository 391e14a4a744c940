"""Where learning starts with a teacher: a network that has what the teacher found."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import HEAD_NAMES, Weights
from marl_sched.config import Experiment
from marl_sched.distillation.teacher import Progress, teach


def taught(
    experiment: Experiment,
    weights: Mapping[str, NDArray[np.float32]],
    progress: Progress | None = None,
) -> Weights:
    """Return first weights whose f is the teacher's, equal in every quantile; v stays.

    The teacher plays whole episodes of the train split, of all zones: this is work for where all
    workloads are at hand, before the first round.

    Args:
        experiment: With a teacher, and the prior's weights resolved.
        weights: What the network would start from without it.
        progress: Told how far it is.
    """
    corrections = teach(experiment, experiment.seed, experiment.teacher, progress)
    n_quantiles = experiment.agent.quantile_count
    heads = {name: np.repeat(corrections[name], n_quantiles, axis=-1) for name in HEAD_NAMES}
    return dict(weights) | corrections | heads
