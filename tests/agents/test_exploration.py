import numpy as np
import pytest

from marl_sched.agents.exploration import epsilon_at, explore, learning_rate_at
from marl_sched.config import Agent

INF = np.inf
# Five machines, two peers; machine 2 and peer 6 are masked.
SCORES = np.array([[0.0, 3.0, -INF, 2.0, 1.0, 9.0, -INF]], np.float32)


@pytest.mark.parametrize(
    ("n_best", "expected"),
    [(2, {1, 3, 5}), (3, {1, 3, 4, 5}), (4, {0, 1, 3, 4, 5}), (0, {0, 1, 3, 4, 5})],
)
def test_chance_falls_evenly_on_best_machines_and_peers(n_best: int, expected: set[int]) -> None:
    picks = explore(np.repeat(SCORES, 4000, axis=0), 5, n_best, np.random.default_rng(1))
    counts = np.bincount(picks, minlength=7)
    assert set(np.flatnonzero(counts)) == expected
    np.testing.assert_allclose(counts[list(expected)] / 4000, 1 / len(expected), atol=0.03)


def test_zone_with_fewer_machines_than_tried_explores_all() -> None:
    picks = explore(np.repeat(SCORES, 500, axis=0), 5, 6, np.random.default_rng(1))
    assert set(picks.tolist()) == {0, 1, 3, 4, 5}


def test_epsilon_falls_linearly_then_stays() -> None:
    agent = Agent(epsilon=0.5, final_epsilon=0.1, epsilon_share=0.4)
    assert [epsilon_at(agent, share) for share in (0, 0.2, 0.4, 1)] == pytest.approx(
        [0.5, 0.3, 0.1, 0.1]
    )


def test_learning_rate_falls_along_half_a_cosine() -> None:
    agent = Agent(learning_rate=1.0, final_learning_rate=0.2)
    assert [learning_rate_at(agent, share) for share in (0, 1 / 3, 0.5, 1)] == pytest.approx(
        [1.0, 0.8, 0.6, 0.2]
    )
