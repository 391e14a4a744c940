"""One policy played for a comparison."""

from pathlib import Path

import numpy as np
import pytest
from tiny import machines, tiny, zone

from federation.local_run import train
from marl_sched.comparing.playing import Play, play
from marl_sched.config import dump_config


@pytest.mark.parametrize("algorithm", ["qrdqn", "dueling-dqn", "ppo-scorer"])
def test_trained_policy_of_any_algorithm_is_played(algorithm: str, tmp_path: Path) -> None:
    experiment = tiny(
        zone("a", machines(2)),
        zone("b", machines(2), load=0.4),
        training={"replicas": 2, "rounds": 1, "validation_episodes": 2},
        agent={"algorithm": algorithm, "hidden": [8], "n_quantiles": 3, "batch_size": 16}
        | {"warmup_decisions": 10, "replay_mib": 1},
    )
    config = tmp_path / "tiny.yaml"
    config.write_text(dump_config(experiment))
    train(experiment, tmp_path / "run")
    values = str(tmp_path / "values.npz")
    played = play(Play(str(config), (), 3, values, run=str(tmp_path / "run")))
    assert played.n_episodes == 3
    assert np.isfinite(played.metrics["objective"]).all()
