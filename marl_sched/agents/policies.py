"""The networks and greedy policies of every algorithm, by `agent.algorithm`, without torch.

All algorithms but ppo-scorer act by the same candidate network. A network of several parts has its
acting part's parameters under their plain names, the others' behind a prefix.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents import learned
from marl_sched.agents.architecture import Architecture, Weights, initial_weights
from marl_sched.agents.learned import LearnedPolicy
from marl_sched.agents.resource_weights import ResourceWeightPolicy
from marl_sched.agents.storage import read_arrays, write_arrays
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError
from marl_sched.observation import Layout

ACTOR, VALUE = "", "value."
"""Prefixes of the parts: what acts, and the value of a context."""

_KIND = "policy"
_SCORER = "resource-weights"

LearnedPolicies = LearnedPolicy | ResourceWeightPolicy


def architecture_of(layout: Layout, agent: Agent) -> dict[str, Architecture]:
    """Return the architecture of every part of an algorithm's network, by prefix."""
    if agent.algorithm == "qrdqn":
        return {ACTOR: Architecture.of(layout, agent)}
    n_context, hidden = len(layout.instance) + len(layout.zone), tuple(agent.hidden)
    actor = Architecture(len(layout.candidate), n_context, hidden, 1)
    if agent.algorithm == "double-dqn":
        return {ACTOR: actor}
    if agent.algorithm == "ppo-scorer":
        # Means, then log standard deviations.
        actor = Architecture(0, n_context, hidden, 2 * len(layout.resources))
    return {ACTOR: actor, VALUE: Architecture(0, n_context, hidden, 1)}


def first_weights(layout: Layout, agent: Agent, generator: np.random.Generator) -> Weights:
    """Draw the first weights of an algorithm's network."""
    return {
        f"{prefix}{name}": tensor
        for prefix, architecture in architecture_of(layout, agent).items()
        for name, tensor in initial_weights(architecture, generator).items()
    }


def make_policy(
    layout: Layout, agent: Agent, weights: Mapping[str, NDArray[np.float32]]
) -> LearnedPolicies:
    """Return the greedy policy of an algorithm's weights; it keeps the acting part only.

    Raises:
        CheckpointError: The weights are of another architecture.
    """
    if agent.algorithm == "qrdqn":
        return LearnedPolicy.of(layout, agent, weights)
    architecture = architecture_of(layout, agent)[ACTOR]
    acting = {name: tensor for name, tensor in weights.items() if not name.startswith(VALUE)}
    if agent.algorithm == "ppo-scorer":
        return ResourceWeightPolicy(layout, architecture, acting)
    return LearnedPolicy(layout, architecture, acting)


def save_policy(path: Path, policy: LearnedPolicies) -> None:
    """Write a policy with all that is needed to load it, atomically."""
    if isinstance(policy, LearnedPolicy):
        learned.save_policy(path, policy)
        return
    layout = policy.layout
    metadata = {
        "actor": _SCORER,
        "resources": list(layout.resources),
        "instance": list(layout.instance),
        "zone": list(layout.zone),
        "hidden": list(policy.architecture.hidden),
    }
    write_arrays(path, _KIND, metadata, policy.weights())


def load_policy(path: str | Path, layout: Layout, agent: Agent | None = None) -> LearnedPolicies:
    """Read a policy of any algorithm; arguments as of `learned.load_policy`.

    Raises:
        CheckpointError: Missing, half-written, not ours, or of another architecture.
    """
    path = Path(path)
    metadata, arrays = read_arrays(path, _KIND)
    if metadata.get("actor") != _SCORER:
        return learned.load_policy(path, layout, agent)
    expected = {
        "resources": list(layout.resources),
        "instance": list(layout.instance),
        "zone": list(layout.zone),
    }
    for key, value in expected.items():
        if metadata.get(key) != value:
            raise CheckpointError(f"{path}: {key} = {metadata.get(key)!r}, expected {value!r}")
    try:
        saved = Agent.model_validate({"algorithm": "ppo-scorer", "hidden": metadata["hidden"]})
    except (KeyError, ValueError):
        raise CheckpointError(
            f"{path}: hidden = {metadata.get('hidden')!r}, expected what an `agent` may have"
        ) from None
    architecture_of(layout, saved)[ACTOR].check(arrays, str(path))
    return ResourceWeightPolicy(layout, architecture_of(layout, saved)[ACTOR], arrays)
