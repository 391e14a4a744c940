"""Machines of a trace as zones of a configuration.

Shapes: M machines, R resources.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml

from marl_sched.config import Zone
from marl_sched.files import write_atomically
from marl_sched.workload.table import Int


@dataclass(frozen=True)
class ZoneMachines:
    """One failure domain, or whatever else a trace tells machines apart by.

    Attributes:
        name: A name that a configuration allows.
        capacity: (M, R) installed amounts.
        background: The zone's `background` block, if the trace knows use beside the jobs.
    """

    name: str
    capacity: Int
    background: dict[str, object] = field(default_factory=dict)


def zone_blocks(zones: Sequence[ZoneMachines], resources: Sequence[str]) -> list[dict[str, object]]:
    """Return the zones as the `zones:` of a configuration, equal machines in one group.

    The largest group comes first; every block is valid by itself.
    """
    blocks = []
    for zone in zones:
        shapes, counts = np.unique(zone.capacity, axis=0, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        machines = [
            {
                "count": int(counts[i]),
                "capacity": dict(zip(resources, shapes[i].tolist(), strict=True)),
            }
            for i in order
        ]
        block: dict[str, object] = {"name": zone.name, "machines": machines}
        if zone.background:
            block["background"] = zone.background
        Zone.model_validate(block)
        blocks.append(block)
    return blocks


def write_zones(path: Path, zones: Sequence[ZoneMachines], resources: Sequence[str]) -> None:
    """Write `resources:` and `zones:` as YAML, to be pasted into a configuration."""
    document = {"resources": list(resources), "zones": zone_blocks(zones, resources)}
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=100)
    write_atomically(path, lambda file: file.write(text.encode()))
