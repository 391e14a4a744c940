"""A run that starts from what its teacher found."""

from pathlib import Path

import numpy as np
import pytest
from tiny import machines, tiny, zone

from federation.local_run import train
from marl_sched.agents.prior import Prior
from marl_sched.config import Experiment, load_config
from marl_sched.distillation.play import correcting
from marl_sched.distillation.policy import CorrectedPrior
from marl_sched.distillation.start import taught
from marl_sched.distillation.teacher import teach
from marl_sched.envs.vector import VectorEnv
from marl_sched.errors import ConfigError
from marl_sched.observation import Layout
from marl_sched.run_folder import RunFolder
from zones.worker import first_weights, make_learned_policy

LAYOUT = Layout(("cpu_milli", "memory_mib"))
MARGIN = 0.02


def experiment_of(**agent: object) -> Experiment:
    return tiny(
        zone("a", machines(3), machines(cpu=8000), load=1.2),
        zone("b", machines(2), load=0.5),
        agent={"hidden": [8], "n_quantiles": 3, "prior_scale": 0.0, "gate_margin": MARGIN}
        | {"prior_weights": {"machine.speed": -1.0, "peer.is_peer": -50.0}}
        | {"warmup_decisions": 10, "batch_size": 16, "replay_mib": 1, **agent},
        episode={"horizon_s": 400.0},
        teacher={"samples": 60, "groups": 2, "branches": 3, "value_episodes": 4, "epochs": 3}
        | {"value_horizon_s": 30.0},
        training={"replicas": 2, "rounds": 1, "validation_episodes": 2},
    )


def test_untrained_policy_plays_as_the_teacher_says() -> None:
    experiment = experiment_of()
    weights = taught(experiment, first_weights(experiment))
    corrections = teach(experiment, experiment.seed, experiment.teacher)
    prior_weights = experiment.agent.prior_weights
    rival = CorrectedPrior(
        Prior(LAYOUT, prior_weights), correcting(LAYOUT, [8]), corrections, MARGIN
    )
    policy = make_learned_policy(experiment, weights)
    prior = make_learned_policy(experiment, first_weights(experiment))
    env = VectorEnv(experiment, 2, with_rewards=False)
    env.reset("validation", [0, 1])
    same, differs, n_decisions = 0, 0, 0
    while not env.done:
        for zone_env in env.zones.values():
            while (observation := zone_env.observe()) is not None:
                actions = policy.act(observation)
                same += int((actions == rival.act(observation)).sum())
                differs += int((actions != prior.act(observation)).sum())
                n_decisions += len(actions)
                zone_env.step(actions)
        env.end_window()
    # Means over equal quantiles may differ in the last bit.
    assert same >= n_decisions - 1
    assert differs > 0


def test_run_begins_with_the_teachers_network(tmp_path: Path) -> None:
    experiment = experiment_of(decisions_per_update=1_000_000)
    train(experiment, tmp_path / "run")
    committed = RunFolder.resume(tmp_path / "run", experiment).committed
    assert committed is not None
    expected = taught(experiment, first_weights(experiment))
    for name, tensor in committed.online.items():
        np.testing.assert_allclose(tensor, expected[name], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["agent.prior=none"], "there is no prior to correct"),
        (["agent.prior_scale=0", "episode.horizon_s=200"], "at most half of episode.horizon_s"),
        ([], "agent.prior_scale = 0.5, expected 0 with teacher.samples = 60"),
    ],
)
def test_teacher_without_what_it_needs_is_refused(changes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("configs/base.yaml", ["teacher.samples=60", *changes])
