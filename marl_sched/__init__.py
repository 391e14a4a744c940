"""marl-sched: a multi-agent, federated scheduler for compute clusters."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marl_sched.agents.policies import load_policy
    from marl_sched.config import load_config
    from marl_sched.envs.check import check_env
    from marl_sched.envs.cluster_env import ClusterEnv
    from marl_sched.envs.vector import VectorEnv
    from marl_sched.evaluation import evaluate

__version__ = "0.1.0"

__all__ = ["ClusterEnv", "VectorEnv", "check_env", "evaluate", "load_config", "load_policy"]

_HOMES = {
    "ClusterEnv": "marl_sched.envs.cluster_env",
    "VectorEnv": "marl_sched.envs.vector",
    "check_env": "marl_sched.envs.check",
    "evaluate": "marl_sched.evaluation",
    "load_config": "marl_sched.config",
    "load_policy": "marl_sched.agents.policies",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: importing the package stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(_HOMES[name]), name)
