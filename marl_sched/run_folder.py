"""The folder of one training run: what ran, what was measured, and what to go on from.

    config.yaml               the experiment, every field
    metrics.jsonl             a line a round and zone, and a line a validation; no clock times
    timing.jsonl              seconds, bytes, memory
    checkpoints/
      round-00004.npz         the last two rounds: global weights, and how long metrics.jsonl was
      best.npz                the published policy: the averaged network with the best validation
      zones/ZONE/             what the zone alone holds: state-00004.npz, policy-00004.npz

A checkpoint is written last and in one step, so that a run killed at any point goes on from the
last whole round: lines of metrics.jsonl beyond the checkpoint are cut off, and written again.
"""

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from marl_sched.agents.storage import read_arrays, write_arrays
from marl_sched.config import Experiment, dump_config
from marl_sched.config.yaml_text import show_value
from marl_sched.errors import CheckpointError, RunError
from marl_sched.files import naming, write_atomically

_logger = logging.getLogger(__name__)

_CONFIG = "config.yaml"
_ROUND = re.compile(r"round-(\d{5})\.npz")
_KEPT = 2
_STRATEGY = "strategy/"

Tensors = Mapping[str, NDArray[np.float32]]


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
    """

    round_number: int
    online: Tensors
    ema: Tensors
    best: Mapping[str, Any] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    is_finished: bool = False
    strategy_state: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    zones: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def require_new(path: Path) -> None:
    """Check that a new run may be written to a folder.

    Raises:
        RunError: The folder exists and is not empty.
    """
    # What a run leaves that was killed before its first file was whole.
    remains = {f"{_CONFIG}.tmp"}
    if path.exists() and not (path.is_dir() and {p.name for p in path.iterdir()} <= remains):
        raise RunError(f"{path}: exists already; give another folder, or --resume to go on")


class RunFolder:
    """One run's folder, open for writing."""

    def __init__(self, path: Path) -> None:
        """Wrap a folder; use `create` or `resume` to open one."""
        self.path = path
        self._checkpoints = path / "checkpoints"
        self._n_lines = 0
        self.committed: Checkpoint | None = None
        """The last whole checkpoint; None before the first."""

    @classmethod
    def create(cls, path: Path, experiment: Experiment) -> "RunFolder":
        """Create the folder of a new run.

        Raises:
            RunError: The folder exists and is not empty, or cannot be created.
        """
        folder = cls(path)
        require_new(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            text = dump_config(experiment)
            write_atomically(folder.config_path, lambda file: file.write(text.encode()))
        except OSError as error:
            raise RunError(f"{path}: cannot be created: {error.strerror or error}") from None
        return folder

    @classmethod
    def resume(cls, path: Path, experiment: Experiment) -> "RunFolder":
        """Open the folder of an earlier run and cut off what its last checkpoint does not know of.

        Raises:
            RunError: There is no run, or it is of another configuration.
            CheckpointError: There are checkpoints, but none is whole.
        """
        folder = cls(path)
        folder._check_config(experiment)
        folder.committed, folder._n_lines = folder._load_last()
        _cut(folder.metrics_path, folder._n_lines)
        _cut(folder.timing_path, None)
        return folder

    def is_of(self, experiment: Experiment) -> bool:
        """Return whether there is a run of exactly this experiment."""
        try:
            self._check_config(experiment)
        except RunError:
            return False
        return True

    def check_committed(self, expected: Tensors) -> None:
        """Check that the committed networks, if there are any, are like the expected ones.

        Raises:
            CheckpointError: Other tensors, other shapes or numbers that are not finite.
        """
        if self.committed is None:
            return
        path = self._round_path(self.committed.round_number)
        for kind, tensors in (("online", self.committed.online), ("ema", self.committed.ema)):
            if list(tensors) != list(expected):
                raise CheckpointError(
                    f"{path}: {kind} has the tensors {list(tensors)}, expected {list(expected)}"
                )
            for name, tensor in tensors.items():
                wanted = expected[name]
                if (tensor.dtype, tensor.shape) != (wanted.dtype, wanted.shape):
                    raise CheckpointError(
                        f"{path}: {kind}/{name} is {tensor.dtype} {tensor.shape}, expected "
                        f"{wanted.dtype} {wanted.shape}"
                    )
                if not np.isfinite(tensor).all():
                    raise CheckpointError(f"{path}: {kind}/{name}: expected finite numbers")

    @property
    def config_path(self) -> Path:
        """The experiment that ran."""
        return self.path / _CONFIG

    @property
    def metrics_path(self) -> Path:
        """Deterministic figures by round."""
        return self.path / "metrics.jsonl"

    @property
    def timing_path(self) -> Path:
        """Figures that differ from run to run."""
        return self.path / "timing.jsonl"

    @property
    def best_path(self) -> Path:
        """The published policy."""
        return self._checkpoints / "best.npz"

    def zone_path(self, zone: str) -> Path:
        """Return the folder that belongs to a zone alone."""
        return self._checkpoints / "zones" / zone

    def policy_paths(self, zone_names: Iterable[str]) -> dict[str, Path]:
        """Return the file of the published policy of every zone.

        Raises:
            CheckpointError: Nothing was published yet.
        """
        if self.best_path.exists():
            return dict.fromkeys(zone_names, self.best_path)
        best, _ = self._load_last()
        if best is None or not best.best:
            raise CheckpointError(f"{self.best_path}: no such file, no round was validated yet")
        name = f"policy-{best.best['round']:05d}.npz"
        return {zone: self.zone_path(zone) / name for zone in zone_names}

    def last_checkpoint(self) -> Checkpoint | None:
        """Return the newest whole checkpoint, or None; for those that only read."""
        try:
            return self._load_last()[0]
        except CheckpointError:
            return None

    def append_metrics(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines to metrics.jsonl; they count once the next checkpoint is saved."""
        self._n_lines += _append(self.metrics_path, lines)

    def append_timing(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines to timing.jsonl."""
        _append(self.timing_path, lines)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Commit a round; of the earlier checkpoints one is kept."""
        meta = {
            "round": checkpoint.round_number,
            "n_metrics_lines": self._n_lines,
            "best": dict(checkpoint.best),
            "members": list(checkpoint.members),
            "is_finished": checkpoint.is_finished,
        }
        if checkpoint.zones:
            meta["zones"] = {zone: dict(row) for zone, row in checkpoint.zones.items()}
        arrays: dict[str, NDArray[Any]] = {}
        for prefix, tensors in (
            ("online/", checkpoint.online),
            ("ema/", checkpoint.ema),
            (_STRATEGY, checkpoint.strategy_state),
        ):
            arrays |= {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
        self._checkpoints.mkdir(exist_ok=True)
        path = self._round_path(checkpoint.round_number)
        write_arrays(path, "checkpoint", meta, arrays)
        self.committed = checkpoint
        for old in self._round_paths()[:-_KEPT]:
            old.unlink()

    def _round_path(self, round_number: int) -> Path:
        return self._checkpoints / f"round-{round_number:05d}.npz"

    def _round_paths(self) -> list[Path]:
        if not self._checkpoints.is_dir():
            return []
        return sorted(p for p in self._checkpoints.iterdir() if _ROUND.fullmatch(p.name))

    def _load_last(self) -> tuple[Checkpoint | None, int]:
        """Return the newest checkpoint that is whole, and its count of metrics lines."""
        broken: list[str] = []
        for path in reversed(self._round_paths()):
            try:
                meta, arrays = read_arrays(path, "checkpoint")
                checkpoint = Checkpoint(
                    round_number=int(meta["round"]),
                    online=_below("online/", arrays),
                    ema=_below("ema/", arrays),
                    best=meta["best"],
                    members=tuple(meta["members"]),
                    is_finished=bool(meta["is_finished"]),
                    strategy_state=_below(_STRATEGY, arrays),
                    zones=_zone_table(meta.get("zones", {})),
                )
                n_lines = int(meta["n_metrics_lines"])
            except CheckpointError as error:
                broken.append(str(error))
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                broken.append(f"{path}: not a checkpoint of a run: {error}")
            else:
                for problem in broken:
                    _logger.warning("passed over: %s", problem)
                return checkpoint, n_lines
        if broken:
            raise CheckpointError(
                f"{self._round_paths()[-1]}: no checkpoint of this run is whole "
                f"({'; '.join(broken)})"
            )
        return None, 0

    def _check_config(self, experiment: Experiment) -> None:
        try:
            old = yaml.safe_load(self.config_path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise RunError(
                f"{self.path}: no run to resume, {self.config_path.name} cannot be read: {reason}"
            ) from None
        new = yaml.safe_load(dump_config(experiment))
        if (difference := _difference(old, new)) is not None:
            key, was, now = difference
            raise RunError(
                f"{self.config_path}: {key} = {show_value(was)}, but the run to resume is given "
                f"{show_value(now)}; expected the same configuration"
            )


def _below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _zone_table(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    return {zone: {key: int(value) for key, value in row.items()} for zone, row in found.items()}


def _append(path: Path, lines: Iterable[Mapping[str, Any]]) -> int:
    """Append lines and return how many."""
    texts = [json.dumps(_plain(line), allow_nan=False) + "\n" for line in lines]
    with naming(path), path.open("a", encoding="utf-8") as file:
        file.writelines(texts)
    return len(texts)


def _plain(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line with null for what JSON has no number for."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in line.items()
    }


def _cut(path: Path, n_lines: int | None) -> None:
    """Keep the first `n_lines` lines of a file; None: all whole lines.

    Raises:
        CheckpointError: The file has fewer lines.
    """
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith(b"\n")]
    if n_lines is not None and len(whole) < n_lines:
        raise CheckpointError(
            f"{path}: {len(whole)} whole lines, expected at least the {n_lines} of the checkpoint"
        )
    if lines:
        kept = b"".join(whole if n_lines is None else whole[:n_lines])
        write_atomically(path, lambda file: file.write(kept))


def _difference(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Return the first key that differs with both values, or None."""
    if isinstance(old, dict) and isinstance(new, dict):
        steps: Iterable[Any] = dict.fromkeys([*new, *old])
        pairs = [(f"{path}.{s}" if path else str(s), old.get(s), new.get(s)) for s in steps]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(old, new, strict=True))]
    else:
        return None if old == new else (path or "the file", old, new)
    found = (_difference(a, b, key) for key, a, b in pairs)
    return next((difference for difference in found if difference is not None), None)
