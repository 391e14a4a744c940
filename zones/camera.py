"""Looks at a zone after every window and, once in a while, shows what it sees.

Looking changes nothing: no generator is drawn from, no statistic kept, and the network's values of
one decision are computed outside of training, by numpy.

    is due, by the clock --> the next window is recorded: its last decision of replica 0
                         --> at its end: a view, handed to whoever shows it
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import Float
from marl_sched.agents.learner import Decider
from marl_sched.agents.scoring import context_of
from marl_sched.cluster.snapshot import head_request, take_snapshot
from marl_sched.config import Experiment
from marl_sched.config.live import Live
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.observation import Observation
from zones.records import RoundOrder
from zones.view import (
    MAX_CANDIDATES,
    MAX_ROWS,
    CandidateView,
    DecisionView,
    MachinesView,
    Phase,
    ZoneView,
)

_logger = logging.getLogger(__name__)

Show = Callable[[bytes], None]
"""Takes a view as JSON; waits for nobody."""
Clock = Callable[[], float]

SHOWN = 0
"""The replica that is shown."""
_COST_SHARE = 0.005
"""Largest share of the zone's thread that views may take."""


@dataclass(frozen=True)
class _Scene:
    """What stays the same during an episode."""

    env: ZoneEnv
    decider: Decider
    phase: Phase
    round_number: int
    episode: int


@dataclass(frozen=True)
class _Decision:
    """A copy of all that a decision was taken on; C candidates, F features, K context."""

    simulated_s: float
    request: NDArray[np.int64]  # (R,)
    candidates: Float  # (C, F)
    context: Float  # (K,)
    mask: NDArray[np.bool_]  # (C,)
    action: int
    is_exploring: bool


