"""What the policy gradients share: acting by chance, the log, and when it is learnt from.

After every `agent.rollout_decisions` settled decisions, and at the end of an episode, all that is
ready is learnt from and forgotten. An update is due per `agent.decisions_per_update` decisions, as
for the value-based rivals; an objective says how many passes over the batch these make.
Shapes: B rows, n decisions of a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import mse_loss

from marl_sched.agents.learner import CandidateValues
from marl_sched.agents.networks import Networks
from marl_sched.agents.policies import VALUE
from marl_sched.agents.rollout import Field, Rollout, Segments, advantages
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError
from marl_sched.observation import Observation, Settlements

Columns = Mapping[str, NDArray[Any]]
_SMALL = 1e-8


class Actor(Protocol):
    """A stochastic policy: how it is drawn from and how likely a draw is.

    Attributes:
        fields: What is stored of a decision; `context` (K,) is among it.
    """

    fields: dict[str, Field]

    @property
    def scorer(self) -> CandidateValues:
        """What it judges candidates with."""

    def draw(
        self, observation: Observation, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], Columns]:
        """Return (B,) actions, (B,) whether one is not the most likely, and what to store."""

    def log_probabilities(self, columns: Columns) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (n,) log probabilities of stored draws and (n,) entropies, with gradients."""

    def refresh(self) -> None:
        """Notice that the online parameters have changed."""


class Objective(Protocol):
    """A surrogate whose gradient is that of the policy.

    Attributes:
        trace: lambda of the advantages it wants.
        rows_per_update: Decisions of one update.
    """

    trace: float
    rows_per_update: int

    def __call__(
        self, log_probability: torch.Tensor, before: torch.Tensor, advantage: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss; `before` (n,) are the log probabilities when the draws were made."""


@dataclass(frozen=True)
class _Batch:
    columns: Columns
    advantage: NDArray[np.float32]
    returns: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.returns)


class OnPolicyMethod:
    """An actor that learns by an objective, with a learnt value of the context as baseline.

    Attributes:
        explored: Rows of the last observation that did not get the most likely decision.
    """

    def __init__(
        self,
        agent: Agent,
        n_replicas: int,
        networks: Networks,
        actor: Actor,
        objective: Objective,
        generator: np.random.Generator,
    ) -> None:
        """Create a method that remembers nothing."""
        self._agent, self._networks, self._generator = agent, networks, generator
        self._actor, self._objective = actor, objective
        self._rollout = Rollout(n_replicas, actor.fields | {"log_probability": ((), np.float32)})
        self._drawn: Columns = {}
        self._entropy_weight = agent.entropy
        self._n_consumed = 0
        self._sums = np.zeros(3)  # updates, entropy, value loss
        self.explored = np.zeros(0, np.int64)

    @property
    def scorer(self) -> CandidateValues:
        """What it judges candidates with."""
        return self._actor.scorer

    @property
    def n_decisions(self) -> int:
        """Decisions recorded so far."""
        return self._rollout.n_decisions

    def set_progress(self, share: float) -> None:
        """Let the bonus for entropy fall to 0 over the run."""
        self._entropy_weight = self._agent.entropy * (1.0 - share)

    def start_episode(self) -> None:
        """Begin an episode in every replica."""
        self._rollout.start_episode()

    def end_episode(self) -> None:
        """End it, and learn from what is left."""
        self._learn(self._rollout.take(is_over=True))

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) candidates drawn from the online policy."""
        actions, is_other, self._drawn = self._actor.draw(observation, self._generator)
        self.explored = np.flatnonzero(is_other)
        return actions

    def record(self, observation: Observation, actions: NDArray[np.int64]) -> None:
        """Remember the decisions drawn last; `actions` must be they."""
        self._rollout.record(observation, self._drawn)

    def settle(self, settlements: Settlements) -> None:
        """Add rewards."""
        self._rollout.settle(settlements)

    def update(self) -> None:
        """Learn once enough decisions are ready."""
        if self._rollout.ready().sum() >= self._agent.rollout_decisions:
            self._learn(self._rollout.take())

    def refresh(self) -> None:
        """Notice that the online parameters have changed."""
        self._actor.refresh()

    def _learn(self, segments: Segments | None) -> None:
        """Run the updates that a batch is due."""
        if segments is None:
            return
        batch = self._prepared(segments)
        self._n_consumed += len(batch)
        n_due = self._n_consumed // self._agent.decisions_per_update - self._networks.n_updates
        order = np.zeros(0, np.int64)
        n_rows = min(self._objective.rows_per_update, len(batch))
        for _ in range(n_due):
            if len(order) < n_rows:  # a new pass
                order = self._generator.permutation(len(batch))
            self._update(batch, order[:n_rows])
            order = order[n_rows:]
        self.refresh()

    def _prepared(self, segments: Segments) -> _Batch:
        """Return the counted decisions with their advantages and returns."""
        with torch.no_grad():
            contexts = torch.from_numpy(segments.columns["context"])
            values = self._networks.online[VALUE].values(contexts)[:, 0].double().numpy()
        estimates = advantages(segments, values, self._agent.discount, self._objective.trace)
        is_counted = segments.is_counted()
        columns = {name: array[is_counted] for name, array in segments.columns.items()}
        estimates, values = estimates[is_counted], values[is_counted]
        returns = (estimates + values).astype(np.float32)
        scaled = (estimates - estimates.mean()) / (estimates.std() + _SMALL)
        return _Batch(columns, scaled.astype(np.float32), returns)

    def _update(self, batch: _Batch, rows: NDArray[np.int64]) -> None:
        """Step down the objective, the value's error, and up the entropy."""
        columns = {name: array[rows] for name, array in batch.columns.items()}
        log_probability, entropy = self._actor.log_probabilities(columns)
        before = torch.from_numpy(columns["log_probability"])
        advantage = torch.from_numpy(batch.advantage[rows])
        gain_loss = self._objective(log_probability, before, advantage)
        contexts, returns = (
            torch.from_numpy(columns["context"]),
            torch.from_numpy(batch.returns[rows]),
        )
        value_loss = mse_loss(self._networks.online[VALUE].values(contexts)[:, 0], returns)
        # Actor and value share no parameter: their losses add up without a weight.
        self._networks.step(gain_loss - self._entropy_weight * entropy.mean() + value_loss)
        self._sums += (1, float(entropy.detach().mean()), value_loss.item())

    def metrics(self) -> dict[str, float]:
        """Return its own metrics and begin anew."""
        n_updates, entropy, value_loss = (float(value) for value in self._sums)
        self._sums[:] = 0
        return {
            "entropy": entropy / max(n_updates, 1.0),
            "value_loss": value_loss / max(n_updates, 1.0),
            "rewards_dropped": float(self._rollout.n_dropped),
            "decisions_unsettled": float(self._rollout.n_unsettled),
        }

    def views(self) -> dict[str, NDArray[Any]]:
        """Return the counters: between episodes the log is empty."""
        log = self._rollout
        counts = [self._n_consumed, log.n_decisions, log.n_dropped, log.n_unsettled]
        return {"counts": np.array(counts, np.int64), "sums": self._sums}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from the counters, with an empty log.

        Raises:
            CheckpointError: They are missing.
        """
        for name, array in self.views().items():
            if name not in state or state[name].shape != array.shape:
                raise CheckpointError(f"learner state: no array memory.{name} of {array.shape}")
        log = Rollout(self._rollout.n_replicas, self._rollout.fields)
        self._n_consumed, log.n_decisions, log.n_dropped, log.n_unsettled = (
            int(count) for count in state["counts"]
        )
        self._rollout = log
        self._sums[:] = state["sums"]
