"""The folder of one training run: what ran, what was measured, and what to go on from.

    quantiles.json            what was tried where agent.n_quantiles was auto
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
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from marl_sched.checkpoint import Checkpoint, Tensors, read_checkpoint, write_checkpoint
from marl_sched.config import Experiment, dump_config
from marl_sched.config.yaml_text import show_value
from marl_sched.errors import CheckpointError, RunError
from marl_sched.files import alone_in, naming, write_atomically
from marl_sched.run_config import (
    ZoneChange,
    first_difference,
    lasting_difference,
    zone_change,
)

__all__ = ["Checkpoint", "RunFolder", "require_new"]

_logger = logging.getLogger(__name__)

QUANTILES_FILE, PILOTS_FOLDER = "quantiles.json", "pilots"
"""What was tried before a run whose number of quantiles had to be found."""
_CONFIG = "config.yaml"
_ROUND = re.compile(r"round-(\d{5})\.npz")
_KEPT = 2


def require_new(path: Path, experiment: Experiment | None = None) -> None:
    """Check that a new run may be written to a folder.

    One in which a run of the same experiment has ended before its first round may be used again.

    Raises:
        RunError: The folder exists and is not empty.
    """
    # What a run leaves that was killed before its first file was whole.
    remains = {f"{_CONFIG}.tmp", QUANTILES_FILE, f"{QUANTILES_FILE}.tmp", PILOTS_FOLDER}
    if not path.exists() or (path.is_dir() and {p.name for p in path.iterdir()} <= remains):
        return
    folder = RunFolder(path)
    hint = "give another folder, or --resume to go on"
    if experiment is not None and folder.config_path.is_file() and not folder.has_rounds:
        if folder.is_of(experiment):
            return
        hint = (
            "no round of it was committed, but it is not of this configuration; delete it or give "
            "another folder"
        )
    raise RunError(f"{path}: exists already; {hint}")


class RunFolder:
    """One run's folder, open for writing."""

    def __init__(self, path: Path) -> None:
        """Wrap a folder; use `create` or `resume` to open one."""
        self.path = path
        self._checkpoints = path / "checkpoints"
        self._n_lines = 0
        self._config_text = ""
        """What config.yaml holds."""
        self.committed: Checkpoint | None = None
        """The last whole checkpoint; None before the first."""

    @classmethod
    def create(cls, path: Path, experiment: Experiment) -> "RunFolder":
        """Create the folder of a new run.

        Raises:
            RunError: The folder exists and is not empty (see `require_new`), is in use, or cannot
                be created.
        """
        folder = cls(path)
        require_new(path, experiment)
        try:
            path.mkdir(parents=True, exist_ok=True)
            with alone_in(path):
                _cut(folder.metrics_path, 0)
                _cut(folder.timing_path, 0)
                folder._write_config(dump_config(experiment))
        except OSError as error:
            raise RunError(f"{path}: cannot be created: {error.strerror or error}") from None
        return folder

    @classmethod
    def resume(cls, path: Path, experiment: Experiment) -> "RunFolder":
        """Open the folder of an earlier run and cut off what its last checkpoint does not know of.

        The zones of the experiment may be others than those of the run: `zone_change` says which.

        Raises:
            RunError: There is no run, or it is of another configuration.
            CheckpointError: There are checkpoints, but none is whole.
        """
        folder = cls(path)
        folder._read_config()
        folder.committed, folder._n_lines = folder._load_last()
        if folder.committed is not None and folder.committed.config:
            folder._write_config(folder.committed.config)
        folder._require_like(experiment)
        _cut(folder.metrics_path, folder._n_lines)
        _cut(folder.timing_path, None)
        return folder

    def is_of(self, experiment: Experiment) -> bool:
        """Return whether there is a run of exactly this experiment."""
        try:
            self._read_config()
            return first_difference(*self._configs(experiment)) is None
        except RunError:
            return False

    @property
    def has_rounds(self) -> bool:
        """Whether a round was ever committed, be its checkpoint whole or not."""
        return bool(self._round_paths())

    def zone_change(self, experiment: Experiment) -> ZoneChange:
        """Return how the zones of an experiment differ from those of the last committed round."""
        return zone_change(*self._configs(experiment))

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

    def discard_states(self) -> None:
        """Delete the zones' states; what they have published stays. The run cannot go on then."""
        for path in self._checkpoints.glob("zones/*/state-*.npz"):
            path.unlink(missing_ok=True)

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
        self._checkpoints.mkdir(exist_ok=True)
        path = self._round_path(checkpoint.round_number)
        write_checkpoint(path, checkpoint, self._n_lines)
        self.committed = checkpoint
        if checkpoint.config:
            self._write_config(checkpoint.config)
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
                checkpoint, n_lines = read_checkpoint(path)
            except CheckpointError as error:
                broken.append(str(error))
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

    def _read_config(self) -> None:
        if self.config_path.exists() and not self.config_path.is_file():
            raise self._unreadable(ValueError("not a regular file"))
        try:
            self._config_text = self.config_path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> RunError:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        return RunError(
            f"{self.path}: no run to resume, {self.config_path.name} cannot be read: {reason}"
        )

    def _configs(self, experiment: Experiment) -> tuple[Any, Any]:
        """Return the folder's configuration and an experiment's, read alike; equal ones as {}."""
        text = dump_config(experiment)
        if text == self._config_text:
            return {}, {}  # to read a thousand zones takes ten seconds
        try:
            return yaml.safe_load(self._config_text), yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise self._unreadable(error) from None

    def _write_config(self, text: str) -> None:
        """Write the experiment of the last committed round, unless it stands there."""
        if text != self._config_text:
            write_atomically(self.config_path, lambda file: file.write(text.encode()))
            self._config_text = text

    def _require_like(self, experiment: Experiment) -> None:
        """Check that an experiment is that of the run, but for its zones."""
        if (difference := lasting_difference(*self._configs(experiment))) is not None:
            key, was, now = difference
            raise RunError(
                f"{self.config_path}: {key} = {show_value(was)}, but the run to resume is given "
                f"{show_value(now)}; expected the same configuration"
            )


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
