"""Cloning many replicas at once is copying each of them."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny import machines, tiny, zone

from marl_sched.config import Experiment
from marl_sched.envs.vector import VectorEnv

PAIRS = np.array([[0, 1], [0, 3], [2, 4]])  # replica 5 is left alone


def _experiment() -> Experiment:
    return tiny(
        zone("a", machines(2), failures={"mean_up_s": 40.0, "mean_down_s": 6.0}, load=1.2),
        zone("b", machines(2, speed=2.0)),
        zone("c", machines(1, cpu=8000)),
    )


def _play(env: VectorEnv, n_windows: int) -> dict[str, list[tuple[Any, ...]]]:
    """Play by what is seen only; return what was seen and settled, by zone and replica."""
    heard: dict[str, list[tuple[Any, ...]]] = {name: [] for name in env.zones}
    for _ in range(n_windows):
        for name, one in env.zones.items():
            while (seen := one.observe()) is not None:
                scores = np.where(seen.mask, seen.candidates.sum(axis=2), -np.inf)
                heard[name] += [
                    (int(e), row.tobytes()) for e, row in zip(seen.replica, scores, strict=True)
                ]
                one.step(scores.argmax(axis=1))
        if env.done:
            break
        env.end_window()
        for name, one in env.zones.items():
            got = one.settlements()
            columns = (got.replica.tolist(), got.decision.tolist(), got.reward.tolist())
            heard[name] += sorted(zip(*columns, strict=True))
    return heard


def _started(experiment: Experiment, episodes: NDArray[np.int64]) -> VectorEnv:
    env = VectorEnv(experiment, len(episodes))
    env.reset("train", episodes.tolist())
    _play(env, 6)
    return env


def test_cloned_replicas_play_on_as_copied_ones_and_touch_no_other() -> None:
    experiment = _experiment()
    ours = _started(experiment, np.arange(6))
    theirs = _started(experiment, np.arange(6))
    ours.clone(PAIRS[:, 0], PAIRS[:, 1])
    for source, target in PAIRS.tolist():
        theirs.copy_replica(source, target)
    heard, expected = _play(ours, 60), _play(theirs, 60)
    assert ours.done
    for name in heard:
        assert len(heard[name]) > 100
        assert sorted(heard[name], key=repr) == sorted(expected[name], key=repr)
        sums, other = ours.zones[name].finish(), theirs.zones[name].finish()
        assert sums.sums.tobytes() == other.sums.tobytes()
        assert sums.histogram.tobytes() == other.histogram.tobytes()
        assert sums.cluster_imbalance.tobytes() == other.cluster_imbalance.tobytes()


def test_a_clone_in_the_middle_of_a_window_differs_by_its_action_only() -> None:
    env = _started(_experiment(), np.array([3, 3, 7]))
    one = env.zones["a"]
    while (seen := one.observe()) is None or 0 not in seen.replica or seen.mask[0].sum() < 2:
        if seen is None:
            env.end_window()
        else:
            one.step(seen.mask.argmax(axis=1))
    env.clone(np.array([0]), np.array([1]))
    seen = one.observe()
    assert seen is not None
    first, second = seen.candidates[seen.replica <= 1]
    assert first.tobytes() == second.tobytes()
    actions = seen.mask.argmax(axis=1)
    at = seen.replica.tolist().index(1)
    actions[at] = np.flatnonzero(seen.mask[at])[1]
    one.step(actions)
    state = one.simulator.state
    of = [state.instance[e, : state.zone["n_instances"][e]] for e in (0, 1)]
    differs = (of[0]["machine"] != of[1]["machine"]) | (of[0]["peer"] != of[1]["peer"])
    assert differs.sum() == 1


def test_finished_jobs_that_are_equal_already_need_no_copying() -> None:
    experiment = tiny(zone("a", machines(2)), zone("b", machines(2)))
    env = VectorEnv(experiment, 3, with_rewards=False)
    plain = VectorEnv(experiment, 3, with_rewards=False)
    for one in (env, plain):
        one.reset("train", [1, 1, 1])
        _play(one, 8)
    for name, one in env.zones.items():
        jobs = one.simulator.state.job[0, : one.simulator.state.zone["n_jobs"][0]]
        settled = np.array([int(np.argmax(jobs["tasks_left"] > 0))])
        assert settled[0] > 0, "some job is to be left out"
        one.clone(np.array([0]), np.array([2]), settled)
        plain.zones[name].copy_replica(0, 2)
    heard, expected = _play(env, 60), _play(plain, 60)
    assert sorted(heard["a"], key=repr) == sorted(expected["a"], key=repr)
    sums, other = env.zones["a"].finish(), plain.zones["a"].finish()
    assert sums.sums.tobytes() == other.sums.tobytes()


def test_a_target_is_no_source_and_stands_once() -> None:
    env = _started(_experiment(), np.arange(3))
    with pytest.raises(ValueError, match="expected others, once each"):
        env.clone(np.array([0, 1]), np.array([1, 2]))
    with pytest.raises(ValueError, match="expected others, once each"):
        env.clone(np.array([0, 0]), np.array([1, 1]))
