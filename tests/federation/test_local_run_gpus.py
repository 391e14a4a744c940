"""A learned run of zones with gpus on some, all and none of their machines."""

import json
from pathlib import Path

import numpy as np
from tiny import with_gpus_on_some

from federation.local_run import train
from marl_sched.agents.learned import load_policy
from marl_sched.envs.vector import VectorEnv
from marl_sched.observation import Layout


def test_one_round_trains_and_its_policy_plays(tmp_path: Path) -> None:
    experiment = with_gpus_on_some(
        training={"replicas": 2, "rounds": 1, "validation_episodes": 2, "validate_every": 1},
        agent={
            "hidden": [8],
            "n_quantiles": 4,
            "warmup_decisions": 20,
            "batch_size": 16,
            "decisions_per_update": 8,
            "replay_mib": 1,
        },
    )
    result = train(experiment, tmp_path / "run")
    assert result.is_finished
    assert result.objective is not None
    assert np.isfinite(result.objective)
    lines = list(map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()))
    trained = [line for line in lines if line["kind"] == "train"]
    assert [line["zone"] for line in trained] == ["a", "b", "c"]
    assert all(line["updates"] > 0 and np.isfinite(line["loss"]) for line in trained)
    policy = load_policy(
        tmp_path / "run" / "checkpoints" / "best.npz", Layout(tuple(experiment.resources))
    )
    assert all(np.isfinite(tensor).all() for tensor in policy.weights().values())
    env = VectorEnv(experiment, 2, with_rewards=False)
    metrics = env.run(dict.fromkeys(env.zones, policy), "test", [0, 1])
    assert np.isfinite(metrics["objective"]).all()
