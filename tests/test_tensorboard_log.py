"""A run's metrics in TensorBoard's files, read back with TensorBoard's own reader."""

import json
import sys
from pathlib import Path

import pytest

from marl_sched.errors import ConfigError
from marl_sched.tensorboard_log import FOLDER, TensorBoardLog


def add(run: Path, *lines: dict[str, object], end: str = "\n") -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\n".join(map(json.dumps, lines)) + end)


def test_numbers_are_scalars_by_zone_and_round(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with TensorBoardLog(tmp_path) as log:
        log.update()  # before the first round there is no file
        add(tmp_path, {"kind": "train", "round": 1, "attempt": 1, "zone": "a", "loss": 0.5})
        log.update()
        add(tmp_path, {"kind": "train", "round": 2, "zone": "a", "loss": 0.25})
        add(tmp_path, {"kind": "validation", "round": 1, "zones": ["a"], "objective": 2.0})
        add(tmp_path, {"kind": "lost", "round": 2, "zone": "b", "reason": "gone"}, end="")
    found = reader.EventAccumulator(str(tmp_path / FOLDER))
    found.Reload()
    assert sorted(found.Tags()["tensors"]) == ["a/loss", "validation/objective"]
    events = found.Tensors("a/loss")
    assert [(e.step, e.tensor_proto.float_val[0]) for e in events] == [(1, 0.5), (2, 0.25)]


def test_without_tensorboard_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(ConfigError, match=r"expected `pip install 'marl-sched\[tensorboard\]'`"):
        TensorBoardLog(tmp_path)
