"""What alternatives gain, on clusters where that is known."""

from typing import Any

import numpy as np
import pytest
from tiny import machines, tiny, zone

from marl_sched.agents.architecture import initial_weights
from marl_sched.agents.prior import Prior
from marl_sched.config import Experiment, Teacher
from marl_sched.distillation.branching import Branching
from marl_sched.distillation.play import correcting, make_rule, prices_of, score_rule
from marl_sched.distillation.policy import CorrectedPrior
from marl_sched.distillation.samples import Samples
from marl_sched.distillation.value import fit_value, play_plainly
from marl_sched.envs.vector import VectorEnv
from marl_sched.observation import Layout, Observation

LAYOUT = Layout(("cpu_milli", "memory_mib"))
PREFERS_SLOW = {"machine.speed": -1.0, "peer.is_peer": -50.0}
SETTINGS: dict[str, Any] = {"groups": 3, "branches": 3, "horizon_s": 15.0, "value_horizon_s": 30.0}


def _experiment(**settings: Any) -> Experiment:
    return tiny(
        zone("a", machines(1, speed=1.0), machines(2, speed=0.2)),
        zone("b", machines(2)),
        episode={"horizon_s": 600.0},
        workload={"load": 0.25},
    ).model_copy(update={"teacher": Teacher(**{**SETTINGS, **settings})})


def _nothing(situations: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, Any]:
    return np.zeros(len(situations))


def _branching(experiment: Experiment, kind: type[Branching] = Branching) -> Branching:
    prior = Prior(LAYOUT, PREFERS_SLOW)
    generator = np.random.default_rng(4)
    return kind(experiment, prior, make_rule(prior), _nothing, prices_of(experiment), generator)


class _Again(Branching):
    """Tries what was taken, in every branch."""

    def _pick(self, observation: Observation, choices: Any, scores: Any) -> Any:
        return np.repeat(choices[:, None], self._size, axis=1)


def test_to_take_the_same_again_gains_exactly_nothing() -> None:
    experiment = _experiment()
    prior = Prior(LAYOUT, PREFERS_SLOW)
    prices = prices_of(experiment)
    plain = play_plainly(experiment, make_rule(prior), prices, [1, 2, 3, 4])
    value, _ = fit_value(experiment, plain, np.random.default_rng(0))
    again = _Again(experiment, prior, make_rule(prior), value, prices, np.random.default_rng(4))
    samples = Samples.together(list(again.play([5, 6, 7])))
    assert len(samples) > 10
    assert samples.is_tried.all()
    assert (samples.gains == 0.0).all()


def test_a_machine_five_times_as_fast_gains() -> None:
    samples = Samples.together(list(_branching(_experiment()).play([5, 6, 7])))
    speed = samples.candidates[:, :, LAYOUT.candidate_index("speed")]
    is_machine = samples.candidates[:, 1:, LAYOUT.candidate_index("is_machine")] > 0
    is_better = samples.is_tried & is_machine & (speed[:, 1:] > 0.9) & (speed[:, :1] < 0.3)
    assert is_better.sum() > 5
    assert samples.gains[is_better].mean() > 1.0
    assert np.median(samples.gains[is_better]) > 1.0


def test_minutes_of_tasks_of_one_length_are_priced_as_their_slowdown() -> None:
    experiment = _experiment()
    types = [one.model_copy(update={"mean_s": 30.0}) for one in experiment.workload.task_types]
    workload = experiment.workload.model_copy(update={"task_types": types})
    weights = {"late": 0.0, "finish_violation": 0.0, "cost": 0.0, "imbalance": 0.0, "offload": 0.0}
    gains = []
    for priced in ({"slowdown": 0.5}, {"slowdown": 0.0, "completion": 1.0}):
        objective = experiment.objective.model_copy(update=weights | priced)
        changed = experiment.model_copy(update={"objective": objective, "workload": workload})
        branching = _branching(changed)
        gains.append(Samples.together(list(branching.play([5, 6, 7]))).gains)
    assert np.abs(gains[0]).max() > 0.1
    np.testing.assert_allclose(gains[0], gains[1], rtol=1e-9, atol=1e-12)


def test_samples_are_the_same_for_equal_generators() -> None:
    first, second = (
        Samples.together(list(_branching(_experiment()).play([5, 6, 7]))) for _ in range(2)
    )
    assert first.gains.tobytes() == second.gains.tobytes()
    assert first.candidates.tobytes() == second.candidates.tobytes()


def test_the_base_plays_on_as_if_there_were_no_branches() -> None:
    experiment = _experiment(groups=1)
    branching = _branching(experiment)
    assert len(list(branching.play([5]))) > 5
    env = VectorEnv(experiment, 1, with_rewards=False)
    env.reset("train", [5])
    weights = Prior(LAYOUT, PREFERS_SLOW).matrix
    played = branching._play.env
    n_windows = played.zones["a"].window
    for _ in range(n_windows):
        for one in env.zones.values():
            one.play_weighted(weights)
        env.end_window()
    for name, one in env.zones.items():
        sums = played.zones[name].simulator.state.sums[0]
        assert sums.tobytes() == one.simulator.state.sums[0].tobytes()
        assert sums[0] > 0


@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_the_kernels_play_as_the_policy_acts(margin: float) -> None:
    experiment = _experiment()
    architecture = correcting(LAYOUT, [16, 8])
    weights = initial_weights(architecture, np.random.default_rng(3))
    weights["head.weight"] *= np.float32(10)
    prior = Prior(LAYOUT, PREFERS_SLOW)
    rule = make_rule(prior, architecture, weights, margin)
    played = score_rule(experiment, rule, "validation", range(3))
    policy = CorrectedPrior(prior, architecture, weights, margin)
    env = VectorEnv(experiment, 3, with_rewards=False)
    acted = env.run({"a": policy, "b": policy}, "validation", range(3))
    assert played["objective"].tobytes() == acted["objective"].tobytes()
    alone = score_rule(experiment, make_rule(prior), "validation", range(3))
    assert (played["objective"] != alone["objective"]).any()
