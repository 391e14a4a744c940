"""Quantile Huber loss and its gradient in one pass, without (B, N, M) intermediates.

Shapes: B rows, N online quantiles, M target quantiles.
"""

import numpy as np
from numpy.typing import NDArray

from marl_sched.kernel_cache import inner, kernel

# float32 constants: a float64 literal would make the inner loop half as wide.
_ZERO = np.float32(0)
_HALF = np.float32(0.5)
_ONE = np.float32(1)


@inner
def _clip(u: np.float32, kappa: np.float32) -> np.float32:
    return min(max(u, -kappa), kappa)


@inner
def _slope(u: np.float32, tau: np.float32, kappa: np.float32) -> np.float32:
    """Return |tau - 1[u < 0]| x the slope of the Huber loss at u, which is u clipped."""
    return _clip(u, kappa) * (tau if u >= _ZERO else _ONE - tau)


@inner
def _loss(u: np.float32, tau: np.float32, kappa: np.float32) -> np.float32:
    """Return the loss at u: the Huber loss is a (u - a / 2) with a = u clipped."""
    return _slope(u, tau, kappa) * (u - _HALF * _clip(u, kappa))


@kernel
def quantile_huber(
    online: NDArray[np.float32],
    target: NDArray[np.float32],
    taus: NDArray[np.float32],
    kappa: np.float32,
    gradient: NDArray[np.float32],
) -> float:
    """Return the mean loss over rows and write its gradient (Dabney et al. 2018, Eq. 9-10).

    The inner loop runs over online quantiles, each with its own sums, so that it is vectorised in a
    fixed order of additions; four targets a pass halve its loads and stores.

    Args:
        online: (B, N), theta.
        target: (B, M), samples of the return.
        taus: (N,), (i + 0.5) / N.
        kappa: Threshold, > 0.
        gradient: (B, N), written: d loss / d online.
    """
    n_rows, n_online = online.shape
    n_target = target.shape[1]
    scale = _ONE / np.float32(n_rows * n_target)
    loss = np.empty(n_online, np.float32)
    n_fours = n_target // 4 * 4
    total = 0.0
    for row in range(n_rows):
        for i in range(n_online):
            loss[i] = _ZERO
            gradient[row, i] = _ZERO
        for j in range(0, n_fours, 4):
            for i in range(n_online):
                theta, tau = online[row, i], taus[i]
                a, b = target[row, j] - theta, target[row, j + 1] - theta
                c, d = target[row, j + 2] - theta, target[row, j + 3] - theta
                gradient[row, i] -= (_slope(a, tau, kappa) + _slope(b, tau, kappa)) + (
                    _slope(c, tau, kappa) + _slope(d, tau, kappa)
                )
                loss[i] += (_loss(a, tau, kappa) + _loss(b, tau, kappa)) + (
                    _loss(c, tau, kappa) + _loss(d, tau, kappa)
                )
        for j in range(n_fours, n_target):
            for i in range(n_online):
                u = target[row, j] - online[row, i]
                gradient[row, i] -= _slope(u, taus[i], kappa)
                loss[i] += _loss(u, taus[i], kappa)
        for i in range(n_online):
            gradient[row, i] *= scale
            total += loss[i]
    return float(total / (n_rows * n_target))


@kernel
def quantile_absolute(
    online: NDArray[np.float32],
    target: NDArray[np.float32],
    taus: NDArray[np.float32],
    gradient: NDArray[np.float32],
) -> float:
    """Return the plain quantile regression loss (kappa = 0, Eq. 8) and write its gradient.

    Arguments as of `quantile_huber`.
    """
    n_rows, n_online = online.shape
    n_target = target.shape[1]
    scale = _ONE / np.float32(n_rows * n_target)
    loss = np.empty(n_online, np.float32)
    total = 0.0
    for row in range(n_rows):
        for i in range(n_online):
            loss[i] = _ZERO
            gradient[row, i] = _ZERO
        for j in range(n_target):
            sample = target[row, j]
            for i in range(n_online):
                u = sample - online[row, i]
                slope = taus[i] if u >= _ZERO else taus[i] - _ONE
                gradient[row, i] -= slope if u != _ZERO else _ZERO
                loss[i] += slope * u
        for i in range(n_online):
            gradient[row, i] *= scale
            total += loss[i]
    return float(total / (n_rows * n_target))
