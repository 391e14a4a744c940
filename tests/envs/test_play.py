import numpy as np
import pytest

from marl_sched.agents.tuned import TunedRule, default_weights
from marl_sched.config import load_config
from marl_sched.envs.vector import VectorEnv


@pytest.mark.parametrize("placement", ["masked", "unmasked"])
def test_playing_in_the_kernels_equals_acting_by_the_rule(placement: str) -> None:
    short = ["episode.horizon_s=300", "episode.drain_s=60", f"cluster.placement={placement}"]
    experiment = load_config("configs/base.yaml", short)
    env = VectorEnv(experiment, 3, with_rewards=False)
    layout = env.zones["zone_0"].layout
    rule = TunedRule(layout, default_weights(layout))
    fast = env.run_weighted(rule.weights, "tune", [0, 1, 2])
    slow = env.run(dict.fromkeys(env.zones, rule), "tune", [0, 1, 2])
    assert fast["offload_rate"].min() > 0
    for name, values in fast.items():
        assert np.array_equal(values, slow[name]), name
