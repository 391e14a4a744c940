"""Proximal policy optimization (Schulman et al. 2017, arXiv 1707.06347), with GAE and clipping.

An update has `agent.batch_size` rows, so that a batch is passed over batch_size /
decisions_per_update times.
"""

import torch

from marl_sched.config import Agent


class ClippedObjective:
    """The clipped surrogate (Eq. 7).

    Attributes:
        trace: lambda of the advantages.
        rows_per_update: Rows of an update.
    """

    def __init__(self, agent: Agent) -> None:
        """Take clip, lambda and the rows of an update from the settings."""
        self.trace = agent.gae_lambda
        self.rows_per_update = agent.batch_size
        self._clip = agent.ppo_clip

    def __call__(
        self, log_probability: torch.Tensor, before: torch.Tensor, advantage: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss."""
        ratio = (log_probability - before).exp()
        clipped = ratio.clamp(1.0 - self._clip, 1.0 + self._clip)
        return -torch.minimum(ratio * advantage, clipped * advantage).mean()
