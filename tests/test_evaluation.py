import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from marl_sched.agents.policy import Policy
from marl_sched.config import Experiment, load_config
from marl_sched.errors import CheckpointError, RunError
from marl_sched.evaluation import EpisodePlayer, PolicyFactory, evaluate, load_evaluation
from marl_sched.observation import Layout, Observation

CONFIGS = Path(__file__).parents[1] / "configs"
LAYOUT = Layout(("cpu_milli", "memory_mib"))


ALL_OPEN = Observation(
    replica=np.zeros(1, np.int64),
    decision=np.zeros(1, np.int64),
    instance=np.zeros((1, len(LAYOUT.instance)), np.float32),
    candidates=np.zeros((1, 31, len(LAYOUT.candidate)), np.float32),
    zone=np.zeros((1, len(LAYOUT.zone)), np.float32),
    mask=np.ones((1, 31), bool),
    n_machines=31,
)


class Constant:
    """Always picks the candidate that stands for its quality (in tenths)."""

    def __init__(self, quality: float) -> None:
        self.quality = quality

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        pass

    def act(self, observation: Observation) -> NDArray[np.int64]:
        return np.full(len(observation), round(10 * self.quality))


class ToyEnv:
    """Plays no cluster: the objective of an episode is its own noise times the quality."""

    played: list[tuple[str, list[int]]]

    def __init__(self, experiment: Experiment, n_replicas: int) -> None:
        self.n_replicas = n_replicas
        self.played = []

    def run(
        self, policies: Mapping[str, Policy], split: str, episodes: Sequence[int]
    ) -> Mapping[str, NDArray[np.float64]]:
        assert len(episodes) == self.n_replicas
        assert list(policies) == ["zone_0", "zone_1", "zone_2"]
        self.played.append((split, list(episodes)))
        # A constant policy tells its quality by the candidate it picks, out of tenths.
        picks = [policy.act(ALL_OPEN)[0] for policy in policies.values()]
        quality = np.mean(picks) / 10
        noise = np.array([1 + (7 * episode) % 10 for episode in episodes], float)
        return {
            "objective": quality * noise,
            "late_start_rate": np.zeros(len(episodes)),
            "decision_latency_us": np.full(len(episodes), time.perf_counter()),
        }


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return load_config(
        CONFIGS / "base.yaml", ["evaluation.episodes=10", "evaluation.bootstrap_samples=200"]
    )


def quality(value: float) -> PolicyFactory:
    return lambda zone: Constant(value)


def test_episodes_are_played_in_batches_and_come_back_in_order(experiment: Experiment) -> None:
    envs: list[ToyEnv] = []

    def make_env(experiment: Experiment, n_replicas: int) -> ToyEnv:
        envs.append(ToyEnv(experiment, n_replicas))
        return envs[-1]

    player = EpisodePlayer(experiment, 4, make_env)
    done: list[int] = []
    metrics = player.play(quality(2.0), "tune", range(3, 13), done.append)
    assert metrics["objective"].tolist() == [2.0 * (1 + 7 * e % 10) for e in range(3, 13)]
    assert [env.n_replicas for env in envs] == [4, 2]
    assert envs[0].played == [("tune", [3, 4, 5, 6]), ("tune", [7, 8, 9, 10])]
    assert done == [4, 8, 10]


def test_learned_policies_are_paired_over_seeds_and_episodes(experiment: Experiment) -> None:
    calls: list[tuple[str, int, int]] = []
    result = evaluate(
        experiment,
        {
            "kube-default": quality(1.0),
            "tetris": quality(1.1),
            "learned": [quality(0.7), quality(0.8), quality(0.9)],
        },
        make_env=ToyEnv,
        progress=lambda *call: calls.append(call),
    )
    assert result.metrics["learned"]["objective"].shape == (3, 10)
    row = next(r for r in result.rows if (r.policy, r.metric) == ("learned", "objective"))
    assert (row.n_training_seeds, row.n_episodes) == (3, 10)
    ratio = next(
        r
        for r in result.ratios
        if (r.policy, r.baseline, r.metric) == ("learned", "kube-default", "objective")
    )
    assert ratio.ratio == pytest.approx(0.8)
    assert 0.7 <= ratio.ci95_low < 0.8 < ratio.ci95_high <= 0.9
    assert calls[-3:] == [("learned", 10, 30), ("learned", 20, 30), ("learned", 30, 30)]
    assert result.origin["best_fixed"] == "kube-default"
    assert result.decision_latency_us["learned"] > 0
    assert "decision_latency_us" not in {row.metric for row in result.rows}


def test_evaluation_json_has_exactly_the_published_form(
    experiment: Experiment, tmp_path: Path
) -> None:
    policies = {
        "kube-default": quality(1.0),
        "learned": [quality(1.2), quality(1.3)],
    }
    result = evaluate(experiment, policies, make_env=ToyEnv)
    path = result.save(tmp_path / "runs" / "new")
    content = json.loads(path.read_text())
    assert path.name == "evaluation.json"
    assert list(content) == ["rows", "ratios"]
    assert list(content["rows"][0]) == [
        "policy",
        "metric",
        "mean",
        "ci95_low",
        "ci95_high",
        "n_episodes",
        "n_training_seeds",
    ]
    assert list(content["ratios"][0]) == [
        "policy",
        "baseline",
        "metric",
        "ratio",
        "ci95_low",
        "ci95_high",
        "mean_log_ratio",
        "log_ci95_low",
        "log_ci95_high",
    ]
    assert {r["baseline"] for r in content["ratios"]} == {"kube-default"}


def test_evaluation_is_read_back_whole_and_written_the_same_twice(
    experiment: Experiment, tmp_path: Path
) -> None:
    policies = {"runs/a b": [quality(0.5)], "kube-default": quality(1.0)}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in ("a", "b"):
        evaluate(experiment, policies, make_env=ToyEnv).save(tmp_path / name)
    for file in ("evaluation.json", "evaluation_episodes.npz"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    result = evaluate(experiment, policies, make_env=ToyEnv)
    loaded = load_evaluation(tmp_path / "a")
    assert (loaded.rows, loaded.ratios) == (result.rows, result.ratios)
    assert dict(loaded.origin) == dict(result.origin)
    objective = loaded.metrics["runs/a b"]["objective"]
    assert objective.tolist() == result.metrics["runs/a b"]["objective"].tolist()


def test_missing_or_broken_evaluation_is_named(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"evaluation\.json: missing"):
        load_evaluation(tmp_path)
    evaluate(experiment, {"learned": [quality(1.0)]}, make_env=ToyEnv).save(tmp_path)
    episodes = tmp_path / "evaluation_episodes.npz"
    episodes.write_bytes(episodes.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"evaluation_episodes\.npz"):
        load_evaluation(tmp_path)
    (tmp_path / "evaluation.json").write_text('{"rows": [{}]}')
    with pytest.raises(RunError, match=r"evaluation\.json: not a file written"):
        load_evaluation(tmp_path)
