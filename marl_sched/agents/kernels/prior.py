"""What a rule thinks of every candidate, as features of the network that corrects it.

Shapes: B rows, C candidates (machines first, then peers), F features, P = 3 columns of the prior.
"""

import numpy as np
from numpy.typing import NDArray

from marl_sched.fit_check import UNFIT_PENALTY, is_short
from marl_sched.kernel_cache import kernel

STEP = 1e6
"""Scores are compared in steps of a millionth, as by `TunedRule`."""


@kernel
def extend_candidates(  # noqa: PLR0913  # a kernel takes arrays, not objects
    candidates: NDArray[np.float32],
    mask: NDArray[np.bool_],
    n_machines: int,
    weights: NDArray[np.float64],
    fit: NDArray[np.int64],
    worst_gap: float,
    extended: NDArray[np.float32],
    choices: NDArray[np.int64],
) -> None:
    """Copy the candidates and write the prior's columns behind them; masked candidates get 0.

    Args:
        candidates: (B, C, F).
        mask: (B, C); every row has an unmasked candidate.
        n_machines: M.
        weights: (2, F), of machines and of peers.
        fit: (2, R) columns of the free shares, before and after: what does not fit comes last.
        worst_gap: Gaps to the best of a kind are cut off here.
        extended: (B, C, F + P), written.
        choices: (B,), the rule's choice, written.
    """
    n_rows, n_candidates, n_features = candidates.shape
    scores = np.empty(n_candidates)
    best = np.empty(2)
    for row in range(n_rows):
        best[:] = -np.inf
        choice = -1
        for at in range(n_candidates):
            extended[row, at, :n_features] = candidates[row, at]
            extended[row, at, n_features:] = 0
            if not mask[row, at]:
                continue
            kind = 0 if at < n_machines else 1
            score = 0.0
            for feature in range(n_features):
                score += candidates[row, at, feature] * weights[kind, feature]
            if kind == 0 and is_short(candidates[row, at], fit):
                score -= UNFIT_PENALTY
            scores[at] = np.rint(score * STEP) / STEP
            best[kind] = max(best[kind], scores[at])
            if choice < 0 or scores[at] > scores[choice]:
                choice = at
        choices[row] = choice
        for at in range(n_candidates):
            if mask[row, at]:
                kind = 0 if at < n_machines else 1
                extended[row, at, n_features] = max(worst_gap, scores[at] - best[kind])
                extended[row, at, n_features + 2] = choice >= n_machines and kind == 0
        extended[row, choice, n_features + 1] = 1
