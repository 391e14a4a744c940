"""One YAML file an experiment: strict pydantic models, every field with its unit."""

from marl_sched.config.cluster import BackgroundUse, Cluster, Episode, MachineGroup, Zone
from marl_sched.config.experiment import MICROSECONDS, Experiment
from marl_sched.config.learning import (
    Agent,
    Evaluation,
    Federation,
    Objective,
    Reward,
    Training,
    Tuning,
)
from marl_sched.config.loading import dump_config, load_config
from marl_sched.config.teaching import Teacher
from marl_sched.config.workload import (
    GeneratedWorkload,
    ModulatedPoisson,
    Sla,
    Stream,
    SyntheticWorkload,
    TaskType,
    TraceWorkload,
    Waves,
)

__all__ = [
    "MICROSECONDS",
    "Agent",
    "BackgroundUse",
    "Cluster",
    "Episode",
    "Evaluation",
    "Experiment",
    "Federation",
    "GeneratedWorkload",
    "MachineGroup",
    "ModulatedPoisson",
    "Objective",
    "Reward",
    "Sla",
    "Stream",
    "SyntheticWorkload",
    "TaskType",
    "Teacher",
    "TraceWorkload",
    "Training",
    "Tuning",
    "Waves",
    "Zone",
    "dump_config",
    "load_config",
]
