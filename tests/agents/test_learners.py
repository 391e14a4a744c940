"""Every algorithm on toys whose optimum is known, and what the worker asks of all of them.

The toys are such that a node score with resource weights can play the optimum too: what a machine
pays is its free cpu or its free memory, as the context says.
"""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch

from marl_sched.agents.learner import Learner
from marl_sched.agents.learners import make_learner
from marl_sched.agents.policies import (
    architecture_of,
    first_weights,
    load_policy,
    make_policy,
    save_policy,
)
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError, RunError
from marl_sched.observation import Layout, Observation, Settlements

LAYOUT = Layout(("cpu_milli", "memory_mib"))
N_REPLICAS, N_MACHINES, N_CANDIDATES = 4, 3, 4
FREE = LAYOUT.candidate_indices("free_share_after")
SIZE = LAYOUT.candidate_indices("relative_size")
RIVALS = ("double-dqn", "dueling-dqn", "reinforce", "ppo", "ppo-scorer")
ALGORITHMS = ("qrdqn", *RIVALS)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def agent_of(algorithm: str, **changes) -> Agent:
    settings = {
        "algorithm": algorithm,
        "prior": "none",
        "hidden": [16, 16],
        "n_quantiles": 5,
        "batch_size": 64,
        "warmup_decisions": 40,
        "decisions_per_update": 16 if algorithm == "reinforce" else 4,
        "rollout_decisions": 128,
        "n_step": 2,
        "discount": 0.9,
        "replay_mib": 4,
        "learning_rate": 5e-3,
        "polyak": 0.05,
        "ema": 0.02,
    }
    return Agent.model_validate(settings | changes)


def learner_of(agent: Agent, seed: int = 1, n_candidates: int = N_CANDIDATES) -> Learner:
    initial = first_weights(LAYOUT, agent, np.random.default_rng(0))
    generator = np.random.default_rng(seed)
    return make_learner(LAYOUT, agent, N_REPLICAS, n_candidates, initial, generator)


def observe(number: int, free: np.ndarray, zone: np.ndarray, mask: np.ndarray) -> Observation:
    """Free shares are given (B, C, 2), the zone's first feature (B,)."""
    n_rows, n_candidates = mask.shape
    candidates = np.zeros((n_rows, n_candidates, len(LAYOUT.candidate)), np.float32)
    candidates[:, :, FREE] = free
    candidates[:, :, SIZE] = 1.0
    context = np.zeros((n_rows, len(LAYOUT.zone)), np.float32)
    context[:, 0], context[:, 1] = zone, 1 - zone
    return Observation(
        replica=np.arange(n_rows),
        decision=np.full(n_rows, number),
        instance=np.zeros((n_rows, len(LAYOUT.instance)), np.float32),
        candidates=candidates,
        zone=context,
        mask=mask,
        n_machines=N_MACHINES,
    )


def random_decision(number: int, rng: np.random.Generator, n_rows: int = N_REPLICAS) -> Observation:
    """Some machines are masked, the peer always is."""
    mask = rng.random((n_rows, N_CANDIDATES)) < 0.7
    mask[np.arange(n_rows), rng.integers(N_MACHINES, size=n_rows)] = True
    mask[:, N_MACHINES:] = False
    free = rng.random((n_rows, N_CANDIDATES, 2))
    return observe(number, free, rng.integers(2, size=n_rows), mask)


def bandit_values(observation: Observation) -> np.ndarray:
    """(B, C): free cpu pays in zones 0, free memory in zones 1."""
    free = observation.candidates[:, :, FREE]
    return np.where(observation.zone[:, :1] == 0, free[:, :, 0], free[:, :, 1])


