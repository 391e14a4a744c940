import re
from pathlib import Path

import numpy as np
import pytest

from marl_sched.comparing.curves import Curves
from marl_sched.comparing.grid import grid_tables
from marl_sched.comparing.merging import Compared, Speed, add_rival_ratios
from marl_sched.comparing.record import load, save_record
from marl_sched.comparing.study import Setting, Study, StudyPolicy
from marl_sched.comparing.tables import settings_table
from marl_sched.config import load_config
from marl_sched.evaluation import Evaluation, compare
from marl_sched.results import results_page

THREE_AZ = Path(__file__).parents[2] / "configs" / "three-az.yaml"
RIVALS = ["round-robin", "random", "ppo", "reinforce"]
LEVELS = {
    # metric: qrdqn, ppo, random, kube-default
    "objective": (0.5, 0.6, 0.9, 1.0),
    "creation_success_rate": (0.991, 0.991, 0.99, 0.99),
    "imbalance_cpu": (0.2, 0.25, 0.3, 0.25),
    "imbalance_memory": (0.2, 0.2, 0.3, 0.25),
    "imbalance_network": (0.3, 0.2, 0.3, 0.25),
    "mean_completion_s": (90.0, 100.0, 110.0, 100.0),
}


def evaluation(noise: float = 0.001, worse: float = 1.0) -> Evaluation:
    """Four policies at known levels, with a noise of seeds and episodes."""
    experiment = load_config(THREE_AZ, ["evaluation.bootstrap_samples=200"])
    generator = np.random.default_rng(4)

    def values(level: float, n_seeds: int) -> np.ndarray:
        return level * (1.0 + noise * generator.normal(size=(n_seeds, 40)))

    metrics: dict[str, dict[str, np.ndarray]] = {
        policy: {
            metric: values(levels[number] * (worse if policy == "qrdqn" else 1.0), n_seeds)
            for metric, levels in LEVELS.items()
        }
        for number, (policy, n_seeds) in enumerate(
            {"qrdqn": 3, "ppo": 3, "random": 1, "kube-default": 1}.items()
        )
    }
    return add_rival_ratios(compare(experiment, metrics), ["qrdqn"], 1, 200)


def lines(table: str) -> dict[str, list[str]]:
    found = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:1] == "|"]
    return {line[0]: line[1:] for line in found}


def test_policy_is_measured_with_the_best_rival_of_every_metric() -> None:
    found = lines(grid_tables(evaluation(), "qrdqn", RIVALS))
    assert found["imbalance_cpu"][0] == "ppo"
    assert found["imbalance_cpu"][1].startswith("0.8")
    assert found["imbalance_cpu"][2:] == ["0.0%", "better", "better than all"]
    assert found["imbalance_memory"][3:] == ["tied", "better, or tied with ppo"]
    assert found["mean_completion_s"][4] == "better than all"
    assert found["imbalance_network"][3:] == ["worse", "worse: ppo"]
    assert found["creation_success_rate"][0] == "ppo"  # more is better
    assert found["creation_success_rate"][4].startswith("better, or tied with ")


def test_means_of_all_are_shown_with_intervals_and_every_resource() -> None:
    found = lines(grid_tables(evaluation(), "qrdqn", RIVALS))
    header = ["imbalance_cpu", "imbalance_memory", "imbalance_network"]
    assert found["policy"] == [*header, "creation_success_rate", "mean_completion_s"]
    assert set(found) >= {"**qrdqn**", "**ppo**", "random"}
    assert "kube-default" not in found  # none of the rivals
    assert found["random"][0] == "0.300 [0.300, 0.300]"
    assert re.fullmatch(r"0\.\d{5} \[0\.\d{5}, 0\.\d{5}\]", found["random"][3])


def test_sentence_names_what_is_lost_and_who_was_not_played() -> None:
    last = grid_tables(evaluation(), "qrdqn", RIVALS).splitlines()[-1]
    assert last == (
        "Neither best nor tied with the best, by these intervals: imbalance_network. Not played: "
        "round-robin, reinforce."
    )


def test_wide_interval_around_one_is_no_tie() -> None:
    found = lines(grid_tables(evaluation(noise=0.5), "qrdqn", RIVALS))
    assert float(found["imbalance_memory"][2].rstrip("%")) > 2.0
    assert found["imbalance_memory"][4] == "not decided: ppo"


def test_nothing_is_said_without_rivals() -> None:
    assert grid_tables(evaluation(), "qrdqn", ["reinforce"]) == ""
    assert grid_tables(evaluation(), "sarsa", RIVALS) == ""


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """The page of results with a record of two settings."""
    experiment = load_config(THREE_AZ)
    study = Study(
        policies=[StudyPolicy(name="qrdqn"), StudyPolicy(name="ppo", set=["agent.algorithm=ppo"])],
        settings=[Setting(name="own"), Setting(name="busier", set=["workload.load=0.9"])],
    )
    evaluations = {"own": evaluation(), "busier": evaluation(worse=1.5)}
    curves = Curves({"qrdqn": [], "ppo": []}, {})
    compared = Compared(evaluations, {"qrdqn": Speed(1.0, 2.0)}, curves)
    save_record(compared, study, experiment, tmp_path / "1-three-az", "## three-az\n")
    again, _ = load(tmp_path / "1-three-az")
    assert list(again.evaluations) == ["own", "busier"]
    return results_page(tmp_path)


def test_record_of_several_settings_shows_each_and_what_it_is(recorded: str) -> None:
    assert recorded.count(": creation, imbalance, completion (own)\n") == 1
    assert recorded.count(": creation, imbalance, completion (busier)\n") == 1
    # In either setting: two tables of the grid, metric by metric, and the table of all metrics.
    assert recorded.count("| imbalance_network |") == 2 * 4
    assert "- setting busier: `workload.load=0.9`; three-az, hash " in recorded
    assert "- setting own: the configuration as it is; three-az, hash " in recorded
    assert "- policy ppo: `agent.algorithm=ppo`" in recorded
    assert "\n### Objective by setting\n" in recorded


def test_objective_of_every_setting_stands_side_by_side() -> None:
    found = lines(settings_table({"own": evaluation(), "busier": evaluation(worse=1.5)}))
    assert found["objective"] == ["own", "busier"]
    assert [cell[:5] for cell in found["**qrdqn**"]] == ["0.500", "0.750"]
    assert [cell[:5] for cell in found["random"]] == ["0.900", "0.900"]
