"""Real traces: loaders into one task table, and episodes drawn from it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marl_sched.workload.traces.episodes import draw_trace

__all__ = ["draw_trace"]

_HOMES = {"draw_trace": "marl_sched.workload.traces.episodes"}


def __getattr__(name: str) -> Any:
    """Load what reads traces, and Polars with it (22 MiB), when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(_HOMES[name]), name)