def play_bandit(learner: Learner, rng: np.random.Generator, length: int) -> None:
    """One episode; rewards are noisy, come in two parts, ten decisions late; some never do."""
    late: list[Settlements] = []
    learner.start_episode()
    for number in range(length):
        observation = random_decision(number, rng)
        actions = learner.act(observation)
        assert observation.mask[np.arange(N_REPLICAS), actions].all()
        learner.record(observation, actions)
        reward = bandit_values(observation)[np.arange(N_REPLICAS), actions]
        half = (reward + 0.2 * rng.standard_normal(N_REPLICAS)) / 2
        settled = Settlements(observation.replica, observation.decision, half)
        if number % 20 != 7:
            late += [settled, settled]
        if len(late) > 20:
            learner.settle(late.pop(0))
            learner.settle(late.pop(0))
        learner.maybe_update()
    for settlements in late:
        learner.settle(settlements)
    learner.end_episode()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_learner_finds_the_best_unmasked_machine_of_a_contextual_bandit(algorithm: str) -> None:
    learner, rng = learner_of(agent_of(algorithm, discount=0.0)), np.random.default_rng(5)
    for episode in range(12):
        learner.set_progress(episode / 12)
        play_bandit(learner, rng, 250)
    policy = learner.policy()
    observation = random_decision(0, rng, 500)
    values = bandit_values(observation)
    best = np.where(observation.mask, values, -1).max(axis=1)
    regret = best - values[np.arange(500), policy.act(observation)]
    by_chance = best - np.nanmean(np.where(observation.mask, values, np.nan), axis=1)
    assert np.mean(regret) < 0.02
    assert np.mean(by_chance) > 0.15


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_learner_looks_ahead_on_a_chain(algorithm: str) -> None:
    """Stopping pays 0.2 and leads back to 0; the second go in a row pays 1. Going is worth more."""
    learner = learner_of(agent_of(algorithm))
    free = np.zeros((N_REPLICAS, N_CANDIDATES, 2))
    free[:, 0, 0] = free[:, 1, 1] = 1.0  # stop: free cpu; go: free memory
    free[:, 2:] = 2.0  # better, were it not masked
    mask = np.array([[True, True, False, False]] * N_REPLICAS)
    position = np.arange(N_REPLICAS) % 2
    for episode in range(12):
        learner.set_progress(episode / 12)
        learner.start_episode()
        for number in range(200):
            observation = observe(number, free, position, mask)
            actions = learner.act(observation)
            learner.record(observation, actions)
            goes = actions == 1
            reward = np.where(goes, (position == 1) * 1.0, 0.2)
            position = np.where(goes, 1 - position, 0)
            learner.settle(Settlements(observation.replica, observation.decision, reward))
            learner.maybe_update()
        learner.end_episode()
    everywhere = observe(0, free[:2], np.arange(2), mask[:2])
    assert learner.policy().act(everywhere).tolist() == [1, 1]


def _bytes(state: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in state.items()}


@pytest.mark.parametrize("algorithm", RIVALS)
def test_saved_learner_goes_on_bit_by_bit(algorithm: str) -> None:
    agent = agent_of(algorithm)
    unbroken, first = learner_of(agent), learner_of(agent)
    rng, same = np.random.default_rng(5), np.random.default_rng(5)
    for learner, inputs in ((unbroken, rng), (first, same)):
        play_bandit(learner, inputs, 60)
    file = BytesIO()
    np.savez(file, allow_pickle=False, **first.state())
    file.seek(0)
    resumed = learner_of(agent, seed=99)
    resumed.load_state(dict(np.load(file, allow_pickle=False)))
    n_before = resumed.n_updates
    for learner, inputs in ((unbroken, rng), (resumed, same)):
        learner.load_weights(learner.weights(), learner.averaged_weights())
        learner.set_progress(0.5)
        play_bandit(learner, inputs, 60)
    assert unbroken.n_updates > n_before > 0
    assert _bytes(unbroken.state()) == _bytes(resumed.state())
    assert unbroken.take_metrics() == resumed.take_metrics()


@pytest.mark.parametrize("algorithm", RIVALS)
def test_updates_run_on_the_decision_count(algorithm: str) -> None:
    agent = agent_of(algorithm, decisions_per_update=8)
    learner, rng = learner_of(agent), np.random.default_rng(5)
    for _ in range(3):
        play_bandit(learner, rng, 100)
    assert learner.n_decisions == 1200
    # Value-based: less the warm-up; policy gradients: the last of each episode is not learnt from.
    not_counted = 40 if "dqn" in algorithm else 3 * N_REPLICAS
    assert learner.n_updates == (1200 - not_counted) // 8
    assert learner.take_metrics()["updates"] == learner.n_updates


@pytest.mark.parametrize("algorithm", RIVALS)
def test_loaded_policy_acts_as_the_saved_one(algorithm: str, tmp_path: Path) -> None:
    agent = agent_of(algorithm)
    weights = first_weights(LAYOUT, agent, np.random.default_rng(3))
    policy = make_policy(LAYOUT, agent, weights)
    save_policy(tmp_path / "policy.npz", policy)
    loaded = load_policy(tmp_path / "policy.npz", LAYOUT)
    observation = random_decision(0, np.random.default_rng(4), 200)
    np.testing.assert_array_equal(loaded.act(observation), policy.act(observation))
    other = Layout(("cpu_milli", "memory_mib", "network_mbps"))
    with pytest.raises(CheckpointError, match="resources = "):
        load_policy(tmp_path / "policy.npz", other)


