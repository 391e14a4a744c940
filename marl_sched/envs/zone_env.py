"""One zone as an agent sees it, in E replicas: observations, actions, settlements, windows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.exchange import Exchange, Outbox
from marl_sched.cluster.kernels.digest import (
    N_DIGEST_AMOUNTS,
    N_PLAIN_DIGEST,
)
from marl_sched.cluster.kernels.messages import N_NOTICE, N_OFFLOAD, N_SETTLEMENT, TO
from marl_sched.cluster.machines import draw_background, draw_events
from marl_sched.cluster.metrics import ZoneSums
from marl_sched.cluster.model import N_FACT_BLOCKS, N_PLAIN_FACTS, N_SHAPES, State
from marl_sched.cluster.simulator import ZoneSimulator
from marl_sched.cluster.state import EpisodeInput
from marl_sched.config import MICROSECONDS, Experiment
from marl_sched.envs.credit import Credit
from marl_sched.envs.kernels.observe import observe_rows
from marl_sched.envs.kernels.play import play_window_weighted
from marl_sched.envs.resource_weighting import ResourceWeighting
from marl_sched.errors import ConfigError, ExchangeError
from marl_sched.observation import Layout, Observation, Settlements
from marl_sched.workload.episodes import draw_workload

_OPENING = -1


class ZoneEnv:
    """E episodes of one zone side by side, in touch with the other zones through an exchange.

    The loop: `reset`; until `done`: until `observe` gives None: `step`; then `end_window`. In one
    thread that hosts several zones, `begin` / `post` on all of them, then `receive` on all of them,
    stand for `reset` / `end_window`, which block until every zone of the exchange is there.
    """

    def __init__(
        self,
        experiment: Experiment,
        zone_name: str,
        exchange: Exchange,
        n_replicas: int,
        with_rewards: bool = True,
        weighting: ResourceWeighting | None = None,
    ) -> None:
        """Host one zone.

        Args:
            experiment: The whole experiment.
            zone_name: The zone.
            exchange: Where it meets the others.
            n_replicas: E.
            with_rewards: Without them nothing is settled, for evaluations.
            weighting: Resource weights of the reward that are kept over episodes and follow those
                of the train split; None: they begin anew in every episode.

        Raises:
            ConfigError: The experiment has no such zone.
        """
        zones = {zone.name: zone for zone in experiment.zones}
        if zone_name not in zones:
            raise ConfigError(f"zone {zone_name}: expected one of {', '.join(sorted(zones))}")
        self.experiment = experiment
        self.name = zone_name
        self.exchange = exchange
        self.n_replicas = n_replicas
        self._with_rewards = with_rewards
        self.layout = Layout(tuple(experiment.resources))
        self.simulator = ZoneSimulator(experiment, zones[zone_name], n_replicas)
        self.peers = self.simulator.peers
        self.n_machines = self.simulator.n_machines
        self._keeps_weights = weighting is not None
        self._weighting = weighting or ResourceWeighting(experiment)
        self._weights_follow = with_rewards
        self._credit = Credit(experiment, self.simulator, self._weighting)
        candidates = self.n_machines + len(self.peers)
        layout = self.layout
        self._instance = np.zeros((n_replicas, len(layout.instance)), np.float32)
        self._candidates = np.zeros((n_replicas, candidates, len(layout.candidate)), np.float32)
        self._zone = np.zeros((n_replicas, len(layout.zone)), np.float32)
        self._mask = np.zeros((n_replicas, candidates), np.bool_)
        self._rows = np.zeros(0, np.int64)
        self._step = 0
        self._window = _OPENING
        self._closings = 0
        self._cluster_imbalance = np.zeros((n_replicas, experiment.n_resources))

    @property
    def done(self) -> bool:
        """Whether the episode is over and everything is settled."""
        return self._closings > max(1, self.experiment.cluster.max_hops)

    @property
    def window(self) -> int:
        """Number of the window being played, from 0; the number of windows once all are played."""
        return self._window

    def reset(self, split: str, episodes: Sequence[int]) -> None:
        """Start one episode in each replica; waits for the other zones."""
        self.begin(split, episodes)
        self.receive()

    def begin(self, split: str, episodes: Sequence[int]) -> None:
        """Start one episode in each replica and post the first digests; `receive` must follow.

        Raises:
            ValueError: There is not one episode a replica.
        """
        experiment, zone = self.experiment, self.simulator.zone
        is_followed = not self._keeps_weights or split == "train"
        self._weights_follow = self._with_rewards and is_followed
        self.begin_with(
            [
                EpisodeInput(
                    draw_workload(experiment, zone, split, episode),
                    draw_events(experiment, zone, split, episode),
                    draw_background(experiment, zone, split, episode),
                )
                for episode in episodes
            ]
        )

    def begin_with(self, inputs: Sequence[EpisodeInput]) -> None:
        """Start one given episode in each replica, as `begin` does with drawn ones.

        Raises:
            ValueError: There is not one episode a replica.
        """
        if len(inputs) != self.n_replicas:
            raise ValueError(f"{len(inputs)} episodes for {self.n_replicas} replicas")
        self.simulator.reset(inputs)
        self._credit.reset()
        if not self._keeps_weights:
            self._weighting.reset()
        self._rows = np.zeros(0, np.int64)
        self._step = 0
        self._window = _OPENING
        self._closings = 0
        self._cluster_imbalance[:] = 0.0
        self.post()

    def observe(self) -> Observation | None:
        """Return the decisions that are due, or None when every replica is at the window's end.

        The arrays are overwritten by the next call: copy what is to be kept.
        """
        n = len(self._rows)
        if n == 0:
            return None
        observe_rows(
            self.simulator.state,
            self._rows,
            self._instance,
            self._candidates,
            self._zone,
            self._mask,
        )
        return Observation(
            replica=self._rows,
            decision=self.simulator.state.zone["decisions"][self._rows],
            instance=self._instance[:n],
            candidates=self._candidates[:n],
            zone=self._zone[:n],
            mask=self._mask[:n],
            n_machines=self.n_machines,
        )

    def step(self, actions: NDArray[np.int64]) -> None:
        """Carry out one action (B,) per row of the last observation and play to the next decisions.

        Raises:
            PlacementError: An action is masked.
        """
        facts, outcomes = self.simulator.decide(self._rows, np.asarray(actions, np.int64))
        if self._with_rewards:
            self._credit.placed(self._rows, facts, outcomes)
        self._rows = self.simulator.advance(self._rows)
        self._take_back_credit()

    def play_weighted(self, weights: NDArray[np.float64]) -> int:
        """Play all replicas to the window's end by a weighted score; return the decisions taken.

        The same as acting by `TunedRule` until nothing is due, without leaving the kernels.

        Args:
            weights: (2, F) of machines and of peers.

        Raises:
            ExchangeError: This environment settles rewards, or the window has begun.
        """
        if self._with_rewards:
            raise ExchangeError(f"zone {self.name}: a weighted score is played without rewards")
        state = self.simulator.state
        n_decisions = play_window_weighted(
            state,
            self.simulator.until_us,
            weights,
            self.layout.fit_columns,
            (self._instance, self._candidates, self._zone, self._mask),
            np.empty(N_PLAIN_FACTS + N_FACT_BLOCKS * state.capacity.shape[1]),
        )
        self._rows = self._rows[:0]
        return int(n_decisions)

    def end_window(self) -> None:
        """Exchange with the other zones, waiting for them, and open the next window."""
        self.post()
        self.receive()

    def post(self) -> None:
        """Close the window and hand its outbox to the exchange; `receive` must follow.

        Raises:
            ExchangeError: Decisions are still due, or the episode is over.
        """
        if len(self._rows) or self.done:
            raise ExchangeError(f"zone {self.name}: the window cannot end now")
        is_playing = _OPENING < self._window < self.experiment.n_windows
        moments = self.simulator.end_window() if is_playing else self._no_moments()
        self.exchange.post(
            Outbox(
                zone=self.name,
                step=self._step,
                offloads=self.simulator.collect_offloads(),
                notices=self.simulator.collect_notices(),
                settlements=self._credit.take_messages(),
                digests=self.simulator.collect_digests() if self._is_digest_due() else None,
                moments=moments,
            )
        )
        if self._weights_follow and is_playing and self._is_measured():
            self._weighting.observe(moments)

    def receive(self) -> None:
        """Take what the other zones posted and open the next window, or close the episode."""
        outboxes = self.exchange.collect(self.name, self._step)
        self._step += 1
        self._take_in(outboxes)
        self._window = min(self._window + 1, self.experiment.n_windows)
        if self._window < self.experiment.n_windows:
            self._rows = self.simulator.open_window()
            self._take_back_credit()
            return
        if self._closings == 0:
            unplaced = self.simulator.finish_episode()
            if self._with_rewards:
                self._credit.never_placed(*unplaced)
        self._closings += 1

    def copy_replica(self, source: int, target: int) -> None:
        """Make a replica an exact copy of another, due decision and pending credit included.

        An offloaded instance has a row in both zones: copy the replica in every zone.
        """
        self.simulator.copy_replica(source, target)
        self._credit.copy_replica(source, target)
        self._cluster_imbalance[target] = self._cluster_imbalance[source]
        rows = set(self._rows.tolist()) - {target}
        if source in rows:
            rows.add(target)
        self._rows = np.array(sorted(rows), np.int64)

    def clone(
        self,
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        settled: NDArray[np.int64] | None = None,
    ) -> None:
        """Copy many replicas at once, due decisions and pending credit included.

        Arguments and errors are those of `ZoneSimulator.clone`; see `copy_replica`.
        """
        self.simulator.clone(sources, targets, settled)
        if self._with_rewards:
            self._credit.clone(sources, targets)
        self._cluster_imbalance[targets] = self._cluster_imbalance[sources]
        is_due = np.zeros(self.n_replicas, np.bool_)
        is_due[self._rows] = True
        is_due[targets] = is_due[sources]
        self._rows = np.flatnonzero(is_due)

    def hand_over(self) -> tuple[State, int]:
        """Return the state and the window's end, for a kernel that plays the window instead.

        All replicas are its to play until then; `end_window` or `post` must follow.

        Raises:
            ExchangeError: This environment settles rewards, which such play does not.
        """
        if self._with_rewards:
            raise ExchangeError(f"zone {self.name}: only play without rewards can be handed over")
        self._rows = self._rows[:0]
        return self.simulator.state, self.simulator.until_us

    def settlements(self) -> Settlements:
        """Return the rewards settled since the last call; several for one decision add up."""
        return self._credit.take_settlements()

    def finish(self) -> ZoneSums:
        """Return what the zone counted, per replica, once the episode is done."""
        state = self.simulator.state
        return ZoneSums(state.sums, state.histogram, self._cluster_imbalance)

    def clear(self) -> None:
        """Let go of the episode, and of what `finish` returned; `reset` or `begin` must follow."""
        self.simulator.clear()
        self._credit.reset()
        self._rows = np.zeros(0, np.int64)

    def _take_back_credit(self) -> None:
        if self.simulator.deaths:
            if self._with_rewards:
                self._credit.took_back()
            else:
                self.simulator.state.zone["void_size"][:] = 0

    def _is_digest_due(self) -> bool:
        period = round(self.experiment.cluster.digest_period_s * MICROSECONDS)
        return (self._window + 1) * self.experiment.window_us % period == 0

    def _no_moments(self) -> NDArray[np.float64]:
        return np.zeros((self.n_replicas, self.experiment.n_resources, 3))

    def _take_in(self, outboxes: Sequence[Outbox]) -> None:
        self._check(outboxes)
        mine = self.simulator.zone_index

        def for_me(rows: list[NDArray[np.float64]]) -> NDArray[np.float64]:
            together = np.concatenate(rows)
            return np.asarray(together[together[:, TO] == mine])

        for outbox in outboxes:
            if outbox.digests is not None and outbox.zone != self.name:
                self.simulator.deliver_digest(outbox.zone, outbox.digests)
        self._credit.received(for_me([outbox.settlements for outbox in outboxes]))
        if self._closings > 0:
            return  # everything is scored: what is still under way are settlements
        self.simulator.deliver_notices(for_me([outbox.notices for outbox in outboxes]))
        self.simulator.deliver_offloads(for_me([outbox.offloads for outbox in outboxes]))
        self._sample_cluster(np.sum([outbox.moments for outbox in outboxes], axis=0))

    def _is_measured(self) -> bool:
        """Return whether the end of the window lies in the span that counts."""
        parameters = self.simulator.state.parameters[0]
        now_us = (self._window + 1) * self.experiment.window_us
        return bool(parameters["measured_from_us"] <= now_us <= parameters["measured_to_us"])

    def _sample_cluster(self, moments: NDArray[np.float64]) -> None:
        """Add the cluster's standard deviation at this boundary, moments (E, R, 3)."""
        if self._window == _OPENING or not self._is_measured():
            return
        count = np.maximum(moments[:, :, 0], 1.0)
        mean = moments[:, :, 1] / count
        variance = np.maximum(0.0, moments[:, :, 2] / count - mean * mean)
        self._cluster_imbalance += np.sqrt(variance)

    def _check(self, outboxes: Sequence[Outbox]) -> None:
        n_resources = self.experiment.n_resources
        n_digest = N_PLAIN_DIGEST + (N_DIGEST_AMOUNTS + N_SHAPES) * n_resources
        expected = {
            "offloads": (None, N_OFFLOAD + 3 * n_resources),
            "notices": (None, N_NOTICE),
            "settlements": (None, N_SETTLEMENT),
            "digests": (self.n_replicas, n_digest),
            "moments": (self.n_replicas, n_resources, 3),
        }
        for outbox in outboxes:
            for name, shape in expected.items():
                array = getattr(outbox, name)
                if array is None:
                    continue
                fits = array.ndim == len(shape) and all(
                    want in (None, got) for want, got in zip(shape, array.shape, strict=True)
                )
                if not fits:
                    raise ExchangeError(
                        f"zone {outbox.zone}, step {outbox.step}: {name} of shape {array.shape}, "
                        f"expected {shape}"
                    )
