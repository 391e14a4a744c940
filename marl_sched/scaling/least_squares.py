"""Least squares with few terms and no negative coefficients: what few measured sizes can bear."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

_MAX_TERMS = 2

Coefficients = Mapping[str, float]
"""A number a term, or a term's value."""


def least_squares(
    rows: Sequence[Coefficients],
    values: Sequence[float],
    terms: Sequence[str],
    always: str = "",
) -> dict[str, float]:
    """Return coefficients of at least 0, of few terms, with the least squared relative error.

    Args:
        rows: Values of the terms, a row a measured value.
        values: What was measured; a row with 0 says nothing.
        terms: Terms to choose from; of equally good choices the fewest and first are taken.
        always: The term that is part of every choice; empty: none is.
    """
    pairs = [(row, value) for row, value in zip(rows, values, strict=True) if value > 0]
    if not pairs:
        return {}
    most = max(1, min(_MAX_TERMS, len(pairs) - 1))
    best: dict[str, float] = {}
    least = np.inf
    for count in range(1, most + 1):
        for chosen in combinations(terms, count):
            if always and always not in chosen:
                continue
            matrix: NDArray[np.float64] = np.array(
                [[row[t] / value for t in chosen] for row, value in pairs]
            )
            found, *_ = np.linalg.lstsq(matrix, np.ones(len(pairs)), rcond=None)
            error = float(((matrix @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < least - 1e-12:
                best, least = dict(zip(chosen, found.tolist(), strict=True)), error
    return best
