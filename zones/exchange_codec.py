"""Outboxes as packed bytes, exact to the last bit: float64, little-endian, shapes beside them."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.exchange import Outbox
from marl_sched.errors import ExchangeError
from zones.proto import exchange_pb2 as pb

Array = NDArray[np.float64]

MAX_FRAME_BYTES = 16 << 20
"""Largest message a zone may send: some 80 000 offloads in one window, all replicas together."""
STEADY_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 20))
"""Channel options: room for a usual answer at once, instead of a ping a message to find it out."""
PARTS = ("offloads", "notices", "settlements", "digests", "moments")
ROWS = PARTS[:3]
"""Parts that are rows addressed to one zone; the others go to all."""
_MAX_AXES = 3
_WIRE = np.dtype("<f8")


def pack_array(array: NDArray[Any]) -> pb.Array:
    """Return an array of numbers as a message."""
    return pb.Array(shape=array.shape, values=array.astype(_WIRE, copy=False).tobytes())


def unpack_array(message: pb.Array, *, n_zones: int | None = None) -> Array:
    """Return the array of a message, or those of several zones as one; a copy to write to.

    Args:
        message: The message.
        n_zones: Zones whose arrays it holds, all of its shape; their axis is the first of what is
            returned. None: one array, without that axis.

    Raises:
        ExchangeError: Shape and bytes do not belong together.
    """
    return _read_array(message, n_zones).astype(np.float64)


def _read_array(message: pb.Array, n_zones: int | None = None) -> Array:
    """Return the same as `unpack_array`, on the message's own bytes: not to be written to."""
    shape = tuple(message.shape[: _MAX_AXES + 1])
    values = message.values
    n_bytes = len(values)
    n_arrays = 1 if n_zones is None else n_zones
    is_small = len(shape) <= _MAX_AXES and (not shape or max(shape) <= MAX_FRAME_BYTES)
    if not is_small or n_arrays * math.prod(shape) * _WIRE.itemsize != n_bytes:
        raise ExchangeError(
            f"{n_bytes} bytes for {'an array' if n_zones is None else f'{n_zones} arrays'} of "
            f"shape {shape}, expected float64"
        )
    whole = shape if n_zones is None else (n_zones, *shape)
    return np.frombuffer(values, _WIRE).reshape(whole)


def pack_outbox(outbox: Outbox) -> pb.Outbox:
    """Return an outbox as a message."""
    arrays = {name: getattr(outbox, name) for name in PARTS}
    packed = {name: pack_array(array) for name, array in arrays.items() if array is not None}
    return pb.Outbox(zone=outbox.zone, **packed)


def unpack_outbox(message: pb.Outbox, step: int) -> Outbox:
    """Return the outbox of a message, on the message's own bytes: not to be written to.

    Raises:
        ExchangeError: A part is missing, or is no array.
    """
    arrays: dict[str, Any] = {}
    for name in PARTS:
        if not message.HasField(name):
            if name != "digests":
                raise ExchangeError(f"zone {message.zone}, step {step}: no {name}")
            arrays[name] = None
            continue
        try:
            arrays[name] = _read_array(getattr(message, name))
        except ExchangeError as error:
            raise ExchangeError(f"zone {message.zone}, step {step}: {name}: {error}") from None
    return Outbox(zone=message.zone, step=step, **arrays)


def unpack_collected(message: pb.Collected, zones: Sequence[str]) -> list[Outbox]:
    """Return what the zones of an exchange posted, in the order of their names.

    Raises:
        ExchangeError: It is not of as many zones.
    """
    n_zones, with_digests = len(zones), list(message.with_digests[: len(zones) + 1])
    if with_digests != sorted(set(with_digests) & set(range(n_zones))):
        raise ExchangeError(f"digests of zones {with_digests}, expected some of {n_zones} in order")
    moments = unpack_array(message.moments, n_zones=n_zones)
    digests: list[Array | None] = [None] * n_zones
    if with_digests:
        several = unpack_array(message.digests, n_zones=len(with_digests))
        for index, one in zip(with_digests, several, strict=True):
            digests[index] = one
    rows = [_unpack_rows(getattr(message, name), n_zones) for name in ROWS]
    return [
        Outbox(zone, message.step, *parts)
        for zone, *parts in zip(zones, *rows, digests, moments, strict=True)
    ]


def _unpack_rows(message: pb.Rows, n_zones: int) -> list[Array]:
    """Return the rows of each zone (K, columns).

    Raises:
        ExchangeError: Counts and bytes do not belong together.
    """
    n_columns, values = message.n_columns, message.values
    if not values and not message.counts and n_columns <= MAX_FRAME_BYTES:
        return [np.zeros((0, n_columns))] * n_zones
    counts = message.counts[: n_zones + 1]
    if len(counts) != n_zones or sum(counts) * n_columns * _WIRE.itemsize != len(values):
        raise ExchangeError(
            f"{len(values)} bytes for rows of {n_columns} columns of {len(counts)} zones, expected "
            f"float64 of {n_zones}"
        )
    rows = np.frombuffer(values, _WIRE).reshape(sum(counts), n_columns).astype(np.float64)
    ends = list(itertools.accumulate(counts))
    return [rows[end - n : end] for n, end in zip(counts, ends, strict=True)]
