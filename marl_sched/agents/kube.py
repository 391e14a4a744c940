"""Scores of kube-scheduler and of its Trimaran plugins, by their own formulas.

Scores are integers 0..100. The observation holds float32 shares of a machine's capacity, hence the
small amount added before rounding down. kube-scheduler divides by allocatable; the observation
divides by capacity, so what is reserved or in use by background services counts as requested.
Shapes: B rows, M machines; the resource axis holds cpu and memory, which is what the plugins score
by default.
"""

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-4
"""More than the float32 error of a score (about 1e-5), far less than a score's step of 1."""

SAFE_VARIANCE_MARGIN = 1.0
"""Trimaran's default multiplier of the standard deviation."""
SAFE_VARIANCE_SENSITIVITY = 1.0
"""Trimaran's default: sigma is raised to 1 / sensitivity."""

Scores = NDArray[np.float64]


def least_allocated(free_share_after: Scores) -> Scores:
    """Score of NodeResourcesLeastAllocated with equal weights.

    Per resource floor(100 (capacity - requested) / capacity), 0 when more is requested than there
    is; the node's score is the floor of their mean.

    Args:
        free_share_after: (B, M, 2) free share once the instance is there.

    Returns:
        (B, M) integers 0..100.
    """
    per_resource = np.floor(100.0 * np.maximum(free_share_after, 0.0) + _ROUNDING)
    scores: Scores = np.floor(per_resource.mean(axis=-1) + _ROUNDING)
    return scores


def balanced_allocation(free_share_after: Scores) -> Scores:
    """Score of NodeResourcesBalancedAllocation: floor(100 (1 - std of the requested shares)).

    Args:
        free_share_after: (B, M, 2) free share once the instance is there.

    Returns:
        (B, M) integers 0..100.
    """
    fraction = np.minimum(1.0 - free_share_after, 1.0)
    std = np.abs(fraction[:, :, 0] - fraction[:, :, 1]) / 2.0  # of two numbers
    scores: Scores = np.floor(100.0 * (1.0 - std) + _ROUNDING)
    return scores


def load_variation_risk(
    utilization_mean: Scores, utilization_sd: Scores, request_share: Scores
) -> Scores:
    """Score of Trimaran's LoadVariationRiskBalancing.

    Per resource risk = (mu + margin sigma^(1 / sensitivity)) / 2 with mu = mean utilization plus
    the request, both clipped to [0, 1]; score = 100 (1 - risk); the node has the score of its worst
    resource, rounded.

    Args:
        utilization_mean: (B, M, 2) moving average of the utilization.
        utilization_sd: (B, M, 2) moving standard deviation of the utilization.
        request_share: (B, M, 2) the instance's request over the machine's capacity.

    Returns:
        (B, M) integers 0..100.
    """
    mu = np.clip(np.clip(utilization_mean, 0.0, 1.0) + np.maximum(request_share, 0.0), 0.0, 1.0)
    sigma = np.clip(utilization_sd, 0.0, 1.0) ** (1.0 / SAFE_VARIANCE_SENSITIVITY)
    risk = (mu + np.clip(SAFE_VARIANCE_MARGIN * sigma, 0.0, 1.0)) / 2.0
    scores: Scores = np.floor(100.0 * (1.0 - risk.max(axis=-1)) + 0.5 + _ROUNDING)
    return scores
