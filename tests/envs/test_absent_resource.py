"""Zones with gpus on some, all and none of their machines: nothing is NaN, and every rule plays."""

from typing import Any

import numpy as np
import pytest
from tiny import Cluster, at_random, with_gpus_on_some

from marl_sched import check_env
from marl_sched.agents.heuristics import FIXED_RULES, FixedRule, RoundRobin
from marl_sched.agents.tuned import TunedRule, default_weights
from marl_sched.envs.cluster_env import ClusterEnv
from marl_sched.envs.vector import VectorEnv
from marl_sched.observation import LIMIT, Layout, Observation

LAYOUT = Layout(("cpu_milli", "memory_mib", "gpu"))
UNMASKED = {"peer_queue_allowance": 0.3, "placement": "unmasked"}
OF_GPUS = [
    name for name in LAYOUT.candidate if name.endswith(":gpu") and "free_share_after" not in name
]


def policy_of(name: str) -> Any:
    if name == "tuned":
        return TunedRule(LAYOUT, default_weights(LAYOUT))
    return RoundRobin(LAYOUT) if name == "round-robin" else FixedRule(name, LAYOUT)


@pytest.mark.parametrize("changes", [{}, {"cluster": UNMASKED}, {"reward": {"name": "composite"}}])
def test_mixed_cluster_passes_our_check(changes: dict[str, Any]) -> None:
    env = ClusterEnv(with_gpus_on_some(**changes))
    check_env(env, n_steps=2000)
    assert not env.agents  # the whole episode was played


@pytest.mark.parametrize("cluster", [{}, UNMASKED])
def test_columns_of_what_a_candidate_does_not_have_are_0(cluster: dict[str, Any]) -> None:
    experiment = with_gpus_on_some(cluster=cluster)
    without = {"a": [2, 4], "b": [3], "c": [0, 1]}  # machines, then the peer c
    columns = [LAYOUT.candidate_index(name) for name in OF_GPUS]
    after = LAYOUT.candidate_index("free_share_after:gpu")
    asks = LAYOUT.instance.index("request:gpu")
    n_asking = 0

    def look(name: str, seen: Observation) -> None:
        nonlocal n_asking
        for array in (seen.instance, seen.candidates, seen.zone):
            assert np.isfinite(array).all()
            assert np.abs(array).max() <= LIMIT
        rows = seen.candidates[0, without[name]]
        assert (rows[:, columns] == 0).all()
        is_asking = bool(seen.instance[0, asks] > 0)
        assert rows[:, after].tolist() == [-float(is_asking)] * len(rows)
        if not cluster and is_asking:
            assert not seen.mask[0, without[name]].any()
        n_asking += is_asking

    Cluster(experiment).draw("train", [0]).play(at_random(2), each=look)
    assert n_asking > 10


@pytest.mark.parametrize("reward", ["outcome", "balance", "composite"])
def test_rewards_are_finite(reward: str) -> None:
    experiment = with_gpus_on_some(
        cluster=UNMASKED,
        reward={"name": reward},
        objective={"imbalance_resources": ["cpu_milli", "gpu"]},
    )
    cluster = Cluster(experiment, n_replicas=2).draw("train", [0, 1]).play(at_random(3))
    amounts = [value for one in cluster.settled.values() for many in one.values() for value in many]
    assert len(amounts) > 50
    assert np.isfinite(amounts).all()


@pytest.mark.parametrize("cluster", [{}, UNMASKED])
@pytest.mark.parametrize("name", [*FIXED_RULES, "tuned"])
def test_every_rule_plays_an_episode(name: str, cluster: dict[str, Any]) -> None:
    env = VectorEnv(with_gpus_on_some(cluster=cluster), 2)
    policies = {zone: policy_of(name) for zone in env.zones}
    metrics = env.run(policies, "test", [0, 1])
    assert all(np.isfinite(values).all() for values in metrics.values())
    assert (metrics["allocation_ratio_gpu"] > 0).all()


def test_weighted_play_is_that_of_the_rule() -> None:
    experiment = with_gpus_on_some()
    rule = TunedRule(LAYOUT, default_weights(LAYOUT))
    env = VectorEnv(experiment, 1, with_rewards=False)
    fast = env.run_weighted(rule.weights, "tune", [0])
    slow = env.run(dict.fromkeys(env.zones, rule), "tune", [0])
    for name, values in fast.items():
        assert values.tobytes() == slow[name].tobytes(), name
