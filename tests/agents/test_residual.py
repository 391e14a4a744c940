"""A network that corrects a prior: its value, the gate, what it starts from, what it learns."""

from io import BytesIO

import numpy as np
import pytest
import torch

from marl_sched.agents.architecture import Architecture, Weights, initial_weights
from marl_sched.agents.exploration import epsilon_at, explore
from marl_sched.agents.learned import LearnedPolicy
from marl_sched.agents.network import CandidateNetwork
from marl_sched.agents.prior import PRIOR_COLUMNS, Prior
from marl_sched.agents.qrdqn import QRDQNLearner
from marl_sched.agents.scoring import Scorer, context_of
from marl_sched.agents.tuned import TunedRule
from marl_sched.config import Agent
from marl_sched.observation import Layout, Observation, Settlements

LAYOUT = Layout(("cpu_milli", "memory_mib"))
B, M, PEERS = 30, 5, 2
AGENT = Agent(
    hidden=[9, 7],
    value_hidden=6,
    n_quantiles=4,
    batch_size=32,
    warmup_decisions=40,
    decisions_per_update=8,
    n_step=2,
    replay_mib=4,
)


def _change(agent: Agent, **changes: object) -> Agent:
    return Agent.model_validate(agent.model_dump() | changes)


def _observe(number: int = 0, seed: int = 1, n_rows: int = B) -> Observation:
    rng = np.random.default_rng([seed, number])
    mask = rng.random((n_rows, M + PEERS)) < 0.6
    mask[:, 0] |= ~mask.any(axis=1)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    return Observation(
        replica=np.arange(n_rows),
        decision=np.full(n_rows, number),
        instance=draw(n_rows, len(LAYOUT.instance)),
        candidates=draw(n_rows, M + PEERS, len(LAYOUT.candidate)),
        zone=draw(n_rows, len(LAYOUT.zone)),
        mask=mask,
        n_machines=M,
    )


