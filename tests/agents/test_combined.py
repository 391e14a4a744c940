"""Policies added up: the sum scores as its parts do together."""

from collections.abc import Mapping

import numpy as np
import pytest

from marl_sched.agents.architecture import Architecture
from marl_sched.agents.combined import combined
from marl_sched.agents.learned import LearnedPolicy
from marl_sched.agents.scoring import context_of
from marl_sched.agents.tuned import TunedRule, default_weights
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError
from marl_sched.observation import Layout, Observation

LAYOUT = Layout(("cpu_milli", "memory_mib"))
RULE = default_weights(LAYOUT)
B, M, PEERS = 40, 4, 2


def _policy(seed: int, **settings: object) -> LearnedPolicy:
    given = {"hidden": [8, 6], "n_quantiles": 4, "value_hidden": 5, "gate_margin": 0.1}
    agent = Agent.model_validate(given | settings)
    rng = np.random.default_rng(seed)
    shapes = Architecture.of(LAYOUT, agent).parameter_shapes
    weights = {n: 0.4 * rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    return LearnedPolicy.of(LAYOUT, agent, weights)


def _observe() -> Observation:
    rng = np.random.default_rng(5)
    mask = rng.random((B, M + PEERS)) < 0.7
    mask[:, 0] = True

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    return Observation(
        replica=np.arange(B),
        decision=np.zeros(B, np.int64),
        instance=draw(B, len(LAYOUT.instance)),
        candidates=draw(B, M + PEERS, len(LAYOUT.candidate)),
        zone=draw(B, len(LAYOUT.zone)),
        mask=mask,
        n_machines=M,
    )


def _gains(policy: LearnedPolicy, observation: Observation) -> np.ndarray:
    """Scores less that of the first candidate, so that the context's value does not count."""
    seen = policy.scorer.extended(observation)
    scores = policy.scorer.scores(seen.candidates, context_of(seen), seen.mask)
    return np.where(seen.mask, scores - scores[:, :1], 0.0)


@pytest.mark.parametrize("shares", [(1.0, 1.0), (0.5, 2.0), (0.0, 1.0)])
def test_scores_add_up_by_their_shares(shares: tuple[float, float]) -> None:
    parts = [_policy(1), _policy(2, hidden=[5, 9], prior_scale=0.0)]
    whole = combined(parts, shares, RULE, 0.2)
    observation = _observe()
    expected = sum(
        share * _gains(part, observation) for share, part in zip(shares, parts, strict=True)
    )
    np.testing.assert_allclose(_gains(whole, observation), expected, rtol=0, atol=1e-4)
    assert whole.architecture.hidden == (13, 15)
    assert whole.gate_margin == 0.2


def test_one_policy_combined_with_nothing_decides_as_before() -> None:
    policy = _policy(1)
    assert policy.prior is not None
    same = combined([policy], [1.0], policy.prior.weights, policy.gate_margin)
    observation = _observe()
    assert (same.act(observation) == policy.act(observation)).all()


def test_without_shares_the_rule_is_left() -> None:
    rule: Mapping[str, float] = RULE | {"machine.speed": -1.0}
    whole = combined([_policy(1), _policy(2)], [0.0, 0.0], rule, 0.0)
    observation = _observe()
    assert (whole.act(observation) == TunedRule(LAYOUT, rule).act(observation)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_quantiles": 5}, "policy 1: n_quantiles = 5, expected 4"),
        ({"hidden": [8]}, "policy 1: layers = 1, expected 2"),
        ({"cvar_alpha": 0.5}, r"policy 1: cvar_alpha = 0\.5, expected 1\.0"),
        ({"prior": "none"}, "policy 1: prior = none, expected one that corrects a rule"),
    ],
)
def test_what_does_not_fit_together_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        combined([_policy(1), _policy(2, **settings)], [1.0, 1.0], RULE, 0.0)
