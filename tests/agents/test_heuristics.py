from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from marl_sched.agents.heuristics import (
    FIXED_RULES,
    FixedRule,
    RoundRobin,
    make_policy,
    rule_factory,
)
from marl_sched.agents.tuned import TunedRule, default_weights
from marl_sched.config import Experiment, load_config
from marl_sched.errors import ConfigError
from marl_sched.observation import Layout, Observation

CONFIGS = Path(__file__).parents[2] / "configs"
LAYOUT = Layout(("cpu_milli", "memory_mib"))
N_PEERS = 2


@pytest.fixture(scope="module")
def base() -> Experiment:
    return load_config(CONFIGS / "base.yaml")


def observe(n_machines: int, n_rows: int = 1, **features: object) -> Observation:
    """Hand-made decisions: `free_share_after__cpu_milli=[...]` sets a machine feature by name."""
    n_candidates = n_machines + N_PEERS
    candidates = np.zeros((n_rows, n_candidates, len(LAYOUT.candidate)), np.float32)
    for name, values in features.items():
        kind, _, feature = name.partition("_")
        part = slice(0, n_machines) if kind == "machine" else slice(n_machines, None)
        candidates[:, part, LAYOUT.candidate_index(feature.replace("__", ":"))] = values
    return Observation(
        replica=np.arange(n_rows),
        decision=np.arange(n_rows) * 7,
        instance=np.full((n_rows, len(LAYOUT.instance)), 0.1, np.float32),  # asks for both
        candidates=candidates,
        zone=np.zeros((n_rows, len(LAYOUT.zone)), np.float32),
        mask=np.ones((n_rows, n_candidates), bool),
        n_machines=n_machines,
    )


def choose(name: str, observation: Observation, seed: int = 0) -> NDArray[np.int64]:
    rule = RoundRobin(LAYOUT) if name == "round-robin" else FixedRule(name, LAYOUT)
    rule.reset(len(observation), np.random.default_rng(seed))
    return rule.act(observation)


def free_after(cpu: list[float], memory: list[float]) -> dict[str, list[float]]:
    return {
        "machine_free_share_after__cpu_milli": cpu,
        "machine_free_share_after__memory_mib": memory,
    }


def test_kube_default_adds_both_scores() -> None:
    # machine 0: least (40 + 40) / 2 = 40, balanced 100        -> 140
    # machine 1: least (80 + 19) / 2 = 49, balanced 100 - 30.5 -> 49 + 69 = 118
    # machine 2: least (70 + 50) / 2 = 60, balanced 100 - 10   -> 150
    observation = observe(3, **free_after([0.4, 0.8, 0.7], [0.4, 0.19, 0.5]))
    assert choose("kube-default", observation).tolist() == [2]


def test_kube_default_filters_machines_that_do_not_fit() -> None:
    observation = observe(2, **free_after([0.9, 0.1], [-0.01, 0.1]))
    assert choose("kube-default", observation).tolist() == [1]


def test_kube_default_breaks_ties_over_all_the_best() -> None:
    observation = observe(
        4, n_rows=400, **free_after([0.5, 0.504, 0.1, 0.5], [0.5, 0.504, 0.1, 0.5])
    )
    counts = np.bincount(choose("kube-default", observation), minlength=4)
    assert counts[2] == 0
    assert (counts[[0, 1, 3]] > 100).all()


def test_random_ties_depend_on_the_decision_but_not_on_the_batch() -> None:
    observation = observe(5, n_rows=6, **free_after([0.5] * 5, [0.5] * 5))
    whole = choose("kube-default", observation)
    observation.decision = observation.decision[[3]]
    for name in ("replica", "instance", "candidates", "zone", "mask"):
        setattr(observation, name, getattr(observation, name)[[0]])
    assert choose("kube-default", observation) == whole[3]
    assert len(set(whole.tolist())) > 1


