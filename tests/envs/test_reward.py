"""The three rewards against numbers worked out by hand."""

from typing import Any

import numpy as np
import pytest
from tiny import Cluster, Job, Task, machines, sending, table, zone
from tiny import tiny as tiny_of

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
    N_FACT_BLOCKS,
    N_PLAIN_FACTS,
)
from marl_sched.config import Experiment, Reward
from marl_sched.envs.resource_weighting import ResourceWeighting
from marl_sched.envs.reward import (
    EXTERNALITY_CAP,
    RewardFunction,
    balance,
    composite,
    make_reward,
    outcome,
)
from marl_sched.workload.episodes import draw_workload

BOTH = np.array([1.0, 1.0])

PLAIN = {"offload": 1.0, "imbalance": 1.0, "externality": 0.0}
"""Weights that the numbers below were worked out with; an agent with a prior has others."""


def tiny(
    *zones: dict[str, Any], reward: dict[str, Any] | None = None, **changes: Any
) -> Experiment:
    return tiny_of(*zones, reward=PLAIN | (reward or {}), **changes)


def reward_of(experiment: Experiment) -> RewardFunction:
    return make_reward(experiment, experiment.zones[0], ResourceWeighting(experiment))


def _facts(blocks: list[list[float]] | None = None, **values: float) -> np.ndarray:
    """One row of facts of two resources.

    The blocks are std change, machine, zone mean, share, and whether the machine has it (it does).
    """
    columns = {
        "wait": FACT_WAIT_S,
        "duration": FACT_DURATION_S,
        "work": FACT_WORK_S,
        "reference": FACT_REFERENCE_S,
        "late": FACT_LATE,
        "violated": FACT_VIOLATED,
        "by_work": FACT_VIOLATED_BY_WORK,
        "cost": FACT_COST,
        "transfer": FACT_TRANSFER_S,
        "behind": FACT_BEHIND,
        "failed": FACT_IS_FAILED,
    }
    row = np.zeros(N_PLAIN_FACTS + 2 * N_FACT_BLOCKS)
    row[FACT_REFERENCE_S] = 1.0
    for name, value in values.items():
        row[columns[name]] = value
    has = [[1.0, 1.0]] if blocks is None or len(blocks) < N_FACT_BLOCKS else []
    row[N_PLAIN_FACTS:] = np.ravel([*(blocks or [[0.0, 0.0]] * 4), *has])
    return row[None]


def _outcome(facts: np.ndarray, rate: float = 0.0, **weights: float) -> float:
    nothing = dict.fromkeys(("late", "finish_violation", "slowdown", "cost", "imbalance"), 0.0)
    return float(outcome(facts, Reward(**{**nothing, **weights}), BOTH, rate)[0])


def test_outcome_charges_a_late_start() -> None:
    assert _outcome(_facts(late=1.0), late=1.5) == -1.5


def test_outcome_forgives_a_violation_that_the_work_alone_makes() -> None:
    assert _outcome(_facts(violated=1.0), finish_violation=2.0) == -2.0
    assert _outcome(_facts(violated=1.0, by_work=1.0), finish_violation=2.0) == 0.0
    # A fast machine that beats the work's own violation is a gain.
    assert _outcome(_facts(by_work=1.0), finish_violation=2.0) == 2.0


def test_outcome_slowdown_is_capped_waiting_plus_duration_beyond_work() -> None:
    facts = _facts(wait=5.0, duration=26.0, work=20.0, reference=10.0)
    assert _outcome(facts, slowdown=0.5) == pytest.approx(-0.5 * (0.5 + 0.6))
    assert _outcome(_facts(wait=200.0, reference=10.0), slowdown=0.5) == pytest.approx(-5.0)


def test_outcome_charges_minutes_of_long_and_short_tasks_alike() -> None:
    facts = _facts(wait=5.0, duration=26.0, work=20.0, reference=10.0)
    assert _outcome(facts, completion=2.0) == pytest.approx(-2.0 * (5.0 + 6.0) / 60.0)
    slow = _facts(wait=5.0, duration=26.0, work=20.0, reference=1000.0)
    assert _outcome(slow, completion=2.0) == pytest.approx(-2.0 * (5.0 + 6.0) / 60.0)
    assert _outcome(_facts(wait=200.0, reference=10.0), completion=1.0) == pytest.approx(-100 / 60)


def test_outcome_charges_cost() -> None:
    assert _outcome(_facts(cost=0.8), cost=0.5) == pytest.approx(-0.4)


def test_outcome_charges_imbalance_for_as_long_as_it_is_expected_to_last() -> None:
    facts = _facts([[0.02, -0.005], [0, 0], [0, 0], [0, 0]], reference=30.0)
    assert _outcome(facts, rate=2.0, imbalance=1.4) == pytest.approx(-1.4 * 0.015 * 30 * 2)
    config = Reward(late=0.0, finish_violation=0.0, slowdown=0.0, cost=0.0, imbalance=1.0)
    only_memory = outcome(facts, config, np.array([0.0, 1.0]), 1.0)
    assert only_memory[0] == pytest.approx(0.005 * 30)


