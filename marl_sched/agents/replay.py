"""A log of decisions per replica, from which n-step transitions are built when drawn.

Rewards arrive late and add up, so nothing but the decisions themselves is stored, in time order:
features of the chosen candidate and its context, the reward so far, whether it is settled, and
where its episode ends. Every replica owns an equal ring of slots.
Shapes: E replicas, L slots a replica, B transitions, C candidates, F candidate features,
K context features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.kernels.replay import gather_transitions
from marl_sched.agents.scoring import context_of
from marl_sched.errors import CheckpointError, ConfigError
from marl_sched.observation import Observation, Settlements

_OPEN = np.iinfo(np.int64).max
"""`last` of a decision whose episode still runs."""

_MAX_PASSES = 32
"""Draws of about a batch each before sampling gives up: too little is settled."""

_MIB = 2**20


@dataclass(frozen=True)
class ReplayShape:
    """What a replay stores, and how much.

    Attributes:
        n_replicas: E.
        n_features: F + K, of a chosen candidate with its context.
        n_candidates: C where all candidates of a decision are stored, else 0.
        n_candidate_features: F.
        mib: Most memory of all replicas together, in MiB.
    """

    n_replicas: int
    n_features: int
    n_candidates: int
    n_candidate_features: int
    mib: float

    @property
    def n_slots(self) -> int:
        """L: decisions a replica keeps."""
        floats = self.n_features + self.n_candidates * self.n_candidate_features
        n_bytes = 4 * floats + self.n_candidates + 8 + 1 + 8  # mask, reward, is_settled, last
        n_bytes += 8 if self.n_candidates else 0  # action
        return int(self.mib * _MIB / n_bytes / self.n_replicas)


@dataclass(frozen=True)
class Transitions:
    """A batch of n-step transitions.

    Attributes:
        rows: (B, F + K) float32, the decisions.
        returns: (B,) float32, sum of gamma^k reward over the steps taken.
        discounts: (B,) float32, gamma to the power of the steps taken; never 0 for an episode's
            end, which is a truncation.
        next_rows: (B, F + K) float32, the bootstrap decisions with the action taken there.
        next_candidates: (B, C, F) float32 and
        next_mask: (B, C) bool, all candidates there; None where they are not stored.
        candidates: (B, C, F) float32,
        mask: (B, C) bool and
        actions: (B,) int64, the same of the decisions themselves, and what was chosen.
    """

    rows: NDArray[np.float32]
    returns: NDArray[np.float32]
    discounts: NDArray[np.float32]
    next_rows: NDArray[np.float32]
    next_candidates: NDArray[np.float32] | None
    next_mask: NDArray[np.bool_] | None
    candidates: NDArray[np.float32] | None = None
    mask: NDArray[np.bool_] | None = None
    actions: NDArray[np.int64] | None = None


class Replay:
    """The decision log.

    Attributes:
        n_decisions: Decisions recorded, all replicas together.
        n_dropped: Rewards that came after their decision had been overwritten.
        n_unsettled: Decisions whose episode ended without a reward for them.
    """

    def __init__(self, shape: ReplayShape, n_step: int, discount: float) -> None:
        """Create an empty log.

        Raises:
            ConfigError: The memory holds fewer than n_step + 2 decisions a replica.
        """
        n_slots = shape.n_slots
        if n_slots < n_step + 2:
            raise ConfigError(
                f"agent.replay_mib = {shape.mib}: holds {n_slots} decisions for each of "
                f"{shape.n_replicas} replicas, expected at least agent.n_step + 2 = {n_step + 2}"
            )
        self._shape, self._n_step, self._discount = shape, n_step, discount
        size = (shape.n_replicas, n_slots)
        # Memory is taken only as it fills: zeros are not touched before they are written.
        self._log: dict[str, NDArray[Any]] = {
            "rows": np.zeros((*size, shape.n_features), np.float32),
            "reward": np.zeros(size, np.float64),
            "is_settled": np.zeros(size, np.bool_),
            "last": np.zeros(size, np.int64),
        }
        if shape.n_candidates:
            per_decision = (*size, shape.n_candidates)
            features = shape.n_candidate_features
            self._log["candidates"] = np.zeros((*per_decision, features), np.float32)
            self._log["mask"] = np.zeros(per_decision, np.bool_)
            self._log["action"] = np.zeros(size, np.int64)
        self._count = np.zeros(shape.n_replicas, np.int64)
        self._start = np.zeros(shape.n_replicas, np.int64)
        self._n_before = 0
        """Decisions that were recorded before the log was emptied."""
        self.n_dropped = 0
        self.n_unsettled = 0

    @property
    def n_decisions(self) -> int:
        """Decisions recorded over the replay's life, all replicas together."""
        return self._n_before + int(self._count.sum())

    @property
    def n_slots(self) -> int:
        """L: decisions a replica keeps."""
        return int(self._log["reward"].shape[1])

    def start_episode(self) -> None:
        """Begin an episode in every replica.

        Raises:
            ValueError: The last one was not ended.
        """
        if (self._count > self._start).any():
            raise ValueError("an episode is open, expected end_episode before start_episode")

    def record(self, observation: Observation, actions: NDArray[np.int64]) -> None:
        """Append one decision a row; rows name different replicas.

        Raises:
            ValueError: A decision's number is not the next of its replica.
        """
        replica = observation.replica
        number = self._count[replica]
        if (observation.decision != number - self._start[replica]).any():
            raise ValueError("decisions are not recorded in the order of their numbers")
        slot = (replica, number % self.n_slots)
        chosen = observation.candidates[np.arange(len(observation)), actions]
        n_features = self._shape.n_candidate_features
        self._log["rows"][(*slot, slice(None, n_features))] = chosen
        self._log["rows"][(*slot, slice(n_features, None))] = context_of(observation)
        self._log["reward"][slot] = 0.0
        self._log["is_settled"][slot] = False
        self._log["last"][slot] = _OPEN
        if self._shape.n_candidates:
            self._log["candidates"][slot] = observation.candidates
            self._log["mask"][slot] = observation.mask
            self._log["action"][slot] = actions
        self._count[replica] += 1

    def settle(self, settlements: Settlements) -> None:
        """Add rewards to decisions of the running episode, in place.

        Raises:
            ValueError: A reward for a decision that was never recorded.
        """
        replica = settlements.replica
        number = self._start[replica] + settlements.decision
        if (number >= self._count[replica]).any() or (settlements.decision < 0).any():
            raise ValueError("a reward names a decision that was not recorded in this episode")
        is_kept = number >= self._count[replica] - self.n_slots
        self.n_dropped += int((~is_kept).sum())
        slot = (replica[is_kept], number[is_kept] % self.n_slots)
        np.add.at(self._log["reward"], slot, settlements.reward[is_kept])
        self._log["is_settled"][slot] = True

    def end_episode(self) -> None:
        """Mark the end of the running episode in every replica: a truncation."""
        oldest = np.maximum(self._start, self._count - self.n_slots)
        for replica, (start, end) in enumerate(zip(oldest, self._count, strict=True)):
            slots = np.arange(start, end) % self.n_slots
            self._log["last"][replica, slots] = end - 1
            self.n_unsettled += int((~self._log["is_settled"][replica, slots]).sum())
        self._start[:] = self._count

    def sample(self, batch_size: int, generator: np.random.Generator) -> Transitions | None:
        """Draw transitions uniformly, with replacement; None if too little is settled."""
        kept = np.minimum(self._count, self.n_slots)
        ends = kept.cumsum()
        if ends[-1] == 0:
            return None
        places = np.empty((3, batch_size), np.int64)
        numbers = np.empty((2, batch_size), np.float32)
        n_found = 0
        for _ in range(_MAX_PASSES):
            drawn = generator.integers(ends[-1], size=batch_size + batch_size // 8)
            replica = ends.searchsorted(drawn, side="right")
            decision = self._count[replica] - (ends[replica] - drawn)
            n_found = gather_transitions(
                np.stack([replica, decision]),
                self._log["reward"],
                self._log["is_settled"],
                self._log["last"],
                self._count,
                self._n_step,
                self._discount,
                places,
                numbers,
                n_found,
            )
            if n_found == batch_size:
                return self._transitions(places, numbers)
        return None

    def _transitions(self, places: NDArray[np.int64], numbers: NDArray[np.float32]) -> Transitions:
        here, there = (places[0], places[1]), (places[0], places[2])
        is_full = self._shape.n_candidates > 0
        return Transitions(
            rows=self._log["rows"][here],
            returns=numbers[0],
            discounts=numbers[1],
            next_rows=self._log["rows"][there],
            next_candidates=self._log["candidates"][there] if is_full else None,
            next_mask=self._log["mask"][there] if is_full else None,
            candidates=self._log["candidates"][here] if is_full else None,
            mask=self._log["mask"][here] if is_full else None,
            actions=self._log["action"][here] if is_full else None,
        )

    def views(self) -> dict[str, NDArray[Any]]:
        """Return everything as views; slots that were never written are left out."""
        n_used = int(np.minimum(self._count, self.n_slots).max())
        log = {name: array[:, :n_used] for name, array in self._log.items()}
        lost = np.array([self.n_dropped, self.n_unsettled], np.int64)
        before = {"before": np.array(self._n_before, np.int64)} if self._n_before else {}
        return log | {"count": self._count, "start": self._start, "lost": lost} | before

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the same as copies."""
        return {name: array.copy() for name, array in self.views().items()}

    def n_other_candidates(self, state: Mapping[str, NDArray[Any]]) -> int:
        """Return C of a state that has another one than this replay; 0: it has the same, or none.

        The zone has other peers then, or other machines, than when the state was saved.
        """
        given, own = state.get("candidates"), self._log.get("candidates")
        if given is None or own is None or given.ndim != own.ndim:
            return 0
        return 0 if given.shape[2] == own.shape[2] else int(given.shape[2])

    def begin_after(self, n_decisions: int) -> None:
        """Empty the log; the count of decisions goes on from a number."""
        self._count[:] = self._start[:] = 0
        self._n_before = n_decisions

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `views` returned.

        Raises:
            CheckpointError: The arrays are those of a replay of another shape.
        """
        n_used = int(np.minimum(state["count"], self.n_slots).max()) if "count" in state else 0
        own = self.views() | {name: array[:, :n_used] for name, array in self._log.items()}
        own.pop("before", None)
        for name, array in own.items():
            if name not in state:
                raise CheckpointError(f"replay: no array {name}")
            given = state[name]
            if given.shape != array.shape or given.dtype != array.dtype:
                raise CheckpointError(
                    f"replay: {name} is {given.dtype} {given.shape}, expected {array.dtype} "
                    f"{array.shape}"
                )
        for name, array in self._log.items():
            array[:, :n_used] = state[name]
        self._count[:], self._start[:] = state["count"], state["start"]
        self._n_before = int(state.get("before", 0))
        self.n_dropped, self.n_unsettled = (int(number) for number in state["lost"])
