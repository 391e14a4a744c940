"""Whole runs of every algorithm: three zones, three resources, machines that fail."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny import with_gpus_on_some
from zone_double import Killed, written

from federation.local_run import train
from federation.session import RoundDone
from marl_sched.agents.policies import load_policy
from marl_sched.config import Experiment
from marl_sched.envs.vector import VectorEnv
from marl_sched.observation import Layout
from marl_sched.run_folder import RunFolder


def _experiment(algorithm: str, **changes: object) -> Experiment:
    return with_gpus_on_some(
        training={"replicas": 2, "rounds": 2, "validation_episodes": 2, "validate_every": 1},
        agent={
            "algorithm": algorithm,
            "prior": "none",
            "hidden": [8],
            "n_quantiles": 4,
            "warmup_decisions": 20,
            "batch_size": 16,
            "decisions_per_update": 8,
            "rollout_decisions": 24,
            "replay_mib": 1,
            **changes,
        },
    )


@pytest.mark.parametrize(
    "algorithm", ["double-dqn", "dueling-dqn", "reinforce", "ppo", "ppo-scorer"]
)
def test_run_trains_resumes_to_the_same_bytes_and_plays(algorithm: str, tmp_path: Path) -> None:
    experiment = _experiment(algorithm)
    train(experiment, tmp_path / "whole")

    def kill(event: RoundDone) -> None:
        raise Killed

    with pytest.raises(Killed):
        train(experiment, tmp_path / "run", progress=kill)
    train(experiment, tmp_path / "run", resume=True)
    assert written(tmp_path / "run") == written(tmp_path / "whole")
    text = (tmp_path / "whole" / "metrics.jsonl").read_text()
    lines = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "train"]
    assert len(lines) == 6
    assert all(line["updates"] > 0 and np.isfinite(line["loss"]) for line in lines)
    path = tmp_path / "run" / "checkpoints" / "best.npz"
    policy = load_policy(path, Layout(tuple(experiment.resources)))
    env = VectorEnv(experiment, 2, with_rewards=False)
    metrics = env.run(dict.fromkeys(env.zones, policy), "test", [0, 1])
    assert np.isfinite(metrics["objective"]).all()


@pytest.mark.parametrize("algorithm", ["dueling-dqn", "ppo", "ppo-scorer"])
def test_personal_head_stays_with_its_zone(algorithm: str, tmp_path: Path) -> None:
    experiment = _experiment(algorithm, personal_head=True)
    train(experiment, tmp_path / "run")
    layout = Layout(tuple(experiment.resources))
    paths = RunFolder.resume(tmp_path / "run", experiment).policy_paths(experiment.zone_names)
    policies = [load_policy(path, layout).weights() for path in paths.values()]
    assert len({policy["head.weight"].tobytes() for policy in policies}) == 3