@pytest.mark.parametrize(
    ("name", "features", "expected"),
    [
        ("first-fit", free_after([-0.1, 0.3, 0.1], [0.5, 0.3, 0.1]), 1),
        ("best-fit", free_after([-0.5, 0.3, 0.1], [0.5, 0.3, 0.1]), 2),
        ("least-allocated", free_after([0.3, 0.5, 0.2], [0.3, 0.2, 0.3]), 1),
        ("least-connections", {"machine_running": [2.0, 1.0, 3.0]}, 1),
        (
            "least-real-use",
            {
                "machine_utilization_after__cpu_milli": [0.2, 0.6, 0.3],
                "machine_utilization_after__memory_mib": [0.9, 0.6, 0.7],
            },
            2,
        ),
        (
            "balance-real-use",
            {
                "machine_imbalance_change__cpu_milli": [0.2, -0.1, -0.3],
                "machine_imbalance_change__memory_mib": [-0.2, -0.1, 0.2],
            },
            1,
        ),
        ("tetris", {"machine_alignment": [0.1, 0.2, 0.3]}, 2),
        ("earliest-finish", {"machine_expected_duration": [1.4, 0.8, 1.0]}, 1),
        ("cheapest", {"machine_cost": [0.4, 0.8, 0.1]}, 2),
        (
            # Free shares 0, after -r: request r = .1 of every machine (kept at 0 + .1 here).
            # machine 0: cpu mu .3 + .1, sigma .1 -> risk .25; memory mu .1 -> .05; score 75
            # machine 1: cpu mu .2 + .1, sigma .3 -> risk .30; score 70
            # machine 2: cpu 0 + .1; memory mu .5 + .1, sigma 0 -> .30; score 70
            "load-variation-risk",
            {
                "machine_free_share__cpu_milli": [0.5, 0.5, 0.5],
                "machine_free_share__memory_mib": [0.5, 0.5, 0.5],
                **free_after([0.4, 0.4, 0.4], [0.4, 0.4, 0.4]),
                "machine_utilization_mean__cpu_milli": [0.3, 0.2, 0.0],
                "machine_utilization_mean__memory_mib": [0.0, 0.0, 0.5],
                "machine_utilization_sd__cpu_milli": [0.1, 0.3, 0.0],
            },
            0,
        ),
    ],
)
def test_rule_takes_the_best_machine(
    name: str, features: dict[str, list[float]], expected: int
) -> None:
    observation = observe(3, **features)
    assert choose(name, observation).tolist() == [expected]


def test_round_robin_goes_on_after_the_last_machine_of_each_replica() -> None:
    rule = RoundRobin(LAYOUT)
    rule.reset(2, np.random.default_rng(0))
    observation = observe(3, n_rows=2)
    observation.mask[1, 1] = False
    taken = [rule.act(observation).tolist() for _ in range(4)]
    assert taken == [[0, 0], [1, 2], [2, 0], [0, 2]]


def test_round_robin_does_not_move_on_when_it_offloads() -> None:
    rule = RoundRobin(LAYOUT)
    rule.reset(1, np.random.default_rng(0))
    open_here, full_here = observe(3), observe(3)
    full_here.mask[:, :3] = False
    taken = [int(rule.act(o)[0]) for o in (open_here, full_here, open_here)]
    assert taken == [0, 3, 1]


@pytest.mark.parametrize("name", FIXED_RULES)
def test_fixed_rule_offloads_only_when_nothing_fits_here(name: str) -> None:
    # Peer 3: .4 + .4 - 1.0 = -.2; peer 4: .9 + .3 - 1.5 = -.3.
    peers = {
        "peer_free_share__cpu_milli": [0.4, 0.9],
        "peer_free_share__memory_mib": [0.4, 0.3],
        "peer_expected_duration": [1.0, 1.5],
    }
    observation = observe(3, n_rows=3, **peers)
    observation.mask[1, :3] = False
    observation.mask[2, :4] = False
    actions = choose(name, observation)
    assert actions[0] < 3
    assert actions[1:].tolist() == [3, 4]


def test_in_unmasked_placement_only_rules_with_a_fit_check_offload() -> None:
    observation = observe(2, **free_after([-0.1, -0.2], [0.1, 0.1]))
    assert choose("kube-default", observation)[0] >= 2
    assert choose("least-allocated", observation)[0] == 0


def test_fit_check_is_dropped_where_no_other_choice_is_left() -> None:
    observation = observe(2, **free_after([-0.3, -0.2], [0.1, 0.1]))
    observation.mask[:, 2:] = False
    assert choose("best-fit", observation)[0] == 0


THREE = Layout(("cpu", "memory", "gpu"))


def observe_gpus(has: list[bool], asked: float, **features: list[list[float]]) -> Observation:
    """One decision between machines with and without gpus; features (M, R) by name."""
    candidates = np.zeros((1, len(has), len(THREE.candidate)), np.float32)
    sizes = [[1.0, 1.0, float(one)] for one in has]
    for name, values in {"relative_size": sizes, **features}.items():
        candidates[0][:, THREE.candidate_indices(name)] = values
    instance = np.zeros((1, len(THREE.instance)), np.float32)
    instance[0, [THREE.instance.index(f"request:{r}") for r in THREE.resources]] = (0.1, 0.1, asked)
    return Observation(
        replica=np.zeros(1, np.int64),
        decision=np.zeros(1, np.int64),
        instance=instance,
        candidates=candidates,
        zone=np.zeros((1, len(THREE.zone)), np.float32),
        mask=np.ones((1, len(has)), bool),
        n_machines=len(has),
    )


