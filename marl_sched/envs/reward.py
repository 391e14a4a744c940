"""Rewards of placed instances: pure functions of facts, chosen by name.

Facts are rows (K, N_PLAIN_FACTS + 5 R) as the simulator writes them when an instance starts
(cluster/model.py). A reward is settled then, since the duration is fixed then; the placing zone is
credited with it, and so is the zone that offloaded the instance, less the price of the offload.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.metrics import MINUTE_S
from marl_sched.cluster.model import (
    FACT_BEHIND,
    FACT_COST,
    FACT_DURATION_S,
    FACT_IS_FAILED,
    FACT_LATE,
    FACT_REFERENCE_S,
    FACT_TRANSFER_S,
    FACT_VIOLATED,
    FACT_VIOLATED_BY_WORK,
    FACT_WAIT_S,
    FACT_WORK_S,
    N_PLAIN_FACTS,
)
from marl_sched.config import Experiment, Reward, Zone
from marl_sched.envs.resource_weighting import ResourceWeighting
from marl_sched.workload.episodes import draw_workload

Array = NDArray[np.float64]
RewardFunction = Callable[[Array], Array]

WAIT_CAP = 10.0
"""Waiting counts at most this many reference durations in the outcome reward."""
EXTERNALITY_CAP = 40.0
"""At most this many waiting instances count as held up by one placement."""
_LEAST_WEIGHT = 1e-9
"""Of the resources of a machine, where utilization is divided by their weight: it may be 0."""
RATE_EPISODES = 4
"""Tune episodes that the rate of instances is measured on, where none is configured."""


def make_reward(experiment: Experiment, zone: Zone, weighting: ResourceWeighting) -> RewardFunction:
    """Return the configured reward of a zone as a function of facts (K, F) to rewards (K,).

    Args:
        experiment: Says which one.
        zone: The zone.
        weighting: Its weights of the resources; those of the moment count.
    """
    config = experiment.reward
    if config.name == "outcome":
        rate = config.imbalance_rate or instances_per_s(experiment, zone)
        return lambda facts: outcome(facts, config, weighting.weights, rate)
    if config.name == "balance":
        return lambda facts: balance(facts, experiment.n_resources)
    weights = np.array([config.resource_weights.get(r, 1.0) for r in experiment.resources])
    return lambda facts: composite(facts, config, weights / weights.sum())


def instances_per_s(experiment: Experiment, zone: Zone) -> float:
    """Return how many instances come to a zone a second, measured on tune episodes."""
    counts = [
        draw_workload(experiment, zone, "tune", episode).n_instances
        for episode in range(RATE_EPISODES)
    ]
    return max(float(np.mean(counts)), 1.0) / experiment.episode.horizon_s


def offload_penalty(experiment: Experiment) -> float:
    """Return what the sender of an offload is charged on top of the instance's reward."""
    if experiment.reward.name == "outcome":
        return experiment.reward.offload
    return experiment.reward.delta if experiment.reward.name == "composite" else 0.0


def outcome(facts: Array, config: Reward, resources: Array, rate: float) -> Array:
    """Return what an instance cost the objective, less what its own work made unavoidable.

    The control variates (a violation that the drawn work alone causes, the work over its reference)
    take away noise that no decision can change. The imbalance part is the change of the zone's
    standard deviations, held for the reference duration, times the instances a second: since the
    objective takes the mean over instances but the imbalance over time, that makes the two commute.

    Args:
        facts: (K, F).
        config: The weights.
        resources: (R,) how much the imbalance of each resource counts.
        rate: Instances per second of the zone.
    """
    reference = facts[:, FACT_REFERENCE_S]
    violated = facts[:, FACT_VIOLATED] - facts[:, FACT_VIOLATED_BY_WORK]
    slowdown = (
        np.minimum(facts[:, FACT_WAIT_S] / reference, WAIT_CAP)
        + (facts[:, FACT_DURATION_S] - facts[:, FACT_WORK_S]) / reference
    )
    n_resources = len(resources)
    change = (_per_resource(facts, 0, n_resources) * resources).sum(axis=1)
    share = _per_resource(facts, 3, n_resources)[:, :2].max(axis=1)
    externality = np.minimum(facts[:, FACT_BEHIND], EXTERNALITY_CAP) * share
    penalty = (
        config.late * facts[:, FACT_LATE]
        + config.finish_violation * violated
        + config.slowdown * slowdown
        + config.completion * slowdown * reference / MINUTE_S
        + config.cost * facts[:, FACT_COST]
        + config.imbalance * change * reference * rate
        + config.externality * externality * reference / MINUTE_S
    )
    failed = facts[:, FACT_IS_FAILED] > 0
    return np.asarray(np.where(failed, -config.failed_creation, -penalty))


def balance(facts: Array, n_resources: int) -> Array:
    """Return -1 on an SLA violation, else the zone's mean utilization less the machine's.

    The shaping of the reference work: positive where a less used machine was picked. It is here to
    be compared with; it does not lead to the better balance. The mean is over the resources that
    the machine has.
    """
    broken = facts[:, FACT_LATE] + facts[:, FACT_VIOLATED] + facts[:, FACT_IS_FAILED] > 0
    mean = _per_resource(facts, 2, n_resources)
    machine = _per_resource(facts, 1, n_resources)
    has = _per_resource(facts, 4, n_resources)
    difference = ((mean - machine) * has).sum(axis=1) / np.maximum(has.sum(axis=1), 1.0)
    return np.asarray(np.where(broken, -1.0, difference))


def composite(facts: Array, config: Reward, weights: Array) -> Array:
    """Return alpha utilization + beta QoS - gamma cost - delta transfer.

    Utilization is the machine's after the placement, weighted over the resources (R,) it has; QoS
    is 1 less half for a late start and half for a violated finish; transfer is the time spent on
    the way over the reference duration.
    """
    utilization = _per_resource(facts, 1, len(weights)) @ weights
    has = _per_resource(facts, 4, len(weights))
    covered = np.maximum(has @ weights, _LEAST_WEIGHT)
    utilization = np.where(has.all(axis=1), utilization, utilization / covered)
    quality = 1 - (facts[:, FACT_LATE] + facts[:, FACT_VIOLATED]) / 2
    total = (
        config.alpha * utilization
        + config.beta * quality
        - config.gamma * facts[:, FACT_COST]
        - config.delta * facts[:, FACT_TRANSFER_S] / facts[:, FACT_REFERENCE_S]
    )
    failed = facts[:, FACT_IS_FAILED] > 0
    return np.asarray(np.where(failed, -config.failed_creation, total))


def _per_resource(facts: Array, block: int, n_resources: int) -> Array:
    """Return block 0 (std change), 1 (machine), 2 (zone mean), 3 (share) or 4 (has): (K, R)."""
    start = N_PLAIN_FACTS + block * n_resources
    return facts[:, start : start + n_resources]
