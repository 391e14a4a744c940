"""The largest load up to which a rate stays within a bound, on a grid of loads.

Shapes: L loads in rising order, K resamples.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marl_sched.statistics import interval

Values = NDArray[np.float64]

BELOW, ABOVE = "below", "above"
"""Where a largest load lies that the grid does not hold."""


@dataclass(frozen=True)
class Crossing:
    """A largest load, or a ratio of two.

    Attributes:
        value: What was found; of a load outside the grid the grid's end. None: no ratio is defined.
        ci95_low: Lower end of its interval.
        ci95_high: Upper end.
        outside: `below` the grid (its lowest load breaks the bound), `above` it (every load keeps
            it), or empty: inside. Of a ratio: `above` where the value is only a lower limit.
        share_outside: Share of the resamples that are outside; there the interval is cut.
    """

    value: float | None
    ci95_low: float | None
    ci95_high: float | None
    outside: str = ""
    share_outside: float = 0.0


def largest_loads(loads: Values, rates: Values, bound: float) -> tuple[Values, Values]:
    """Return the largest load up to which each curve keeps a bound, and where it lies.

    That is where the curve first breaks it, by a straight line between the last load of the grid
    that keeps it and the next: what happens at larger loads does not count, a curve need not rise.

    Args:
        loads: (L,), rising.
        rates: (K, L).
        bound: Largest rate that keeps it.

    Returns:
        (K,) loads, those outside the grid at its end; and (K,) -1 below the grid, 1 above, else 0.
    """
    breaks = rates > bound  # (K, L)
    is_above = ~breaks.any(axis=1)
    first = np.where(is_above, len(loads), breaks.argmax(axis=1))  # (K,)
    found = np.where(is_above, loads[-1], loads[0])
    inside = np.flatnonzero(~is_above & (first > 0))
    after = first[inside]
    low, high = rates[inside, after - 1], rates[inside, after]
    share = (bound - low) / (high - low)
    found[inside] = loads[after - 1] + share * (loads[after] - loads[after - 1])
    return found, np.where(is_above, 1, np.where(first == 0, -1, 0))


def largest_load(loads: Values, rates: Values, resampled: Values, bound: float) -> Crossing:
    """Return the largest load of a policy with its interval.

    Args:
        loads: (L,), rising.
        rates: (L,) its mean rates.
        resampled: (K, L) of every resample.
        bound: Largest rate that keeps it.
    """
    (value,), (side,) = largest_loads(loads, rates[None], bound)
    samples, sides = largest_loads(loads, resampled, bound)
    outside = {-1: BELOW, 0: "", 1: ABOVE}[int(side)]
    return Crossing(float(value), *interval(samples), outside, float((sides != 0).mean()))


def ratio_of_loads(
    loads: Values,
    rates: tuple[Values, Values],
    resampled: tuple[Values, Values],
    bound: float,
) -> Crossing:
    """Return a policy's largest load over a baseline's, on the same resamples.

    Not defined where the baseline's lies outside the grid or the policy's below it.

    Args:
        loads: (L,), rising.
        rates: (L,) mean rates of policy and baseline.
        resampled: (K, L) of both, of every resample.
        bound: Largest rate that keeps it.
    """
    found, sides = largest_loads(loads, np.stack(rates), bound)
    if sides[1] != 0 or sides[0] < 0:
        return Crossing(None, None, None)
    ours, our_sides = largest_loads(loads, resampled[0], bound)
    theirs, their_sides = largest_loads(loads, resampled[1], bound)
    return Crossing(
        float(found[0] / found[1]),
        *interval(ours / theirs),
        ABOVE if sides[0] > 0 else "",
        float(((our_sides != 0) | (their_sides != 0)).mean()),
    )
