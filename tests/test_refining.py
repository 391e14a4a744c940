"""The search over what trained policies decide by, on whole if short episodes."""

import json
from pathlib import Path

import numpy as np
import pytest

from marl_sched.agents.architecture import Architecture
from marl_sched.agents.learned import LearnedPolicy, load_policy, save_policy
from marl_sched.config import Agent, Experiment, dump_config, load_config
from marl_sched.errors import CheckpointError, RunError
from marl_sched.observation import Layout
from marl_sched.refining import published_policy, refine, refined, score_point, starting_point
from marl_sched.run_folder import RunFolder

CONFIGS = Path(__file__).parents[1] / "configs"
LAYOUT = Layout(("cpu_milli", "memory_mib"))
SMALL = ["episode={horizon_s: 60.0, drain_s: 30.0}", "tuning.episodes=2"]


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return load_config(CONFIGS / "base.yaml", SMALL)


def _run(folder: Path, experiment: Experiment, seed: int, **settings: object) -> Path:
    """Write what a run publishes: a policy with an opinion of its own."""
    agent = Agent.model_validate({"hidden": [8], "n_quantiles": 3, "gate_margin": 0.1} | settings)
    rng = np.random.default_rng(seed)
    shapes = Architecture.of(LAYOUT, agent).parameter_shapes
    weights = {n: 0.3 * rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    path = RunFolder(folder).best_path
    path.parent.mkdir(parents=True)
    save_policy(path, LearnedPolicy.of(LAYOUT, agent, weights))
    RunFolder(folder).config_path.write_text(dump_config(experiment))
    return folder


@pytest.fixture
def runs(experiment: Experiment, tmp_path: Path) -> list[Path]:
    return [_run(tmp_path / str(seed), experiment, seed) for seed in (1, 2)]


def test_best_point_is_published_and_scores_as_said(
    experiment: Experiment, runs: list[Path], tmp_path: Path
) -> None:
    path = refine(experiment, runs, tmp_path / "out", n_evaluations=10)
    content = json.loads((tmp_path / "out" / "refined.json").read_text())
    start = starting_point([published_policy(run, LAYOUT) for run in runs])
    assert content["start_objective"] == score_point(experiment, runs, start)
    assert content["objective"] < content["start_objective"]
    assert content["objective"] == score_point(experiment, runs, content["found"])
    policies = [published_policy(run, LAYOUT) for run in runs]
    expected = refined(policies, content["found"]).weights()
    found = load_policy(path, LAYOUT).weights()
    assert all((found[name] == expected[name]).all() for name in expected)
    assert (tmp_path / "out" / "config.yaml").read_text() == dump_config(experiment)


def test_search_goes_on_where_it_was_stopped(
    experiment: Experiment, runs: list[Path], tmp_path: Path
) -> None:
    whole = refine(experiment, runs[:1], tmp_path / "whole", n_evaluations=9)

    def stop(done: int, total: int, best: float) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        refine(experiment, runs[:1], tmp_path / "part", n_evaluations=9, progress=stop)
    part = refine(experiment, runs[:1], tmp_path / "part", n_evaluations=9)
    assert part.read_bytes() == whole.read_bytes()


def test_one_evaluation_adds_up_and_plays_nothing(
    experiment: Experiment, runs: list[Path], tmp_path: Path
) -> None:
    path = refine(experiment, runs, tmp_path / "out", n_evaluations=1)
    policy = load_policy(path, LAYOUT)
    assert (policy.architecture.hidden, policy.gate_margin) == ((16,), 0.1)
    assert not (tmp_path / "out" / "refine.evaluations.jsonl").exists()


def test_what_cannot_be_refined_is_named(
    experiment: Experiment, runs: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere.*best\.npz: no such file; expected a"):
        refine(experiment, [tmp_path / "nowhere"], tmp_path / "out", 4)
    plain = _run(tmp_path / "plain", experiment, 3, prior="none")
    with pytest.raises(CheckpointError, match=r"best\.npz: prior = none, expected a policy"):
        refine(experiment, [plain], tmp_path / "out", 4)
    wide = _run(tmp_path / "wide", experiment, 3, n_quantiles=5)
    with pytest.raises(CheckpointError, match="policy 1: n_quantiles = 5, expected 3"):
        refine(experiment, [runs[0], wide], tmp_path / "out", 4)
    assert not (tmp_path / "out").exists()


def test_search_of_other_policies_is_not_taken_over(
    experiment: Experiment, runs: list[Path], tmp_path: Path
) -> None:
    refine(experiment, runs[:1], tmp_path / "out", n_evaluations=4)
    with pytest.raises(RunError, match=r"refine\.evaluations\.jsonl: evaluations of another"):
        refine(experiment, runs[1:], tmp_path / "out", n_evaluations=4)


def test_training_run_is_not_written_over(
    experiment: Experiment, runs: list[Path], tmp_path: Path
) -> None:
    published = RunFolder(runs[1]).best_path.read_bytes()
    (runs[1] / "checkpoints" / "round-00001.npz").write_bytes(b"a round")
    with pytest.raises(RunError, match=r"2: holds a training run, expected a folder of its own"):
        refine(experiment, runs[:1], runs[1], n_evaluations=1)
    assert RunFolder(runs[1]).best_path.read_bytes() == published
