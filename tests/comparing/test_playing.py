"""One policy played for a comparison."""

from pathlib import Path

import numpy as np
import pytest
from tiny import machines, tiny, zone

from federation.local_run import train
from marl_sched.agents.learned import LearnedPolicy, load_policy
from marl_sched.comparing.playing import Play, play
from marl_sched.config import Experiment, dump_config
from marl_sched.observation import Layout
from marl_sched.run_folder import RunFolder


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


def two_zones(**changes: object) -> Experiment:
    return tiny(
        zone("a", machines(2)),
        zone("b", machines(2), load=0.4),
        training={"replicas": 2, "rounds": 1, "validation_episodes": 0},
        agent={"hidden": [8], "n_quantiles": 3, "batch_size": 16}
        | {"warmup_decisions": 10, "replay_mib": 1, "decisions_per_update": 8},
        **changes,
    )


def test_figures_are_those_of_the_zones_that_count(tmp_path: Path) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text(dump_config(two_zones()))

    def played(*counted: str) -> tuple[str, np.ndarray]:
        values = tmp_path / f"{'-'.join(counted) or 'all'}.npz"
        order = Play(str(config), (), 3, str(values), rule="first-fit", counted=counted)
        return order.identity(), play(order).metrics["utilization_cpu"]

    (plain, whole), (one, a), (other, b) = played(), played("a"), played("b")
    assert len({plain, one, other}) == 3
    assert (a > b).all()  # a is offered more work
    np.testing.assert_allclose(whole, (a + b) / 2)  # a mean over zones


def test_only_zones_that_have_learned_on_decide_by_it(tmp_path: Path) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text(dump_config(two_zones()))
    train(two_zones(), tmp_path / "run")
    train(two_zones(seed=2, federation={"strategy": "none"}), tmp_path / "adapted")
    order = Play(
        str(config),
        (),
        3,
        str(tmp_path / "values.npz"),
        run=str(tmp_path / "run"),
        adapted=str(tmp_path / "adapted"),
        adapted_zones=("b",),
    )
    policies = order.make_policies()
    layout = Layout(("cpu_milli", "memory_mib"))
    own = load_policy(tmp_path / "run/checkpoints/best.npz", layout)
    learned = load_policy(RunFolder(tmp_path / "adapted").policy_paths(["b"])["b"], layout)
    for zone_name, expected in {"a": own, "b": learned}.items():
        policy = policies(zone_name)
        assert isinstance(policy, LearnedPolicy)
        for name, tensor in policy.weights().items():
            np.testing.assert_array_equal(tensor, expected.weights()[name])
    assert not np.array_equal(own.weights()["head.bias"], learned.weights()["head.bias"])
    assert Play.of_json(order.as_json()) == order
