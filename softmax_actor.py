"""A policy with chance over candidates: the softmax of their scores, masked ones left out.

Shapes: B rows, C candidates, F candidate features.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.architecture import Architecture
from marl_sched.agents.network import CandidateNetwork
from marl_sched.agents.on_policy import CONTEXT, Choice
from marl_sched.agents.rollout import Column
from marl_sched.agents.scoring import Scorer, context_of
from marl_sched.observation import Observation


class SoftmaxActor:
    """Draws candidates by the softmax of the network's scores.

    Attributes:
        scorer: The scores.
        columns: What is kept of a decision: all candidates, which may be picked, which was.
    """

    def __init__(
        self, architecture: Architecture, network: CandidateNetwork, n_candidates: int
    ) -> None:
        """Draw with `network`, which may be changed in place if `refresh` is called then."""
        self.scorer = Scorer(architecture, network.flat.numpy(), 1.0)
        self.columns: dict[str, Column] = {
            "candidates": ((n_candidates, architecture.n_candidate_features), np.float32),
            "mask": ((n_candidates,), np.bool_),
            "action": ((), np.int64),
        }

    def refresh(self) -> None:
        """Decide with the network as it is now."""
        self.scorer.refresh()

    def draw(self, observation: Observation, generator: np.random.Generator) -> Choice:
        """Draw a candidate for every row."""
        candidates, mask = observation.candidates, observation.mask
        scores = self.scorer.scores(candidates, context_of(observation), mask)  # (B, C)
        # The largest of score + Gumbel noise is a draw from the softmax (Gumbel 1954).
        noise = -np.log(-np.log(np.maximum(generator.random(scores.shape), 1e-300)))
        actions: NDArray[np.int64] = (scores + noise).argmax(axis=1)
        shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(axis=1))
        old = shifted[np.arange(len(actions)), actions] - log_sum
        columns = {"candidates": candidates, "mask": mask, "action": actions, "old": old}
        return Choice(actions, np.flatnonzero(actions != scores.argmax(axis=1)), columns)

    def log_probability(
        self, network: CandidateNetwork, columns: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B,) log probabilities of the candidates picked, and (B,) entropies."""
        scores = network(columns["candidates"], columns[CONTEXT])[:, :, 0]  # (B, C)
        # Finite: 0 x -inf in the entropy would be no number.
        logs = scores.masked_fill(~columns["mask"], -1e9).log_softmax(dim=1)
        entropy = -(logs.exp() * logs).sum(dim=1)
        return logs.gather(1, columns["action"][:, None])[:, 0], entropy
