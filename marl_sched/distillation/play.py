"""A whole cluster in many replicas, played by a rule within the kernels, every cost counted.

Shapes: E replicas, Z zones, B rows, R resources, S columns of a situation, C candidates.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import Architecture, Weights
from marl_sched.agents.prior import PRIOR_COLUMNS, WORST_GAP, Prior
from marl_sched.cluster.kernels.clone import first_unfinished
from marl_sched.cluster.machines import build_machines, draw_background, draw_events
from marl_sched.cluster.metrics import MINUTE_S, episode_metrics
from marl_sched.cluster.model import N_FACT_BLOCKS, N_PLAIN_FACTS
from marl_sched.cluster.state import EpisodeInput
from marl_sched.config import Experiment
from marl_sched.distillation.kernels.play import N_PRICES, Buffers, Rule, play_rows, write_owed
from marl_sched.distillation.kernels.situation import (
    N_PER_RESOURCE,
    N_PLAIN,
    N_SLOTS,
    write_situations,
)
from marl_sched.envs.kernels.observe import observe_rows
from marl_sched.envs.reward import instances_per_s
from marl_sched.envs.vector import VectorEnv
from marl_sched.observation import Layout, Observation
from marl_sched.workload.episodes import draw_workload

Array = NDArray[np.float64]
Int = NDArray[np.int64]


def correcting(layout: Layout, hidden: Sequence[int]) -> Architecture:
    """Return the architecture of what corrects a prior: one output, the prior's columns too."""
    n_context = len(layout.instance) + len(layout.zone)
    return Architecture(
        len(layout.candidate) + len(PRIOR_COLUMNS), n_context, tuple(hidden), n_quantiles=1
    )


def make_rule(
    prior: Prior,
    architecture: Architecture | None = None,
    weights: Weights | None = None,
    margin: float = 0.0,
) -> Rule:
    """Return the prior as a rule of the kernels, corrected where there are weights for it."""
    hidden = np.zeros(0, np.int64)
    flat = np.zeros(0, np.float32)
    head, bias = np.zeros((0, 1), np.float32), np.zeros((1, 1), np.float32)
    if architecture is not None and weights is not None:
        flat = architecture.flatten(weights)
        hidden = np.array(architecture.hidden, np.int64)
        head, bias = weights["head.weight"].copy(), weights["head.bias"][None].copy()
    tail = np.ones(1, np.float32)
    return Rule(prior.matrix, prior.fit, WORST_GAP, margin, flat, hidden, head, bias, tail)


def draw_inputs(
    experiment: Experiment, split: str, episodes: Sequence[int]
) -> dict[str, list[EpisodeInput]]:
    """Draw what happens to every zone from outside, an input an episode."""
    return {
        zone.name: [
            EpisodeInput(
                draw_workload(experiment, zone, split, episode),
                draw_events(experiment, zone, split, episode),
                draw_background(experiment, zone, split, episode),
            )
            for episode in episodes
        ]
        for zone in experiment.zones
    }


def prices_of(experiment: Experiment) -> Array:
    """Return what is paid for, in units of instances: (N_PRICES + 2 R,), see kernels/play.py.

    The objective is a mean over instances but for the imbalances, means over time and zones: times
    the number of instances, one window's imbalance of one zone costs the instances that come to a
    zone in a window, on average. Completion is a mean over tasks there; here every instance counts
    as a task of its own would.
    """
    weights = experiment.objective
    rate = sum(instances_per_s(experiment, zone) for zone in experiment.zones)
    per_window = rate * experiment.cluster.window_s / len(experiment.zones)
    of_instances = [
        weights.late,
        weights.finish_violation,
        weights.slowdown,
        weights.cost,
        weights.offload,
        weights.completion / MINUTE_S,
    ]
    assert len(of_instances) == N_PRICES
    of_imbalance = [
        weights.imbalance * per_window * (resource in weights.imbalance_resources)
        for resource in experiment.resources
    ]
    machines = [build_machines(experiment, zone) for zone in experiment.zones]
    total_price = sum(float(one.price_per_hour.sum()) for one in machines)
    capacity = np.sum([one.capacity.sum(axis=0) for one in machines], axis=0)
    return np.array([*of_instances, *of_imbalance, *(total_price / np.maximum(capacity, 1))])


