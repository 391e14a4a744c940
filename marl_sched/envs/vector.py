"""The whole cluster in one thread: E replicas of every zone, played window by window."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.exchange import LocalExchange
from marl_sched.cluster.metrics import episode_metrics
from marl_sched.cluster.model import OFFLOADED
from marl_sched.config import Experiment
from marl_sched.config.streams import named_stream
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.observation import Observation


class ActingPolicy(Protocol):
    """What VectorEnv asks of a policy."""

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        """Forget the last episodes."""
        ...

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return an unmasked candidate (B,) for each row."""
        ...


@dataclass(frozen=True)
class Recording:
    """What happened in one episode, for plots.

    Attributes:
        utilization: (T, M, R) per zone, at every window boundary; 0 where a machine does not have
            the resource.
        offloads: (Z, Z) instances sent from row to column, in the order of `zones`.
        zones: Names, sorted.
    """

    utilization: dict[str, NDArray[np.float64]]
    offloads: NDArray[np.int64]
    zones: list[str]


class VectorEnv:
    """All zones of an experiment, E replicas side by side, in the calling thread."""

    def __init__(self, experiment: Experiment, n_replicas: int, with_rewards: bool = True) -> None:
        """Host every zone of the experiment; without rewards nothing is settled."""
        self.experiment = experiment
        self.n_replicas = n_replicas
        exchange = LocalExchange(experiment.zone_names)
        self.zones = {
            name: ZoneEnv(experiment, name, exchange, n_replicas, with_rewards)
            for name in sorted(experiment.zone_names)
        }
        self.decisions = 0
        self.decision_s = 0.0

    @property
    def done(self) -> bool:
        """Whether the episode is over in all zones (they end together)."""
        return all(zone.done for zone in self.zones.values())

    def reset(self, split: str, episodes: Sequence[int]) -> None:
        """Start one episode in each replica."""
        for zone in self.zones.values():
            zone.begin(split, episodes)
        for zone in self.zones.values():
            zone.receive()

    def end_window(self) -> None:
        """Exchange between all zones and open the next window."""
        for zone in self.zones.values():
            zone.post()
        for zone in self.zones.values():
            zone.receive()

    def copy_replica(self, source: int, target: int) -> None:
        """Make a replica an exact copy of another in every zone, for what-if play."""
        for zone in self.zones.values():
            zone.copy_replica(source, target)

    def clone(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copy many replicas at once, sources (B,) onto others, targets (B,), in every zone."""
        for zone in self.zones.values():
            zone.clone(sources, targets)

    def run(
        self,
        policies: Mapping[str, ActingPolicy],
        split: str,
        episodes: Sequence[int],
        counted: Collection[str] = (),
    ) -> dict[str, NDArray[np.float64]]:
        """Play one episode in each replica, one policy a zone, and return its metrics (E,).

        `decisions` and `decision_s` are the number of decisions and the time the policies took.

        Args:
            policies: Policy by zone.
            split: Split of the episodes.
            episodes: One a replica.
            counted: Zones that the metrics are of; empty: all. `imbalance_*` are always the whole
                cluster's.
        """
        self._start(policies, split, episodes)
        while not self.done:
            self._play_window(policies)
            self.end_window()
        names = counted or self.zones
        sums = [zone.finish() for name, zone in self.zones.items() if name in names]
        metrics = episode_metrics(self.experiment, sums)
        latency_us = 1e6 * self.decision_s / max(1, self.decisions)
        return {**metrics, "decision_latency_us": np.full(self.n_replicas, latency_us)}

    def run_weighted(
        self, weights: NDArray[np.float64], split: str, episodes: Sequence[int]
    ) -> dict[str, NDArray[np.float64]]:
        """Play one episode in each replica by a weighted score (2, F); return its metrics (E,)."""
        self.reset(split, episodes)
        while not self.done:
            for zone in self.zones.values():
                if zone.window < self.experiment.n_windows:
                    zone.play_weighted(weights)
            self.end_window()
        return episode_metrics(self.experiment, [zone.finish() for zone in self.zones.values()])

    def record(self, policies: Mapping[str, ActingPolicy], split: str, episode: int) -> Recording:
        """Play one episode in the first replica and return what happened, for plots."""
        self._start(policies, split, [episode] * self.n_replicas)
        names = list(self.zones)
        samples: dict[str, list[NDArray[np.float64]]] = {name: [] for name in names}
        while not self.done:
            self._play_window(policies)
            for name, zone in self.zones.items():
                if zone.window < self.experiment.n_windows:
                    state = zone.simulator.state
                    has = state.capacity > 0
                    share = np.divide(
                        state.use[0], state.capacity, out=np.zeros(has.shape), where=has
                    )
                    share[:, 0] = np.minimum(share[:, 0], 1.0)
                    samples[name].append(share)
            self.end_window()
        return Recording(
            utilization={name: np.array(sample) for name, sample in samples.items()},
            offloads=np.array([self._sent(zone) for zone in self.zones.values()]),
            zones=names,
        )

    def _start(
        self, policies: Mapping[str, ActingPolicy], split: str, episodes: Sequence[int]
    ) -> None:
        for name in self.zones:
            generator = named_stream(self.experiment.seed, "policy", split, name)
            policies[name].reset(self.n_replicas, generator)
        self.decisions = 0
        self.decision_s = 0.0
        self.reset(split, episodes)

    def _play_window(self, policies: Mapping[str, ActingPolicy]) -> None:
        for name, zone in self.zones.items():
            policy = policies[name]
            while (observation := zone.observe()) is not None:
                start = time.perf_counter()
                actions = policy.act(observation)
                self.decision_s += time.perf_counter() - start
                self.decisions += len(actions)
                zone.step(actions)

    def _sent(self, zone: ZoneEnv) -> NDArray[np.int64]:
        state = zone.simulator.state
        rows = state.instance[0, : state.zone["n_instances"][0]]
        sent = rows["peer"][rows["status"] == OFFLOADED]
        counts = np.zeros(len(self.zones), np.int64)
        np.add.at(counts, state.peer_zone[sent], 1)
        return counts
