"""One zone as a fixed-size single-agent environment, for libraries that know no masks."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from marl_sched.config import Experiment
from marl_sched.envs.cluster_env import AgentObservation, ClusterEnv

Step = tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]


class SingleAgentEnv(gymnasium.Env[NDArray[np.float32], np.int64]):
    """ClusterEnv of a one-zone experiment with the observation flattened to one vector.

    A masked action stands for the first unmasked one. Every reset plays the next episode.
    """

    def __init__(self, experiment: Experiment, first_episode: int) -> None:
        """Play `experiment`, which has one zone without peers, from an episode on."""
        self._env = ClusterEnv(experiment)
        (self._agent,) = self._env.possible_agents
        self._episode = first_episode
        self._mask = np.zeros(0, np.int8)
        size = sum(
            int(np.prod(space.shape or ()))
            for name, space in self._env.observation_space(self._agent).spaces.items()
            if name != "action_mask"
        )
        self.observation_space = gymnasium.spaces.Box(-10, 10, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(
            int(self._env.action_space(self._agent).n) - 1  # without idle: a decision is due
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start the next episode."""
        observations, _ = self._env.reset(options={"episode": self._episode})
        self._episode += 1
        return self._flat(observations[self._agent]), {}

    def step(self, action: np.int64) -> Step:
        """Carry out an action, or the first unmasked one, and play to the next decision."""
        taken = int(action) if self._mask[action] else int(self._mask.argmax())
        observations, rewards, _, truncations, _ = self._env.step({self._agent: taken})
        flat = self._flat(observations[self._agent])
        return flat, rewards[self._agent], False, truncations[self._agent], {}

    def _flat(self, observation: AgentObservation) -> NDArray[np.float32]:
        self._mask = observation["action_mask"]
        parts = [part.ravel() for name, part in observation.items() if name != "action_mask"]
        return np.concatenate(parts)
