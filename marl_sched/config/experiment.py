"""One experiment: everything a YAML file says, checked as a whole."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from marl_sched.config.base import WHOLE_FILE, Model, Name, NonNegativeInt
from marl_sched.config.checks import problems
from marl_sched.config.cluster import Cluster, Episode, Zone
from marl_sched.config.learning import (
    REWARD_WITH_PRIOR,
    Agent,
    Evaluation,
    Federation,
    Objective,
    Reward,
    Training,
    Tuning,
    asks_for_prior,
)
from marl_sched.config.live import Live
from marl_sched.config.teaching import Teacher
from marl_sched.config.workload import (
    GeneratedWorkload,
    Sla,
    SyntheticWorkload,
    TraceWorkload,
)

MICROSECONDS = 1_000_000


def _plain_integer(value: Any) -> Any:
    """Refuse true and 1.0, which are equal to 1."""
    if type(value) is not int:
        raise PydanticCustomError("int_type", "not an integer")
    return value


def _asks_for_prior(agent: Any) -> bool:
    return isinstance(agent, dict) and asks_for_prior(agent)


class Experiment(Model):
    """A whole experiment. Adding a zone is adding an item to `zones`."""

    version: Annotated[Literal[1], BeforeValidator(_plain_integer)]
    """Version of this format."""
    name: Name
    """Names the run's folder."""
    seed: NonNegativeInt = 1
    """The one seed that all random streams are spawned from."""
    resources: list[Name] = Field(default=["cpu_milli", "memory_mib"], min_length=2)
    """Resources in the order of all arrays; the first is cpu, the second memory."""
    zones: list[Zone] = Field(min_length=1)
    """The zones of the cluster; one agent each."""
    cluster: Cluster = Cluster()
    """Rules that hold in every zone."""
    workload: Annotated[
        SyntheticWorkload | TraceWorkload | GeneratedWorkload, Field(discriminator="kind")
    ]
    """Where jobs come from: typed tasks, a trace, or jobs like a trace's."""
    sla: Sla = Sla()
    """When an instance has started too late."""
    duration_knowledge: Literal["type", "task-mean", "none"] = "type"
    """What policies know of durations: the class's statistics, the task's own mean, or nothing."""
    episode: Episode = Episode()
    """Length of an episode."""
    objective: Objective = Objective()
    """The one number policies are compared by."""
    reward: Reward = Reward()
    """What agents are rewarded for."""
    agent: Agent = Agent()
    """The learned policy and how it learns."""
    teacher: Teacher = Teacher()
    """What corrects the prior before round 1."""
    training: Training = Training()
    """How long and on how much the zones learn."""
    federation: Federation = Federation()
    """How the zones' weights become one policy."""
    evaluation: Evaluation = Evaluation()
    """How policies are compared."""
    tuning: Tuning = Tuning()
    """How hard the rival rule is tuned."""
    live: Live = Live()
    """What zones show of themselves while they work."""

    @model_validator(mode="before")
    @classmethod
    def _reward_of_agent_with_prior(cls, data: Any) -> Any:
        """Fill in the defaults of the outcome reward that depend on the agent."""
        if not isinstance(data, dict):
            return data
        agent, reward = data.get("agent", {}), data.get("reward", {})
        has_prior = agent.has_prior if isinstance(agent, Agent) else _asks_for_prior(agent)
        if not has_prior or not isinstance(reward, dict):
            return data
        return data | {"reward": REWARD_WITH_PRIOR | reward}

    @property
    def zone_names(self) -> list[str]:
        """Names of the zones, in the order of the file."""
        return [zone.name for zone in self.zones]

    @property
    def n_resources(self) -> int:
        """R: number of resources."""
        return len(self.resources)

    @property
    def window_us(self) -> int:
        """Length of a window in microseconds."""
        return round(self.cluster.window_s * MICROSECONDS)

    @property
    def n_windows(self) -> int:
        """Windows of an episode, horizon and drain together."""
        length_us = round((self.episode.horizon_s + self.episode.drain_s) * MICROSECONDS)
        return -(-length_us // self.window_us)

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        found = list(problems(self))
        if found:
            raise PydanticCustomError(WHOLE_FILE, "the parts do not fit", {"problems": found})
        return self
