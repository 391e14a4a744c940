"""Named arrays and a little JSON in one .npz file: written atomically, never pickled."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.array_reading import READING_ARRAYS
from marl_sched.errors import CheckpointError
from marl_sched.files import write_atomically

_HEADER = "header"
_FORMAT = 1
_CHUNK_BYTES = 1 << 20


def write_arrays(
    path: Path, kind: str, metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write arrays and metadata; what stood at `path` before stays whole until the end.

    Args:
        path: The file; its folder must exist.
        kind: What the file is, e.g. "policy"; checked on reading.
        metadata: Anything JSON can hold.
        arrays: Arrays of plain dtypes by name; not "header".
    """
    header = {"project": "marl-sched", "format": _FORMAT, "kind": kind, "metadata": dict(metadata)}
    text = np.array(json.dumps(header, sort_keys=True, allow_nan=False))
    write_atomically(path, lambda file: _write_npz(file, {_HEADER: text, **arrays}))


def _write_npz(file: IO[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the bytes that np.savez writes, without its copies: two of 16 MiB of a large view."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise ValueError(f"{name}: an array of objects, expected one of a plain dtype")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write_npy(member, array)


def _write_npy(file: IO[bytes], array: NDArray[Any]) -> None:
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(file, header)
    chunks = np.nditer(
        array,
        flags=["external_loop", "buffered", "zerosize_ok"],
        buffersize=max(_CHUNK_BYTES // max(array.itemsize, 1), 1),
        order="F" if header["fortran_order"] else "C",
    )
    for chunk in chunks:
        file.write(np.asarray(chunk).tobytes())  # the stubs take it for a tuple


def read_arrays(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `write_arrays` wrote: metadata and arrays.

    Raises:
        CheckpointError: The file is missing, half-written, not ours or of another kind.
    """
    try:
        with READING_ARRAYS, path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop(_HEADER)[()]))
        found = (header["project"], header["format"], header["kind"])
        metadata = dict(header["metadata"])
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (
        # A cut zip, a foreign file, a bare .npy array, pickled objects, another header.
        zipfile.BadZipFile,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
    ):
        raise CheckpointError(
            f"{path}: half-written or not a file of marl-sched, expected a {kind} file"
        ) from None
    expected = ("marl-sched", _FORMAT, kind)
    for key, value, allowed in zip(("project", "format", "kind"), found, expected, strict=True):
        if value != allowed:
            raise CheckpointError(f"{path}: {key} = {value!r}, expected {allowed!r}")
    return metadata, arrays
