"""What tells rules that a machine lacks room; only unmasked placement offers one that does."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.kernel_cache import inner

FIT_TOLERANCE = 1e-6
"""A free share above minus this counts as fitting: shares are float32."""
UNFIT_PENALTY = 1e3
"""Taken off a weighted score where a machine does not fit: all others come first."""


@inner
def is_short(candidate: NDArray[Any], fit: NDArray[np.int64]) -> bool:
    """Return whether a machine lacks room for what is requested.

    What is not requested fits, however little of it is free.

    Args:
        candidate: (F,), a machine's row of the observation.
        fit: (2, R) columns of the free shares, before and after (`Layout.fit_columns`).
    """
    for r in range(fit.shape[1]):
        after = candidate[fit[1, r]]
        if after < -FIT_TOLERANCE and after < candidate[fit[0, r]]:
            return True
    return False


def are_short(machines: NDArray[np.float32], fit: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the same of many machines (B, M, F): (B, M)."""
    before, after = machines[..., fit[0]], machines[..., fit[1]]
    lacks = (after < -FIT_TOLERANCE) & (after < before)  # (B, M, R)
    return np.asarray(lacks.any(axis=-1), np.bool_)
