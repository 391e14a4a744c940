"""Dueling DQN (Wang et al. 2016, arXiv 1511.06581) with the double target, as in the paper.

Q(c, g) = V(g) + A(c, g) - mean of A over the unmasked candidates (Eq. 9): A is the candidate
network, V a network of the same hidden layers over the context alone. Candidates vary in number, so
that the two share no layer.
Shapes: B rows, C candidates, K context features.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.networks import Networks, Parts, huber, masked_scores, unmasked_mean
from marl_sched.agents.policies import ACTOR, VALUE
from marl_sched.agents.replay import Transitions
from marl_sched.agents.scoring import Scorer
from marl_sched.config import Agent


class DuelingDQNLoss:
    """Huber loss of the n-step temporal-difference error of the sum of both streams."""

    def __init__(self, agent: Agent) -> None:
        """Take its threshold from the settings."""
        self._threshold = agent.kappa

    def __call__(
        self, networks: Networks, scorer: Scorer, batch: Transitions
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of a batch and (B,) its errors; `scorer` is the online advantage."""
        assert batch.candidates is not None
        assert batch.mask is not None
        assert batch.next_candidates is not None
        assert batch.next_mask is not None
        n_features = batch.candidates.shape[2]
        context, next_context = batch.rows[:, n_features:], batch.next_rows[:, n_features:]
        # V and the mean of A are equal for all candidates of a row: A alone orders them.
        best = scorer.choose(batch.next_candidates, next_context, batch.next_mask)
        with torch.no_grad():
            following = _values(
                networks.target, batch.next_candidates, next_context, batch.next_mask, best
            )
            discounts = torch.from_numpy(batch.discounts)
            target = torch.from_numpy(batch.returns) + discounts * following
        assert batch.actions is not None
        values = _values(networks.online, batch.candidates, context, batch.mask, batch.actions)
        loss = huber(target - values, self._threshold)
        return loss, target - values


def _values(
    parts: Parts,
    candidates: NDArray[np.float32],
    context: NDArray[np.float32],
    mask: NDArray[np.bool_],
    actions: NDArray[np.int64],
) -> torch.Tensor:
    """Return (B,) values Q of actions (B,)."""
    given = torch.from_numpy(np.ascontiguousarray(context))
    allowed = torch.from_numpy(mask)
    advantages = masked_scores(parts[ACTOR], torch.from_numpy(candidates), given, allowed, 0.0)
    taken = advantages[torch.arange(len(actions)), torch.from_numpy(actions)]
    return parts[VALUE].values(given)[:, 0] + taken - unmasked_mean(advantages, allowed)
