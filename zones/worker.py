"""A zone's worker: the only place where environment and learner meet.

Shapes: E replicas, V validation episodes.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents import policies
from marl_sched.agents.learner import Learner
from marl_sched.agents.learners import make_learner
from marl_sched.agents.policies import LearnedPolicies, make_policy, save_policy
from marl_sched.cluster.exchange import Exchange
from marl_sched.cluster.metrics import ZoneSums, episode_metrics
from marl_sched.config import Experiment
from marl_sched.config.streams import named_stream
from marl_sched.envs.resource_weighting import ResourceWeighting
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.observation import Layout, Observation
from marl_sched.starting import start_weights
from zones import state
from zones.camera import Camera, Show
from zones.clock import Clock
from zones.figures import Act, Tick, taken, validation_sums, zone_metrics
from zones.learner_states import LearnerStates
from zones.memory import trim
from zones.records import NetworkPair, RoundOrder, RoundReport, Weights
from zones.timed_exchange import TimedExchange


def first_weights(experiment: Experiment) -> dict[str, NDArray[np.float32]]:
    """Return the weights every zone starts from; they depend on the experiment only."""
    layout, stream = Layout(tuple(experiment.resources)), named_stream(experiment.seed, "weights")
    return policies.first_weights(layout, experiment.agent, stream)


def make_learned_policy(experiment: Experiment, weights: Weights) -> LearnedPolicies:
    """Return the greedy policy of a network's weights."""
    return make_policy(Layout(tuple(experiment.resources)), experiment.agent, weights)


