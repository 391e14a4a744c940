"""How fast an agent learns: `python benchmarks/training.py [--json]`.

Times one update at 8, 32 and 64 quantiles, one batch of decisions, and decisions per second of the
whole loop (act, record, settle, update) beside SB3-contrib's QRDQN at equal network, batch size,
replicas and updates per decision. Both loops run on the same made-up observations of 20 machines
and 2 peers, so that neither pays for a simulator. One thread; all times are
CPU times.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.qrdqn import QRDQNLearner
from marl_sched.agents.scoring import Architecture, initial_weights
from marl_sched.config import Agent
from marl_sched.observation import Layout, Observation, Settlements

LAYOUT = Layout(("cpu_milli", "memory_mib"))
N_MACHINES, N_PEERS = 20, 2
N_CANDIDATES = N_MACHINES + N_PEERS
N_REPLICAS = 16
N_CONTEXT = len(LAYOUT.instance) + len(LAYOUT.zone)
N_OBSERVATIONS = 64
"""Batches of observations that are made up once and gone through again and again."""


def made_up_observations(seed: int = 1) -> list[Observation]:
    """Return batches of N_REPLICAS decisions; a third of the candidates is masked."""
    rng = np.random.default_rng(seed)

    def features(*shape: int) -> NDArray[np.float32]:
        return rng.random((N_REPLICAS, *shape)).astype(np.float32)

    observations = []
    for _ in range(N_OBSERVATIONS):
        mask = rng.random((N_REPLICAS, N_CANDIDATES)) < 2 / 3
        mask[:, 0] = True
        observations.append(
            Observation(
                replica=np.arange(N_REPLICAS),
                decision=np.zeros(N_REPLICAS, np.int64),
                instance=features(len(LAYOUT.instance)),
                candidates=features(N_CANDIDATES, len(LAYOUT.candidate)),
                zone=features(len(LAYOUT.zone)),
                mask=mask,
                n_machines=N_MACHINES,
            )
        )
    return observations


def make_learner(agent: Agent) -> QRDQNLearner:
    """Return a fresh learner."""
    initial = initial_weights(Architecture.of(LAYOUT, agent), np.random.default_rng(1))
    return QRDQNLearner(LAYOUT, agent, N_REPLICAS, N_CANDIDATES, initial, np.random.default_rng(2))


def play(learner: QRDQNLearner, observations: list[Observation], n_decisions: int) -> None:
    """Take decisions in one episode; each is settled at once; updates run as they fall due."""
    learner.start_episode()
    for step in range(n_decisions // N_REPLICAS):
        observation = observations[step % len(observations)]
        observation.decision[:] = step
        actions = learner.act(observation)
        learner.record(observation, actions)
        reward = -observation.candidates[np.arange(N_REPLICAS), actions, 0].astype(np.float64)
        learner.settle(Settlements(observation.replica, observation.decision, reward))
        learner.maybe_update()
    learner.end_episode()


def seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of one call: other work on the machine does not count."""
    start = time.process_time()
    call()
    return time.process_time() - start


def time_updates(batch_size: int, n_updates: int) -> dict[str, float]:
    """Return the median time of an update in ms by number of quantiles.

    The sizes take turns, so that a slow moment of the machine falls on all of them; all the
    networks and logs compete for the same processor cache.
    """
    observations = made_up_observations()
    agent = Agent(batch_size=batch_size, warmup_decisions=20_000, decisions_per_update=N_REPLICAS)
    learners = {}
    for n_quantiles in (8, 32, 64):
        learners[n_quantiles] = make_learner(agent.model_copy(update={"n_quantiles": n_quantiles}))
        play(learners[n_quantiles], observations, agent.warmup_decisions)
    times: dict[int, list[float]] = {n_quantiles: [] for n_quantiles in learners}
    for learner in learners.values():
        learner.start_episode()
    for step in range(n_updates + 20):
        observation = observations[step % len(observations)]
        observation.decision[:] = step
        for n_quantiles, learner in learners.items():
            learner.record(observation, np.zeros(N_REPLICAS, np.int64))
            # One update is due now: the decision count has grown by decisions_per_update.
            elapsed = seconds(learner.maybe_update)
            if step >= 20:
                times[n_quantiles].append(elapsed)
    return {str(n): 1e3 * statistics.median(values) for n, values in times.items()}


