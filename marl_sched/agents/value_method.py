"""What Double and Dueling DQN share: epsilon-greedy decisions, the replay, when updates are due.

Shapes: B rows, C candidates, F candidate features, K context features.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.exploration import epsilon_at, explore
from marl_sched.agents.networks import Networks
from marl_sched.agents.policies import ACTOR
from marl_sched.agents.replay import Replay, ReplayShape, Transitions
from marl_sched.agents.scoring import Scorer, context_of
from marl_sched.config import Agent
from marl_sched.observation import Layout, Observation, Settlements

_logger = logging.getLogger(__name__)

Loss = Callable[[Networks, Scorer, Transitions], tuple[torch.Tensor, torch.Tensor]]
"""From a batch to the loss and (B,) the temporal-difference errors."""


class ValueMethod:
    """Q-learning from a replay that stores all candidates.

    Attributes:
        explored: Rows of the last observation that got a random decision.
        scorer: The online actor part: its order of the candidates is that of their values.
        epsilon: Share of random decisions now.
    """

    def __init__(  # noqa: PLR0913  # what make_learner is given, and the loss
        self,
        layout: Layout,
        agent: Agent,
        n_replicas: int,
        n_candidates: int,
        networks: Networks,
        loss: Loss,
        generator: np.random.Generator,
    ) -> None:
        """Create a method that remembers nothing; arguments as of `make_learner`."""
        self._agent, self._networks, self._loss = agent, networks, loss
        self._generator, self._n_candidates = generator, n_candidates
        actor = networks.online[ACTOR]
        self.scorer = Scorer(actor.architecture, actor.flat.numpy(), 1.0)
        shape = ReplayShape(
            n_replicas,
            n_features=len(layout.candidate) + len(layout.instance) + len(layout.zone),
            n_candidates=n_candidates,
            n_candidate_features=len(layout.candidate),
            mib=agent.replay_mib,
        )
        self._replay = Replay(shape, agent.n_step, agent.discount)
        self.explored = np.zeros(0, np.int64)
        self.epsilon = agent.epsilon
        self._td_sum = np.zeros(2)

    @property
    def n_decisions(self) -> int:
        """Decisions recorded so far."""
        return self._replay.n_decisions

    def set_progress(self, share: float) -> None:
        """Set the share of random decisions."""
        self.epsilon = epsilon_at(self._agent, share)

    def start_episode(self) -> None:
        """Begin an episode in every replica."""
        self._replay.start_episode()

    def end_episode(self) -> None:
        """End it: a truncation."""
        self._replay.end_episode()

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) the best candidates by the online network, or random ones."""
        scores = self.scorer.scores(
            observation.candidates, context_of(observation), observation.mask
        )
        actions: NDArray[np.int64] = scores.argmax(axis=1)
        rows = np.flatnonzero(self._generator.random(len(observation)) < self.epsilon)
        self.explored = rows
        if rows.size:
            # Before the first update the network's order of the machines means nothing.
            n_best = self._agent.explore_machines if self._networks.n_updates else 0
            actions[rows] = explore(scores[rows], observation.n_machines, n_best, self._generator)
        return actions

    def record(self, observation: Observation, actions: NDArray[np.int64]) -> None:
        """Remember decisions."""
        self._replay.record(observation, actions)

    def settle(self, settlements: Settlements) -> None:
        """Add rewards."""
        self._replay.settle(settlements)

    def update(self) -> None:
        """Run the updates that are due by the decision count, as far as enough is settled."""
        past_warmup = self.n_decisions - self._agent.warmup_decisions
        n_due = max(past_warmup, 0) // self._agent.decisions_per_update
        while self._networks.n_updates < n_due:
            batch = self._replay.sample(self._agent.batch_size, self._generator)
            if batch is None:
                break
            loss, errors = self._loss(self._networks, self.scorer, batch)
            self._networks.step(loss)
            self.refresh()
            self._td_sum += (1, float(errors.detach().abs().mean()))

    def refresh(self) -> None:
        """Notice that the online parameters have changed."""
        self.scorer.refresh()

    def metrics(self) -> dict[str, float]:
        """Return its own metrics and begin anew."""
        n_updates, error = self._td_sum
        self._td_sum[:] = 0
        return {
            "td_error": float(error / max(n_updates, 1)),
            "epsilon": self.epsilon,
            "rewards_dropped": float(self._replay.n_dropped),
            "decisions_unsettled": float(self._replay.n_unsettled),
        }

    def views(self) -> dict[str, NDArray[Any]]:
        """Return the replay."""
        return self._replay.views() | {"td_sum": self._td_sum}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load a replay; one of other candidates is left out, and the warm-up begins anew."""
        n_other = self._replay.n_other_candidates(state)
        if not n_other or "count" not in state:
            self._replay.load_state(state)
            self._td_sum[:] = state["td_sum"]
            return
        n_decisions = int(state["count"].sum()) + int(state.get("before", 0))
        self._replay.begin_after(max(0, n_decisions - self._agent.warmup_decisions))
        _logger.warning(
            "the replay begins empty: it was saved with %d candidates a decision, now there are %d",
            n_other,
            self._n_candidates,
        )
