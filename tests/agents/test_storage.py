import json
import pickle
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
