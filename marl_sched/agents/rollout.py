"""A log of the newest decisions per replica, given out once, in whole and settled parts.

Rewards arrive late and add up: what is given out of a replica are its oldest decisions, as far as
all of them are settled. One that stays unsettled while `PATIENCE` others are taken counts as it is;
what its reward would have added later is dropped and counted.
Shapes: E replicas, L slots a replica (as many as are needed), n decisions given out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.observation import Observation, Settlements

PATIENCE = 256
"""Decisions of a replica after which an unsettled one is no longer waited for."""

_FIRST_SLOTS = 64
"""L at first."""

Field = tuple[tuple[int, ...], type[np.generic]]
"""Shape and dtype of what is stored of one decision."""


@dataclass(frozen=True)
class Segments:
    """Decisions of several replicas, each a run without a gap, one after the other.

    The last decision of a run is there to bootstrap from: its own reward is not counted.

    Attributes:
        columns: What was stored, (n, ...) by name.
        rewards: (n,) float64.
        ends: (number of runs,) index after the last decision of every run.
    """

    columns: dict[str, NDArray[Any]]
    rewards: NDArray[np.float64]
    ends: NDArray[np.int64]

    def is_counted(self) -> NDArray[np.bool_]:
        """Return (n,): not the last of its run."""
        counted = np.ones(len(self.rewards), np.bool_)
        counted[self.ends - 1] = False
        return counted


class Rollout:
    """The log.

    Attributes:
        n_replicas: E.
        fields: What it stores of a decision.
        n_decisions: Decisions recorded so far, all replicas together.
        n_dropped: Rewards that came after their decision had been given out.
        n_unsettled: Decisions that were given out, or ended, without a reward.
    """

    def __init__(self, n_replicas: int, fields: Mapping[str, Field]) -> None:
        """Create an empty log that stores `fields` of every decision."""
        self.n_replicas, self.fields = n_replicas, dict(fields)
        size = (n_replicas, _FIRST_SLOTS)
        self._log: dict[str, NDArray[Any]] = {
            name: np.zeros((*size, *shape), dtype) for name, (shape, dtype) in fields.items()
        }
        self._log["reward"] = np.zeros(size, np.float64)
        self._log["is_settled"] = np.zeros(size, np.bool_)
        self._held = np.zeros(n_replicas, np.int64)  # (E,)
        self._first = np.zeros(n_replicas, np.int64)  # number of slot 0 within its episode
        self.n_decisions = self.n_dropped = self.n_unsettled = 0

    def start_episode(self) -> None:
        """Begin an episode in every replica.

        Raises:
            ValueError: The last one was not taken to its end.
        """
        if self._held.any():
            raise ValueError("an episode is open, expected take(is_over=True) before start_episode")
        self._first[:] = 0

    def record(self, observation: Observation, columns: Mapping[str, NDArray[Any]]) -> None:
        """Append one decision a row; rows name different replicas.

        Raises:
            ValueError: A decision's number is not the next of its replica.
        """
        replica = observation.replica
        slot = self._held[replica]
        if (observation.decision != self._first[replica] + slot).any():
            raise ValueError("decisions are not recorded in the order of their numbers")
        while slot.max() >= self._log["reward"].shape[1]:
            self._log = {n: np.concatenate([a, np.zeros_like(a)], 1) for n, a in self._log.items()}
        for name, values in columns.items():
            self._log[name][replica, slot] = values
        self._log["reward"][replica, slot] = 0.0
        self._log["is_settled"][replica, slot] = False
        self._held[replica] += 1
        self.n_decisions += len(replica)

    def settle(self, settlements: Settlements) -> None:
        """Add rewards to decisions of the running episode.

        Raises:
            ValueError: A reward for a decision that was never recorded.
        """
        replica = settlements.replica
        slot = settlements.decision - self._first[replica]
        if (slot >= self._held[replica]).any() or (settlements.decision < 0).any():
            raise ValueError("a reward names a decision that was not recorded in this episode")
        is_kept = slot >= 0
        self.n_dropped += int((~is_kept).sum())
        place = (replica[is_kept], slot[is_kept])
        np.add.at(self._log["reward"], place, settlements.reward[is_kept])
        self._log["is_settled"][place] = True

    def ready(self) -> NDArray[np.int64]:
        """Return (E,) how many decisions of every replica could be given out now."""
        n_slots = self._log["reward"].shape[1]
        slots = np.arange(n_slots)
        is_final = self._log["is_settled"] | (slots < self._held[:, None] - PATIENCE)
        is_open = ~is_final | (slots >= self._held[:, None])
        n_ready: NDArray[np.int64] = np.where(is_open.any(axis=1), is_open.argmax(axis=1), n_slots)
        return n_ready

    def take(self, is_over: bool = False) -> Segments | None:
        """Give out what is ready; with `is_over` all there is, and the episode ends with it.

        Without `is_over` the last decision of a run is kept: it is the first of the next.
        """
        lengths = self._held.copy() if is_over else self.ready()
        lengths[lengths < 2] = 0
        replicas = np.flatnonzero(lengths)
        given = None
        if replicas.size:
            columns = {
                name: np.concatenate([array[e, : lengths[e]] for e in replicas])
                for name, array in self._log.items()
            }
            rewards = columns.pop("reward")
            is_settled = columns.pop("is_settled")
            given = Segments(columns, rewards, lengths[replicas].cumsum())
            self.n_unsettled += int((~is_settled & (given.is_counted() | is_over)).sum())
        self._drop(self._held.copy() if is_over else np.maximum(lengths - 1, 0))
        return given

    def _drop(self, lengths: NDArray[np.int64]) -> None:
        """Forget the oldest decisions of every replica."""
        for replica in np.flatnonzero(lengths):
            n, held = lengths[replica], self._held[replica]
            for array in self._log.values():
                array[replica, : held - n] = array[replica, n:held].copy()
        self._held -= lengths
        self._first += lengths


def advantages(
    segments: Segments, values: NDArray[np.float64], discount: float, trace: float
) -> NDArray[np.float64]:
    """Return (n,) generalised advantage estimates (Schulman et al. 2016, Eq. 16); 0 at run ends.

    Args:
        segments: Decisions with their rewards.
        values: (n,) value of every decision's context.
        discount: gamma.
        trace: lambda; 1 gives the discounted return to the end of the run, less the value.
    """
    estimates = np.zeros(len(values))
    starts = np.concatenate([[0], segments.ends[:-1]])
    for start, end in zip(starts, segments.ends, strict=True):
        following = 0.0
        errors = (
            segments.rewards[start : end - 1]
            + discount * values[start + 1 : end]
            - values[start : end - 1]
        )
        for step in range(end - start - 2, -1, -1):
            following = errors[step] + discount * trace * following
            estimates[start + step] = following
    return estimates
