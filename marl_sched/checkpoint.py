"""A committed round as a file: global weights, and all that the next round goes on from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.storage import read_arrays, write_arrays
from marl_sched.errors import CheckpointError

Tensors = Mapping[str, NDArray[np.float32]]

_KIND = "checkpoint"
_STRATEGY = "strategy/"


@dataclass(frozen=True)
class Checkpoint:
    """A whole round, committed.

    Attributes:
        round_number: The last round that is part of it.
        online: Global weights, online network.
        ema: Global weights, moving average.
        best: `round`, `n_zones` and `objective` of the best validation so far; empty before it.
        members: Zones that took part in the round, whose states belong to the checkpoint.
        is_finished: All rounds and the last validation are done.
        strategy_state: What the strategy keeps from round to round, by name; empty for most.
        zones: `node_id`, `epoch` and `last_round` by zone, where zones have processes of their own.
        config: The experiment as YAML, once it has other zones than the run began with; else empty.
    """

    round_number: int
    online: Tensors
    ema: Tensors
    best: Mapping[str, Any] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    is_finished: bool = False
    strategy_state: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    zones: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    config: str = ""


def write_checkpoint(path: Path, checkpoint: Checkpoint, n_metrics_lines: int) -> None:
    """Write a checkpoint, atomically, with the lines of metrics.jsonl that belong to it."""
    meta = {
        "round": checkpoint.round_number,
        "n_metrics_lines": n_metrics_lines,
        "best": dict(checkpoint.best),
        "members": list(checkpoint.members),
        "is_finished": checkpoint.is_finished,
    }
    if checkpoint.zones:
        meta["zones"] = {zone: dict(row) for zone, row in checkpoint.zones.items()}
    if checkpoint.config:
        meta["config"] = checkpoint.config
    arrays: dict[str, NDArray[Any]] = {}
    for prefix, tensors in (
        ("online/", checkpoint.online),
        ("ema/", checkpoint.ema),
        (_STRATEGY, checkpoint.strategy_state),
    ):
        arrays |= {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
    write_arrays(path, _KIND, meta, arrays)


def read_checkpoint(path: Path) -> tuple[Checkpoint, int]:
    """Read what `write_checkpoint` wrote.

    Raises:
        CheckpointError: The file is missing, half-written, or not a checkpoint of a run.
    """
    meta, arrays = read_arrays(path, _KIND)
    try:
        checkpoint = Checkpoint(
            round_number=int(meta["round"]),
            online=_below("online/", arrays),
            ema=_below("ema/", arrays),
            best=meta["best"],
            members=tuple(meta["members"]),
            is_finished=bool(meta["is_finished"]),
            strategy_state=_below(_STRATEGY, arrays),
            zones=_zone_table(meta.get("zones", {})),
            config=str(meta.get("config", "")),
        )
        return checkpoint, int(meta["n_metrics_lines"])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: not a checkpoint of a run: {error}") from None


def _below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _zone_table(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    return {zone: {key: int(value) for key, value in row.items()} for zone, row in found.items()}
