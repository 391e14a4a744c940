"""A softmax over the unmasked candidates, its logits the candidate network's.

Shapes: B rows, C candidates, F candidate features, K context features.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.networks import Networks, masked_scores
from marl_sched.agents.on_policy import Columns
from marl_sched.agents.policies import ACTOR
from marl_sched.agents.rollout import Field
from marl_sched.agents.scoring import Scorer, context_of
from marl_sched.observation import Layout, Observation

_MASKED = -1e9
"""A logit whose probability is 0 and whose gradient is finite."""


class CandidateActor:
    """Draws a candidate; what was learnt is the most likely one.

    Attributes:
        fields: What is stored of a decision.
        scorer: The online network.
    """

    def __init__(self, layout: Layout, n_candidates: int, networks: Networks) -> None:
        """Act by the networks' actor."""
        self._network = networks.online[ACTOR]
        self.scorer = Scorer(self._network.architecture, self._network.flat.numpy(), 1.0)
        self.fields: dict[str, Field] = {
            "candidates": ((n_candidates, len(layout.candidate)), np.float32),
            "mask": ((n_candidates,), np.bool_),
            "context": ((len(layout.instance) + len(layout.zone),), np.float32),
            "action": ((), np.int64),
        }

    def draw(
        self, observation: Observation, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], Columns]:
        """Return (B,) actions, (B,) whether one is not the most likely, and what to store."""
        context = context_of(observation)
        logits = self.scorer.scores(observation.candidates, context, observation.mask)
        # The largest of logits with Gumbel noise is a draw from their softmax.
        actions = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        chosen = shifted[np.arange(len(actions)), actions]
        log_probability = chosen - np.log(np.exp(shifted).sum(axis=1))
        columns = {
            "candidates": observation.candidates,
            "mask": observation.mask,
            "context": context,
            "action": actions,
            "log_probability": log_probability,
        }
        return actions, actions != logits.argmax(axis=1), columns

    def log_probabilities(self, columns: Columns) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (n,) log probabilities of stored draws and (n,) entropies, with gradients."""
        candidates, context, mask, action = (
            torch.from_numpy(columns[name]) for name in ("candidates", "context", "mask", "action")
        )
        logits = masked_scores(self._network, candidates, context, mask, _MASKED)
        logs = torch.log_softmax(logits, dim=1)  # (n, C)
        entropy = -(logs.exp() * logs).sum(dim=1)
        return logs.gather(1, action[:, None])[:, 0], entropy

    def refresh(self) -> None:
        """Notice that the online parameters have changed."""
        self.scorer.refresh()
