"""Rows of segments, one after the other."""

import numpy as np
from numpy.typing import NDArray

from marl_sched.kernel_cache import kernel

Int = NDArray[np.int64]


@kernel
def fill_segments(starts: Int, counts: Int, rows: Int) -> None:
    """Write the rows of the segments starts[i] : starts[i] + counts[i].

    Args:
        starts: (n,).
        counts: (n,).
        rows: (counts.sum(),) written.
    """
    end = 0
    for i in range(len(starts)):
        for step in range(counts[i]):
            rows[end + step] = starts[i] + step
        end += counts[i]