def _weights(agent: Agent = AGENT) -> Weights:
    """Weights of a network that has an opinion of its own."""
    rng = np.random.default_rng(4)
    shapes = Architecture.of(LAYOUT, agent).parameter_shapes
    return {n: 0.4 * rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def _by_hand(weights: Weights, candidate: np.ndarray, context: np.ndarray) -> np.ndarray:
    """(N,) v(g) + f(c, g) + prior_scale d(c)."""
    x = np.concatenate([candidate, context])
    for name in ("first", "hidden.0"):
        x = np.maximum(x @ weights[f"{name}.weight"] + weights[f"{name}.bias"], 0)
    f = x @ weights["head.weight"] + weights["head.bias"]
    v = np.maximum(context @ weights["value.weight"] + weights["value.bias"], 0)
    v = v @ weights["value_head.weight"] + weights["value_head.bias"]
    return v + f + AGENT.prior_scale * candidate[len(LAYOUT.candidate)]


def _seen(observation: Observation) -> tuple[np.ndarray, np.ndarray]:
    return Prior(LAYOUT).extend(observation).candidates, context_of(observation)


def test_network_is_value_plus_correction_plus_prior() -> None:
    weights, observation = _weights(), _observe(n_rows=3)
    candidates, context = _seen(observation)
    expected = [[_by_hand(weights, c, context[b]) for c in candidates[b]] for b in range(3)]
    network = CandidateNetwork(Architecture.of(LAYOUT, AGENT), weights)
    with torch.no_grad():
        values = network(torch.from_numpy(candidates), torch.from_numpy(context))
        rows = np.concatenate([candidates[:, 2], context], axis=1)
        taken = network.values(torch.from_numpy(rows))
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(taken, np.array(expected)[:, 2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cvar_alpha", [0.3, 1.0])
def test_scores_are_those_of_the_network_but_for_the_value_of_the_context(
    cvar_alpha: float,
) -> None:
    weights, observation = _weights(), _observe(n_rows=3)
    candidates, context = _seen(observation)
    architecture = Architecture.of(LAYOUT, AGENT)
    scorer = Scorer(architecture, architecture.flatten(weights), cvar_alpha, Prior(LAYOUT))
    scores = scorer.scores(candidates, context, observation.mask)
    for row in range(3):
        expected = np.array([_by_hand(weights, c, context[row]) for c in candidates[row]])
        values, judged = scorer.quantiles(candidates[row], context[row])
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)
        best = np.flatnonzero(observation.mask[row])
        difference = judged[best] - scores[row, best]
        np.testing.assert_allclose(difference, difference[0], atol=1e-4)
        if cvar_alpha < 1:
            np.testing.assert_allclose(difference, 0, atol=1e-4)


def test_row_does_not_depend_on_its_batch() -> None:
    observation = _observe()
    candidates, context = _seen(observation)
    architecture = Architecture.of(LAYOUT, AGENT)
    flat = architecture.flatten(_weights())
    for cvar_alpha in (0.3, 1.0):
        scorer = Scorer(architecture, flat, cvar_alpha, Prior(LAYOUT))
        together = scorer.scores(candidates, context, observation.mask)
        for row in range(B):
            one = slice(row, row + 1)
            alone = scorer.scores(candidates[one], context[one], observation.mask[one])
            assert alone.tobytes() == together[row].tobytes()


def test_first_weights_play_the_prior() -> None:
    architecture = Architecture.of(LAYOUT, AGENT)
    weights = initial_weights(architecture, np.random.default_rng(1))
    assert not weights["head.weight"].any()
    policy = LearnedPolicy.of(LAYOUT, AGENT, weights)
    rule = TunedRule(LAYOUT, Prior(LAYOUT).weights)
    for number in range(10):
        observation = _observe(number)
        np.testing.assert_array_equal(policy.act(observation), rule.act(observation))


def test_gate_lets_only_gains_above_the_margin_through() -> None:
    observation = _observe(n_rows=400)
    candidates, context = _seen(observation)
    rows = np.arange(400)
    first = Prior(LAYOUT).judge(observation)[1]
    shares = []
    for margin in (0.0, 0.5, 1.5, 1e6):
        policy = LearnedPolicy.of(LAYOUT, _change(AGENT, gate_margin=margin), _weights())
        scores = policy.scorer.scores(candidates, context, observation.mask)
        actions, best = policy.act(observation), scores.argmax(axis=1)
        gain = scores[rows, best] - scores[rows, first]
        np.testing.assert_array_equal(actions, np.where(gain > np.float32(margin), best, first))
        shares.append((actions != first).mean())
        if margin == 0:
            np.testing.assert_array_equal(scores[rows, actions], scores.max(axis=1))
    assert shares[0] > shares[1] > shares[2] > shares[3] == 0


def test_network_that_has_diverged_plays_the_prior() -> None:
    weights = _weights()
    weights["head.bias"][:] = np.nan
    architecture, observation = Architecture.of(LAYOUT, AGENT), _observe()
    scorer = Scorer(architecture, architecture.flatten(_weights()), 1.0, Prior(LAYOUT))
    scores = np.full(observation.mask.shape, np.nan, np.float32)
    actions = scorer.pick(scores, _seen(observation)[0])
    np.testing.assert_array_equal(actions, Prior(LAYOUT).judge(observation)[1])


def test_chance_falls_on_the_prior_choice_too() -> None:
    scores = np.repeat(np.array([[5.0, 4.0, 3.0, 2.0, -np.inf]], np.float32), 500, axis=0)
    picks = explore(scores, 4, 2, np.random.default_rng(1), np.full(500, 3))
    assert set(picks.tolist()) == {0, 1, 3}


def test_random_share_depends_on_the_prior_unless_it_is_given() -> None:
    for agent, expected in (
        (Agent(), (0.08, 0.08)),
        (Agent(prior="none"), (0.3, 0.03)),
        (Agent(epsilon=0.5, final_epsilon=0.1), (0.5, 0.1)),
    ):
        assert (epsilon_at(agent, 0.0), epsilon_at(agent, 1.0)) == pytest.approx(expected)


def _learner(agent: Agent, seed: int = 1) -> QRDQNLearner:
    initial = initial_weights(Architecture.of(LAYOUT, agent), np.random.default_rng(0))
    return QRDQNLearner(LAYOUT, agent, 4, M + PEERS, initial, np.random.default_rng(seed))


def _play(learner: QRDQNLearner, seed: int, length: int = 60) -> None:
    """Machine 1 pays 3, all else nothing."""
    learner.start_episode()
    for number in range(length):
        observation = _observe(number, seed, 4)
        observation.candidates[:, :, 0] = np.arange(M + PEERS) == 1
        actions = learner.act(observation)
        assert observation.mask[np.arange(4), actions].all()
        learner.record(observation, actions)
        reward = 3.0 * (actions == 1)
        learner.settle(Settlements(observation.replica, observation.decision, reward))
        learner.maybe_update()
    learner.end_episode()


def test_replay_holds_what_the_network_sees() -> None:
    learner = _learner(_change(AGENT, target="double"))
    learner.start_episode()
    observation = _observe(0, n_rows=4)
    actions = learner.act(observation)
    learner.record(observation, actions)
    candidates, context = _seen(observation)
    state, own = learner.state(), np.arange(4)
    rows = state["replay.rows"][:, 0]  # (E, F + 3 + K)
    np.testing.assert_array_equal(rows, np.concatenate([candidates[own, actions], context], 1))
    np.testing.assert_array_equal(state["replay.candidates"][:, 0], candidates)
    assert rows.shape[1] == len(LAYOUT.candidate) + len(PRIOR_COLUMNS) + context.shape[1]


def test_decision_recorded_without_acting_is_judged_too() -> None:
    learner = _learner(AGENT)
    learner.start_episode()
    learner.act(_observe(0, seed=7, n_rows=4))
    observation = _observe(0, n_rows=4)
    learner.record(observation, np.zeros(4, np.int64))
    rows = learner.state()["replay.rows"][:, 0]
    np.testing.assert_array_equal(
        rows[:, : -_seen(observation)[1].shape[1]], _seen(observation)[0][:, 0]
    )


@pytest.mark.parametrize("target", ["sarsa", "double"])
def test_saved_learner_goes_on_bit_by_bit(target: str) -> None:
    agent = _change(AGENT, target=target)
    unbroken, first = _learner(agent), _learner(agent)
    for learner in (unbroken, first):
        _play(learner, 5)
    file = BytesIO()
    np.savez(file, allow_pickle=False, **first.state())
    file.seek(0)
    resumed = _learner(agent, seed=99)
    resumed.load_state(dict(np.load(file, allow_pickle=False)))
    for learner in (unbroken, resumed):
        learner.set_progress(0.5)
        _play(learner, 6)
    assert unbroken.n_updates > 20
    ends = [{n: a.tobytes() for n, a in learner.state().items()} for learner in (unbroken, resumed)]
    assert ends[0] == ends[1]


def test_learner_deviates_from_the_prior_where_it_pays() -> None:
    agent = _change(
        AGENT,
        discount=0.0,
        n_step=1,
        learning_rate=1e-2,
        decisions_per_update=2,
        gate_margin=1.0,
        epsilon=0.3,
    )
    learner = _learner(agent)
    for seed in range(10):
        _play(learner, seed)
    observation = _observe(0, seed=50, n_rows=200)
    observation.candidates[:, :, 0] = np.arange(M + PEERS) == 1
    observation.mask[:] = True
    assert (Prior(LAYOUT).judge(observation)[1] == 1).mean() < 0.5
    assert (learner.policy().act(observation) == 1).mean() > 0.9


def test_value_and_correction_are_averaged_alike() -> None:
    learner = _learner(AGENT)
    _play(learner, 5)
    mean = {name: array + 1 for name, array in learner.weights().items()}
    assert {"value.weight", "value_head.bias", "head.weight"} <= set(mean)
    learner.load_weights(mean, averaged=mean)
    for weights in (learner.weights(), learner.averaged_weights()):
        for name, array in mean.items():
            np.testing.assert_array_equal(weights[name], array)