class Camera:
    """Makes views of one zone; without anybody to show them to it does nothing.

    Attributes:
        is_recording: Whether `record` is to be told of decisions.
    """

    def __init__(
        self, experiment: Experiment, zone: str, show: Show | None, clock: Clock = time.monotonic
    ) -> None:
        """Look at a zone.

        Args:
            experiment: Says what is shown and how often.
            zone: The zone.
            show: Given every view.
            clock: Seconds.
        """
        self._zone, self._resources = zone, list(experiment.resources)
        self._settings: Live = experiment.live
        self._show = None if self._settings.views == "none" else show
        self._clock = clock
        self._due_s = inf if self._show is None else -inf
        self._round, self._attempt = 1, 1
        self._scene: _Scene | None = None
        self._decision: _Decision | None = None
        self._has_failed = False
        self._cost_s = 0.0
        """Of the last view, in seconds of the thread."""
        self.is_recording = False

    def follow(self, order: RoundOrder) -> None:
        """Note what the zone was ordered to do."""
        self._round, self._attempt = order.round_number, order.attempt
        self._scene, self.is_recording = None, False

    def start(self, env: ZoneEnv, decider: Decider, phase: Phase, episode: int) -> None:
        """Look at an episode that has just been reset.

        Args:
            env: The zone.
            decider: Who decides for it.
            phase: What the episode is for.
            episode: Its number within the phase.
        """
        # An order has the weights of the round before validated.
        round_number = self._round - (phase == "validation")
        self._scene = _Scene(env, decider, phase, round_number, episode)
        self._decision, self.is_recording = None, False

    def record(self, observation: Observation, actions: NDArray[np.int64]) -> None:
        """Keep the shown replica's decision, if it has one, before actions (B,) are carried out."""
        if observation.replica[0] != SHOWN or self._scene is None:  # rows are in order of replicas
            return
        if self._settings.views != "decisions":
            return
        state = self._scene.env.simulator.state
        seen = self._scene.decider.scorer.extended(observation)
        self._decision = _Decision(
            simulated_s=float(state.zone["now_us"][SHOWN]) * 1e-6,
            request=head_request(state, SHOWN),
            candidates=seen.candidates[0].copy(),
            context=context_of(observation)[0],
            mask=observation.mask[0].copy(),
            action=int(actions[0]),
            is_exploring=0 in self._scene.decider.explored,
        )

    def window_over(self, share: float) -> None:
        """Look whether a view is due, and show it if it is; `share` of the phase is over."""
        if not self.is_recording:
            self.is_recording = self._clock() >= self._due_s
            return
        self.is_recording = False
        began_s = time.thread_time()
        self._take(share)
        # Of the thread's own time: waiting for a busy processor is no cost of the view. The first
        # view costs more, once.
        cost_s = time.thread_time() - began_s
        pause_s = min(cost_s, self._cost_s) / _COST_SHARE
        self._cost_s = cost_s
        self._due_s = self._clock() + max(self._settings.period_s, pause_s)

    def _take(self, share: float) -> None:
        if self._scene is None or self._show is None:
            return
        try:
            self._show(self._view(self._scene, share).encoded())
        except Exception as error:  # whatever it is, the zone's work does not depend on it
            if not self._has_failed:
                _logger.warning("%s: not shown: %s", self._zone, error)
                _logger.debug("a view", exc_info=True)
            self._has_failed = True

    def _view(self, scene: _Scene, share: float) -> ZoneView:
        env = scene.env
        state = env.simulator.state
        seen = take_snapshot(state, SHOWN)
        return ZoneView(
            format=1,
            zone=self._zone,
            time=round(time.time(), 3),
            phase=scene.phase,
            round=scene.round_number,
            attempt=self._attempt,
            episode=scene.episode,
            share=round(min(share, 1.0), 4),
            simulated_s=seen.simulated_s,
            n_waiting=seen.n_waiting,
            n_running=seen.n_running,
            n_decisions=int(state.zone["decisions"].sum()),
            resources=self._resources,
            machines=_machines(seen.utilization, seen.allocation),
            offloads=dict(zip(env.peers, seen.offloads.tolist(), strict=True)),
            decision=self._decision_view(scene),
        )

    def _decision_view(self, scene: _Scene) -> DecisionView | None:
        decision = self._decision
        if decision is None:
            return None
        quantiles, scores = scene.decider.scorer.quantiles(decision.candidates, decision.context)
        if not np.isfinite(quantiles).all():
            return None  # the learner says so itself
        scores = np.where(decision.mask, scores, -np.inf)
        scores[decision.action] = np.inf
        best = np.argsort(-scores, kind="stable")[: min(MAX_CANDIDATES, int(decision.mask.sum()))]
        n = quantiles.shape[1]
        return DecisionView(
            simulated_s=decision.simulated_s,
            request=dict(zip(self._resources, decision.request.tolist(), strict=True)),
            is_exploring=decision.is_exploring,
            taus=_rounded((np.arange(n) + 0.5) / n),
            candidates=[
                _candidate(scene.env, decision, int(index), quantiles[index]) for index in best
            ],
        )


def _candidate(env: ZoneEnv, decision: _Decision, index: int, quantiles: Float) -> CandidateView:
    """Return one candidate of a decision, quantiles (N,)."""
    is_machine = index < env.n_machines
    peer = index - env.n_machines
    columns = env.layout.candidate_indices("utilization")
    return CandidateView(
        kind="machine" if is_machine else "peer",
        index=index if is_machine else peer,
        name=str(index) if is_machine else env.peers[peer],
        utilization=_rounded(np.clip(decision.candidates[index, columns], 0.0, 1.0)),
        is_chosen=index == decision.action,
        mean=_rounded(quantiles.mean(keepdims=True, dtype=np.float64))[0],
        quantiles=_rounded(quantiles),
    )


def _machines(utilization: NDArray[np.float64], allocation: NDArray[np.float64]) -> MachinesView:
    """Return the machines of (M, R) shares, several to a row where there are too many."""
    n = len(utilization)
    per_cell = -(-n // MAX_ROWS)
    starts = np.arange(0, n, per_cell)
    counts = np.minimum(per_cell, n - starts)[:, None]
    # One call for all rows: a call a row is what a view would cost.
    cells = [
        np.round(np.add.reduceat(part, starts) / counts, 4).tolist()
        for part in (utilization, allocation)
    ]
    return MachinesView(n=n, per_cell=per_cell, utilization=cells[0], allocation=cells[1])


def _rounded(values: NDArray[np.floating]) -> list[float]:
    """Return numbers as short as a picture needs."""
    rounded: list[float] = np.round(values.astype(np.float64), 4).tolist()
    return rounded