def test_outcome_charges_those_held_up_behind() -> None:
    blocks = [[0, 0], [0, 0], [0, 0], [0.1, 0.2]]
    facts = _facts(blocks, behind=6.0, reference=120.0)
    assert _outcome(facts, externality=0.5) == pytest.approx(-0.5 * 6 * 0.2 * 2)
    many = _facts(blocks, behind=1e6, reference=60.0)
    assert _outcome(many, externality=1.0) == pytest.approx(-EXTERNALITY_CAP * 0.2)


def test_failed_creation_has_its_own_price() -> None:
    facts = _facts(failed=1.0, late=1.0, violated=1.0)
    config = Reward(failed_creation=3.0)
    assert outcome(facts, config, BOTH, 1.0).tolist() == [-3.0]
    assert composite(facts, config, np.array([0.5, 0.5])).tolist() == [-3.0]
    assert balance(facts, 2).tolist() == [-1.0]


@pytest.mark.parametrize("broken", ["late", "violated", "failed"])
def test_balance_is_minus_one_on_a_violation(broken: str) -> None:
    assert balance(_facts(**{broken: 1.0}), 2).tolist() == [-1.0]


def test_balance_rewards_the_less_used_machine() -> None:
    facts = _facts([[0, 0], [0.5, 0.1], [0.3, 0.4], [0, 0]])
    assert balance(facts, 2)[0] == pytest.approx((-0.2 + 0.3) / 2)


def test_balance_is_the_mean_over_what_the_machine_has() -> None:
    facts = _facts([[0, 0], [0.5, 0.0], [0.3, 0.4], [0, 0], [1, 0]])
    assert balance(facts, 2)[0] == pytest.approx(-0.2)


def test_composite_weighs_what_the_machine_has() -> None:
    facts = _facts([[0, 0], [0.8, 0.0], [0, 0], [0, 0], [1, 0]])
    config = Reward(name="composite", alpha=0.5, beta=0.0)
    assert composite(facts, config, np.array([0.75, 0.25]))[0] == pytest.approx(0.5 * 0.8)
    assert composite(facts, config, np.array([0.0, 1.0]))[0] == 0.0


def test_composite_weighs_utilization_quality_cost_and_transfer() -> None:
    facts = _facts(
        [[0, 0], [0.8, 0.4], [0, 0], [0, 0]], late=1.0, cost=0.6, transfer=3.0, reference=10.0
    )
    config = Reward(name="composite", alpha=0.5, beta=0.3, gamma=0.1, delta=0.2)
    found = composite(facts, config, np.array([0.75, 0.25]))
    utilization = 0.75 * 0.8 + 0.25 * 0.4
    assert found[0] == pytest.approx(0.5 * utilization + 0.3 * 0.5 - 0.1 * 0.6 - 0.2 * 0.3)


def test_resource_weights_are_normalised() -> None:
    reward = {"name": "composite", "resource_weights": {"cpu_milli": 3.0}}
    experiment = tiny(zone("a"), reward=reward)
    facts = _facts([[0, 0], [0.8, 0.4], [0, 0], [0, 0]])
    found = reward_of(experiment)(facts)
    assert found[0] == pytest.approx(0.5 * (0.75 * 0.8 + 0.25 * 0.4) + 0.3)


def test_rate_is_measured_on_tune_episodes_where_none_is_set() -> None:
    experiment = tiny(zone("a"), reward={"imbalance_rate": None, "imbalance": 1.0})
    a = experiment.zones[0]
    counts = [draw_workload(experiment, a, "tune", e).n_instances for e in range(4)]
    facts = _facts([[0.1, 0.0], [0, 0], [0, 0], [0, 0]])
    rate = sum(counts) / 4 / 60.0
    assert reward_of(experiment)(facts)[0] == pytest.approx(-0.1 * rate)


