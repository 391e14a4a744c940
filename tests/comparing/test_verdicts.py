from pathlib import Path

import numpy as np
import pytest

from marl_sched.comparing.merging import add_rival_ratios
from marl_sched.comparing.tables import check_table, rival_table
from marl_sched.comparing.verdicts import checks, load_bars, verdict
from marl_sched.config import load_config
from marl_sched.evaluation import Evaluation, compare
from marl_sched.statistics import Ratio

BASE = Path(__file__).parents[2] / "configs" / "base.yaml"


def ratio(low: float, high: float, metric: str = "objective") -> Ratio:
    return Ratio("a", "b", metric, (low + high) / 2, low, high, None, None, None)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (ratio(0.9, 0.95), "better"),
        (ratio(1.01, 1.1), "worse"),
        (ratio(0.985, 1.015), "tied"),
        (ratio(0.95, 1.01), "better or tied"),
        (ratio(0.99, 1.05, "creation_success_rate"), "better or tied"),
        (ratio(0.95, 1.03), "not decided"),
        (ratio(0.99, 1.03), "not decided"),
        (ratio(1.01, 1.1, "creation_success_rate"), "better"),
        (ratio(0.9, 0.95, "offload_rate"), ""),
    ],
)
def test_verdict_claims_no_more_than_the_interval_shows(found: Ratio, says: str) -> None:
    assert verdict(found) == says


def evaluation(level: float, n_seeds: int = 5, n_episodes: int = 100) -> Evaluation:
    """A policy at a level of kube-default, a rival of its own strength, in base."""
    experiment = load_config(BASE, ["evaluation.bootstrap_samples=200"])
    episode = np.exp(np.random.default_rng(1).normal(0, 0.3, n_episodes))
    seeds = 1 + 0.004 * np.random.default_rng(2).normal(size=(n_seeds, n_episodes))
    twins = 1 + 0.004 * np.random.default_rng(3).normal(size=(n_seeds, n_episodes))
    metrics = {
        name: {
            "objective": values,
            "imbalance_cpu": values,
            "creation_success_rate": values * 0 + 1,
        }
        for name, values in (
            ("qrdqn", level * episode * seeds),
            ("double-dqn", level * episode * twins),
            ("kube-default", episode[None]),
            ("random", 1.2 * episode[None]),
        )
    }
    return add_rival_ratios(compare(experiment, metrics), ["qrdqn"], 1, 200)


def marks(found: Evaluation) -> dict[str, str]:
    table = check_table(checks({"own": found}, ["qrdqn"], load_bars()))
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {line[0]: line[-1] for line in cells}


def test_bars_are_checked_against_the_ratios() -> None:
    found = marks(evaluation(0.8))
    assert found["objective of qrdqn vs kube-default"] == "reached"
    assert found["imbalance_cpu of qrdqn vs kube-default"] == "reached, the aim too"
    assert found["imbalance_cpu of qrdqn vs double-dqn"] == "reached"
    assert found["creation_success_rate of qrdqn vs double-dqn"] == "reached"
    missed = marks(evaluation(0.9))
    assert missed["objective of qrdqn vs kube-default"] == "**not reached**"


def test_no_bar_is_claimed_on_too_few_seeds_or_episodes() -> None:
    found = marks(evaluation(0.8, n_seeds=2, n_episodes=20))
    said = found["objective of qrdqn vs kube-default"]
    assert said == "not claimed: 2 of 5 training seeds and 20 of 100 episodes"


def test_rival_of_equal_strength_is_a_tie_and_a_rule_is_beaten() -> None:
    lines = rival_table(evaluation(0.8), "qrdqn").splitlines()
    by_rival = {
        line.split(" | ")[0].strip("| "): line.rstrip(" |").split(" | ")[-1] for line in lines
    }
    assert by_rival["double-dqn"] == "tied"
    assert by_rival["random"] == "better"
