"""What a zone asks of whoever learns for it, and what the page asks of whoever decides.

Shapes: B rows, C candidates, F candidate features, K context features, N values a candidate.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import Float, Weights
from marl_sched.agents.policy import Policy
from marl_sched.observation import Observation, Settlements


class CandidateValues(Protocol):
    """What stands behind a choice."""

    def extended(self, observation: Observation) -> Observation:
        """Return the observation with the columns that it judges by."""

    def quantiles(self, candidates: Float, context: Float) -> tuple[Float, Float]:
        """Return (C, N) values and (C,) scores of candidates (C, F) in a context (K,)."""


class Decider(Protocol):
    """Whoever decides for a zone: a learner or a policy."""

    @property
    def scorer(self) -> CandidateValues:
        """What it judges candidates with."""

    @property
    def explored(self) -> NDArray[np.int64]:
        """Rows of the last observation that did not get the best decision, by chance."""


class GreedyPolicy(Decider, Policy, Protocol):
    """What was learnt, without chance."""

    def weights(self) -> Weights:
        """Return a copy of its parameters by name."""


class Learner(Decider, Protocol):
    """Learns one zone's policy from its own decisions; the caller says when.

    A round is: `load_weights`, then for every episode `start_episode`, (`act`, `record`, `settle`,
    `maybe_update`)*, `end_episode`; then `weights` and `averaged_weights` are taken.
    """

    proximal_mu: float
    """Pull of every update to the weights loaded last (FedProx)."""

    @property
    def n_decisions(self) -> int:
        """Decisions recorded so far (the clock env_step, all replicas together)."""

    @property
    def n_updates(self) -> int:
        """Updates so far (the clock learner_step)."""

    def set_progress(self, share: float) -> None:
        """Set what falls with time for the point of the run that `share` in [0, 1] is."""

    def start_episode(self) -> None:
        """Begin an episode in every replica."""

    def end_episode(self) -> None:
        """End the episode in every replica, after its last settlements: a truncation."""

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) unmasked candidates, with the chance that learning needs."""

    def record(self, observation: Observation, actions: NDArray[np.int64]) -> None:
        """Remember the batch of decisions that `act` took last; it is copied."""

    def settle(self, settlements: Settlements) -> None:
        """Add rewards that became known to the decisions they belong to."""

    def maybe_update(self) -> int:
        """Run the updates that are due by the zone's own decision count; return how many ran."""

    def take_metrics(self) -> dict[str, float]:
        """Return the metrics since the last call, equal names in all zones, and begin anew."""

    def weights(self) -> Weights:
        """Return a copy of the parameters that learn, by name."""

    def averaged_weights(self) -> Weights:
        """Return a copy of their moving average by name: what is evaluated."""

    def load_weights(
        self,
        weights: Mapping[str, NDArray[np.float32]],
        averaged: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        """Go on from weights that were averaged over zones; without `averaged` that one stays."""

    def policy(self) -> GreedyPolicy:
        """Return the averaged parameters as a greedy policy."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that learning goes on from, as arrays of plain dtypes; between episodes."""

    def views(self) -> dict[str, NDArray[Any]]:
        """Return the same without copying it: for writing it down at once."""

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned, bit by bit; `set_progress` is the caller's."""
