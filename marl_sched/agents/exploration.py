"""Where random decisions fall, and how often.

Uniform noise over all machines mostly tries what no sensible policy would do, overloads the zone
and makes the states that follow unlike those that matter. Trying the few best machines by the
network, and the peers, keeps the load near the policy's own and explores where choices are close.
Shapes: B rows, M machines, C candidates.
"""

from math import cos, pi

import numpy as np
from numpy.typing import NDArray

from marl_sched.config import Agent


def epsilon_at(agent: Agent, share: float) -> float:
    """Return the share of random decisions once `share` of the run is over: linear, then flat."""
    fall = min(share / agent.epsilon_share, 1.0)
    return agent.epsilon + (agent.final_epsilon - agent.epsilon) * fall


def learning_rate_at(agent: Agent, share: float) -> float:
    """Return Adam's step once `share` of the run is over: half a cosine."""
    span = agent.learning_rate - agent.final_learning_rate
    return agent.final_learning_rate + span * (1 + cos(pi * share)) / 2


def explore(
    scores: NDArray[np.float32],
    n_machines: int,
    n_best: int,
    generator: np.random.Generator,
    also: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Pick evenly among the `n_best` best machines and all peers that are unmasked.

    Args:
        scores: (B, C), machines first; -inf where masked.
        n_machines: M.
        n_best: How many machines; 0 for all.
        generator: Source of chance.
        also: (B,) one more unmasked candidate a row: the prior's choice.

    Returns:
        (B,) int64, an unmasked candidate a row.
    """
    is_allowed = scores > -np.inf  # (B, C)
    if 0 < n_best < n_machines:
        machines = scores[:, :n_machines]
        worst = np.partition(machines, n_machines - n_best, axis=1)[:, n_machines - n_best, None]
        is_allowed[:, :n_machines] &= machines >= worst
    if also is not None:
        is_allowed[np.arange(len(also)), also] = True
    lots = np.where(is_allowed, generator.random(scores.shape), -1.0)
    picked: NDArray[np.int64] = lots.argmax(axis=1)
    return picked
