"""The cluster as a PettingZoo environment: zones are agents, one episode at a time."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from marl_sched.cluster.books import book_errors
from marl_sched.cluster.exchange import Exchange, LocalExchange
from marl_sched.cluster.metrics import episode_metrics
from marl_sched.config import Experiment
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.errors import ConfigError, PlacementError
from marl_sched.observation import LIMIT, Observation

AgentObservation = dict[str, NDArray[Any]]


class ClusterEnv(ParallelEnv[str, AgentObservation, int]):  # type: ignore[misc]  # no py.typed
    """Zones that place or offload the instance at the head of their queue.

    Every agent that has a decision decides for its head instance; when no hosted zone has one left
    in the window, the zones exchange and time moves on to the next decision. Agents live to the end
    of the episode, which is a truncation.

    Observation (M machines, P peers; columns in marl_sched/observation.py):

        =============  ==================  ======================================================
        instance       (I,) float32        the instance at the head of the queue; 0 without one
        machines       (M, F) float32      candidates 0 .. M - 1
        peers          (P, F) float32      candidates M .. M + P - 1, by name
        zone           (Z,) float32        the zone as a whole
        action_mask    (M + P + 1,) int8   1 where the action may be taken
        =============  ==================  ======================================================

    All features lie in [-10, 10]. Action: machine m is m, peer p is M + p, M + P is `idle`: it is
    all that is unmasked for an agent without a decision. Rewards: what was settled since the last
    step (envs/reward.py); `infos[agent]["settlements"]` names the decisions: (decision, reward)
    pairs, and `infos[agent]["decision"]` the number of the one that is due, or -1.

    Version 1.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "marl_sched_cluster_v1",
        "render_modes": [],
        "is_parallelizable": True,
    }

    def __init__(
        self,
        config: Experiment,
        zones: Sequence[str] | None = None,
        exchange: Exchange | None = None,
        on_masked_action: str = "raise",
    ) -> None:
        """Host zones of an experiment.

        Args:
            config: The experiment.
            zones: Zones hosted here; the others are reached through `exchange`. All by default.
            exchange: Needed when not all zones are hosted here; calls then wait for the others.
            on_masked_action: raise, or idle: count it (`masked_actions`), the decision stays due.

        Raises:
            ConfigError: An unknown zone, or no exchange for the zones that are not hosted here.
        """
        hosted = sorted(config.zone_names if zones is None else zones)
        if exchange is None and hosted != sorted(config.zone_names):
            raise ConfigError(f"zones = {hosted}: the other zones need an exchange")
        if on_masked_action not in ("raise", "idle"):
            raise ConfigError(f"on_masked_action = {on_masked_action}, expected raise or idle")
        self.config = config
        self.possible_agents = hosted
        self.agents: list[str] = []
        self.masked_actions = 0
        self.render_mode: str | None = None
        self._raises = on_masked_action == "raise"
        self._own_exchange = exchange is None
        self._exchange = exchange or LocalExchange(config.zone_names)
        self._episode = -1
        self._build(config)
        self._observation_spaces = {name: self._space(zone) for name, zone in self._zones.items()}
        self._action_spaces = {
            name: spaces.Discrete(zone.n_machines + len(zone.peers) + 1)
            for name, zone in self._zones.items()
        }

    def observation_space(self, agent: str) -> spaces.Dict:
        """Return an agent's observation space."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        """Return an agent's action space."""
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, AgentObservation], dict[str, dict[str, Any]]]:
        """Start an episode.

        Args:
            seed: Replaces the experiment's seed and starts over with episode 0; without it every
                reset plays the next episode.
            options: `split` (default train) and `episode` (its number).
        """
        options = options or {}
        if seed is not None:
            self._build(self.config.model_copy(update={"seed": seed}))
            self._episode = -1
        self._episode = int(options.get("episode", self._episode + 1))
        split = str(options.get("split", "train"))
        if self._own_exchange:
            self._exchange = LocalExchange(self.config.zone_names)
            for zone in self._zones.values():
                zone.exchange = self._exchange
        self.agents = list(self.possible_agents)
        self.masked_actions = 0
        for zone in self._zones.values():
            zone.begin(split, [self._episode])
        for zone in self._zones.values():
            zone.receive()
        self._play_on()
        return self._observations(), self._infos()

    def step(
        self, actions: dict[str, int]
    ) -> tuple[
        dict[str, AgentObservation],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Carry out one action per agent.

        Raises:
            PlacementError: An action is masked and `on_masked_action` is raise; nothing was done.
        """
        allowed = [name for name in self.agents if self._is_allowed(name, int(actions[name]))]
        for name in allowed:
            if self._due[name] is not None:
                self._zones[name].step(np.array([actions[name]], np.int64))
        self._play_on()
        infos = self._infos()
        rewards = {
            name: float(sum(reward for _, reward in infos[name]["settlements"]))
            for name in self.agents
        }
        is_over = self.is_over
        observations = self._observations()
        terminations = dict.fromkeys(self.agents, False)
        truncations = dict.fromkeys(self.agents, is_over)
        if is_over:
            self.agents = []
        return observations, rewards, terminations, truncations, infos

    @property
    def is_over(self) -> bool:
        """Whether the episode is over."""
        return all(zone.done for zone in self._zones.values())

    def metrics(self) -> dict[str, float]:
        """Return the metrics of a finished episode over the zones hosted here."""
        sums = [zone.finish() for zone in self._zones.values()]
        metrics = episode_metrics(self.config, sums)
        return {name: float(values[0]) for name, values in metrics.items()}

    def book_errors(self, agent: str) -> list[str]:
        """Return what does not add up in an agent's machines and queue; see cluster/books.py."""
        return book_errors(self._zones[agent].simulator.state)

    def render(self) -> None:
        """There is nothing to draw: plots are made by the report."""

    def close(self) -> None:
        """Nothing is held open."""

    def _build(self, config: Experiment) -> None:
        self._zones = {
            name: ZoneEnv(config, name, self._exchange, n_replicas=1)
            for name in self.possible_agents
        }
        self._empty = {name: _empty_observation(zone) for name, zone in self._zones.items()}
        self._due: dict[str, Observation | None] = dict.fromkeys(self.possible_agents)

    def _is_allowed(self, name: str, action: int) -> bool:
        zone = self._zones[name]
        mask = self._mask(zone, self._due[name])
        if 0 <= action < len(mask) and mask[action]:
            return True
        self.masked_actions += 1
        if self._raises:
            raise PlacementError(
                f"zone {name}: action {action} is masked; the observation's action_mask "
                f"allows {np.flatnonzero(mask).tolist()}"
            )
        return False

    def _play_on(self) -> None:
        """Move time on until a hosted zone has a decision or the episode is over."""
        while True:
            self._due = {name: zone.observe() for name, zone in self._zones.items()}
            if any(self._due.values()) or self.is_over:
                return
            for zone in self._zones.values():
                zone.post()
            for zone in self._zones.values():
                zone.receive()

    def _mask(self, zone: ZoneEnv, due: Observation | None) -> NDArray[np.int8]:
        mask = np.zeros(zone.n_machines + len(zone.peers) + 1, np.int8)
        if due is None:
            mask[-1] = 1
        else:
            mask[:-1] = due.mask[0]
        return mask

    def _observations(self) -> dict[str, AgentObservation]:
        return {name: self._observation(name) for name in self.agents}

    def _observation(self, name: str) -> AgentObservation:
        zone, due = self._zones[name], self._due[name]
        mask = self._mask(zone, due)
        if due is None:
            return {**self._empty[name], "action_mask": mask}
        return {
            "instance": due.instance[0].copy(),
            "machines": due.candidates[0, : zone.n_machines].copy(),
            "peers": due.candidates[0, zone.n_machines :].copy(),
            "zone": due.zone[0].copy(),
            "action_mask": mask,
        }

    def _infos(self) -> dict[str, dict[str, Any]]:
        infos = {}
        for name in self.agents:
            settled, due = self._zones[name].settlements(), self._due[name]
            pairs = zip(settled.decision.tolist(), settled.reward.tolist(), strict=True)
            infos[name] = {
                "settlements": list(pairs),
                "decision": -1 if due is None else int(due.decision[0]),
                "masked_actions": self.masked_actions,
            }
        return infos

    def _space(self, zone: ZoneEnv) -> spaces.Dict:
        layout = zone.layout

        def box(*shape: int) -> spaces.Box:
            return spaces.Box(-LIMIT, LIMIT, shape, np.float32)

        candidate = len(layout.candidate)
        return spaces.Dict(
            {
                "instance": box(len(layout.instance)),
                "machines": box(zone.n_machines, candidate),
                "peers": box(len(zone.peers), candidate),
                "zone": box(len(layout.zone)),
                "action_mask": spaces.Box(0, 1, (zone.n_machines + len(zone.peers) + 1,), np.int8),
            }
        )


def _empty_observation(zone: ZoneEnv) -> AgentObservation:
    """Return what an agent without a decision sees, the mask apart."""
    layout = zone.layout
    return {
        "instance": np.zeros(len(layout.instance), np.float32),
        "machines": np.zeros((zone.n_machines, len(layout.candidate)), np.float32),
        "peers": np.zeros((len(zone.peers), len(layout.candidate)), np.float32),
        "zone": np.zeros(len(layout.zone), np.float32),
    }
