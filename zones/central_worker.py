"""One learner for all zones (`federation.strategy: centralised`): what averaging is measured by.

    zones, window by window:  decide, exchange      as ever, each with its own environment
    the one learner:          all their decisions in one replay, one network, one optimizer

All zones are played by one thread, in the order of their names. To the learner they are more
replicas: zone z's replica e is its replica z E + e. The budget of updates is that of the zones
together, one every `decisions_per_update` decisions of all of them after a warm-up of all of them,
and so is the replay's memory.
Shapes: Z zones, E replicas, B rows, C candidates.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.learner import Learner
from marl_sched.agents.learners import make_learner
from marl_sched.cluster.exchange import Exchange
from marl_sched.cluster.metrics import ZoneSums
from marl_sched.config import Agent, Experiment
from marl_sched.config.streams import named_stream
from marl_sched.envs.resource_weighting import ResourceWeighting
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.observation import Observation, Settlements
from marl_sched.starting import start_weights
from zones.camera import Camera, Show
from zones.clock import Clock
from zones.figures import Act, Tick, taken, validation_sums, zone_metrics
from zones.learner_states import LearnerStates
from zones.memory import trim
from zones.records import NetworkPair, RoundOrder, RoundReport, Weights
from zones.timed_exchange import TimedExchange
from zones.worker import first_weights, make_learned_policy

Reports = Mapping[str, RoundReport]
"""What every zone answers, by name."""


def central_agent(agent: Agent, n_zones: int) -> Agent:
    """Return the settings of the one learner: warm-up and replay are those of all zones."""
    return agent.model_copy(
        update={
            "warmup_decisions": agent.warmup_decisions * n_zones,
            "replay_mib": agent.replay_mib * n_zones,
        }
    )


@dataclass
class _Stage:
    """A zone that is played, and what was counted of it in the round."""

    name: str
    first_replica: int
    env: ZoneEnv
    camera: Camera
    n_decisions: int = 0
    reward: float = 0.0
    sums: list[ZoneSums] = field(default_factory=list)


class CentralWorker:
    """Trains and validates all zones of an experiment with one learner, round by round."""

    def __init__(
        self,
        experiment: Experiment,
        exchange: Exchange,
        state_dir: Path | None = None,
        tick: Tick | None = None,
        show: Callable[[str, bytes], object] | None = None,
    ) -> None:
        """Create the worker.

        Args:
            experiment: The whole experiment.
            exchange: Where the zones meet; all of them are played from here.
            state_dir: Folder of the learner's states; None: nothing is written.
            tick: Told how far a round is.
            show: Given views of zones, with the zone's name.
        """
        self.zone_names = tuple(sorted(experiment.zone_names))
        self._experiment = experiment
        self._exchange = TimedExchange(exchange)
        self._tick = tick
        self._state_dir = state_dir
        self._cameras = {
            name: Camera(experiment, name, _shown_as(name, show)) for name in self.zone_names
        }
        self._envs: dict[tuple[str, int], ZoneEnv] = {}
        self._weightings = {name: ResourceWeighting(experiment) for name in self.zone_names}
        sizes = (self._env(name, experiment.training.replicas) for name in self.zone_names)
        self._n_candidates = max(env.n_machines + len(env.peers) for env in sizes)
        self._states = LearnerStates(
            self.zone_names[0], self._new_learner, self._weightings, state_dir
        )

    def train_round(self, weights: NetworkPair, order: RoundOrder) -> Reports:
        """Train one round from the given weights, and score them first if the order says so.

        Raises:
            ExchangeAborted: The attempt was called off.
        """
        torch.set_num_threads(1)
        clock = Clock()
        self._begin(order)
        scores = self._score(weights) if order.validates else {}
        trim()
        validation_s, exchange_start_s = clock.seconds, self._exchange.seconds
        self._learner.load_weights(weights.online, weights.ema)
        stages = self._train(order.round_number)
        metrics = self._learner.take_metrics()
        self._states.end(order.round_number)
        save_start_s = clock.seconds
        self._states.save_round(order.round_number)
        pair = NetworkPair(self._learner.weights(), self._learner.averaged_weights())
        timing = clock.timing() | {
            "validation_s": round(validation_s if order.validates else 0.0, 3),
            "exchange_s": round(self._exchange.seconds - exchange_start_s, 3),
            "save_s": round(clock.seconds - save_start_s, 3),
        }
        return {
            stage.name: RoundReport(
                pair,
                stage.n_decisions,
                metrics | self._metrics(stage),
                scores.get(stage.name),
                timing,
            )
            for stage in stages
        }

    def validate(self, weights: NetworkPair, order: RoundOrder) -> Reports:
        """Score the given weights, if the order says so, without training.

        Raises:
            ExchangeAborted: The attempt was called off.
        """
        clock = Clock()
        self._begin(order)
        scores = self._score(weights) if order.validates else {}
        self._states.end(order.round_number - 1)
        timing = clock.timing()
        return {
            name: RoundReport(None, 0, {}, scores.get(name), timing) for name in self.zone_names
        }

    @property
    def _learner(self) -> Learner:
        return self._states.learner

    def _begin(self, order: RoundOrder) -> None:
        for camera in self._cameras.values():
            camera.follow(order)
        self._states.begin(order)

    def _new_learner(self) -> Learner:
        experiment = self._experiment
        n_zones = len(self.zone_names)
        return make_learner(
            self._env(self.zone_names[0], experiment.training.replicas).layout,
            central_agent(experiment.agent, n_zones),
            n_zones * experiment.training.replicas,
            self._n_candidates,
            start_weights(self._state_dir, experiment, first_weights(experiment)),
            named_stream(experiment.seed, "exploration"),
        )

    def _env(self, name: str, n_replicas: int) -> ZoneEnv:
        if (name, n_replicas) not in self._envs:
            self._envs[name, n_replicas] = ZoneEnv(
                self._experiment,
                name,
                self._exchange,
                n_replicas,
                weighting=self._weightings[name],
            )
        return self._envs[name, n_replicas]

    def _stages(self, n_replicas: int) -> list[_Stage]:
        return [
            _Stage(name, z * n_replicas, self._env(name, n_replicas), self._cameras[name])
            for z, name in enumerate(self.zone_names)
        ]

    def _train(self, round_number: int) -> list[_Stage]:
        """Play the round's episodes, learning; return what was counted, by zone."""
        training, learner = self._experiment.training, self._learner
        stages = self._stages(training.replicas)
        for number in range(training.episodes_per_round):
            first = ((round_number - 1) * training.episodes_per_round + number) * training.replicas
            _reset(stages, "train", range(first, first + training.replicas))
            progress = round_number - 1 + number / training.episodes_per_round
            learner.set_progress(progress / training.rounds)
            learner.start_episode()
            for stage in stages:
                stage.camera.start(stage.env, learner, "training", number)
            for share in self._play(stages, self._decide):
                done = (number + share) / training.episodes_per_round
                learner.set_progress((round_number - 1 + done) / training.rounds)
                for stage in stages:
                    stage.camera.window_over(done)
                    self._settle(stage)
                learner.maybe_update()
                if self._tick is not None:
                    self._tick(done)
            learner.end_episode()
            for stage in stages:
                stage.sums.append(taken(stage.env))
        return stages

    def _decide(self, stage: _Stage, observation: Observation) -> NDArray[np.int64]:
        """Let the learner decide for a zone, and remember it."""
        seen = self._as_learnt(stage, observation)
        actions = self._learner.act(seen)
        self._learner.record(seen, actions)
        stage.n_decisions += len(actions)
        return actions

    def _settle(self, stage: _Stage) -> None:
        found = stage.env.settlements()
        stage.reward += float(found.reward.sum())
        self._learner.settle(
            Settlements(found.replica + stage.first_replica, found.decision, found.reward)
        )

    def _as_learnt(self, stage: _Stage, observation: Observation) -> Observation:
        """Return an observation (B, C) as one of the learner's: its replicas, masked room for C."""
        missing = self._n_candidates - observation.mask.shape[1]
        candidates, mask = observation.candidates, observation.mask
        if missing:
            candidates = np.pad(candidates, ((0, 0), (0, missing), (0, 0)))
            mask = np.pad(mask, ((0, 0), (0, missing)))
        return replace(
            observation,
            replica=observation.replica + stage.first_replica,
            candidates=candidates,
            mask=mask,
        )

    def _play(
        self, stages: list[_Stage], act: Callable[[_Stage, Observation], NDArray[np.int64]]
    ) -> Iterator[float]:
        """Play one episode in all zones; yield the share that is over after every window."""
        window = 0
        while not all(stage.env.done for stage in stages):
            for stage in stages:
                while (observation := stage.env.observe()) is not None:
                    actions = act(stage, observation)
                    if stage.camera.is_recording:
                        stage.camera.record(observation, actions)
                    stage.env.step(actions)
            for stage in stages:
                stage.env.post()
            for stage in stages:
                stage.env.receive()
            window += 1
            yield min(window / self._experiment.n_windows, 1.0)

    def _score(self, weights: NetworkPair) -> dict[str, dict[str, NDArray[np.float64]]]:
        """Play the validation episodes greedily; return the sums by zone and episode."""
        training = self._experiment.training
        tensors: Weights = {**self._learner.averaged_weights(), **weights.ema}
        policy = make_learned_policy(self._experiment, tensors)
        sums: dict[str, list[ZoneSums]] = {name: [] for name in self.zone_names}
        act: Act = policy.act
        for first in range(0, training.validation_episodes, training.replicas):
            episodes = range(first, min(first + training.replicas, training.validation_episodes))
            stages = self._stages(len(episodes))
            _reset(stages, "validation", episodes)
            for stage in stages:
                stage.camera.start(stage.env, policy, "validation", first)
            for share in self._play(stages, lambda _, observation: act(observation)):
                played = first + share * len(episodes)
                for stage in stages:
                    stage.camera.window_over(played / training.validation_episodes)
            for stage in stages:
                sums[stage.name].append(taken(stage.env))
        return {name: validation_sums(parts) for name, parts in sums.items()}

    def _metrics(self, stage: _Stage) -> dict[str, float]:
        mean_reward = stage.reward / max(stage.n_decisions, 1)
        weighting = self._weightings[stage.name]
        return {"mean_reward": mean_reward} | zone_metrics(self._experiment, stage.sums, weighting)


def _reset(stages: list[_Stage], split: str, episodes: range) -> None:
    """Start one episode in each replica of all zones."""
    for stage in stages:
        stage.env.begin(split, episodes)
    for stage in stages:
        stage.env.receive()


def _shown_as(name: str, show: Callable[[str, bytes], object] | None) -> Show | None:
    if show is None:
        return None
    given = show

    def shown(view: bytes) -> None:
        given(name, view)

    return shown