class ClusterPlay:
    """Replicas of every zone, window by window: `play` in each zone, then `end_window`.

    Attributes:
        costs: (Z, E) of what was done since the caller last set it to 0.
    """

    def __init__(self, experiment: Experiment, n_replicas: int, rule: Rule, prices: Array) -> None:
        """Host the cluster; `begin` must follow."""
        self.env = VectorEnv(experiment, n_replicas, with_rewards=False)
        self.zones = list(self.env.zones.values())
        self.rule = rule
        self.costs = np.zeros((len(self.zones), n_replicas))
        self._prices = prices
        self._layout = self.zones[0].layout
        self._buffers = [self._room(zone.n_machines + len(zone.peers)) for zone in self.zones]

    def _room(self, n_candidates: int) -> Buffers:
        layout = self._layout
        n_instance, n_zone, n_features = len(layout.instance), len(layout.zone), self.n_features
        n_facts = N_PLAIN_FACTS + N_FACT_BLOCKS * len(layout.resources)
        return Buffers(
            np.zeros((1, n_instance), np.float32),
            np.zeros((1, n_candidates, n_features), np.float32),
            np.zeros((1, n_zone), np.float32),
            np.zeros((1, n_candidates), np.bool_),
            np.zeros((1, n_instance + n_zone), np.float32),
            np.zeros((1, n_candidates, n_features + len(PRIOR_COLUMNS)), np.float32),
            np.zeros(1, np.int64),
            np.zeros((1, n_candidates), np.float32),
            np.zeros(n_facts),
        )

    @property
    def n_features(self) -> int:
        """F: columns of a candidate, without the prior's."""
        return len(self._layout.candidate)

    def begin(self, inputs: Mapping[str, Sequence[EpisodeInput]]) -> None:
        """Start one episode in each replica."""
        for zone in self.zones:
            zone.begin_with(inputs[zone.name])
        for zone in self.zones:
            zone.receive()
        self.costs[:] = 0.0

    def play(
        self, zone: int, rows: Int, stops: Int | None = None, firsts: Int | None = None
    ) -> Int:
        """Play replicas (B,) of a zone to the window's end; arguments as of `play_rows`."""
        state, until_us = self.zones[zone].hand_over()
        counts = np.zeros(len(rows), np.int64)
        none = np.full(len(rows), -1, np.int64)
        play_rows(
            state,
            until_us,
            rows,
            none if stops is None else stops,
            none if firsts is None else firsts,
            self.rule,
            self._buffers[zone],
            self._prices,
            self.costs[zone],
            counts,
        )
        return counts

    def observe(self, zone: int, rows: Int) -> Observation:
        """Return the due decisions of replicas (B,) of a zone."""
        one, layout = self.zones[zone], self._layout
        n_candidates = one.n_machines + len(one.peers)
        instance = np.zeros((len(rows), len(layout.instance)), np.float32)
        candidates = np.zeros((len(rows), n_candidates, self.n_features), np.float32)
        context = np.zeros((len(rows), len(layout.zone)), np.float32)
        mask = np.zeros((len(rows), n_candidates), np.bool_)
        state = one.simulator.state
        observe_rows(state, rows, instance, candidates, context, mask)
        decisions = state.zone["decisions"][rows]
        return Observation(rows, decisions, instance, candidates, context, mask, one.n_machines)

    def clone(self, zone: int, sources: Int, targets: Int, settled: Int) -> None:
        """Copy replicas of a zone onto others of the same episode; see `ZoneSimulator.clone`."""
        if len(sources):
            self.zones[zone].clone(sources, targets, settled)

    def first_unfinished(self, zone: int, rows: Int, start: Int) -> Int:
        """Return the first jobs (B,) from `start` on that replicas (B,) have not finished."""
        found = start.copy()
        first_unfinished(self.zones[zone].simulator.state, rows, found)
        return found

    def situations(self, rows: Int) -> NDArray[np.float32]:
        """Return (B, Z, S), what the value of replicas (B,) is predicted from."""
        n_columns = N_PLAIN + N_SLOTS + N_PER_RESOURCE * len(self._layout.resources)
        out = np.empty((len(self.zones), len(rows), n_columns), np.float32)
        for zone, one in enumerate(self.zones):
            write_situations(one.simulator.state, rows, out[zone])
        return np.ascontiguousarray(out.transpose(1, 0, 2))

    def owed(self, rows: Int) -> Array:
        """Return (B, Z), what replicas (B,) owe for the waits of instances that are open."""
        out = np.empty((len(self.zones), len(rows)))
        for zone, one in enumerate(self.zones):
            write_owed(one.simulator.state, rows, self._prices, out[zone])
        return out.T

    def end_window(self) -> None:
        """Exchange between all zones and open the next window."""
        self.env.end_window()


def score_rule(
    experiment: Experiment, rule: Rule, split: str, episodes: Sequence[int], batch: int = 10
) -> dict[str, Array]:
    """Play whole episodes by a rule and return their metrics, (E,) each."""
    prices = prices_of(experiment)
    parts = []
    for start in range(0, len(episodes), batch):
        some = episodes[start : start + batch]
        play = ClusterPlay(experiment, len(some), rule, prices)
        play.begin(draw_inputs(experiment, split, some))
        rows = np.arange(len(some))
        for _ in range(experiment.n_windows):
            for zone in range(len(play.zones)):
                play.play(zone, rows)
            play.end_window()
        while not play.env.done:
            play.end_window()
        parts.append(episode_metrics(experiment, [zone.finish() for zone in play.zones]))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
