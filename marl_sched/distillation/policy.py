"""The prior, corrected by what a teacher found: plays anywhere, without torch."""

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import Architecture, Weights
from marl_sched.agents.prior import Prior
from marl_sched.agents.scoring import Scorer, context_of
from marl_sched.distillation.branching import gate
from marl_sched.observation import Observation


class CorrectedPrior:
    """Takes another candidate than the prior's where the network promises enough for it."""

    def __init__(
        self, prior: Prior, architecture: Architecture, weights: Weights, margin: float
    ) -> None:
        """Build it; `margin` is the gain to deviate for.

        Raises:
            CheckpointError: The weights are of another architecture.
        """
        self._prior = prior
        self._margin = margin
        self._scorer = Scorer(architecture, architecture.flatten(weights), cvar_alpha=1.0)

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        """Do nothing: there is no state and no chance."""

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) unmasked candidates."""
        extended, choices = self._prior.judge(observation)
        scores = self._scorer.scores(extended.candidates, context_of(extended), extended.mask)
        return gate(scores.astype(np.float64), choices, self._margin)
