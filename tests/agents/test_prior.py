"""The prior's columns against the rule that they stand for."""

import numpy as np
import pytest

from marl_sched.agents.prior import PRIOR_COLUMNS, WORST_GAP, Prior
from marl_sched.agents.tuned import TunedRule
from marl_sched.config import Agent
from marl_sched.observation import Layout, Observation

LAYOUT = Layout(("cpu_milli", "memory_mib"))
B, M, PEERS = 40, 5, 2


def make_observation(seed: int = 1) -> Observation:
    generator = np.random.default_rng(seed)
    mask = generator.random((B, M + PEERS)) < 0.6
    mask[:, 0] |= ~mask.any(axis=1)
    shape = (B, M + PEERS, len(LAYOUT.candidate))
    return Observation(
        replica=np.arange(B),
        decision=np.zeros(B, np.int64),
        instance=np.zeros((B, len(LAYOUT.instance)), np.float32),
        candidates=generator.standard_normal(shape).astype(np.float32),
        zone=np.zeros((B, len(LAYOUT.zone)), np.float32),
        mask=mask,
        n_machines=M,
    )


def test_choice_is_that_of_the_rule() -> None:
    observation = make_observation()
    prior = Prior(LAYOUT)
    extended, choices = prior.judge(observation)
    np.testing.assert_array_equal(choices, TunedRule(LAYOUT, prior.weights).act(observation))
    is_choice = extended.candidates[:, :, -2]
    np.testing.assert_array_equal(is_choice.argmax(axis=1), choices)
    np.testing.assert_array_equal(is_choice.sum(axis=1), 1)


def test_gap_is_to_the_best_unmasked_of_its_kind_and_cut_off() -> None:
    observation = make_observation()
    prior = Prior(LAYOUT)
    extended, choices = prior.judge(observation)
    scores = np.where(
        observation.mask, TunedRule(LAYOUT, prior.weights).scores(observation), -np.inf
    )
    for row in range(B):
        for kind in (slice(0, M), slice(M, None)):
            for at in range(*kind.indices(M + PEERS)):
                if observation.mask[row, at]:
                    gap = max(WORST_GAP, scores[row, at] - scores[row, kind].max())
                    assert extended.candidates[row, at, -3] == pytest.approx(gap, abs=1e-5)
                    is_for_peer = choices[row] >= M and at < M
                    assert extended.candidates[row, at, -1] == is_for_peer
                else:
                    assert not extended.candidates[row, at, -3:].any()


def test_own_columns_stay_and_the_observation_is_not_touched() -> None:
    observation = make_observation()
    before = observation.candidates.copy()
    extended = Prior(LAYOUT).extend(observation)
    assert extended.candidates.shape[2] == len(LAYOUT.candidate) + len(PRIOR_COLUMNS)
    np.testing.assert_array_equal(extended.candidates[:, :, : len(LAYOUT.candidate)], before)
    np.testing.assert_array_equal(observation.candidates, before)


def test_only_qrdqn_has_a_prior() -> None:
    assert Prior.of(LAYOUT, Agent()) is not None
    assert Prior.of(LAYOUT, Agent(prior="none")) is None
    assert Prior.of(LAYOUT, Agent(algorithm="double-dqn")) is None
