import dataclasses
from io import BytesIO

import numpy as np
import pytest
import torch

from marl_sched.agents.architecture import Architecture, initial_weights
from marl_sched.agents.qrdqn import QRDQNLearner
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError, RunError
from marl_sched.observation import Layout, Observation, Settlements

LAYOUT = Layout(("cpu_milli", "memory_mib"))
N_CANDIDATES, N_MACHINES = 4, 3
SPEED, COST = LAYOUT.candidate_index("speed"), LAYOUT.candidate_index("cost")
SMALL = Agent(
    prior="none",
    hidden=[16, 16],
    n_quantiles=5,
    batch_size=64,
    warmup_decisions=40,
    decisions_per_update=4,
    n_step=1,
    discount=0.0,
    replay_mib=4,
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _learner(agent: Agent, n_replicas: int = 4, seed: int = 1, **weights) -> QRDQNLearner:
    initial = initial_weights(Architecture.of(LAYOUT, agent), np.random.default_rng(0))
    generator = np.random.default_rng(seed)
    return QRDQNLearner(LAYOUT, agent, n_replicas, N_CANDIDATES, initial | weights, generator)


def _change(agent: Agent, **changes) -> Agent:
    return Agent.model_validate(agent.model_dump() | changes)


def _observe(number: int, candidate: np.ndarray, zone: np.ndarray, mask: np.ndarray) -> Observation:
    """Candidates' speed is given (B, C), the zone's first feature (B,)."""
    n_rows = len(zone)
    candidates = np.zeros((n_rows, candidate.shape[1], len(LAYOUT.candidate)), np.float32)
    candidates[:, :, SPEED] = candidate
    context = np.zeros((n_rows, len(LAYOUT.zone)), np.float32)
    context[:, 0] = zone
    return Observation(
        replica=np.arange(n_rows),
        decision=np.full(n_rows, number),
        instance=np.zeros((n_rows, len(LAYOUT.instance)), np.float32),
        candidates=candidates,
        zone=context,
        mask=mask,
        n_machines=N_MACHINES,
    )


def _random_decision(number: int, rng: np.random.Generator, n_replicas: int = 4) -> Observation:
    mask = rng.random((n_replicas, N_CANDIDATES)) < 0.6
    mask[np.arange(n_replicas), rng.integers(N_CANDIDATES, size=n_replicas)] = True
    speeds = rng.random((n_replicas, N_CANDIDATES))
    return _observe(number, speeds, rng.integers(2, size=n_replicas), mask)


def _bandit_values(observation: Observation) -> np.ndarray:
    """(B, C): in zones 0 fast is good, in zones 1 slow is."""
    speed = observation.candidates[:, :, SPEED]
    return np.where(observation.zone[:, :1] == 0, speed, 1 - speed)


def _play_bandit(learner: QRDQNLearner, rng: np.random.Generator, length: int) -> None:
    """One episode; rewards are noisy and come ten decisions late."""
    late: list[Settlements] = []
    learner.start_episode()
    for number in range(length):
        observation = _random_decision(number, rng)
        actions = learner.act(observation)
        assert observation.mask[np.arange(4), actions].all()
        learner.record(observation, actions)
        reward = _bandit_values(observation)[np.arange(4), actions]
        reward = reward + 0.2 * rng.standard_normal(4)
        late.append(Settlements(observation.replica, observation.decision, reward))
        if len(late) > 10:
            learner.settle(late.pop(0))
        learner.maybe_update()
    for settlements in late:
        learner.settle(settlements)
    learner.end_episode()


def test_learner_finds_the_best_unmasked_action_of_a_contextual_bandit() -> None:
    learner, rng = _learner(_change(SMALL, learning_rate=3e-3)), np.random.default_rng(5)
    for episode in range(8):
        learner.set_progress(episode / 8)
        _play_bandit(learner, rng, 150)
    policy = learner.policy()
    tests = [_random_decision(0, rng, 50) for _ in range(10)]
    regrets, chance = [], []
    for observation in tests:
        values = _bandit_values(observation)
        best = np.where(observation.mask, values, -1).max(axis=1)
        regrets.append(best - values[np.arange(50), policy.act(observation)])
        chance.append(best - np.nanmean(np.where(observation.mask, values, np.nan), axis=1))
    assert np.mean(regrets) < 0.01
    assert np.mean(chance) > 0.1


@pytest.mark.parametrize("target", ["sarsa", "double", "max"])
def test_learner_looks_ahead_on_a_chain(target: str) -> None:
    """Stopping pays 0.2 and leads back to 0; the third go in a row pays 1. Going is worth more."""
    agent = _change(SMALL, discount=0.9, target=target, n_step=3, polyak=0.05, learning_rate=3e-3)
    agent = _change(agent, ema=0.01, decisions_per_update=2)
    learner, position = _learner(agent), np.arange(4) % 3
    mask = np.array([[True, True, False, False]] * 4)
    stop_and_go = np.array([[1.0, 2.0, 5.0, 5.0]] * 4)
    for episode in range(10):
        learner.set_progress(episode / 10)
        learner.start_episode()
        for number in range(120):
            observation = _observe(number, stop_and_go, position, mask)
            goes = learner.act(observation) == 1
            learner.record(observation, goes.astype(np.int64))
            reward = np.where(goes, (position == 2) * 1.0, 0.2)
            position = np.where(goes, (position + 1) % 3, 0)
            learner.settle(Settlements(observation.replica, observation.decision, reward))
            learner.maybe_update()
        learner.end_episode()
    everywhere = _observe(0, stop_and_go[:3], np.arange(3), mask[:3])
    assert learner.policy().act(everywhere).tolist() == [1, 1, 1]


def _linear(agent: Agent, sign: float) -> dict[str, np.ndarray]:
    """Weights of a network whose every quantile is sign x speed."""
    weights = {
        name: np.zeros(shape, np.float32)
        for name, shape in Architecture.of(LAYOUT, agent).parameter_shapes.items()
    }
    weights["first.weight"][SPEED, 0] = 1
    weights["hidden.0.weight"][0, 0] = 1
    weights["head.weight"][0] = sign
    return weights


@pytest.mark.parametrize(
    ("target", "first", "second"),
    # The action taken has value 1, the other unmasked one 2, the masked one 5; discount 0.5.
    # First update: online = target = speed. Second: online = -speed, the target as before.
    [("sarsa", 0.5, 0.5), ("double", 1.0, 0.5), ("max", 1.0, 1.0)],
)
def test_target_bootstraps_from_its_action_and_never_from_a_masked_one(
    target: str, first: float, second: float
) -> None:
    agent = _change(SMALL, discount=0.5, target=target, learning_rate=1e-12, polyak=1e-9)
    agent = _change(agent, warmup_decisions=0, decisions_per_update=40)
    learner = _learner(agent, **_linear(agent, 1.0))
    speeds = np.array([[1.0, 2.0, 5.0, 5.0]] * 4)
    mask = np.array([[True, True, False, False]] * 4)
    learner.start_episode()
    errors = []
    for number in range(20):
        observation = _observe(number, speeds, np.zeros(4), mask)
        learner.record(observation, np.zeros(4, np.int64))
        learner.settle(Settlements(observation.replica, observation.decision, np.zeros(4)))
        if learner.maybe_update():
            errors.append(learner.take_metrics()["td_error"])
            learner.load_weights(_linear(agent, -1.0))
    # Values of the action taken: 1, then -1.
    assert errors == pytest.approx([abs(first - 1), abs(second + 1)], abs=1e-5)


def _random_run(learner: QRDQNLearner, rng: np.random.Generator, n_episodes: int = 2) -> None:
    for _ in range(n_episodes):
        _play_bandit(learner, rng, 40)


def _bytes(state: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in state.items()}


@pytest.mark.parametrize("target", ["sarsa", "double"])
def test_saved_learner_goes_on_bit_by_bit(target: str) -> None:
    agent = _change(SMALL, target=target, discount=0.9, n_step=4)
    unbroken, first = _learner(agent), _learner(agent)
    rng, same = np.random.default_rng(5), np.random.default_rng(5)
    _random_run(unbroken, rng)
    _random_run(first, same)
    file = BytesIO()
    np.savez(file, allow_pickle=False, **first.state())
    file.seek(0)
    resumed = _learner(agent, seed=99)
    resumed.load_state(dict(np.load(file, allow_pickle=False)))
    for learner, inputs in ((unbroken, rng), (resumed, same)):
        learner.set_progress(0.5)
        _random_run(learner, inputs)
    assert unbroken.n_updates > 60
    assert _bytes(unbroken.state()) == _bytes(resumed.state())


def test_refused_state_names_what_is_wrong() -> None:
    learner = _learner(SMALL)
    wider = _learner(_change(SMALL, hidden=[32, 16]))
    with pytest.raises(CheckpointError, match=r"online is float32 \(\d+,\), expected"):
        learner.load_state(wider.state())
    state = learner.state()
    del state["adam.exp_avg"]
    with pytest.raises(CheckpointError, match=r"no array adam\.exp_avg"):
        learner.load_state(state)
    with pytest.raises(CheckpointError, match="generator"):
        learner.load_state(learner.state() | {"generator": np.array('{"bit_generator": "PCG1"}')})


def test_random_decisions_respect_the_mask_and_their_share() -> None:
    learner, rng = _learner(_change(SMALL, epsilon=0.4)), np.random.default_rng(5)
    greedy = learner.policy()
    n_other = 0
    for _ in range(20):
        observation = _random_decision(0, rng, 200)
        observation.mask[:] = True
        observation.mask[:, 2] = False
        actions = learner.act(observation)
        assert (actions != 2).all()
        n_other += (actions != greedy.act(observation)).sum()
    # Of the random decisions a third falls on the greedy action.
    assert n_other / 4000 == pytest.approx(0.4 * 2 / 3, abs=0.03)


@pytest.mark.parametrize(("epsilon", "expected"), [(0.0, []), (1.0, [0, 1, 2, 3])])
def test_rows_that_got_a_random_decision_are_named(epsilon: float, expected: list[int]) -> None:
    agent = _change(SMALL, epsilon=epsilon, final_epsilon=epsilon)
    learner, rng = _learner(agent), np.random.default_rng(5)
    assert learner.explored.tolist() == []
    learner.act(_random_decision(0, rng))
    assert learner.explored.tolist() == expected


def test_updates_run_on_the_decision_count_and_are_caught_up() -> None:
    learner, rng = _learner(SMALL), np.random.default_rng(5)
    learner.start_episode()
    late = []
    for number in range(20):
        observation = _random_decision(number, rng)
        learner.record(observation, learner.act(observation))
        assert learner.maybe_update() == 0  # nothing is settled
        late.append(Settlements(observation.replica, observation.decision, np.zeros(4)))
    for settlements in late:
        learner.settle(settlements)
    assert learner.maybe_update() == (20 * 4 - SMALL.warmup_decisions) // 4
    assert learner.maybe_update() == 0


def test_averaged_weights_replace_the_online_network_only() -> None:
    learner = _learner(SMALL)
    _random_run(learner, np.random.default_rng(5))
    before = learner.state()
    mean = {name: array + 1 for name, array in learner.weights().items()}
    learner.load_weights(mean)
    after = learner.state()
    np.testing.assert_array_equal(after["online"], before["online"] + 1)
    assert {n for n in before if before[n].tobytes() != after[n].tobytes()} == {"online"}
    learner.load_weights(mean, averaged=mean)
    np.testing.assert_array_equal(learner.state()["averaged"], before["online"] + 1)


def test_new_learner_takes_the_global_weights_everywhere() -> None:
    learner = _learner(SMALL)
    learner.load_weights({name: array + 1 for name, array in learner.weights().items()})
    state = learner.state()
    assert state["online"].tobytes() == state["target"].tobytes() == state["averaged"].tobytes()


def test_personal_head_stays_with_its_zone() -> None:
    learner = _learner(_change(SMALL, personal_head=True))
    _random_run(learner, np.random.default_rng(5))
    before = learner.weights()
    shared = {n: array + 1 for n, array in before.items() if not n.startswith("head.")}
    learner.load_weights(shared)
    after = learner.weights()
    np.testing.assert_array_equal(after["head.weight"], before["head.weight"])
    np.testing.assert_array_equal(after["first.weight"], before["first.weight"] + 1)
    with pytest.raises(CheckpointError, match="tensors"):
        _learner(SMALL).load_weights(shared)


def test_refused_weights_leave_the_learner_as_it_was() -> None:
    learner = _learner(SMALL)
    _random_run(learner, np.random.default_rng(5))
    before = _bytes(learner.state())
    good = {name: array + 1 for name, array in learner.weights().items()}
    bad = good | {"head.bias": np.full(5, np.inf, np.float32)}
    for arguments in ((bad, None), (good, bad)):
        with pytest.raises(CheckpointError, match=r"head\.bias is not finite"):
            learner.load_weights(*arguments)
    assert _bytes(learner.state()) == before


def test_acting_uses_new_weights_at_once() -> None:
    agent = _change(SMALL, epsilon=0.0)
    learner = _learner(agent)
    observation = _observe(0, np.array([[1.0, 2.0, 3.0, 2.0]]), np.zeros(1), np.ones((1, 4), bool))
    for sign, best in ((1.0, 2), (-1.0, 0)):
        learner.load_weights(_linear(agent, sign))
        assert learner.act(observation).tolist() == [best]
    learner.load_state(_learner(agent, **_linear(agent, 1.0)).state())
    assert learner.act(observation).tolist() == [2]


def test_averaged_network_is_a_plain_mean_at_first() -> None:
    agent = _change(SMALL, decisions_per_update=1000, warmup_decisions=0, ema=0.01)
    learner, rng = _learner(agent), np.random.default_rng(5)
    seen = []
    for _ in range(20):
        _play_bandit(learner, rng, 50)
        if learner.n_updates > len(seen):
            seen.append(learner.state()["online"])
    assert len(seen) == 4
    np.testing.assert_allclose(learner.state()["averaged"], np.mean(seen, axis=0), atol=1e-6)


def test_diverged_learning_stops_with_an_error() -> None:
    agent = _change(SMALL, warmup_decisions=0)
    huge = _linear(agent, 1.0) | {"head.bias": np.full(5, 3e38, np.float32)}
    learner, rng = _learner(agent, **huge), np.random.default_rng(5)
    with pytest.raises(RunError, match="expected finite numbers"):
        _play_bandit(learner, rng, 60)


def test_metrics_are_plain_numbers_and_begin_anew() -> None:
    learner = _learner(SMALL)
    _random_run(learner, np.random.default_rng(5))
    metrics = learner.take_metrics()
    assert all(type(value) is float for value in metrics.values())
    assert metrics["updates"] == learner.n_updates
    assert min(metrics["loss"], metrics["gradient_norm"], metrics["td_error"]) > 0
    again = learner.take_metrics()
    assert (again["updates"], again["loss"]) == (0.0, 0.0)


def test_record_copies_the_observation() -> None:
    learner, rng = _learner(SMALL), np.random.default_rng(5)
    learner.start_episode()
    observation = _random_decision(0, rng)
    learner.record(observation, np.zeros(4, np.int64))
    before = _bytes(learner.state())
    for field in dataclasses.fields(observation):
        value = getattr(observation, field.name)
        if isinstance(value, np.ndarray):
            value[...] = 0
    assert _bytes(learner.state()) == before


@pytest.mark.parametrize("n_candidates", [N_CANDIDATES - 1, N_CANDIDATES + 2])
def test_state_of_other_candidates_keeps_what_was_learned_and_warms_up_anew(
    n_candidates: int, caplog: pytest.LogCaptureFixture
) -> None:
    agent = _change(SMALL, target="double", discount=0.9, n_step=4)
    saved, rng = _learner(agent), np.random.default_rng(5)
    _random_run(saved, rng)
    state = saved.state()
    initial = initial_weights(Architecture.of(LAYOUT, agent), np.random.default_rng(0))
    learner = QRDQNLearner(LAYOUT, agent, 4, n_candidates, initial, np.random.default_rng(9))
    learner.load_state(state)
    assert f"with {N_CANDIDATES} candidates a decision, now there are {n_candidates}" in caplog.text
    for name, tensor in saved.weights().items():
        np.testing.assert_array_equal(learner.weights()[name], tensor)
    assert learner.n_updates == saved.n_updates
    # As many decisions as at the first start are made before the next update.
    n_before, n_updates = learner.n_decisions, learner.n_updates
    assert n_before == saved.n_decisions - agent.warmup_decisions
    again = QRDQNLearner(LAYOUT, agent, 4, n_candidates, initial, np.random.default_rng(9))
    again.load_state(learner.state())  # what it saves now is of its own kind
    for each in (learner, again):
        _play(each, np.random.default_rng(6), agent.warmup_decisions // 4, n_candidates)
        assert each.n_decisions == saved.n_decisions
        assert each.n_updates == n_updates
        _play(each, np.random.default_rng(7), 40, n_candidates)
        assert n_updates < each.n_updates <= n_updates + 160 // agent.decisions_per_update
    assert _bytes(learner.state()) == _bytes(again.state())


def test_state_of_other_candidates_fits_a_learner_that_stores_none() -> None:
    saved = _learner(SMALL)
    _random_run(saved, np.random.default_rng(5))
    initial = initial_weights(Architecture.of(LAYOUT, SMALL), np.random.default_rng(0))
    learner = QRDQNLearner(LAYOUT, SMALL, 4, 9, initial, np.random.default_rng(9))
    learner.load_state(saved.state())
    assert _bytes(learner.state()) == _bytes(saved.state())


def _play(learner: QRDQNLearner, rng: np.random.Generator, length: int, n_candidates: int) -> None:
    """One episode of random decisions among any number of candidates, rewarded at once."""
    learner.start_episode()
    for number in range(length):
        mask = np.ones((4, n_candidates), np.bool_)
        observation = _observe(number, rng.random((4, n_candidates)), np.zeros(4), mask)
        learner.record(observation, learner.act(observation))
        learner.settle(Settlements(observation.replica, observation.decision, rng.random(4)))
        learner.maybe_update()
    learner.end_episode()