@pytest.mark.parametrize("algorithm", RIVALS)
def test_refused_weights_leave_the_learner_as_it_was(algorithm: str) -> None:
    learner = learner_of(agent_of(algorithm))
    play_bandit(learner, np.random.default_rng(5), 60)
    before = _bytes(learner.state())
    good = {name: array + 1 for name, array in learner.weights().items()}
    bad = good | {"head.bias": np.full_like(good["head.bias"], np.inf)}
    for arguments in ((bad, None), (good, bad)):
        with pytest.raises(CheckpointError, match=r"head\.bias is not finite"):
            learner.load_weights(*arguments)
    with pytest.raises(CheckpointError, match="tensors"):
        learner.load_weights({name: good[name] for name in list(good)[1:]})
    assert _bytes(learner.state()) == before


@pytest.mark.parametrize("algorithm", RIVALS)
def test_personal_head_stays_with_its_zone(algorithm: str) -> None:
    learner = learner_of(agent_of(algorithm, personal_head=True))
    play_bandit(learner, np.random.default_rng(5), 60)
    before = learner.weights()
    own = ("head.weight", "head.bias")
    learner.load_weights({n: array + 1 for n, array in before.items() if n not in own})
    after = learner.weights()
    np.testing.assert_array_equal(after["head.weight"], before["head.weight"])
    np.testing.assert_array_equal(after["first.weight"], before["first.weight"] + 1)


@pytest.mark.parametrize("algorithm", RIVALS)
def test_diverged_learning_stops_with_an_error(algorithm: str) -> None:
    learner = learner_of(agent_of(algorithm))
    huge = {n: np.full_like(array, 3e37) for n, array in learner.weights().items()}
    learner.load_weights(huge)
    with (
        np.errstate(all="ignore"),
        pytest.raises(RunError, match="expected finite numbers"),
    ):
        play_bandit(learner, np.random.default_rng(5), 60)


def test_dueling_value_is_the_sum_of_its_streams() -> None:
    """Wang et al. 2016, Eq. 9, by a loop; all decisions are alike."""
    changes = {"discount": 0.0, "n_step": 1, "warmup_decisions": 0, "decisions_per_update": 12}
    learner = learner_of(agent_of("dueling-dqn", **changes))
    weights = learner.weights()
    rng = np.random.default_rng(6)
    observation = random_decision(0, rng)
    observation.candidates[:] = observation.candidates[:1]
    observation.zone[:] = observation.zone[:1]
    observation.mask[:] = [True, True, False, False]
    learner.start_episode()
    for number in range(3):
        observation.decision[:] = number
        learner.record(observation, np.ones(N_REPLICAS, np.int64))
        learner.settle(Settlements(observation.replica, observation.decision, np.full(4, 3.0)))
    learner.maybe_update()
    context = np.concatenate([observation.instance[0], observation.zone[0]])
    a = [_mlp(weights, "", np.concatenate([c, context])) for c in observation.candidates[0, :2]]
    expected = _mlp(weights, "value.", context) + a[1] - (a[0] + a[1]) / 2
    assert learner.take_metrics()["td_error"] == pytest.approx(abs(3.0 - expected), abs=1e-5)


def _mlp(weights: dict[str, np.ndarray], prefix: str, x: np.ndarray) -> float:
    for layer in ("first", "hidden.0"):
        x = x @ weights[f"{prefix}{layer}.weight"] + weights[f"{prefix}{layer}.bias"]
        x = np.maximum(x, 0)
    return float((x @ weights[f"{prefix}head.weight"] + weights[f"{prefix}head.bias"])[0])


@pytest.mark.parametrize("algorithm", ["double-dqn", "dueling-dqn"])
def test_replay_of_other_candidates_begins_empty(algorithm: str) -> None:
    agent = agent_of(algorithm)
    saved = learner_of(agent)
    play_bandit(saved, np.random.default_rng(5), 60)
    learner = learner_of(agent, n_candidates=7)
    learner.load_state(saved.state())
    assert learner.n_updates == saved.n_updates
    assert learner.n_decisions == saved.n_decisions - agent.warmup_decisions


def test_every_part_of_a_network_is_shared_by_name() -> None:
    for algorithm in RIVALS:
        agent = agent_of(algorithm)
        names = [
            f"{prefix}{name}"
            for prefix, architecture in architecture_of(LAYOUT, agent).items()
            for name in architecture.parameter_shapes
        ]
        assert list(learner_of(agent).weights()) == names
