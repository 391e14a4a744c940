"""The figures that a worker reports of a zone's episodes."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.metrics import ZoneSums, episode_metrics, short_name
from marl_sched.config import Experiment
from marl_sched.envs.resource_weighting import ResourceWeighting
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.observation import Observation

Tick = Callable[[float], None]
"""Called with the share of a round's windows that are over."""
Act = Callable[[Observation], NDArray[np.int64]]


def zone_metrics(
    experiment: Experiment, parts: Sequence[ZoneSums], weighting: ResourceWeighting
) -> dict[str, float]:
    """Return one zone's own metrics, means over the episodes of a round.

    Resource weights of the reward are among them where they adapt: those at the end of the round.
    """
    values = [episode_metrics(experiment, [part]) for part in parts]
    metrics = {
        key: float(np.concatenate([part[key] for part in values]).mean())
        for key in values[0]
        if not key.startswith("imbalance_")  # the cluster's, not this zone's
    }
    if weighting.adapts:
        weights = zip(experiment.resources, weighting.weights, strict=True)
        metrics |= {f"reward_weight_{short_name(name)}": float(w) for name, w in weights}
    return metrics


def taken(env: ZoneEnv) -> ZoneSums:
    """Return what a finished episode counted, and let go of the rest of it."""
    sums = env.finish()
    copied = ZoneSums(sums.sums.copy(), sums.histogram.copy(), sums.cluster_imbalance.copy())
    env.clear()
    return copied


def validation_sums(parts: Sequence[ZoneSums]) -> dict[str, NDArray[np.float64]]:
    """Return a zone's sums of validation episodes played in parts, as they travel."""
    return {
        "sums": np.concatenate([part.sums for part in parts]),
        "cluster_imbalance": np.concatenate([part.cluster_imbalance for part in parts]),
    }
