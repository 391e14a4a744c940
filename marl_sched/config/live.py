"""What others may watch of a zone while it works."""

from typing import Literal

from pydantic import Field

from marl_sched.config.base import Model


class Live(Model):
    """What a zone shows of itself while it works (exchange.md); results do not depend on it.

    In `federate` it leaves the zone's process: over the exchange, to the coordinator only.
    """

    views: Literal["decisions", "machines", "none"] = "decisions"
    """machines: shares in use and allocated by machine, counts of instances. decisions: also the
    request of one instance at a time and what the policy expected of its candidates."""
    period_s: float = Field(default=0.5, ge=0.5)
    """Shortest time between two views of a zone."""
