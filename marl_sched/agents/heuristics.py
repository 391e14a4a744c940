"""The fixed rules, by name, and `make_policy` for every rule.

A fixed rule picks a machine whenever it can and offloads only when nothing fits here, always to the
peer of `offload.PeerFormula`: rules differ in placement only. Rules see what agents see, the
observation, and nothing else.

In unmasked placement machines that do not fit may be picked too. There a rule behaves as its source
does: those whose definition has a fit check (`checks_fit`) consider machines that fit first and
offload when none does; the others take their best machine, fit or not.
Shapes: B rows, M machines, R resources, E replicas.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents import kube
from marl_sched.agents.chance import draw_salt, hashed_uniforms
from marl_sched.agents.offload import PeerFormula
from marl_sched.agents.policy import Policy
from marl_sched.agents.tuned import TunedRule, load_tuned, tuned_path
from marl_sched.config import Experiment
from marl_sched.config.hashing import environment_hash
from marl_sched.errors import ConfigError
from marl_sched.fit_check import are_short
from marl_sched.observation import Layout, Observation

Machines = NDArray[np.float32]
Scores = NDArray[np.floating]


@dataclass(frozen=True)
class _Rule:
    """How one fixed rule scores machines: larger is better, ties go to the first machine."""

    score: Callable[[Machines, Layout], Scores]
    """From (B, M, F) features to (B, M) scores."""
    checks_fit: bool = False
    """Its source considers only machines that fit."""
    has_random_ties: bool = False
    """Its source picks at random among the best."""


def _equal(machines: Machines, layout: Layout) -> Scores:
    return np.zeros(machines.shape[:2])


def _fewest_running(machines: Machines, layout: Layout) -> Scores:
    return -machines[:, :, layout.candidate_index("running")]


def _least_free_after(machines: Machines, layout: Layout) -> Scores:
    return -_mean_over_resources(machines, layout, "free_share_after")


def _most_free_after(machines: Machines, layout: Layout) -> Scores:
    return _mean_over_resources(machines, layout, "free_share_after")


def _kube_default(machines: Machines, layout: Layout) -> Scores:
    free = _cpu_and_memory(machines, layout, "free_share_after")
    return kube.least_allocated(free) + kube.balanced_allocation(free)


def _load_variation_risk(machines: Machines, layout: Layout) -> Scores:
    before = _cpu_and_memory(machines, layout, "free_share")
    after = _cpu_and_memory(machines, layout, "free_share_after")
    return kube.load_variation_risk(
        _cpu_and_memory(machines, layout, "utilization_mean"),
        _cpu_and_memory(machines, layout, "utilization_sd"),
        before - after,
    )


def _least_real_use(machines: Machines, layout: Layout) -> Scores:
    return -_mean_over_resources(machines, layout, "utilization_after")


def _balance_real_use(machines: Machines, layout: Layout) -> Scores:
    # Over all resources: a machine does not change the balance of one that it does not have.
    change: Scores = machines[:, :, layout.candidate_indices("imbalance_change")].mean(axis=-1)
    return -change


def _alignment(machines: Machines, layout: Layout) -> Scores:
    return machines[:, :, layout.candidate_index("alignment")]


def _earliest_finish(machines: Machines, layout: Layout) -> Scores:
    # The known mean is the same for all machines of a row: the relative duration orders them.
    return -machines[:, :, layout.candidate_index("expected_duration")]


def _cheapest(machines: Machines, layout: Layout) -> Scores:
    return -machines[:, :, layout.candidate_index("cost")]


_RULES = {
    "random": _Rule(_equal, has_random_ties=True),
    "least-connections": _Rule(_fewest_running),
    "first-fit": _Rule(_equal, checks_fit=True),
    "best-fit": _Rule(_least_free_after, checks_fit=True),
    "least-allocated": _Rule(_most_free_after),
    "kube-default": _Rule(_kube_default, checks_fit=True, has_random_ties=True),
    "least-real-use": _Rule(_least_real_use),
    "balance-real-use": _Rule(_balance_real_use),
    "tetris": _Rule(_alignment, checks_fit=True),
    "earliest-finish": _Rule(_earliest_finish),
    "load-variation-risk": _Rule(_load_variation_risk, checks_fit=True, has_random_ties=True),
    "cheapest": _Rule(_cheapest),
}

FIXED_RULES = ("random", "round-robin", *(name for name in _RULES if name != "random"))
"""Names of the rules without weights: `best-fixed` is the best of them."""

RULES = (*FIXED_RULES, "tuned")
"""Names of all rules."""


def make_policy(
    name: str, layout: Layout, experiment: Experiment, tuned_folder: Path | None = None
) -> Policy:
    """Return a rule by name.

    Args:
        name: One of RULES.
        layout: The observation's columns.
        experiment: Its name says which tuned weights are meant.
        tuned_folder: Where `tune` writes; default: configs/tuned.

    Raises:
        ConfigError: No such rule, or the weights of `tuned` are missing or not valid.
    """
    if name == "tuned":
        path = tuned_path(experiment, tuned_folder)
        return TunedRule(layout, load_tuned(path, layout, environment_hash(experiment)))
    if name == "round-robin":
        return RoundRobin(layout)
    if name not in _RULES:
        raise ConfigError(f"policy = {name}, expected one of {', '.join(RULES)}")
    return FixedRule(name, layout)


def rule_factory(
    name: str, layout: Layout, experiment: Experiment, tuned_folder: Path | None = None
) -> Callable[[str], Policy]:
    """Return a function from a zone's name to a new rule for it, as `evaluate` takes it.

    Arguments and errors are those of `make_policy`; the tuned weights are read once.
    """
    first = make_policy(name, layout, experiment, tuned_folder)
    if isinstance(first, TunedRule):
        return lambda zone: first  # it has no state that zones could share
    return lambda zone: make_policy(name, layout, experiment)


class FixedRule:
    """A rule that scores every machine and takes the best."""

    def __init__(self, name: str, layout: Layout) -> None:
        """Build the rule `name` (one of FIXED_RULES but round-robin) for a layout."""
        self._layout = layout
        self._rule = _RULES[name]
        self._peers = PeerFormula(layout)
        self._fits = FitCheck(layout)
        self._salt = np.uint64(0)

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        """Start new episodes; draws one number."""
        self._salt = draw_salt(generator)

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) unmasked candidates."""
        n_machines = observation.n_machines
        machines = observation.candidates[:, :n_machines]
        allowed = observation.mask[:, :n_machines]
        scores = self._rule.score(machines, self._layout)
        if self._rule.checks_fit:
            allowed = self._fits.allowed(observation)
        scores = np.where(allowed, scores, -np.inf)
        if self._rule.has_random_ties:
            is_best = allowed & (scores == scores.max(axis=1, keepdims=True))
            uniforms = hashed_uniforms(self._salt, observation.decision, n_machines)
            scores = np.where(is_best, uniforms, -np.inf)
        return or_offload(observation, scores, self._peers)


