import numpy as np
import pytest

from marl_sched.agents.rollout import PATIENCE, Rollout, Segments, advantages
from marl_sched.observation import Observation, Settlements


def _observe(replicas: list[int], number: int) -> Observation:
    n = len(replicas)
    empty = np.zeros((n, 0), np.float32)
    return Observation(
        np.array(replicas), np.full(n, number), empty, empty[:, :, None], empty, empty > 0, 0
    )


def _rollout(lengths: tuple[int, ...]) -> Rollout:
    """Of every decision its replica x 1000 + number is stored."""
    rollout = Rollout(len(lengths), {"name": ((), np.int64)})
    for number in range(max(lengths)):
        replicas = [e for e, length in enumerate(lengths) if number < length]
        names = np.array(replicas) * 1000 + number
        rollout.record(_observe(replicas, number), {"name": names})
    return rollout


def _settle(rollout: Rollout, replica: int, numbers: list[int], reward: float = 1.0) -> None:
    n = len(numbers)
    rollout.settle(Settlements(np.full(n, replica), np.array(numbers), np.full(n, reward)))


def test_only_the_settled_beginning_of_a_replica_is_given_out() -> None:
    rollout = _rollout((5, 4, 3))
    _settle(rollout, 0, [0, 1, 2, 4])
    _settle(rollout, 1, [1, 2, 3])
    _settle(rollout, 2, [0, 0, 1, 2])
    given = rollout.take()
    assert given is not None
    assert given.columns["name"].tolist() == [0, 1, 2, 2000, 2001, 2002]
    assert given.ends.tolist() == [3, 6]
    assert given.rewards.tolist() == [1, 1, 1, 2, 1, 1]
    assert given.is_counted().tolist() == [True, True, False, True, True, False]


def test_last_decision_of_a_run_is_the_first_of_the_next() -> None:
    rollout = _rollout((5,))
    _settle(rollout, 0, [0, 1])
    assert rollout.take() is not None
    _settle(rollout, 0, [2, 3])
    given = rollout.take()
    assert given is not None
    assert given.columns["name"].tolist() == [1, 2, 3]
    assert rollout.take() is None


def test_end_of_an_episode_gives_out_all_and_counts_what_is_unsettled() -> None:
    rollout = _rollout((4, 2))
    _settle(rollout, 0, [0, 1])
    _settle(rollout, 1, [0, 1])
    given = rollout.take(is_over=True)
    assert given is not None
    assert given.columns["name"].tolist() == [0, 1, 2, 3, 1000, 1001]
    assert rollout.n_unsettled == 2
    rollout.start_episode()
    rollout.record(_observe([0, 1], 0), {"name": np.array([7, 8])})


def test_unsettled_decision_is_waited_for_no_longer_than_patience() -> None:
    rollout = _rollout((PATIENCE + 5,))
    _settle(rollout, 0, [n for n in range(PATIENCE + 5) if n != 3])
    assert rollout.ready().tolist() == [PATIENCE + 5]
    given = rollout.take()
    assert given is not None
    assert given.rewards[3] == 0.0
    _settle(rollout, 0, [3])
    assert (rollout.n_dropped, rollout.n_unsettled) == (1, 1)


def test_reward_of_what_was_never_recorded_is_refused() -> None:
    rollout = _rollout((3,))
    with pytest.raises(ValueError, match="not recorded"):
        _settle(rollout, 0, [3])


@pytest.mark.parametrize("trace", [0.0, 0.7, 1.0])
def test_advantages_are_those_of_a_slow_loop(trace: float) -> None:
    rng = np.random.default_rng(1)
    rewards, values = rng.standard_normal(9), rng.standard_normal(9)
    given = advantages(Segments({}, rewards, np.array([4, 9])), values, 0.9, trace)
    for start, end in ((0, 4), (4, 9)):
        for t in range(start, end - 1):
            deltas = [rewards[k] + 0.9 * values[k + 1] - values[k] for k in range(t, end - 1)]
            slow = sum((0.9 * trace) ** k * delta for k, delta in enumerate(deltas))
            assert given[t] == pytest.approx(slow)
        assert given[end - 1] == 0.0
