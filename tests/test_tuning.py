import json
from pathlib import Path

import pytest

from marl_sched.agents.heuristics import make_policy
from marl_sched.agents.tuned import default_weights
from marl_sched.config import Experiment, load_config
from marl_sched.config.hashing import config_hash, environment_hash
from marl_sched.observation import Layout
from marl_sched.tuning import score_weights, tune

CONFIGS = Path(__file__).parents[1] / "configs"
LAYOUT = Layout(("cpu_milli", "memory_mib"))
SMALL = [
    "episode={horizon_s: 60.0, drain_s: 30.0}",
    "tuning={episodes: 2, evaluations: 10, random_share: 0.4}",
]


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return load_config(CONFIGS / "base.yaml", SMALL)


def test_tuned_weights_are_written_where_make_policy_finds_them(
    experiment: Experiment, tmp_path: Path
) -> None:
    path = tune(experiment, tmp_path)
    content = json.loads(path.read_text())
    assert path == tmp_path / "base.json"
    assert content["environment_hash"] == environment_hash(experiment)
    assert content["objective"] <= content["start_objective"]
    assert content["objective"] == score_weights(experiment, content["weights"])
    assert set(content["weights"]) == set(default_weights(LAYOUT))
    log = (tmp_path / "base.evaluations.jsonl").read_text().splitlines()
    assert len(log) == 1 + 10
    make_policy("tuned", LAYOUT, experiment, tuned_folder=tmp_path)


def test_search_begins_at_weights_that_were_tuned_for_another_experiment(
    experiment: Experiment, tmp_path: Path
) -> None:
    first = tune(experiment, tmp_path)
    known = json.loads(first.read_text())
    other = load_config(
        CONFIGS / "base.yaml", [*SMALL, "name=other", "tuning.random_share=0", "workload.load=0.7"]
    )
    content = json.loads(tune(other, tmp_path, start=first).read_text())
    assert content["start_objective"] == score_weights(other, known["weights"])
    assert content["objective"] <= content["start_objective"]
    assert content["start"]["evaluations"] == 10
    assert content["start"]["environment_hash"] == environment_hash(experiment)


@pytest.mark.slow
def test_number_of_processes_does_not_matter(experiment: Experiment, tmp_path: Path) -> None:
    one, two = (tune(experiment, tmp_path / str(jobs), jobs).read_bytes() for jobs in (1, 2))
    assert one == two


def test_environment_hash_is_blind_to_what_rules_do_not_meet(experiment: Experiment) -> None:
    same = load_config(CONFIGS / "base.yaml", [*SMALL, "training.rounds=3", "agent.n_step=2"])
    other = load_config(CONFIGS / "base.yaml", [*SMALL, "workload.load=0.6"])
    assert environment_hash(same) == environment_hash(experiment)
    assert config_hash(same) != config_hash(experiment)
    assert environment_hash(other) != environment_hash(experiment)
