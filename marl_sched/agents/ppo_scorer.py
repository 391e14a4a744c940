"""The continuous actor of the Kubernetes literature: a weight in [0, 1] a resource, learnt by PPO.

Drawn are logits of the weights, from a normal distribution whose means and standard deviations the
network gives in every context; their sigmoids drive the node score of `resource_weights`. Ratios of
probabilities are equal for logits and weights.
Shapes: B rows, R resources, K context features.
"""

from math import log, pi

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.networks import Networks
from marl_sched.agents.on_policy import Columns
from marl_sched.agents.policies import ACTOR
from marl_sched.agents.resource_weights import ResourceScorer
from marl_sched.agents.rollout import Field
from marl_sched.agents.scoring import context_of
from marl_sched.observation import Layout, Observation

_LOG_SD = (-3.0, 1.0)
"""Bounds of the log standard deviation: neither without chance nor without aim."""


class ResourceWeightActor:
    """Draws resource weights; what was learnt are their means.

    Attributes:
        fields: What is stored of a decision.
        scorer: The online network and the node score.
    """

    def __init__(self, layout: Layout, networks: Networks) -> None:
        """Act by the networks' actor."""
        self._network = networks.online[ACTOR]
        self._n_resources = len(layout.resources)
        flat = self._network.flat.numpy()
        self.scorer = ResourceScorer(layout, self._network.architecture, flat)
        self.fields: dict[str, Field] = {
            "context": ((len(layout.instance) + len(layout.zone),), np.float32),
            "logits": ((self._n_resources,), np.float32),
        }

    def draw(
        self, observation: Observation, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], Columns]:
        """Return (B,) actions, (B,) whether one is not the means', and what to store."""
        context = context_of(observation)
        means, log_sd = self.scorer.outputs(context)
        log_sd = np.clip(log_sd, *_LOG_SD)
        noise = generator.standard_normal(means.shape).astype(np.float32)
        logits = (means + np.exp(log_sd) * noise).astype(np.float32)
        actions = self.scorer.choose(observation, logits)
        per_resource = -0.5 * noise**2 - log_sd - 0.5 * log(2 * pi)
        columns = {
            "context": context,
            "logits": logits,
            "log_probability": per_resource.sum(axis=1),
        }
        return actions, actions != self.scorer.choose(observation, means), columns

    def log_probabilities(self, columns: Columns) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (n,) log probabilities of stored draws and (n,) entropies, with gradients."""
        outputs = self._network.values(torch.from_numpy(columns["context"]))  # (n, 2 R)
        means = outputs[:, : self._n_resources]
        log_sd = outputs[:, self._n_resources :].clamp(*_LOG_SD)
        noise = (torch.from_numpy(columns["logits"]) - means) / log_sd.exp()
        log_probability = (-0.5 * noise**2 - log_sd - 0.5 * log(2 * pi)).sum(dim=1)
        return log_probability, (log_sd + 0.5 * log(2 * pi) + 0.5).sum(dim=1)

    def refresh(self) -> None:
        """Do nothing: the parameters are read where they are."""