def test_facts_of_a_start_are_those_of_the_hand_worked_placement() -> None:
    experiment = tiny(
        zone("a", machines(price_per_hour=3.0), machines(speed=2.0)),
        reward={"imbalance_rate": 0.25, "externality": 0.0},
    )
    # Both machines are full: the one of speed 2 for 2 s, the other for 4 s.
    blocker = Task([4.0], (4000, 1024), (1000, 512))
    other = Task([4.0], (4000, 1024), (0, 0))
    task = Task([10.0], (3000, 1024), (3000, 2048), late_s=2.5, finish_s=16.0, reference_s=8.0)
    jobs = table(Job(0.0, [blocker, other]), Job(1.0, [task]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    rewards = cluster.settled["a"][0, 2]
    # It starts at 2 on machine 1: u = 0.75, so 1.4 / 2 times its work: 7 s; 1 s of waiting is not
    # late. The largest share is 0.75, the price 1. The std of cpu goes from that of (0.25, 0) to
    # that of (0.25, 0.75), of memory from (1/16, 0) to (1/16, 1/4).
    slowdown = 1 / 8 + (7 - 10) / 8
    change = (0.25 - 0.125) + (0.09375 - 0.03125)
    penalty = 0.5 * slowdown + 0.5 * 0.75 * 7 / 8 + change * 8 * 0.25
    assert rewards == [pytest.approx(-penalty)]


def test_late_start_and_violated_finish_reach_the_reward() -> None:
    experiment = tiny(
        zone("a"),
        cluster={"interference": 0.0},
        reward={"imbalance": 0.0, "cost": 0.0, "slowdown": 0.0},
    )
    blocker = Task([20.0], (4000, 1024))
    late = Task([3.0], (4000, 1024), late_s=18.9, finish_s=22.0)
    in_time = Task([2.0], (4000, 1024), late_s=30.0, finish_s=24.0)
    jobs = table(Job(0.0, [blocker]), Job(1.0, [late]), Job(1.0, [in_time]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    # Waits 19 s and 22 s; finish - ready 22 s and 24 s: exactly the limits, so not violated.
    assert [cluster.settled["a"][0, number] for number in range(3)] == [[0.0], [-1.0], [0.0]]


@pytest.mark.parametrize(
    ("name", "penalty"), [("outcome", 1.0), ("composite", 0.1), ("balance", 0.0)]
)
def test_the_sender_pays_for_the_offload(name: str, penalty: float) -> None:
    experiment = tiny(zone("a"), zone("b"), reward={"name": name})
    jobs = table(Job(0.0, [Task([5.0])]))
    cluster = Cluster(experiment).start({"a": jobs}).play(sending(("a", 0)))
    (placed,) = cluster.settled["b"][0, 0]
    (sent,) = cluster.settled["a"][0, 0]
    assert sent == pytest.approx(placed - penalty, abs=1e-12)


def test_every_sender_of_a_chain_pays_once() -> None:
    experiment = tiny(zone("a"), zone("b"), zone("c"), cluster={"max_hops": 2})
    jobs = table(Job(0.0, [Task([5.0])]))

    def act(name: str, observation: object) -> np.ndarray:
        return sending(("a", 0), ("b", 0), peer=1 if name == "b" else 0)(name, observation)

    cluster = Cluster(experiment).start({"a": jobs}).play(act)
    placed = cluster.settled["c"][0, 0]
    assert cluster.settled["b"][0, 0] == [pytest.approx(placed[0] - 1.0)]
    assert cluster.settled["a"][0, 0] == [pytest.approx(placed[0] - 1.0)]


def test_an_offload_that_is_never_placed_is_settled_at_the_end() -> None:
    experiment = tiny(
        zone("a"),
        zone("b"),
        cluster={"interference": 0.0},
        reward={"imbalance": 0.0, "cost": 0.0, "slowdown": 0.0},
    )
    tables = {
        "a": table(Job(3.0, [Task([5.0], (4000, 1024))])),
        "b": table(Job(1.0, [Task([300.0], (4000, 1024))])),
    }
    cluster = Cluster(experiment).start(tables).play(sending(("a", 0)))
    assert cluster.rows("b")["machine"].tolist()[1] == -1
    # Late 1, violated 2 and the offload 1.
    assert cluster.settled["a"][0, 0] == [pytest.approx(-4.0)]


def test_an_offload_still_on_its_way_at_the_end_is_settled() -> None:
    experiment = tiny(zone("a"), zone("b"), reward={"imbalance": 0.0, "slowdown": 0.0})
    jobs = table(Job(119.0, [Task([5.0], (4000, 8192))]))
    cluster = Cluster(experiment).start({"a": jobs}).play(sending(("a", 0)))
    assert cluster.settled["a"][0, 0] == [pytest.approx(-3.0)]
    sums = [env.finish().sums[0, 0] for env in cluster.zones.values()]
    assert sums == [0.0, 1.0]


def test_evaluation_without_rewards_settles_nothing_and_counts_the_same() -> None:
    from marl_sched.agents.heuristics import make_policy
    from marl_sched.envs.vector import VectorEnv

    experiment = tiny(
        zone("a", failures={"mean_up_s": 30.0, "mean_down_s": 5.0}), zone("b", machines(2))
    )
    found = []
    for with_rewards in (True, False):
        env = VectorEnv(experiment, 2, with_rewards)
        layout = env.zones["a"].layout
        policies = {name: make_policy("random", layout, experiment) for name in env.zones}
        metrics = env.run(policies, "test", [0, 1])
        found.append({name: values for name, values in metrics.items() if "latency" not in name})
    assert len(env.zones["a"].settlements().reward) == 0
    for name, values in found[0].items():
        assert values.tobytes() == found[1][name].tobytes(), name