class FitCheck:
    """The machines that a rule with a fit check considers."""

    def __init__(self, layout: Layout) -> None:
        """Look up the columns."""
        self._fit = layout.fit_columns

    def allowed(self, observation: Observation) -> NDArray[np.bool_]:
        """Return (B, M): unmasked and fitting; all unmasked where no other choice is left."""
        n_machines, mask = observation.n_machines, observation.mask
        machines = observation.candidates[:, :n_machines]
        fitting = mask[:, :n_machines] & ~are_short(machines, self._fit)
        choices = np.concatenate([fitting, mask[:, n_machines:]], axis=1)
        return np.where(choices.max(axis=1, keepdims=True), fitting, mask[:, :n_machines])


class RoundRobin:
    """The next unmasked machine after the last one picked, in every replica."""

    def __init__(self, layout: Layout) -> None:
        """Build the rule for a layout."""
        self._peers = PeerFormula(layout)
        self._last = np.full(0, -1, dtype=np.int64)  # (E,)

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        """Start new episodes at the first machine."""
        self._last = np.full(n_replicas, -1, dtype=np.int64)

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) unmasked candidates."""
        n_machines = observation.n_machines
        after_last = self._last[observation.replica][:, None] + 1
        distance = (np.arange(n_machines) - after_last) % n_machines  # (B, M)
        scores = np.where(observation.mask[:, :n_machines], -distance.astype(np.float64), -np.inf)
        actions = or_offload(observation, scores, self._peers)
        is_local = actions < n_machines
        self._last[observation.replica[is_local]] = actions[is_local]
        return actions


def or_offload(observation: Observation, scores: Scores, peers: PeerFormula) -> NDArray[np.int64]:
    """Return the best machine of (B, M) scores, or the best peer where all of them are -inf."""
    actions: NDArray[np.int64] = scores.argmax(axis=1)
    nothing_here = ~np.isfinite(scores.max(axis=1))
    if nothing_here.any():
        best_peer = observation.n_machines + peers.scores(observation).argmax(axis=1)
        actions = np.where(nothing_here, best_peer, actions)
    return actions


def _mean_over_resources(machines: Machines, layout: Layout, name: str) -> Scores:
    """Return (B, M) means of a feature over the resources that each machine has."""
    values = machines[:, :, layout.candidate_indices(name)]
    has = machines[:, :, layout.candidate_indices("relative_size")] > 0.0
    has[:, :, :2] = True  # no machine is without cpu and memory
    scores: Scores = values.sum(axis=-1, where=has) / has.sum(axis=-1, dtype=values.dtype)
    return scores


def _cpu_and_memory(machines: Machines, layout: Layout, name: str) -> NDArray[np.float64]:
    return machines[:, :, layout.candidate_indices(name)[:2]].astype(np.float64)
