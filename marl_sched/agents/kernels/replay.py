"""Turn drawn decisions of the log into n-step transitions.

Shapes: E replicas, L slots a replica, Q draws, B transitions asked for. Decisions are numbered per
replica over its whole life; decision t stands in slot t % L.
"""

import numpy as np
from numpy.typing import NDArray

from marl_sched.kernel_cache import kernel


@kernel
def gather_transitions(  # noqa: PLR0913  # a kernel takes arrays, not objects
    draws: NDArray[np.int64],
    reward: NDArray[np.float64],
    is_settled: NDArray[np.bool_],
    last: NDArray[np.int64],
    count: NDArray[np.int64],
    n_step: int,
    discount: float,
    places: NDArray[np.int64],
    numbers: NDArray[np.float32],
    n_found: int,
) -> int:
    """Add the valid draws to the batch until it is full; return how many it holds.

    A draw t is valid if its bootstrap decision min(t + n_step, last of its episode) is later than t
    and recorded, and all decisions before it are settled.

    Args:
        draws: (2, Q) replica and decision t.
        reward: (E, L).
        is_settled: (E, L).
        last: (E, L) number of the last decision of the slot's episode; the largest int64 while the
            episode runs.
        count: (E,) decisions recorded.
        n_step: Most rewards of one transition.
        discount: gamma per decision.
        places: (3, B) replica, slot of t, slot of the bootstrap decision; written.
        numbers: (2, B) return, gamma to the power of the steps taken; written.
        n_found: Transitions that the batch already holds.
    """
    n_slots = reward.shape[1]
    for draw in range(draws.shape[1]):
        if n_found == places.shape[1]:
            break
        replica, start = draws[0, draw], draws[1, draw]
        end = min(start + n_step, last[replica, start % n_slots])
        if end <= start or end >= count[replica]:
            continue
        total, factor = 0.0, 1.0
        step = start
        while step < end and is_settled[replica, step % n_slots]:
            total += factor * reward[replica, step % n_slots]
            factor *= discount
            step += 1
        if step < end:
            continue
        places[0, n_found] = replica
        places[1, n_found] = start % n_slots
        places[2, n_found] = end % n_slots
        numbers[0, n_found] = total
        numbers[1, n_found] = factor
        n_found += 1
    return int(n_found)
