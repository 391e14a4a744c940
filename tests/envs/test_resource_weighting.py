"""Weights of the resources against numbers worked out by hand."""

from typing import Any

import numpy as np
import pytest
from tiny import machines, tiny, zone

from marl_sched.config import Experiment
from marl_sched.envs.cluster_env import ClusterEnv
from marl_sched.envs.resource_weighting import LEAST_DEVIATION, MEMORY, ResourceWeighting

CPU, MEMORY_MIB = [0.1, 0.5], [0.2, 0.4]
"""Utilization of two machines: standard deviations .2 and .1."""


def weighting_of(kind: str, **more: Any) -> ResourceWeighting:
    return ResourceWeighting(experiment_of(kind, **more))


def experiment_of(kind: str, **more: Any) -> Experiment:
    return tiny(
        zone("a", machines(3)), zone("b", machines(2)), reward={"resource_weighting": kind}, **more
    )


def moments(*resources: list[float], n_replicas: int = 3) -> np.ndarray:
    """Return (E, R, 3) of machines with the given utilization, the same in all replicas."""
    rows = [[len(r), np.sum(r), np.sum(np.square(r))] for r in resources]
    return np.repeat(np.array(rows)[None], n_replicas, axis=0)


def test_fixed_weights_are_equal_and_see_nothing() -> None:
    weighting = weighting_of("fixed")
    weighting.observe(moments(CPU, MEMORY_MIB))
    assert weighting.weights.tolist() == [1.0, 1.0]
    assert weighting.state() == {}


def test_only_the_ratios_of_given_weights_count() -> None:
    experiment = tiny(reward={"resource_weights": {"cpu_milli": 3.0}})
    assert ResourceWeighting(experiment).weights == pytest.approx([1.5, 0.5])


@pytest.mark.parametrize(
    ("kind", "expected"), [("adaptive", [4 / 3, 2 / 3]), ("adaptive-inverse", [2 / 3, 4 / 3])]
)
def test_adaptive_weights_follow_the_deviations(kind: str, expected: list[float]) -> None:
    weighting = weighting_of(kind)
    assert weighting.weights.tolist() == [1.0, 1.0]
    weighting.observe(moments(CPU, MEMORY_MIB))
    assert weighting.weights == pytest.approx(expected)


def test_running_variance_is_a_mean_at_first_and_forgets_later() -> None:
    weighting = weighting_of("adaptive")
    for _ in range(MEMORY):
        weighting.observe(moments(CPU, MEMORY_MIB))
    for _ in range(MEMORY):
        weighting.observe(moments([0.3, 0.3], MEMORY_MIB))
    # Of the variance of cpu, .04, about 1/e is left.
    assert weighting.state()["variance"] == pytest.approx([0.04 * np.exp(-1), 0.01], rel=1e-3)


def test_replicas_count_alike() -> None:
    both = np.concatenate([moments(CPU, CPU, n_replicas=1), moments(CPU, [0.3, 0.3], n_replicas=1)])
    weighting = weighting_of("adaptive")
    weighting.observe(both)
    assert weighting.state()["variance"] == pytest.approx([0.04, 0.02])


def test_resource_that_nobody_uses_does_not_take_all_the_weight() -> None:
    weighting = weighting_of("adaptive-inverse")
    weighting.observe(moments(CPU, [0.0, 0.0]))
    inverse = np.array([1 / 0.2, 1 / LEAST_DEVIATION])
    assert weighting.weights == pytest.approx(2 * inverse / inverse.sum())


def test_resource_that_does_not_count_has_no_weight() -> None:
    weighting = weighting_of("adaptive", objective={"imbalance_resources": ["memory_mib"]})
    weighting.observe(moments(CPU, MEMORY_MIB))
    assert weighting.weights.tolist() == [0.0, 1.0]


def test_what_was_seen_can_be_carried_over() -> None:
    one, other = weighting_of("adaptive"), weighting_of("adaptive")
    one.observe(moments(CPU, MEMORY_MIB))
    other.load_state(one.state())
    assert other.weights.tolist() == one.weights.tolist()
    for weighting in (one, other):
        weighting.observe(moments([0.0, 0.8], MEMORY_MIB))
    assert other.weights.tolist() == one.weights.tolist()


def test_environment_of_its_own_begins_with_equal_weights_in_every_episode() -> None:
    env = ClusterEnv(experiment_of("adaptive"))
    episodes = [_rewards(env), _rewards(env)]
    assert episodes[0] == episodes[1]
    assert episodes[0] != _rewards(ClusterEnv(experiment_of("fixed")))


def _rewards(env: ClusterEnv) -> list[float]:
    observations, _ = env.reset(seed=3)
    rewards: list[float] = []
    while env.agents:
        actions = {a: int(np.flatnonzero(o["action_mask"])[0]) for a, o in observations.items()}
        observations, given, *_ = env.step(actions)
        rewards += given.values()
    return rewards
