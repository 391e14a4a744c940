"""Gradient descent on a candidate network, with a held-out part that says when to stop."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.architecture import Weights
from marl_sched.agents.network import CandidateNetwork

Int = NDArray[np.int64]
Loss = Callable[[torch.Tensor], torch.Tensor]
"""From rows (B,) of the data to their mean loss, differentiable in the network."""

_AVERAGED = 0.995
"""Of the averaged network, kept in a step: what is held out is scored by, and returned."""
_PATIENCE = 4
"""Passes over the data without a better held-out loss, after which it ends."""


@dataclass(frozen=True)
class Descent:
    """How to fit.

    Attributes:
        epochs: Most passes over the data.
        batch_size: Rows a step.
        learning_rate: Adam's step at the start, falling to 0 along half a cosine.
        weight_decay: AdamW's.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float


def descend(
    network: CandidateNetwork,
    loss: Loss,
    rows: tuple[Int, Int],
    settings: Descent,
    generator: np.random.Generator,
) -> tuple[Weights, float]:
    """Fit the network and return its averaged weights of the best epoch, and their held-out loss.

    Args:
        network: Fitted in place.
        loss: What to lower.
        rows: Rows to fit on, and held-out ones.
        settings: How.
        generator: Shuffles the rows.
    """
    fitted, held_out = rows
    optimizer = torch.optim.AdamW(
        [network.flat], lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    network.flat.grad = network.flat_gradient
    average = network.flat.clone()
    n_steps = settings.epochs * max(1, len(fitted) // settings.batch_size)
    best, best_weights, since, step = np.inf, network.weights(), 0, 0
    for _ in range(settings.epochs):
        for batch in _batches(fitted, settings.batch_size, generator):
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * 0.5 * (1 + np.cos(np.pi * step / n_steps))
            network.flat_gradient.zero_()
            loss(batch).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_([network.flat], 10.0)
            optimizer.step()
            kept = min(_AVERAGED, (1 + step) / (10 + step))
            average.mul_(kept).add_(network.flat, alpha=1 - kept)
            step += 1
        now = network.flat.clone()
        network.flat.copy_(average)
        score = _mean_loss(loss, held_out)
        if score < best:
            best, best_weights, since = score, network.weights(), 0
        network.flat.copy_(now)
        since += 1
        if since > _PATIENCE:
            break
    return best_weights, float(best)


def _batches(rows: Int, size: int, generator: np.random.Generator) -> Iterator[torch.Tensor]:
    order = generator.permutation(rows)
    for start in range(0, max(1, len(order) // size) * size, size):
        yield torch.from_numpy(order[start : start + size])


def _mean_loss(loss: Loss, rows: Int, size: int = 4096) -> float:
    with torch.no_grad():
        parts = [
            float(loss(torch.from_numpy(rows[start : start + size])))
            * len(rows[start : start + size])
            for start in range(0, len(rows), size)
        ]
    return sum(parts) / len(rows)
