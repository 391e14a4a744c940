"""The rule a learner starts from and corrects: its opinion as columns of the candidates.

A learner with a prior (residual policy learning: Silver et al. 2018, arXiv 1812.06298; Johannink et
al. 2019) plays the rule until it has seen that another candidate is better.
Shapes: B rows, C candidates, F features.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.kernels.prior import extend_candidates
from marl_sched.agents.tuned import TunedRule, default_weights
from marl_sched.config import Agent
from marl_sched.observation import Layout, Observation

PRIOR_COLUMNS = ("prior_gap", "is_prior_choice", "is_machine_for_peer")
"""Behind the candidates' own: the rule's score less that of the best of its kind (machine or peer);
1 at the rule's choice; 1 at machines where that is a peer."""

WORST_GAP = -4.0
"""Worse candidates look alike."""


class Prior:
    """A weighted score over the candidate features, as in `tuned`."""

    def __init__(self, layout: Layout, weights: Mapping[str, float] | None = None) -> None:
        """Build it from weights by name; None: the hand-set ones that tuning starts from.

        Raises:
            ConfigError: A name is not that of a weight.
        """
        self.weights = dict(default_weights(layout) if weights is None else weights)
        self._matrix = TunedRule(layout, self.weights).weights
        self._fit = layout.fit_columns

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Return (2, F) weights of machines and of peers."""
        return self._matrix

    @property
    def fit(self) -> NDArray[np.int64]:
        """Return (2, R) columns of the free shares, before and after."""
        return self._fit

    @classmethod
    def of(cls, layout: Layout, agent: Agent) -> "Prior | None":
        """Return the prior that an agent is configured with, if any."""
        return cls(layout, agent.prior_weights) if agent.has_prior else None

    def extend(self, observation: Observation) -> Observation:
        """Return the observation with the prior's columns, (B, C, F + 3); a new array."""
        return self.judge(observation)[0]

    def judge(self, observation: Observation) -> tuple[Observation, NDArray[np.int64]]:
        """Return the extended observation, and the rule's choice (B,) of an unmasked candidate."""
        n_rows, n_candidates, n_features = observation.candidates.shape
        extended = np.empty((n_rows, n_candidates, n_features + len(PRIOR_COLUMNS)), np.float32)
        choices = np.empty(n_rows, np.int64)
        extend_candidates(
            observation.candidates,
            observation.mask,
            observation.n_machines,
            self._matrix,
            self._fit,
            WORST_GAP,
            extended,
            choices,
        )
        return replace(observation, candidates=extended), choices
