"""Learners by `agent.algorithm`: the only place that knows them all."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.candidate_actor import CandidateActor
from marl_sched.agents.double_dqn import DoubleDQNLoss
from marl_sched.agents.dueling_dqn import DuelingDQNLoss
from marl_sched.agents.learner import Learner
from marl_sched.agents.networks import Networks
from marl_sched.agents.on_policy import OnPolicyMethod
from marl_sched.agents.part_learner import Method, PartLearner
from marl_sched.agents.policies import architecture_of
from marl_sched.agents.ppo import ClippedObjective
from marl_sched.agents.ppo_scorer import ResourceWeightActor
from marl_sched.agents.qrdqn import QRDQNLearner
from marl_sched.agents.reinforce import ReinforceObjective
from marl_sched.agents.value_method import ValueMethod
from marl_sched.config import Agent
from marl_sched.observation import Layout


def make_learner(
    layout: Layout,
    agent: Agent,
    n_replicas: int,
    n_candidates: int,
    initial: Mapping[str, NDArray[np.float32]],
    generator: np.random.Generator,
) -> Learner:
    """Return a learner that has seen nothing.

    Args:
        layout: Layout of the observations.
        agent: Its settings; `algorithm` says which one.
        n_replicas: E.
        n_candidates: C, machines and peers of the zone.
        initial: First weights (`policies.first_weights`), equal in all zones; copied.
        generator: Source of exploration and sampling; the zone's own.

    Raises:
        CheckpointError: The weights are of another architecture.
    """
    if agent.algorithm == "qrdqn":
        return QRDQNLearner(layout, agent, n_replicas, n_candidates, initial, generator)
    networks = Networks(architecture_of(layout, agent), agent, initial)
    method: Method
    if agent.algorithm in ("double-dqn", "dueling-dqn"):
        loss = DoubleDQNLoss(agent) if agent.algorithm == "double-dqn" else DuelingDQNLoss(agent)
        method = ValueMethod(layout, agent, n_replicas, n_candidates, networks, loss, generator)
    else:
        actor = (
            ResourceWeightActor(layout, networks)
            if agent.algorithm == "ppo-scorer"
            else CandidateActor(layout, n_candidates, networks)
        )
        is_plain = agent.algorithm == "reinforce"
        objective = ReinforceObjective(agent) if is_plain else ClippedObjective(agent)
        method = OnPolicyMethod(agent, n_replicas, networks, actor, objective, generator)
    return PartLearner(layout, agent, networks, method, generator)
