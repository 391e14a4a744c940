"""The parts of an outbox as the hub's kernels take them: of one type, so compiled once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.exchange import Outbox
from marl_sched.cluster.kernels.posts import Rows

Array = NDArray[np.float64]

NOTHING: Array = np.frombuffer(b"")
_NO_ROW: Array = NOTHING.reshape(0, 1)
NO_ROWS: Rows = (_NO_ROW, _NO_ROW, _NO_ROW)


def rows_of(outbox: Outbox) -> Rows | None:
    """Return the rows of an outbox, None if it has none."""
    if not (len(outbox.offloads) or len(outbox.notices) or len(outbox.settlements)):
        return None
    return rows_as_read(outbox)


def rows_as_read(outbox: Outbox) -> Rows:
    """Return the rows of an outbox."""
    return as_read(outbox.offloads), as_read(outbox.notices), as_read(outbox.settlements)


def as_read(array: NDArray[Any]) -> Array:
    """Return an array as one of float64 in one piece that cannot be written to.

    That is how the hub's kernels are compiled, and how arrays come out of a message.
    """
    flags = array.flags
    if not flags.writeable and flags.c_contiguous and flags.aligned and array.dtype == np.float64:
        return array
    made = np.array(array, np.float64, order="C")
    made.setflags(write=False)
    return made
