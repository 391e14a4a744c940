"""Who is credited with what: rewards of placements, of offloads through peers, and corrections."""

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.kernels.messages import (
    FROM,
    INSTANCE_ROW,
    N_SETTLEMENT,
    REPLICA,
    S_REWARD,
    S_SIGN,
    SEQUENCE,
    TIME,
    TO,
)
from marl_sched.cluster.kernels.placement import FAILED_CREATION, STARTED
from marl_sched.cluster.model import FACT_DECISION, FACT_INSTANCE
from marl_sched.cluster.simulator import ZoneSimulator
from marl_sched.config import Experiment
from marl_sched.envs.resource_weighting import ResourceWeighting
from marl_sched.envs.reward import make_reward, offload_penalty
from marl_sched.observation import Settlements

Array = NDArray[np.float64]
Int = NDArray[np.int64]


class Credit:
    """Turns facts into settlements of this zone's decisions and messages to the zones before.

    A start is settled at once: to the decision that placed it here, and by a message to the zone
    that sent it, which charges the price of the offload and passes the message on if it was not the
    origin. A machine failure takes back what its dead instances were credited with.
    """

    def __init__(
        self, experiment: Experiment, simulator: ZoneSimulator, weighting: ResourceWeighting
    ) -> None:
        """Measure what the reward needs of the zone's workload."""
        self._simulator = simulator
        self._reward = make_reward(experiment, simulator.zone, weighting)
        self._offload_penalty = offload_penalty(experiment)
        self.reset()

    def reset(self) -> None:
        """Forget the last episode."""
        self._credited = np.zeros((self._simulator.n_replicas, 0))
        self._replica: list[Int] = []
        self._decision: list[Int] = []
        self._amount: list[Array] = []
        self._messages: list[Array] = []
        self._placed: list[tuple[Int, Array, Int]] = []

    def placed(self, replicas: Int, facts: Array, outcomes: Int) -> None:
        """Note what the decisions of replicas (B,) led to: starts and failed creations."""
        self._placed.append((replicas, facts, outcomes))

    def settle(self) -> None:
        """Settle everything noted since the last call."""
        if not self._placed:
            return
        replicas, facts, outcomes = (
            np.concatenate(parts) for parts in zip(*self._placed, strict=True)
        )
        self._placed = []
        settled = (outcomes == STARTED) | (outcomes == FAILED_CREATION)
        if not settled.any():
            return
        replicas, facts, outcomes = replicas[settled], facts[settled], outcomes[settled]
        amounts = self._reward(facts)
        self._settle(replicas, facts[:, FACT_DECISION].astype(np.int64), amounts)
        started = outcomes == STARTED
        rows = facts[started, FACT_INSTANCE].astype(np.int64)
        self._make_room()
        self._credited[replicas[started], rows] = amounts[started]
        self._tell_sender(replicas[started], rows, amounts[started], sign=1)

    def took_back(self) -> None:
        """Take back the credit of instances that have just died with their machines."""
        self.settle()
        state = self._simulator.state
        counts = state.zone["void_size"]
        self._make_room()
        replicas = np.repeat(np.arange(len(counts)), counts)
        rows = np.concatenate([state.void[e, :n] for e, n in enumerate(counts)]).astype(np.int64)
        counts[:] = 0
        amounts = -self._credited[replicas, rows]
        self._settle(replicas, state.instance["decision"][replicas, rows], amounts)
        self._tell_sender(replicas, rows, amounts, sign=-1)

    def never_placed(self, replicas: Int, facts: Array) -> None:
        """Tell the senders of instances that were never placed here what that cost."""
        rows = facts[:, FACT_INSTANCE].astype(np.int64)
        self._tell_sender(replicas, rows, self._reward(facts), sign=1)

    def received(self, messages: Array) -> None:
        """Settle offloads that peers have placed, lost or never placed (K, N_SETTLEMENT)."""
        if not len(messages):
            return
        replicas = messages[:, REPLICA].astype(np.int64)
        rows = messages[:, INSTANCE_ROW].astype(np.int64)
        signs = messages[:, S_SIGN]
        amounts = messages[:, S_REWARD] - signs * self._offload_penalty
        decisions = self._simulator.state.instance["decision"][replicas, rows]
        self._settle(replicas, decisions, amounts)
        for sign in (1, -1):
            chosen = signs == sign
            self._tell_sender(replicas[chosen], rows[chosen], messages[chosen, S_REWARD], sign)

    def copy_replica(self, source: int, target: int) -> None:
        """Make a replica's credit, settled or to be sent, a copy of another's."""
        self.settle()
        self._make_room()
        self._credited[target] = self._credited[source]
        if self._replica:
            settled = self.take_settlements()
            keeps = settled.replica != target
            copied = settled.replica == source
            amounts = settled.reward
            self._settle(settled.replica[keeps], settled.decision[keeps], amounts[keeps])
            of_target = np.full(int(copied.sum()), target, np.int64)
            self._settle(of_target, settled.decision[copied], amounts[copied])
        if self._messages:
            messages = np.concatenate(self._messages)
            copies = messages[messages[:, REPLICA] == source]
            copies[:, REPLICA] = target
            self._messages = [messages[messages[:, REPLICA] != target], copies]

    def clone(self, sources: Int, targets: Int) -> None:
        """Copy the credit of many replicas at once, sources (B,) onto others, targets (B,)."""
        self.settle()
        self._make_room()
        self._credited[targets] = self._credited[sources]
        if self._replica:
            settled = self.take_settlements()
            at, replicas = _after_cloning(settled.replica, sources, targets)
            self._settle(replicas, settled.decision[at], settled.reward[at])
        if self._messages:
            messages = np.concatenate(self._messages)
            at, replicas = _after_cloning(messages[:, REPLICA].astype(np.int64), sources, targets)
            messages = messages[at]
            messages[:, REPLICA] = replicas
            self._messages = [messages]

    def take_settlements(self) -> Settlements:
        """Return what was settled since the last call."""
        self.settle()
        if not self._replica:
            empty = np.zeros(0, np.int64)
            return Settlements(empty, empty, np.zeros(0))
        settlements = Settlements(
            np.concatenate(self._replica),
            np.concatenate(self._decision),
            np.concatenate(self._amount),
        )
        self._replica, self._decision, self._amount = [], [], []
        return settlements

    def take_messages(self) -> Array:
        """Return the settlements (K, N_SETTLEMENT) to send since the last call."""
        self.settle()
        if not self._messages:
            return np.zeros((0, N_SETTLEMENT))
        messages = np.concatenate(self._messages)
        messages[:, SEQUENCE] = np.arange(len(messages))
        self._messages = []
        return messages

    def _settle(self, replicas: Int, decisions: Int, amounts: Array) -> None:
        self._replica.append(replicas.astype(np.int64))
        self._decision.append(decisions.astype(np.int64))
        self._amount.append(amounts)

    def _tell_sender(self, replicas: Int, rows: Int, amounts: Array, sign: int) -> None:
        instance = self._simulator.state.instance
        via_zone = instance["via_zone"][replicas, rows]
        foreign = via_zone >= 0
        if not foreign.any():
            return
        message = np.zeros((int(foreign.sum()), N_SETTLEMENT))
        message[:, REPLICA] = replicas[foreign]
        message[:, TO] = via_zone[foreign]
        message[:, FROM] = self._simulator.zone_index
        message[:, INSTANCE_ROW] = instance["via_instance"][replicas, rows][foreign]
        message[:, TIME] = self._simulator.state.zone["now_us"][replicas[foreign]]
        message[:, S_REWARD] = amounts[foreign]
        message[:, S_SIGN] = sign
        self._messages.append(message)

    def _make_room(self) -> None:
        rows = self._simulator.state.instance.shape[1]
        missing = rows - self._credited.shape[1]
        if missing > 0:
            room = np.zeros((self._simulator.n_replicas, missing))
            self._credited = np.concatenate([self._credited, room], axis=1)


def _after_cloning(replicas: Int, sources: Int, targets: Int) -> tuple[Int, Int]:
    """Return which rows of `replicas` (K,) are there after cloning, and whose each then is."""
    kept = np.flatnonzero(~np.isin(replicas, targets))
    pair, at = np.nonzero(replicas == sources[:, None])
    return np.concatenate([kept, at]), np.concatenate([replicas[kept], targets[pair]])
