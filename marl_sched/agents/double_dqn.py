"""Double DQN (van Hasselt, Guez and Silver 2016, arXiv 1509.06461) on the candidate network.

One value a candidate. The online network says which candidate of the bootstrap decision is best,
the target network what it is worth (Eq. 4).
Shapes: B rows, F + K features of a candidate with its context.
"""

import numpy as np
import torch

from marl_sched.agents.networks import Networks, huber
from marl_sched.agents.policies import ACTOR
from marl_sched.agents.replay import Transitions
from marl_sched.agents.scoring import Scorer
from marl_sched.config import Agent


class DoubleDQNLoss:
    """Huber loss of the n-step temporal-difference error."""

    def __init__(self, agent: Agent) -> None:
        """Take its threshold from the settings."""
        self._threshold = agent.kappa

    def __call__(
        self, networks: Networks, scorer: Scorer, batch: Transitions
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of a batch and (B,) its errors; `scorer` is the online network."""
        assert batch.next_candidates is not None
        assert batch.next_mask is not None
        context = batch.next_rows[:, batch.next_candidates.shape[2] :]  # (B, K)
        best = scorer.choose(batch.next_candidates, context, batch.next_mask)
        chosen = batch.next_candidates[np.arange(len(best)), best]  # (B, F)
        next_rows = torch.from_numpy(np.concatenate([chosen, context], axis=1))
        with torch.no_grad():
            following = networks.target[ACTOR].values(next_rows)[:, 0]
            discounts = torch.from_numpy(batch.discounts)
            target = torch.from_numpy(batch.returns) + discounts * following
        values = networks.online[ACTOR].values(torch.from_numpy(batch.rows))[:, 0]
        loss = huber(target - values, self._threshold)
        return loss, target - values
