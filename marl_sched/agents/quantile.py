"""The quantile Huber loss of QR-DQN (Dabney et al. 2018, Eq. 9-10), not divided by kappa.

Shapes: B rows, N online quantiles, M target quantiles.
"""

from typing import Any

import numpy as np
import torch

from marl_sched.agents.kernels.quantile_huber import quantile_absolute, quantile_huber


def midpoints(n_quantiles: int) -> torch.Tensor:
    """Return the taus (i + 0.5) / N: (N,) float32."""
    return (torch.arange(n_quantiles, dtype=torch.float32) + 0.5) / n_quantiles


def quantile_huber_loss_eager(
    online: torch.Tensor, target: torch.Tensor, taus: torch.Tensor, kappa: float
) -> torch.Tensor:
    """Return the loss as the paper writes it: the reference, and readable.

    Args:
        online: (B, N) quantile values of the taken action.
        target: (B, M) samples of the return; no gradient flows into it.
        taus: (N,).
        kappa: Threshold of the Huber loss; 0 gives the plain quantile loss (Eq. 8).

    Returns:
        Scalar: sum over online quantiles, mean over target samples and rows.
    """
    u = target.detach()[:, None, :] - online[:, :, None]  # (B, N, M)
    size = u.abs()
    huber = torch.where(size <= kappa, 0.5 * u * u, kappa * (size - 0.5 * kappa))  # Eq. 9
    weight = (taus[None, :, None] - (u.detach() < 0).to(u.dtype)).abs()
    loss = weight * (huber if kappa > 0 else size)  # Eq. 10
    return loss.sum(dim=1).mean()


class _FusedLoss(torch.autograd.Function):
    """Loss and gradient by one kernel; backward only scales the stored gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        online: torch.Tensor,
        target: torch.Tensor,
        taus: torch.Tensor,
        kappa: float,
    ) -> torch.Tensor:
        gradient = torch.empty_like(online, memory_format=torch.contiguous_format)
        arrays = (
            online.detach().contiguous().numpy(),
            target.detach().contiguous().numpy(),
            taus.numpy(),
        )
        if kappa > 0:
            loss = quantile_huber(*arrays, np.float32(kappa), gradient.numpy())
        else:
            loss = quantile_absolute(*arrays, gradient.numpy())
        ctx.save_for_backward(gradient)
        return online.new_tensor(loss)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_output, None, None, None


def quantile_huber_loss(
    online: torch.Tensor, target: torch.Tensor, taus: torch.Tensor, kappa: float
) -> torch.Tensor:
    """Return what `quantile_huber_loss_eager` does, its cost nearly independent of N and M."""
    loss: torch.Tensor = _FusedLoss.apply(online, target, taus, kappa)  # type: ignore[no-untyped-call]
    return loss
