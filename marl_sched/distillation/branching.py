"""Decisions whose alternatives are played out on the same future: the data of the teacher.

Every group of replicas plays one episode: a base and its branches. At a decision of the base the
branches are made its copies, each takes another candidate, and all play on by the same rule.
Shapes: G groups, 1 + K replicas a group, Z zones, S samples, F + 3 columns of a candidate, X of the
context, C candidates.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.prior import Prior
from marl_sched.agents.scoring import context_of
from marl_sched.config import Experiment
from marl_sched.distillation.kernels.play import Rule
from marl_sched.distillation.play import ClusterPlay, draw_inputs
from marl_sched.distillation.samples import Samples
from marl_sched.observation import Observation

Array = NDArray[np.float64]
Float = NDArray[np.float32]
Int = NDArray[np.int64]

Value = Callable[[Float], Array]
"""From situations (B, Z, columns) to what the future costs (B,)."""
Score = Callable[[Observation], Array]
"""From an extended observation to what a network makes of its candidates (B, C)."""

WARM_UP_S = 60.0
"""An episode starts empty: its first decisions are like no others."""


@dataclass(frozen=True)
class _Fork:
    """One decision of each group that has any: the group, its zone and its place in the window."""

    groups: Int
    zones: Int
    places: Int


class Branching:
    """Plays groups of replicas and collects samples."""

    def __init__(  # noqa: PLR0913  # the parts of an experiment, each made elsewhere
        self,
        experiment: Experiment,
        prior: Prior,
        rule: Rule,
        value: Value,
        prices: Array,
        generator: np.random.Generator,
        score: Score | None = None,
    ) -> None:
        """Prepare the groups; `rule` plays, and is compared with what it would not have done."""
        settings = experiment.teacher
        self._experiment = experiment
        self._prior = prior
        self._rule = rule
        self._value = value
        self._score = score
        self._generator = generator
        self._n_groups, self._n_branches = settings.groups, settings.branches
        self._play = ClusterPlay(experiment, self._n_groups * self._size, rule, prices)
        self._bases = np.arange(self._n_groups) * self._size
        self._settled = np.zeros((len(self._play.zones), self._n_groups), np.int64)
        """Jobs of each zone and group that had finished when all of its replicas were equal."""
        self._windows = max(1, round(settings.horizon_s / experiment.cluster.window_s))

    @property
    def _size(self) -> int:
        return 1 + self._n_branches

    def play(self, episodes: Sequence[int]) -> Iterator[Samples]:
        """Play one train episode a group and yield samples, a batch for every fork."""
        experiment = self._experiment
        inputs = draw_inputs(experiment, "train", episodes)
        replicas = {
            name: [item for item in items for _ in range(self._size)]
            for name, items in inputs.items()
        }
        self._play.begin(replicas)
        self._settled[:] = 0
        window_s = experiment.cluster.window_s
        last = int(experiment.episode.horizon_s / window_s) - self._windows
        window = 0
        while window <= last:
            if window * window_s < WARM_UP_S:
                self._play_all(self._bases)
                self._play.end_window()
                window += 1
                continue
            samples = self._fork(np.array(episodes))
            window += self._windows if samples is not None else 1
            if samples is not None:
                yield samples

    def _play_all(self, rows: Int) -> None:
        for zone in range(len(self._play.zones)):
            self._play.play(zone, rows)

    def _fork(self, episodes: Int) -> Samples | None:
        """Play one window with a fork in it, and the horizon; None: nothing was to be decided."""
        play = self._play
        fork = self._choose_fork()
        parts = [self._take(zone, fork, episodes) for zone in range(len(play.zones))]
        taken = [part for part in parts if part is not None]
        groups = np.concatenate([part[0] for part in taken]) if taken else np.zeros(0, np.int64)
        self._join(fork, groups)
        if not taken:
            play.end_window()
            return None
        samples = Samples.together([part[1] for part in taken])
        is_played = np.concatenate([np.ones((len(groups), 1), np.bool_), samples.is_tried], axis=1)
        others = np.setdiff1d(np.arange(self._n_groups), groups)
        rows = np.concatenate([self._rows(groups)[is_played], self._bases[others]])
        for _ in range(self._windows - 1):
            play.end_window()
            self._play_all(rows)
        costs = self._costs(groups)
        play.end_window()
        gains = np.where(samples.is_tried, costs[:, :1] - costs[:, 1:], 0.0)
        return replace(samples, gains=gains)

    def _choose_fork(self) -> _Fork:
        """Play the window in each group's first branch; draw one of its decisions.

        Zones other than that of the decision are then as the base would leave them.
        """
        play, scratch = self._play, self._bases + 1
        counts = np.zeros((len(play.zones), self._n_groups), np.int64)
        for zone in range(len(play.zones)):
            self._clone(zone, np.arange(self._n_groups), self._bases, scratch)
            counts[zone] = play.play(zone, scratch)
        totals = counts.sum(axis=0)
        drawn = np.floor(self._generator.random(self._n_groups) * totals).astype(np.int64)
        ends = counts.cumsum(axis=0)
        zones = (drawn >= ends).sum(axis=0)
        has_any = totals > 0
        zones = np.minimum(zones, len(play.zones) - 1)
        groups = np.arange(self._n_groups)
        places = drawn - (ends - counts)[zones, groups]
        if not has_any.all():
            for zone in range(len(play.zones)):
                self._clone(zone, groups[~has_any], scratch[~has_any], self._bases[~has_any])
        return _Fork(groups[has_any], zones[has_any], places[has_any])

    def _take(self, zone: int, fork: _Fork, episodes: Int) -> tuple[Int, Samples] | None:
        """Play the groups that fork in a zone through their windows; return them and samples.

        The gains of the samples are still to be filled in.
        """
        play = self._play
        is_here = fork.zones == zone
        groups = fork.groups[is_here]
        if not len(groups):
            return None
        bases = self._bases[groups]
        play.play(zone, bases, stops=fork.places[is_here])
        observation, choices = self._prior.judge(play.observe(zone, bases))
        scores = None if self._score is None else self._score(observation)
        if scores is not None:
            choices = gate(scores, choices, self._rule.margin)
        picked = self._pick(observation, choices, scores)
        has_choice = picked[:, 1] >= 0
        play.play(zone, bases[~has_choice])
        groups, picked = groups[has_choice], picked[has_choice]
        if not len(groups):
            return None
        is_played = picked >= 0
        rows = self._rows(groups)
        self._spread(zone, groups, is_played[:, 1:])
        play.costs[:, rows.ravel()] = 0.0
        play.play(zone, rows[is_played], firsts=picked[is_played])
        at = np.flatnonzero(has_choice)
        context = context_of(observation)[at]
        candidates = observation.candidates[at[:, None], np.where(is_played, picked, picked[:, :1])]
        return groups, Samples(
            candidates,
            context,
            np.zeros((len(groups), self._n_branches)),
            is_played[:, 1:],
            self._load(observation)[at],
            episodes[groups],
        )

    def _pick(self, observation: Observation, choices: Int, scores: Array | None) -> Int:
        """Return (B, 1 + K) candidates to try, first the rule's choice; -1 where there are none."""
        n_machines = observation.n_machines
        gap = observation.candidates[:, :, -3].astype(np.float64)
        picked = np.full((len(choices), self._size), -1, np.int64)
        for row, choice in enumerate(choices):
            mask = observation.mask[row].copy()
            mask[choice] = False
            peers = n_machines + np.flatnonzero(mask[n_machines:])
            machines = np.flatnonzero(mask[:n_machines])
            order = list(machines[np.argsort(-gap[row, machines], kind="stable")])
            if scores is not None:
                learned = machines[np.argsort(-scores[row, machines], kind="stable")]
                order = _interleave(list(learned), order)
            n_first = max(0, self._n_branches - len(peers) - 1)
            rest = order[n_first:]
            if len(rest) > 1:
                drawn = rest.pop(int(self._generator.integers(len(rest))))
                rest.insert(0, drawn)
            tried = [choice, *order[:n_first], *peers, *rest][: self._size]
            picked[row, : len(tried)] = tried
        return picked

    def _load(self, observation: Observation) -> Array:
        names = self._play.zones[0].layout.zone
        free = [at for at, name in enumerate(names) if name.startswith("zone_free_share")]
        queued = [at for at, name in enumerate(names) if name.startswith("queue_share")]
        loads = observation.zone[:, queued].max(axis=1) - observation.zone[:, free].min(axis=1)
        return np.asarray(loads, np.float64)

    def _join(self, fork: _Fork, taken: Int) -> None:
        """Bring all replicas of the groups to the window's end in the zones that did not fork.

        The first branch has played them already.
        """
        for zone in range(len(self._play.zones)):
            groups = fork.groups[fork.zones != zone]
            self._clone(zone, groups, self._bases[groups] + 1, self._bases[groups])
            groups = np.intersect1d(groups, taken)
            self._spread(zone, groups, np.ones((len(groups), self._n_branches), np.bool_))
            self._play.costs[zone, self._rows(groups).ravel()] = 0.0

    def _spread(self, zone: int, groups: Int, is_wanted: NDArray[np.bool_]) -> None:
        """Copy the bases of groups onto their branches, those wanted (B, K)."""
        pairs, _ = np.nonzero(is_wanted)
        rows = self._rows(groups)
        self._clone(zone, groups[pairs], rows[pairs, 0], rows[:, 1:][is_wanted])
        if is_wanted.all():
            self._settled[zone, groups] = self._play.first_unfinished(
                zone, self._bases[groups], self._settled[zone, groups]
            )

    def _clone(self, zone: int, groups: Int, sources: Int, targets: Int) -> None:
        self._play.clone(zone, sources, targets, self._settled[zone, groups])

    def _costs(self, groups: Int) -> Array:
        """Return (S, 1 + K): done within the horizon, owed then, and expected after it."""
        rows = self._rows(groups)
        costs = self._play.costs[:, rows.ravel()].sum(axis=0)
        costs += self._play.owed(rows.ravel()).sum(axis=1)
        costs += self._value(self._play.situations(rows.ravel()))
        return np.asarray(costs.reshape(rows.shape))

    def _rows(self, groups: Int) -> Int:
        """Return (B, 1 + K), all replicas of groups."""
        return self._bases[groups][:, None] + np.arange(self._size)


def gate(scores: Array, choices: Int, margin: float) -> Int:
    """Return the best-scored candidate (B,) where it beats the given choice by the margin.

    Args:
        scores: (B, C), -inf where masked.
        choices: (B,).
        margin: Gain to deviate for.
    """
    rows = np.arange(len(choices))
    best = scores.argmax(axis=1)
    gain = scores[rows, best] - scores[rows, choices]
    return np.where(gain > margin, best, choices)


def _interleave(first: list[int], second: list[int]) -> list[int]:
    """Return all items, in turn of one list and the other, each once."""
    merged = [item for pair in zip(first, second, strict=True) for item in pair]
    return list(dict.fromkeys(merged))
