"""`check_env`: what PettingZoo's own tests do not ask of a ClusterEnv."""

import numpy as np

from marl_sched.envs.cluster_env import AgentObservation, ClusterEnv
from marl_sched.errors import MarlSchedError, PlacementError


class EnvCheckError(MarlSchedError):
    """An environment that breaks its contract."""


def check_env(env: ClusterEnv, n_steps: int = 1_000, seed: int = 0) -> None:
    """Play random unmasked actions and check the contract at every step.

    Observations lie in their spaces; at least one action is unmasked, `idle` exactly for agents
    without a decision; nothing terminates, all agents are truncated together; the machines' books
    balance; masked actions raise; two resets with one seed play alike.

    Raises:
        EnvCheckError: Says what does not hold, for which agent, in which step.
    """
    first = _trajectory(env, n_steps, seed)
    second = _trajectory(env, n_steps, seed)
    if first != second:
        raise EnvCheckError(f"two resets with seed {seed} did not play alike")


def _trajectory(env: ClusterEnv, n_steps: int, seed: int) -> list[float]:
    generator = np.random.default_rng(seed)
    observations, _ = env.reset(seed=seed)
    if env.agents != env.possible_agents:
        raise EnvCheckError(f"after reset agents are {env.agents}, expected {env.possible_agents}")
    rewards_seen: list[float] = []
    for number in range(n_steps):
        actions = {}
        for agent in env.agents:
            _check_observation(env, agent, observations[agent], number)
            mask = observations[agent]["action_mask"]
            actions[agent] = int(generator.choice(np.flatnonzero(mask)))
        if number == 0:
            _check_masked_raises(env, observations)
        observations, rewards, terminations, truncations, _ = env.step(actions)
        rewards_seen.extend(rewards[agent] for agent in sorted(rewards))
        _check_books(env, number)
        if any(terminations.values()) or len(set(truncations.values())) != 1:
            raise EnvCheckError(
                f"step {number}: terminations {terminations}, truncations {truncations}, expected "
                "no termination and one truncation for all"
            )
        if not env.agents:
            break
    return rewards_seen


def _check_observation(
    env: ClusterEnv, agent: str, observation: AgentObservation, number: int
) -> None:
    if not env.observation_space(agent).contains(observation):
        outside = [
            key
            for key, space in env.observation_space(agent).spaces.items()
            if not space.contains(observation[key])
        ]
        raise EnvCheckError(f"step {number}, {agent}: {outside} not in the observation space")
    mask = observation["action_mask"]
    has_decision = bool(mask[:-1].any())
    if has_decision == bool(mask[-1]):
        raise EnvCheckError(
            f"step {number}, {agent}: idle must be unmasked exactly when nothing else is"
        )


def _check_masked_raises(env: ClusterEnv, observations: dict[str, AgentObservation]) -> None:
    agent = env.agents[0]
    masked = np.flatnonzero(observations[agent]["action_mask"] == 0)
    others = {
        name: int(np.flatnonzero(observations[name]["action_mask"])[0]) for name in env.agents
    }
    try:
        env.step({**others, agent: int(masked[-1])})
    except PlacementError:
        return
    raise EnvCheckError(f"{agent}: the masked action {masked[-1]} did not raise")


def _check_books(env: ClusterEnv, number: int) -> None:
    for agent in env.possible_agents:
        errors = env.book_errors(agent)
        if errors:
            raise EnvCheckError(f"step {number}, {agent}: the books do not balance: {errors[0]}")
