"""How fast an agent learns: `python benchmarks/training.py [--json]`.

1. One update at 8, 32 and 64 quantiles; bar: 64 takes at most 1.3 times as long as 8. And one batch
   of decisions.
2. Training on the cluster, decisions per second all in (simulator, act, record, settle, update),
   beside SB3-contrib's QRDQN on the same: zone_0 of configs/base.yaml alone, 16 replicas, 32
   quantiles, equal batch, hidden layers and updates per decision; bar: at least twice as fast.
3. The same two learners on made-up observations of 20 machines and 2 peers: neither pays for a
   simulator, nor SB3 for environments in Python.

One thread; all times are CPU times.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from measuring import cpu_seconds, median_us, parser, print_figures
from numpy.typing import NDArray
from single_agent import SingleAgentEnv

from marl_sched.agents.architecture import Architecture, initial_weights
from marl_sched.agents.qrdqn import QRDQNLearner
from marl_sched.cluster.exchange import LocalExchange
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Agent, Experiment, load_config
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.observation import Layout, Observation, Settlements

BASE = Path(__file__).parents[1] / "configs" / "base.yaml"
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
            elapsed = cpu_seconds(learner.maybe_update)
            if step >= 20:
                times[n_quantiles].append(elapsed)
    return {str(n): 1e3 * statistics.median(values) for n, values in times.items()}


def time_act(n_calls: int) -> float:
    """Return the median time of one batch of N_REPLICAS decisions in microseconds."""
    observation = made_up_observations()[0]
    learner = make_learner(Agent())
    return median_us(lambda: learner.act(observation), n_calls)


def time_ours(agent: Agent, n_decisions: int) -> float:
    """Return decisions per CPU second after the warm-up, learning included."""
    observations = made_up_observations()
    learner = make_learner(agent)
    play(learner, observations, agent.warmup_decisions)
    elapsed = cpu_seconds(lambda: play(learner, observations, n_decisions))
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


def time_sb3(agent: Agent, makers: Sequence[Callable[[], gymnasium.Env]], n: int) -> float:
    """Return decisions per CPU second of SB3-contrib's QRDQN over n decisions after its warm-up."""
    # An optional extra (dev): the other figures do without it.
    from sb3_contrib import QRDQN
    from stable_baselines3.common.vec_env import DummyVecEnv

    n_steps = max(1, agent.decisions_per_update // N_REPLICAS)  # of all replicas
    model = QRDQN(
        "MlpPolicy",
        DummyVecEnv(list(makers)),
        learning_rate=agent.learning_rate,
        buffer_size=20_000,
        learning_starts=agent.warmup_decisions,
        batch_size=agent.batch_size,
        gamma=agent.discount,
        train_freq=n_steps,
        gradient_steps=n_steps * N_REPLICAS // agent.decisions_per_update,
        policy_kwargs={"n_quantiles": agent.quantile_count, "net_arch": list(agent.hidden)},
        seed=1,
        device="cpu",
    )
    model.learn(agent.warmup_decisions)
    return n / cpu_seconds(lambda: model.learn(n, reset_num_timesteps=False))


class ClusterLoop:
    """Trains one agent on one zone as ZoneWorker does, without rounds and averaging."""

    def __init__(self, experiment: Experiment) -> None:
        """Train on the experiment's only zone."""
        name = experiment.zone_names[0]
        self._env = ZoneEnv(experiment, name, LocalExchange([name]), N_REPLICAS)
        initial = initial_weights(
            Architecture.of(self._env.layout, experiment.agent), np.random.default_rng(1)
        )
        self.learner = QRDQNLearner(
            self._env.layout,
            experiment.agent,
            N_REPLICAS,
            self._env.n_machines,
            initial,
            np.random.default_rng(2),
        )
        self._episode = 0
        self._begin()

    def play(self, n_decisions: int) -> None:
        """Play whole windows until at least so many decisions more have been taken."""
        wanted = self.learner.n_decisions + n_decisions
        while self.learner.n_decisions < wanted:
            if self._env.done:
                self.learner.end_episode()
                self._begin()
            while (observation := self._env.observe()) is not None:
                actions = self.learner.act(observation)
                self.learner.record(observation, actions)
                self._env.step(actions)
            self._env.end_window()
            self.learner.settle(self._env.settlements())
            self.learner.maybe_update()

    def _begin(self) -> None:
        self._env.reset("train", range(self._episode, self._episode + N_REPLICAS))
        self._episode += N_REPLICAS
        self.learner.start_episode()


def time_cluster(agent: Agent, n: int) -> dict[str, float]:
    """Return decisions/s on the cluster, ours and SB3's, over n decisions after the warm-up."""
    base = load_config(BASE)
    experiment = base.model_copy(update={"zones": base.zones[:1], "agent": agent})
    loop = ClusterLoop(experiment)
    loop.play(agent.warmup_decisions)
    before, updates = loop.learner.n_decisions, loop.learner.n_updates
    elapsed = cpu_seconds(lambda: loop.play(n))
    played = loop.learner.n_decisions - before
    ours = played / elapsed
    sb3 = time_sb3(
        agent, [partial(SingleAgentEnv, experiment, 1_000 * e) for e in range(N_REPLICAS)], n
    )
    return {
        "decisions_per_s": ours,
        "sb3_decisions_per_s": sb3,
        "ratio": ours / sb3,
        "decisions_per_update": played / max(1, loop.learner.n_updates - updates),
    }


def run(n_decisions: int, decisions_per_update: int, n_updates: int) -> dict[str, Any]:
    """Return every figure of this benchmark."""
    warm_up()
    agent = Agent(
        n_quantiles=32,
        batch_size=512,
        decisions_per_update=decisions_per_update,
        warmup_decisions=2_048,
        learning_rate=1e-4,
    )
    update_ms = time_updates(agent.batch_size, n_updates)
    at_default = agent.model_copy(update={"decisions_per_update": Agent().decisions_per_update})
    ours = time_ours(agent, n_decisions)
    sb3 = time_sb3(agent, [partial(FlatEnv, replica) for replica in range(N_REPLICAS)], n_decisions)
    return {
        "update_ms_by_n_quantiles": update_ms,
        "update_ratio_64_to_8": update_ms["64"] / update_ms["8"],
        "update_ratio_bar": 1.3,
        "act_us_16_rows_22_candidates": time_act(500),
        f"cluster_{decisions_per_update}_decisions_an_update": time_cluster(agent, n_decisions),
        f"cluster_{at_default.decisions_per_update}_decisions_an_update": time_cluster(
            at_default, 4 * n_decisions
        ),
        "cluster_ratio_bar": 2.0,
        f"made_up_{decisions_per_update}_decisions_an_update": {
            "decisions_per_s": ours,
            "sb3_decisions_per_s": sb3,
            "ratio": ours / sb3,
        },
    }


def main() -> None:
    """Run the benchmark and print its figures."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--decisions", type=int, default=2_048, metavar="N", help="decisions of each timed loop"
    )
    arguments.add_argument(
        "--decisions-per-update",
        type=int,
        choices=(1, 2, 4, 8, 16),
        default=4,
        help="decisions between two updates, ours and SB3's",
    )
    arguments.add_argument(
        "--updates", type=int, default=200, metavar="N", help="timed updates per network size"
    )
    given = arguments.parse_args()
    torch.set_num_threads(1)
    figures = run(given.decisions, given.decisions_per_update, given.updates)
    print_figures(figures, given.json)


if __name__ == "__main__":
    main()
