"""marl-sched: a multi-agent, federated scheduler for compute clusters."""

__version__ = "0.1.0"
