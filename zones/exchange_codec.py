"""Outboxes as packed bytes, exact to the last bit: float64, little-endian, shapes beside them."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.exchange import Outbox
from marl_sched.errors import ExchangeError
from zones.proto import exchange_pb2 as pb

MAX_FRAME_BYTES = 16 << 20
"""Largest message a zone may send: some 80 000 offloads in one window, all replicas together."""
PARTS = ("offloads", "notices", "settlements", "digests", "moments")
ROWS = PARTS[:3]
"""Parts that are rows addressed to one zone; the others go to all."""
_MAX_AXES = 3
_WIRE = np.dtype("<f8")


def pack_array(array: NDArray[Any]) -> pb.Array:
    """Return an array of numbers as a message."""
    return pb.Array(shape=array.shape, values=array.astype(_WIRE, copy=False).tobytes())


def unpack_array(message: pb.Array) -> NDArray[np.float64]:
    """Return the array of a message, a copy that may be written to.

    Raises:
        ExchangeError: Shape and bytes do not belong together.
    """
    shape = tuple(message.shape[: _MAX_AXES + 1])
    n_bytes = len(message.values)
    is_small = len(shape) <= _MAX_AXES and all(n <= MAX_FRAME_BYTES for n in shape)
    if not is_small or math.prod(shape) * _WIRE.itemsize != n_bytes:
        raise ExchangeError(f"{n_bytes} bytes for an array of shape {shape}, expected float64")
    return np.frombuffer(message.values, _WIRE).reshape(shape).astype(np.float64)


def pack_outbox(outbox: Outbox) -> pb.Outbox:
    """Return an outbox as a message."""
    arrays = {name: getattr(outbox, name) for name in PARTS}
    packed = {name: pack_array(array) for name, array in arrays.items() if array is not None}
    return pb.Outbox(zone=outbox.zone, **packed)


def unpack_outbox(message: pb.Outbox, step: int) -> Outbox:
    """Return the outbox of a message.

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
            arrays[name] = unpack_array(getattr(message, name))
        except ExchangeError as error:
            raise ExchangeError(f"zone {message.zone}, step {step}: {name}: {error}") from None
    return Outbox(zone=message.zone, step=step, **arrays)
