import numpy as np
import pytest
import torch

from marl_sched.agents.quantile import midpoints, quantile_huber_loss, quantile_huber_loss_eager


def _values(kappa: float, n_target: int = 8) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """B=3, N=5, M=8: a swapped axis cannot pass. Differences lie on both sides of kappa."""
    generator = torch.Generator().manual_seed(7)
    online = 2 * max(kappa, 1) * torch.randn(3, 5, generator=generator)
    target = 2 * max(kappa, 1) * torch.randn(3, n_target, generator=generator)
    return online.requires_grad_(), target, midpoints(5)


def _slow_loss(
    online: torch.Tensor, target: torch.Tensor, taus: torch.Tensor, kappa: float
) -> float:
    total = 0.0
    for row in range(len(online)):
        for i, theta in enumerate(online[row].tolist()):
            for sample in target[row].tolist():
                u = sample - theta
                if kappa == 0:
                    huber = abs(u)
                elif abs(u) <= kappa:
                    huber = 0.5 * u**2
                else:
                    huber = kappa * (abs(u) - 0.5 * kappa)
                total += abs(float(taus[i]) - (u < 0)) * huber
    return total / len(online) / target.shape[1]


@pytest.mark.parametrize("n_target", [3, 7, 8])  # the kernel takes four at a time
@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("loss", [quantile_huber_loss, quantile_huber_loss_eager])
def test_loss_is_that_of_the_slow_loop(loss, kappa: float, n_target: int) -> None:
    online, target, taus = _values(kappa, n_target)
    assert loss(online, target, taus, kappa).item() == pytest.approx(
        _slow_loss(online, target, taus, kappa), rel=1e-5
    )


@pytest.mark.parametrize("n_target", [3, 7, 8])
@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0, 4.0])
def test_fused_gradient_is_that_of_autograd(kappa: float, n_target: int) -> None:
    online, target, taus = _values(kappa, n_target)
    (3 * quantile_huber_loss_eager(online, target, taus, kappa)).backward()
    expected = online.grad.clone()
    online.grad = None
    (3 * quantile_huber_loss(online, target, taus, kappa)).backward()
    np.testing.assert_allclose(online.grad.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_equal_values_have_no_loss_and_no_gradient() -> None:
    for kappa in (0.0, 1.0):
        online = torch.full((3, 5), 2.0, requires_grad=True)
        loss = quantile_huber_loss(online, torch.full((3, 8), 2.0), midpoints(5), kappa)
        loss.backward()
        assert loss.item() == 0
        assert not online.grad.any()


def test_no_gradient_flows_into_the_target() -> None:
    online, target, taus = _values(1.0)
    target.requires_grad_()
    quantile_huber_loss(online, target, taus, 1.0).backward()
    assert target.grad is None


def test_gradient_descent_finds_the_quantiles() -> None:
    samples = torch.linspace(-1, 1, 401)[None, :]
    online = torch.zeros(1, 5, requires_grad=True)
    for step in range(600):
        quantile_huber_loss(online, samples, midpoints(5), 0.0).backward()
        with torch.no_grad():
            online -= 0.5 * 0.99**step * online.grad
            online.grad.zero_()
    # Quantile tau of U(-1, 1) is 2 tau - 1.
    np.testing.assert_allclose(online[0].detach(), 2 * midpoints(5) - 1, atol=0.02)
