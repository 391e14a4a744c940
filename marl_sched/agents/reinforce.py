"""REINFORCE with a learnt baseline (Williams 1992; Sutton and Barto 2018, section 13.4).

Every decision is learnt from once, as the gradient is that of the policy that took it: an update
has the `agent.decisions_per_update` rows that make it due.
"""

import torch

from marl_sched.config import Agent


class ReinforceObjective:
    """Log probability of what was done, times its return over the baseline.

    Attributes:
        trace: 1: the whole discounted return.
        rows_per_update: Rows of an update.
    """

    def __init__(self, agent: Agent) -> None:
        """Take the rows of an update from the settings."""
        self.trace = 1.0
        self.rows_per_update = agent.decisions_per_update

    def __call__(
        self, log_probability: torch.Tensor, before: torch.Tensor, advantage: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss."""
        return -(log_probability * advantage).mean()
