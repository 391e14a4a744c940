"""A learned policy: greedy on the candidate network, without torch; its file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.scoring import Architecture, Scorer, Weights, context_of
from marl_sched.agents.storage import read_arrays, write_arrays
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError
from marl_sched.observation import Layout, Observation

_KIND = "policy"


class LearnedPolicy:
    """Takes the candidate with the best mean, or CVaR, of its quantile values.

    Attributes:
        layout: Layout of the observations it was trained on.
        architecture: Sizes of its network.
        cvar_alpha: Share of the worst quantiles it judges by; 1 is the plain mean.
        scorer: What it judges with.
        explored: Rows that it decided at random: none.
    """

    def __init__(
        self,
        layout: Layout,
        architecture: Architecture,
        weights: Mapping[str, NDArray[np.float32]],
        cvar_alpha: float = 1.0,
    ) -> None:
        """Build the policy on a copy of the weights.

        Raises:
            CheckpointError: The weights are of another architecture.
        """
        self.layout, self.architecture, self.cvar_alpha = layout, architecture, cvar_alpha
        self._flat = architecture.flatten(weights)
        self.scorer = Scorer(architecture, self._flat, cvar_alpha)
        self.explored = np.zeros(0, np.int64)

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        """Do nothing: there is no state and no chance."""

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Return (B,) the best unmasked candidate of every row."""
        return self.scorer.choose(observation.candidates, context_of(observation), observation.mask)

    def weights(self) -> Weights:
        """Return a copy of the network's parameters by name."""
        return {name: view.copy() for name, view in self.architecture.views(self._flat).items()}


def save_policy(path: Path, policy: LearnedPolicy) -> None:
    """Write a policy with all that is needed to load it, atomically."""
    metadata = _columns(policy.layout) | {
        "hidden": list(policy.architecture.hidden),
        "n_quantiles": policy.architecture.n_quantiles,
        "cvar_alpha": policy.cvar_alpha,
    }
    write_arrays(path, _KIND, metadata, policy.weights())


def load_policy(path: str | Path, layout: Layout, agent: Agent | None = None) -> LearnedPolicy:
    """Read a policy.

    Args:
        path: File of `save_policy`.
        layout: Layout of the observations it will get.
        agent: If given, its hidden layers and quantiles must be the file's (to train on), and its
            cvar_alpha is used; otherwise the file's own count.

    Raises:
        CheckpointError: Missing, half-written, not ours, or of another architecture.
    """
    path = Path(path)
    metadata, arrays = read_arrays(path, _KIND)
    expected = _columns(layout)
    if agent is not None:
        expected |= {"hidden": list(agent.hidden), "n_quantiles": agent.n_quantiles}
    for key, value in expected.items():
        if metadata.get(key) != value:
            raise CheckpointError(f"{path}: {key} = {metadata.get(key)!r}, expected {value!r}")
    architecture = _architecture(path, layout, metadata)
    architecture.check(arrays, str(path))
    cvar_alpha = metadata["cvar_alpha"] if agent is None else agent.cvar_alpha
    return LearnedPolicy(layout, architecture, arrays, cvar_alpha)


def _columns(layout: Layout) -> dict[str, Any]:
    return {
        "resources": list(layout.resources),
        "candidate": list(layout.candidate),
        "instance": list(layout.instance),
        "zone": list(layout.zone),
    }


def _architecture(path: Path, layout: Layout, metadata: Mapping[str, Any]) -> Architecture:
    """Build the file's architecture through the configuration's own checks."""
    keys = ("hidden", "n_quantiles", "cvar_alpha")
    try:
        agent = Agent.model_validate({key: metadata[key] for key in keys})
    except (KeyError, ValueError):
        found = {key: metadata.get(key) for key in keys}
        raise CheckpointError(f"{path}: {found}, expected what an `agent` may have") from None
    return Architecture.of(layout, agent)
