"""Play whole windows by a weighted score, without leaving the kernels: what tuning runs on.

Shapes: E replicas, C candidates (M machines, then peers), F candidate features.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.kernels.placement import decide
from marl_sched.cluster.kernels.window import advance
from marl_sched.cluster.model import State
from marl_sched.envs.kernels.observe import observe_rows
from marl_sched.fit_check import UNFIT_PENALTY, is_short
from marl_sched.kernel_cache import kernel

STEP = 1e6
"""Scores are compared in steps of a millionth, as by `TunedRule`."""


@kernel
def best_weighted(
    candidates: NDArray[np.float32],
    mask: NDArray[np.bool_],
    n_machines: int,
    weights: NDArray[np.float64],
    fit: NDArray[np.int64],
) -> int:
    """Return the first of the best unmasked candidates; a machine that does not fit comes last.

    Args:
        candidates: (C, F).
        mask: (C,).
        n_machines: M.
        weights: (2, F), of machines and of peers.
        fit: (2, R) columns of the free shares, before and after.
    """
    best = -1
    best_score = 0.0
    for at in range(len(candidates)):
        if not mask[at]:
            continue
        kind = 0 if at < n_machines else 1
        score = 0.0
        for feature in range(weights.shape[1]):
            score += candidates[at, feature] * weights[kind, feature]
        if kind == 0 and is_short(candidates[at], fit):
            score -= UNFIT_PENALTY
        score = np.rint(score * STEP)
        if best < 0 or score > best_score:
            best = at
            best_score = score
    return best


@kernel
def play_window_weighted(
    s: State,
    until_us: int,
    weights: NDArray[np.float64],
    fit: NDArray[np.int64],
    arrays: tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[np.bool_]],
    facts: NDArray[Any],
) -> int:
    """Play every replica to the end of its window by a weighted score; return the decisions.

    Args:
        s: The zone, its windows open.
        until_us: End of the window.
        weights: (2, F).
        fit: (2, R) columns of the free shares, before and after.
        arrays: Instance, candidates, zone and mask, as `observe_rows` fills them; one row is used.
        facts: One row of facts, overwritten.
    """
    instance, candidates, zone, mask = arrays
    rows = np.zeros(1, np.int64)
    n_decisions = 0
    for e in range(len(s.zone)):
        rows[0] = e
        while advance(s, e, until_us):
            observe_rows(s, rows, instance, candidates, zone, mask)
            action = best_weighted(candidates[0], mask[0], s.machine.shape[1], weights, fit)
            decide(s, e, action, facts)
            n_decisions += 1
        s.zone[e].void_size = 0
    return n_decisions
