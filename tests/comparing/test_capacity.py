from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marl_sched.comparing.capacity import Capacity, load_capacity, measure
from marl_sched.comparing.capacity_report import (
    largest_load_table,
    save_record,
    sections,
    violation_table,
)
from marl_sched.comparing.tables import check_table
from marl_sched.comparing.verdicts import load_bars, load_checks
from marl_sched.config import load_config
from marl_sched.errors import RunError
from marl_sched.results import results_page
from marl_sched.statistics import Bootstrap

ROOT = Path(__file__).parents[2]
SHARES = (0.5, 1.0, 1.5)
ORIGIN = {
    "experiment": "three-az",
    "config_hash": "0" * 16,
    "seed": 1,
    "split": "test",
    "n_episodes": 120,
    "replicas": 10,
    "bootstrap_samples": 300,
    "duration_knowledge": "type",
    "placement": "masked",
    "versions": {"python": "3"},
    "configured_load": 0.8,
}


def capacity(slope: float = 0.04, n_seeds: int = 5, n_episodes: int = 120) -> Capacity:
    """Violations rise with the load beyond .5, with some noise of episodes and seeds.

    kube-default breaks the bound at 1.0, a learned policy at .5 + .05 / its slope, random at once.
    """
    generator = np.random.default_rng(3)
    noise = 0.004 * generator.normal(size=n_episodes)
    seeds = 0.002 * generator.normal(size=(n_seeds, 1))
    excess = np.array(SHARES) - 0.5
    violations = {
        "learned": [slope * x + noise + seeds for x in excess],
        "kube-default": [(0.1 * x + noise)[None] for x in excess],
        "random": [np.full((1, n_episodes), 0.2) for _ in SHARES],
    }
    origin = ORIGIN | {"n_episodes": n_episodes}
    return measure(SHARES, violations, 0.05, Bootstrap(1, 300, n_episodes), origin)


def cells(table: str) -> dict[str, list[str]]:
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {line[0].strip("*"): line[1:] for line in lines if len(line) > 1}


def test_violations_are_means_over_seeds_and_episodes() -> None:
    found = capacity(0.06)
    by_policy = {one.policy: one for one in found.loads}
    assert [one.policy for one in found.by_load] == ["learned", "kube-default", "random"]
    assert by_policy["kube-default"].found.value == pytest.approx(1.0, abs=0.02)
    assert by_policy["learned"].found.value == pytest.approx(0.5 + 0.05 / 0.06, abs=0.05)
    assert (by_policy["learned"].n_training_seeds, len(by_policy["learned"].by_seed)) == (5, 5)
    assert by_policy["random"].found.outside == "below"
    assert found.rows["random"][2].mean == pytest.approx(0.2)


def test_capacities_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = capacity()
    found.save(tmp_path)
    assert load_capacity(tmp_path) == found
    (tmp_path / "capacity.json").write_text('{"shares": [1]}')
    with pytest.raises(RunError, match=r"capacity.json: not a file written by `capacity`"):
        load_capacity(tmp_path)


def test_table_shows_loads_ratios_and_what_lies_outside_the_grid() -> None:
    found = cells(largest_load_table(capacity()))
    assert list(found) == ["learned", "kube-default", "random"]
    assert found["learned"][0].startswith(">= 1.500")
    assert found["learned"][1] == ">= 1.200"  # x the configured load of .8
    assert found["learned"][2] == "5"
    assert found["learned"][4].startswith(">= 1.49")
    assert found["kube-default"][4] == "1"
    assert found["random"][0].startswith("< 0.500")
    assert found["random"][4] == "not defined: outside the grid"


def test_every_load_has_a_line_with_all_policies() -> None:
    found = cells(violation_table(capacity()))
    assert list(found) == ["0.5", "1", "1.5"]
    assert found["1.5"][0] == "1.200"
    assert found["1.5"][3].startswith("0.200")


def marks(found: Capacity) -> dict[str, str]:
    table = check_table(load_checks(found, load_bars()))
    return {measure: line[-1] for measure, line in cells(table).items()}


@pytest.mark.parametrize(
    ("slope", "says"),
    [(0.06, "reached, the aim too"), (0.085, "reached"), (0.12, "**not reached**")],
)
def test_bar_of_the_largest_load_is_checked(slope: float, says: str) -> None:
    assert marks(capacity(slope)) == {"largest offered load of learned vs kube-default": says}


def test_bar_is_not_claimed_on_too_little_nor_for_another_bound_or_experiment() -> None:
    few = marks(capacity(0.06, n_seeds=2, n_episodes=20))
    assert list(few.values()) == ["not claimed: 2 of 5 training seeds and 20 of 100 episodes"]
    found = capacity(0.06)
    assert marks(replace(found, origin={**found.origin, "bound": 0.1})) == {}
    assert marks(replace(found, origin={**found.origin, "experiment": "base"})) == {}


def test_record_becomes_a_section_of_the_results(tmp_path: Path) -> None:
    found = capacity()
    experiment = load_config(ROOT / "configs" / "three-az.yaml")
    record = tmp_path / "7-three-az-capacity"
    save_record(found, experiment, record, "## three-az: capacity\n")
    assert {path.name for path in record.iterdir()} == {
        "about.md",
        "capacity.json",
        "capacity.png",
        "config.yaml",
    }
    page = results_page(tmp_path)
    assert "## three-az: capacity\n" in page
    assert largest_load_table(found) in page
    assert "![Violations by offered load](results/7-three-az-capacity/capacity.png)" in page
    assert "\n".join(sections(found, "###", "results/7-three-az-capacity/", "")) in page