class ZoneWorker:
    """Trains and validates one zone, round by round.

    A round begins from the state the zone was in when the round was first ordered, however often it
    is ordered again (zones/learner_states.py).
    """

    def __init__(
        self,
        experiment: Experiment,
        zone_name: str,
        exchange: Exchange,
        state_dir: Path | None = None,
        tick: Tick | None = None,
        show: Show | None = None,
    ) -> None:
        """Create the worker of a zone.

        Args:
            experiment: The whole experiment.
            zone_name: The zone.
            exchange: Where the zone meets the others.
            state_dir: Folder of this zone's states; None: nothing is written.
            tick: Told how far a round is, from the thread that works on it.
            show: Given views of the zone, from the same thread.
        """
        self.zone_name = zone_name
        self._experiment = experiment
        self._exchange = TimedExchange(exchange)
        self._state_dir = state_dir
        self._tick = tick
        self._camera = Camera(experiment, zone_name, show)
        self._envs: dict[int, ZoneEnv] = {}
        self._weighting = ResourceWeighting(experiment)
        self._states = LearnerStates(
            zone_name, self._new_learner, {zone_name: self._weighting}, state_dir
        )

    def initial_weights(self) -> Weights:
        """Return the first weights: those of its folder, else drawn ones, equal in all zones."""
        drawn = first_weights(self._experiment)
        return start_weights(self._state_dir, self._experiment, drawn)

    def train_round(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        """Train one round from the given weights, and score them first if the order says so.

        Args:
            weights: The shared tensors; the others are this zone's own.
            order: What to do.

        Raises:
            ExchangeAborted: The attempt was called off.
        """
        torch.set_num_threads(1)
        clock = Clock()
        self._begin(order)
        validation = None
        validation_start_s = clock.seconds
        if order.validates:
            validation = self._score(self._policy(weights, order.round_number - 1))
            trim()
        validation_s = clock.seconds - validation_start_s
        exchange_start_s = self._exchange.seconds
        self._learner.load_weights(
            {**self._learner.weights(), **weights.online},
            {**self._learner.averaged_weights(), **weights.ema},
        )
        n_decisions, metrics = self._train(order.round_number)
        self._states.end(order.round_number)
        save_start_s = clock.seconds
        self._states.save_round(order.round_number)
        pair = NetworkPair(self._learner.weights(), self._learner.averaged_weights())
        timing = clock.timing() | {
            "validation_s": round(validation_s, 3),
            "exchange_s": round(self._exchange.seconds - exchange_start_s, 3),
            "save_s": round(clock.seconds - save_start_s, 3),
        }
        return RoundReport(pair, n_decisions, metrics, validation, timing)

    def validate(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        """Score the given weights, if the order says so, without training.

        Raises:
            ExchangeAborted: The attempt was called off.
        """
        clock = Clock()
        self._begin(order)
        policy = self._policy(weights, order.round_number - 1)
        validation = self._score(policy) if order.validates else None
        self._states.end(order.round_number - 1)
        return RoundReport(None, 0, {}, validation, clock.timing())

    def save_state(self, path: Path) -> None:
        """Write all that the next round goes on from, atomically."""
        self._states.save(path)

    def load_state(self, path: Path) -> None:
        """Go on from what `save_state` wrote.

        Raises:
            CheckpointError: The file is not a whole state of this zone and experiment.
        """
        self._states.load(path)

    @property
    def _learner(self) -> Learner:
        return self._states.learner

    def _begin(self, order: RoundOrder) -> None:
        """Bring the learner to the state before the ordered round."""
        self._camera.follow(order)
        self._states.begin(order)

    def _new_learner(self) -> Learner:
        env = self._env(self._experiment.training.replicas)
        learner = make_learner(
            env.layout,
            self._experiment.agent,
            env.n_replicas,
            env.n_machines + len(env.peers),
            self.initial_weights(),
            named_stream(self._experiment.seed, "exploration", self.zone_name),
        )
        federation = self._experiment.federation
        if federation.strategy == "fedprox":
            learner.proximal_mu = federation.proximal_mu
        return learner

    def _env(self, n_replicas: int) -> ZoneEnv:
        if n_replicas not in self._envs:
            self._envs[n_replicas] = ZoneEnv(
                self._experiment,
                self.zone_name,
                self._exchange,
                n_replicas,
                weighting=self._weighting,
            )
        return self._envs[n_replicas]

    def _train(self, round_number: int) -> tuple[int, dict[str, float]]:
        """Play the round's episodes, learning; return decisions and metrics."""
        training = self._experiment.training
        env = self._env(training.replicas)
        n_before = self._learner.n_decisions
        reward = 0.0
        sums = []
        for number in range(training.episodes_per_round):
            first = ((round_number - 1) * training.episodes_per_round + number) * env.n_replicas
            env.reset("train", range(first, first + env.n_replicas))
            progress = round_number - 1 + number / training.episodes_per_round
            self._learner.set_progress(progress / training.rounds)
            self._learner.start_episode()
            self._camera.start(env, self._learner, "training", number)
            for share in self._play(env, self._decide):
                done = (number + share) / training.episodes_per_round
                self._camera.window_over(done)
                self._learner.set_progress((round_number - 1 + done) / training.rounds)
                settlements = env.settlements()
                self._learner.settle(settlements)
                reward += float(settlements.reward.sum())
                self._learner.maybe_update()
                if self._tick is not None:
                    self._tick(done)
            self._learner.end_episode()
            sums.append(taken(env))
        n_decisions = self._learner.n_decisions - n_before
        metrics = self._learner.take_metrics() | {"mean_reward": reward / max(n_decisions, 1)}
        return n_decisions, metrics | zone_metrics(self._experiment, sums, self._weighting)

    def _decide(self, observation: Observation) -> NDArray[np.int64]:
        """Let the learner decide, and remember it."""
        actions = self._learner.act(observation)
        self._learner.record(observation, actions)
        return actions

    def _play(self, env: ZoneEnv, act: Act) -> Iterator[float]:
        """Play one episode; yield the share that is over after every window."""
        window = 0
        while not env.done:
            while (observation := env.observe()) is not None:
                actions = act(observation)
                if self._camera.is_recording:
                    self._camera.record(observation, actions)
                env.step(actions)
            env.end_window()
            window += 1
            yield min(window / self._experiment.n_windows, 1.0)

    def _policy(self, weights: NetworkPair, round_number: int) -> LearnedPolicies:
        """Return the policy of a round: the shared tensors, completed by this zone's own.

        A zone with tensors of its own keeps the whole, as nobody else can.
        """
        tensors: Weights = {**self._learner.averaged_weights(), **weights.ema}
        policy = make_learned_policy(self._experiment, tensors)
        if self._state_dir is not None and set(weights.ema) != set(tensors):
            self._state_dir.mkdir(parents=True, exist_ok=True)
            save_policy(state.policy_path(self._state_dir, round_number), policy)
        return policy

    def _score(self, policy: LearnedPolicies) -> dict[str, NDArray[np.float64]]:
        """Play the validation episodes greedily; return this zone's sums by episode."""
        training = self._experiment.training
        sums = []
        for first in range(0, training.validation_episodes, training.replicas):
            episodes = range(first, min(first + training.replicas, training.validation_episodes))
            env = self._env(len(episodes))
            env.reset("validation", episodes)
            self._camera.start(env, policy, "validation", first)
            for share in self._play(env, policy.act):
                played = first + share * len(episodes)
                self._camera.window_over(played / training.validation_episodes)
            sums.append(taken(env))
        return validation_sums(sums)


def score_validation(
    experiment: Experiment, validation: Mapping[str, Mapping[str, NDArray[np.float64]]]
) -> dict[str, float]:
    """Return the cluster's metrics, means over validation episodes, from the zones' sums.

    Percentiles are left out: histograms do not travel.
    """
    zones = [
        ZoneSums(
            sums=sums["sums"],
            histogram=np.zeros((len(sums["sums"]), 3, 1), np.int64),
            cluster_imbalance=sums["cluster_imbalance"],
        )
        for _, sums in sorted(validation.items())
    ]
    metrics = episode_metrics(experiment, zones)
    return {k: float(v.mean()) for k, v in metrics.items() if not k.startswith("p99_")}
