"""A learner of one zone that is put together: networks of several parts, and a method.

The networks know how to step, average and save; the method says how to decide, what to remember
and which loss to step down. All rivals of QR-DQN are such methods, one file each.
Shapes: B rows.
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import Weights
from marl_sched.agents.learner import CandidateValues
from marl_sched.agents.networks import GivenWeights, Networks
from marl_sched.agents.policies import LearnedPolicies, make_policy
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError
from marl_sched.observation import Layout, Observation, Settlements


class Method(Protocol):
    """How to decide, remember and learn; the names are those of `Learner`."""

    explored: NDArray[np.int64]

    @property
    def scorer(self) -> CandidateValues:
        """What it judges candidates with."""

    @property
    def n_decisions(self) -> int:
        """Decisions recorded so far."""

    def set_progress(self, share: float) -> None:
        """Set exploration."""

    def start_episode(self) -> None:
        """Begin an episode in every replica."""

    def end_episode(self) -> None:
        """End it."""

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) unmasked candidates."""

    def record(self, observation: Observation, actions: NDArray[np.int64]) -> None:
        """Remember the last decisions."""

    def settle(self, settlements: Settlements) -> None:
        """Add rewards."""

    def update(self) -> None:
        """Run the updates that are due."""

    def refresh(self) -> None:
        """Notice that the online parameters have changed."""

    def metrics(self) -> dict[str, float]:
        """Return its own metrics since the last call and begin anew."""

    def views(self) -> dict[str, NDArray[Any]]:
        """Return what it remembers between episodes."""

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from that."""


class PartLearner:
    """A `Learner` made of networks and a method.

    Attributes:
        networks: What learns.
        method: How.
    """

    def __init__(
        self,
        layout: Layout,
        agent: Agent,
        networks: Networks,
        method: Method,
        generator: np.random.Generator,
    ) -> None:
        """Put a learner together; `generator` is the method's source of chance."""
        self._layout, self._agent, self._generator = layout, agent, generator
        self.networks, self.method = networks, method
        self.set_progress(0.0)

    @property
    def scorer(self) -> CandidateValues:
        """What it judges candidates with."""
        return self.method.scorer

    @property
    def explored(self) -> NDArray[np.int64]:
        """Rows of the last observation that did not get the best decision, by chance."""
        return self.method.explored

    @property
    def n_decisions(self) -> int:
        """Decisions recorded so far."""
        return self.method.n_decisions

    @property
    def n_updates(self) -> int:
        """Updates so far."""
        return self.networks.n_updates

    @property
    def proximal_mu(self) -> float:
        """Pull of every update to the weights loaded last."""
        return self.networks.proximal_mu

    @proximal_mu.setter
    def proximal_mu(self, value: float) -> None:
        self.networks.proximal_mu = value

    def set_progress(self, share: float) -> None:
        """Set exploration and learning rate for the point of the run that `share` is."""
        self.networks.set_progress(share)
        self.method.set_progress(share)

    def start_episode(self) -> None:
        """Begin an episode in every replica."""
        self.method.start_episode()

    def end_episode(self) -> None:
        """End the episode in every replica: a truncation."""
        self.method.end_episode()

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) unmasked candidates."""
        return self.method.act(observation)

    def record(self, observation: Observation, actions: NDArray[np.int64]) -> None:
        """Remember the batch of decisions that `act` took last; it is copied."""
        self.method.record(observation, actions)

    def settle(self, settlements: Settlements) -> None:
        """Add rewards that became known to the decisions they belong to."""
        self.method.settle(settlements)

    def maybe_update(self) -> int:
        """Run the updates that are due; return how many ran.

        Raises:
            RunError: Loss or gradient is not finite.
        """
        n_before = self.n_updates
        self.method.update()
        return self.n_updates - n_before

    def take_metrics(self) -> dict[str, float]:
        """Return the metrics since the last call and begin anew."""
        return self.networks.take_metrics() | self.method.metrics()

    def weights(self) -> Weights:
        """Return a copy of the online parameters by name."""
        return self.networks.weights()

    def averaged_weights(self) -> Weights:
        """Return a copy of the averaged parameters by name: what is evaluated."""
        return self.networks.averaged_weights()

    def load_weights(self, weights: GivenWeights, averaged: GivenWeights | None = None) -> None:
        """Go on from weights that were averaged over zones.

        Raises:
            CheckpointError: Other names, shapes or dtypes, or not finite.
        """
        self.networks.load_weights(weights, averaged)
        self.method.refresh()

    def policy(self) -> LearnedPolicies:
        """Return the averaged parameters as a greedy policy."""
        return make_policy(self._layout, self._agent, self.averaged_weights())

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that learning goes on from, as arrays of plain dtypes."""
        return {name: array.copy() for name, array in self.views().items()}

    def views(self) -> dict[str, NDArray[Any]]:
        """Return the same without copying it."""
        own = self.networks.arrays()
        own["n_updates"] = np.array(self.n_updates, np.int64)
        own["generator"] = np.array(json.dumps(self._generator.bit_generator.state))
        return own | {f"memory.{name}": array for name, array in self.method.views().items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned, bit by bit.

        Raises:
            CheckpointError: The state is of another learner.
        """
        self.networks.check_arrays(state)
        for name in ("n_updates", "generator"):
            if name not in state:
                raise CheckpointError(f"learner state: no array {name}")
        try:
            self._generator.bit_generator.state = json.loads(str(state["generator"][()]))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"learner state: generator: {error}") from None
        prefix = "memory."
        memory = {n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)}
        self.method.load_state(memory)
        self.networks.load_arrays(state)
        self.networks.n_updates = int(state["n_updates"])
        self.method.refresh()