@pytest.mark.parametrize(
    ("name", "feature", "expected"),
    [
        # Means over what a machine has: .5 and .4; over all three they would be .33 and .4.
        ("least-allocated", "free_share_after", 0),
        ("best-fit", "free_share_after", 1),
        ("least-real-use", "utilization_after", 1),
        # A change of the zone's balance counts whole: 1.0 and 1.2 in sum.
        ("balance-real-use", "imbalance_change", 0),
    ],
)
def test_rule_leaves_out_what_a_machine_does_not_have(
    name: str, feature: str, expected: int
) -> None:
    values = {feature: [[0.5, 0.5, 0.0], [0.4, 0.4, 0.4]]}
    observation = observe_gpus([False, True], 0.0, **values)
    rule = FixedRule(name, THREE)
    rule.reset(1, np.random.default_rng(0))
    assert rule.act(observation).tolist() == [expected]


@pytest.mark.parametrize("name", ["first-fit", "best-fit", "kube-default", "tetris"])
def test_fit_check_asks_only_for_what_is_requested(name: str) -> None:
    # Less than nothing is free of the gpus of machine 0, and machine 1 has none: -1 for who asks.
    rule = FixedRule(name, THREE)
    rule.reset(1, np.random.default_rng(0))
    plain = {
        "free_share": [[0.6, 0.6, -0.2], [0.0, 0.6, 0.0]],
        "free_share_after": [[0.5, 0.5, -0.2], [-0.1, 0.5, 0.0]],
    }
    assert rule.act(observe_gpus([True, False], 0.0, **plain)).tolist() == [0]
    asking = {"free_share_after": [[0.5, 0.5, -1.0], [0.2, 0.2, 0.0]]}
    assert rule.act(observe_gpus([False, True], 0.5, **asking)).tolist() == [1]


def test_random_picks_every_unmasked_machine_about_equally() -> None:
    observation = observe(4, n_rows=3000)
    observation.mask[:, 1] = False
    counts = np.bincount(choose("random", observation), minlength=4)
    assert counts[1] == 0
    # Binomial(3000, 1/3): six standard deviations are 155.
    assert np.abs(counts[[0, 2, 3]] - 1000).max() < 155


def test_zones_do_not_share_a_rule_that_has_state(base: Experiment) -> None:
    make = rule_factory("round-robin", LAYOUT, base)
    first, second = make("zone_0"), make("zone_1")
    for rule in (first, second):
        rule.reset(1, np.random.default_rng(0))
    taken = [int(rule.act(observe(3))[0]) for rule in (first, first, second)]
    assert taken == [0, 1, 0]


def test_unknown_rule_is_named(base: Experiment) -> None:
    with pytest.raises(ConfigError, match=r"policy = fifo, expected one of random, round-robin"):
        make_policy("fifo", LAYOUT, base)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from([*FIXED_RULES, "tuned"]))
def test_no_rule_picks_a_masked_candidate(data: st.DataObject, name: str) -> None:
    n_machines, n_peers, n_rows = (data.draw(st.integers(*b)) for b in ((1, 5), (0, 3), (1, 4)))
    layout = Layout(data.draw(st.sampled_from([("cpu", "memory"), ("cpu", "memory", "network")])))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_candidates = n_machines + n_peers
    mask = generator.random((n_rows, n_candidates)) < data.draw(st.sampled_from([0.2, 0.8]))
    mask[np.arange(n_rows), generator.integers(n_candidates, size=n_rows)] = True
    observation = Observation(
        replica=np.arange(n_rows),
        decision=generator.integers(10_000, size=n_rows),
        instance=np.zeros((n_rows, len(layout.instance)), np.float32),
        candidates=generator.uniform(-10, 10, (n_rows, n_candidates, len(layout.candidate))).astype(
            np.float32
        ),
        zone=np.zeros((n_rows, len(layout.zone)), np.float32),
        mask=mask,
        n_machines=n_machines,
    )
    if name == "tuned":
        rule = TunedRule(layout, default_weights(layout))
    else:
        rule = RoundRobin(layout) if name == "round-robin" else FixedRule(name, layout)
    rule.reset(n_rows, generator)
    for _ in range(2):
        actions = rule.act(observation)
        assert actions.shape == (n_rows,)
        assert mask[np.arange(n_rows), actions].all()
