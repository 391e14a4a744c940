"""A learned policy: greedy on the candidate network, without torch; its file.

With a prior the file holds all of it: its weights, its share of the score, the margin of the gate.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.architecture import Architecture, Weights
from marl_sched.agents.prior import Prior
from marl_sched.agents.scoring import Scorer, context_of
from marl_sched.agents.storage import read_arrays, write_arrays
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError, ConfigError
from marl_sched.observation import Layout, Observation

_KIND = "policy"


class LearnedPolicy:
    """Takes the candidate with the best mean, or CVaR, of its quantile values.

    With a prior it does where that beats the prior's choice by a margin, else it takes that.

    Attributes:
        layout: Layout of the observations it was trained on.
        architecture: Sizes of its network.
        cvar_alpha: Share of the worst quantiles it judges by; 1 is the plain mean.
        prior: The rule that its network corrects, if any.
        gate_margin: Gain over that rule's choice that another candidate must promise.
        scorer: What it judges with.
        explored: Rows that it decided at random: none.
    """

    def __init__(
        self,
        layout: Layout,
        architecture: Architecture,
        weights: Mapping[str, NDArray[np.float32]],
        cvar_alpha: float = 1.0,
        prior: Prior | None = None,
        gate_margin: float = 0.0,
    ) -> None:
        """Build the policy on a copy of the weights.

        Raises:
            CheckpointError: The weights are of another architecture.
        """
        self.layout, self.architecture, self.cvar_alpha = layout, architecture, cvar_alpha
        self.prior, self.gate_margin = prior, gate_margin
        self._flat = architecture.flatten(weights)
        self.scorer = Scorer(architecture, self._flat, cvar_alpha, prior, gate_margin)
        self.explored = np.zeros(0, np.int64)

    @classmethod
    def of(
        cls, layout: Layout, agent: Agent, weights: Mapping[str, NDArray[np.float32]]
    ) -> "LearnedPolicy":
        """Build the policy that an agent is configured to be, on a copy of the weights.

        Raises:
            CheckpointError: The weights are of another architecture.
        """
        architecture = Architecture.of(layout, agent)
        prior = Prior.of(layout, agent)
        return cls(layout, architecture, weights, agent.cvar_alpha, prior, agent.gate_margin)

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        """Do nothing: there is no state and no chance."""

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) the best unmasked candidate of every row."""
        seen = self.scorer.extended(observation)
        return self.scorer.choose(seen.candidates, context_of(seen), seen.mask)

    def weights(self) -> Weights:
        """Return a copy of the network's parameters by name."""
        return {name: view.copy() for name, view in self.architecture.views(self._flat).items()}


def save_policy(path: Path, policy: LearnedPolicy) -> None:
    """Write a policy with all that is needed to load it, atomically."""
    architecture, prior = policy.architecture, policy.prior
    metadata = _columns(policy.layout) | {
        "hidden": list(architecture.hidden),
        "n_quantiles": architecture.n_quantiles,
        "cvar_alpha": policy.cvar_alpha,
    }
    if prior is not None:
        metadata |= {
            "prior_weights": prior.weights,
            "prior_scale": architecture.prior_scale,
            "gate_margin": policy.gate_margin,
            "value_hidden": architecture.value_hidden,
        }
    write_arrays(path, _KIND, metadata, policy.weights())


def load_policy(path: str | Path, layout: Layout, agent: Agent | None = None) -> LearnedPolicy:
    """Read a policy.

    Args:
        path: File of `save_policy`.
        layout: Layout of the observations it will get.
        agent: If given, its hidden layers, quantiles and prior must be the file's (to train on),
            save for weights of the prior and a number of quantiles that it leaves to be found, and
            its cvar_alpha and gate_margin are used; otherwise the file's own count.

    Raises:
        CheckpointError: Missing, half-written, not ours, or of another architecture.
    """
    path = Path(path)
    metadata, arrays = read_arrays(path, _KIND)
    expected = _columns(layout)
    if agent is not None:
        expected |= _network_of(layout, agent)
    for key, value in expected.items():
        if metadata.get(key) != value:
            raise CheckpointError(f"{path}: {key} = {metadata.get(key)!r}, expected {value!r}")
    saved = _agent(path, metadata)
    Architecture.of(layout, saved).check(arrays, str(path))
    if agent is not None:
        judged_by = {"cvar_alpha": agent.cvar_alpha, "gate_margin": agent.gate_margin}
        saved = saved.model_copy(update=judged_by)
    try:
        return LearnedPolicy.of(layout, saved, arrays)
    except ConfigError as error:  # of a weight of the prior
        raise CheckpointError(f"{path}: prior_weights: {error}") from None


def _columns(layout: Layout) -> dict[str, Any]:
    return {
        "resources": list(layout.resources),
        "candidate": list(layout.candidate),
        "instance": list(layout.instance),
        "zone": list(layout.zone),
    }


def _network_of(layout: Layout, agent: Agent) -> dict[str, Any]:
    """Return what a file must say of its network to be an agent's, of what the agent says."""
    found: dict[str, Any] = {"hidden": list(agent.hidden)}
    if not agent.finds_quantiles:
        found["n_quantiles"] = agent.n_quantiles
    prior = Prior.of(layout, agent)
    if prior is None or agent.prior_weights is not None:
        found["prior_weights"] = None if prior is None else prior.weights
    return found | {
        "prior_scale": None if prior is None else agent.prior_scale,
        "value_hidden": None if prior is None else agent.value_hidden,
    }


def _agent(path: Path, metadata: Mapping[str, Any]) -> Agent:
    """Read what the file says of its network through the configuration's own checks."""
    keys = ["hidden", "n_quantiles", "cvar_alpha"]
    has_prior = metadata.get("prior_weights") is not None
    if has_prior:
        keys += ["prior_weights", "prior_scale", "gate_margin", "value_hidden"]
    try:
        values = {key: metadata[key] for key in keys}
        agent = Agent.model_validate(values | {"prior": "tuned" if has_prior else "none"})
        _ = agent.quantile_count  # a file has a number
        return agent
    except (KeyError, ValueError, ConfigError):
        found = {key: metadata.get(key) for key in keys}
        raise CheckpointError(f"{path}: {found}, expected what an `agent` may have") from None
