import json
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marl_sched.agents.storage import read_arrays, write_arrays
from marl_sched.errors import CheckpointError


def header(**changes: Any) -> Any:
    """Return the header of a policy file with some entries changed."""
    content = {"project": "marl-sched", "format": 1, "kind": "policy", "metadata": {"a": 1}}
    return np.array(json.dumps({**content, **changes}))


def half(path: Path) -> None:
    write_arrays(path, "policy", {"a": 1}, {"w": np.arange(300.0)})
    path.write_bytes(path.read_bytes()[:1500])


FOREIGN: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello"),
    "half": half,
    "pickle": lambda path: path.write_bytes(pickle.dumps({"w": 1})),
    "other npz": lambda path: np.savez(path, w=np.zeros(3)),
    "objects": lambda path: np.savez(path, header=np.array([{}], dtype=object)),
    "metadata": lambda path: np.savez(path, header=header(metadata=[1])),
}


ARRAYS = {
    "view": np.arange(2.0 * 5 * 70_000).reshape(2, 70_000, 5)[:, :50_001],
    "fortran": np.arange(600_000, dtype=np.float32).reshape(3, -1).T,
    "text": np.array("of the generator"),
    "empty": np.zeros((0, 3), np.bool_),
    "number": np.array(7, np.int64),
}


def test_what_is_written_in_pieces_are_the_bytes_of_numpy(tmp_path: Path) -> None:
    """More than one piece of a view, of a transposed array; and those with nothing to cut."""
    write_arrays(tmp_path / "ours.npz", "policy", {"a": 1}, ARRAYS)
    text = np.array(json.dumps(json.loads(str(header(metadata={"a": 1}))), sort_keys=True))
    np.savez(tmp_path / "numpy.npz", allow_pickle=False, header=text, **ARRAYS)
    assert (tmp_path / "ours.npz").read_bytes() == (tmp_path / "numpy.npz").read_bytes()


def test_writing_a_large_view_takes_little_memory(tmp_path: Path) -> None:
    view = np.zeros((2, 3 << 20), np.float64)[:, : 2 << 20]
    tracemalloc.start()
    try:
        write_arrays(tmp_path / "large.npz", "zone state", {}, {"view": view})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < view.nbytes / 4


def test_objects_are_refused_on_writing_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="w: an array of objects"):
        write_arrays(tmp_path / "best.npz", "policy", {}, {"w": np.array([{}], dtype=object)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FOREIGN)
def test_file_that_is_not_ours_is_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "best.npz"
    FOREIGN[name](path)
    with pytest.raises(CheckpointError, match=r"best\.npz: half-written or not a file of marl-sch"):
        read_arrays(path, "policy")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "zone state"}, "kind = 'zone state', expected 'policy'"),
        ({"format": 2}, "format = 2, expected 1"),
        ({"project": "other"}, "project = 'other', expected 'marl-sched'"),
    ],
)
def test_other_kind_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "best.npz", header=header(**change))
    with pytest.raises(CheckpointError, match=message):
        read_arrays(tmp_path / "best.npz", "policy")


def test_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read: Is a directory"):
        read_arrays(tmp_path, "policy")