def time_act(n_calls: int) -> float:
    """Return the median time of one batch of N_REPLICAS decisions in microseconds."""
    observation = made_up_observations()[0]
    learner = make_learner(Agent())
    learner.act(observation)
    return 1e6 * statistics.median(
        seconds(lambda: learner.act(observation)) for _ in range(n_calls)
    )


def time_ours(agent: Agent, n_decisions: int) -> float:
    """Return decisions per CPU second after the warm-up, learning included."""
    observations = made_up_observations()
    learner = make_learner(agent)
    play(learner, observations, agent.warmup_decisions)
    elapsed = seconds(lambda: play(learner, observations, n_decisions))
    if learner.n_updates < n_decisions // agent.decisions_per_update:
        raise RuntimeError(f"{learner.n_updates} updates ran, fewer than were due")
    return n_decisions / elapsed


class FlatEnv(gymnasium.Env[NDArray[np.float32], np.int64]):
    """The same observations as one row of 22 candidates and their context, for fixed networks."""

    def __init__(self, replica: int) -> None:
        """Flatten the made-up observations of one replica."""
        self._rows = [
            np.concatenate([o.candidates[replica].ravel(), o.instance[replica], o.zone[replica]])
            for o in made_up_observations()
        ]
        self._step = 0
        self.observation_space = gymnasium.spaces.Box(0, 1, self._rows[0].shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(N_CANDIDATES)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Return the current row."""
        super().reset(seed=seed)
        return self._rows[self._step], {}

    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Reward with the same feature of the candidate as `play`; an episode never ends."""
        reward = -float(self._rows[self._step][int(action) * len(LAYOUT.candidate)])
        self._step = (self._step + 1) % N_OBSERVATIONS
        return self._rows[self._step], reward, False, False, {}


def time_sb3(agent: Agent, n_decisions: int) -> float:
    """Return decisions per CPU second of SB3-contrib's QRDQN after its warm-up."""
    # An optional extra (dev): the other figures do without it.
    from sb3_contrib import QRDQN
    from stable_baselines3.common.vec_env import DummyVecEnv

    envs = DummyVecEnv([partial(FlatEnv, replica) for replica in range(N_REPLICAS)])
    model = QRDQN(
        "MlpPolicy",
        envs,
        learning_rate=agent.learning_rate,
        buffer_size=20_000,
        learning_starts=agent.warmup_decisions,
        batch_size=agent.batch_size,
        gamma=agent.discount,
        train_freq=1,  # a step of all replicas
        gradient_steps=N_REPLICAS // agent.decisions_per_update,
        policy_kwargs={"n_quantiles": agent.n_quantiles, "net_arch": list(agent.hidden)},
        seed=1,
        device="cpu",
    )
    model.learn(agent.warmup_decisions)
    elapsed = seconds(lambda: model.learn(n_decisions, reset_num_timesteps=False))
    return n_decisions / elapsed


def run(n_decisions: int, decisions_per_update: int, n_updates: int) -> dict[str, Any]:
    """Return every figure of this benchmark."""
    agent = Agent(
        n_quantiles=32,
        batch_size=512,
        decisions_per_update=decisions_per_update,
        warmup_decisions=2_048,
        learning_rate=1e-4,
    )
    update_ms = time_updates(agent.batch_size, n_updates)
    ours, sb3 = time_ours(agent, n_decisions), time_sb3(agent, n_decisions)
    return {
        "update_ms_by_n_quantiles": update_ms,
        "update_ratio_64_to_8": update_ms["64"] / update_ms["8"],
        "act_us_16_rows_22_candidates": time_act(500),
        "decisions_per_update": decisions_per_update,
        "training_decisions_per_s": ours,
        "sb3_training_decisions_per_s": sb3,
        "training_ratio_to_sb3": ours / sb3,
    }


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--decisions", type=int, default=4_096, metavar="N", help="decisions of each timed loop"
    )
    parser.add_argument(
        "--decisions-per-update",
        type=int,
        choices=(1, 2, 4, 8, 16),
        default=4,
        help="decisions between two updates, ours and SB3's",
    )
    parser.add_argument(
        "--updates", type=int, default=300, metavar="N", help="timed updates per network size"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = run(arguments.decisions, arguments.decisions_per_update, arguments.updates)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:32} {value}")


if __name__ == "__main__":
    main()
