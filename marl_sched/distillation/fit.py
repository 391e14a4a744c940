"""Distil played-out decisions into a network: f(c) - f(taken) is what c gains.

Shapes: S samples, 1 + K candidates a sample.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.architecture import Architecture, Weights
from marl_sched.agents.network import CandidateNetwork
from marl_sched.agents.scoring import Scorer
from marl_sched.config import Teacher
from marl_sched.distillation.descent import Descent, descend
from marl_sched.distillation.samples import Samples

Array = NDArray[np.float64]
Int = NDArray[np.int64]

N_LOAD_BINS = 8
_LEAST_VARIANCE = 0.1
"""Added to the variance of a bin: none is trusted without limit."""


def load_weights_of(samples: Samples, clip: float) -> Array:
    """Return (S,) weights: 1 over the variance of the gains under about the same load.

    The more is queued, the more chance decides what a placement leads to.
    """
    edges = np.quantile(samples.load, np.linspace(0, 1, N_LOAD_BINS + 1)[1:-1])
    bins = np.searchsorted(edges, samples.load)
    gains = samples.gains.clip(-clip, clip)
    weights = np.ones(len(samples))
    for number in np.unique(bins):
        here = bins == number
        weights[here] = 1 / (gains[here][samples.is_tried[here]].var() + _LEAST_VARIANCE)
    return np.asarray(weights / weights.mean())


def split_by_episode(samples: Samples, share: float, generator: np.random.Generator) -> list[Int]:
    """Return the rows to fit on and those held out: no episode has both."""
    episodes = np.unique(samples.episode)
    n_held = min(len(episodes) - 1, max(1, round(share * len(episodes))))
    held = np.isin(samples.episode, generator.permutation(episodes)[:n_held])
    return [np.flatnonzero(~held), np.flatnonzero(held)]


def fit_gains(
    samples: Samples,
    architecture: Architecture,
    first: Weights,
    settings: Teacher,
    generator: np.random.Generator,
) -> tuple[Weights, dict[str, float]]:
    """Fit a network, from its first weights on, to the gains; return its weights and measures.

    The measures are of held-out episodes: the weighted loss, that of predicting no gain, and what
    a decision gains on average if the network's gated choice is taken.
    """
    clip = settings.gain_clip
    candidates = torch.from_numpy(samples.candidates)
    context = torch.from_numpy(samples.context)
    gains = torch.from_numpy(samples.gains.clip(-clip, clip).astype(np.float32))
    weights = torch.from_numpy(load_weights_of(samples, clip).astype(np.float32))
    weights = weights[:, None] * torch.from_numpy(samples.is_tried)
    network = CandidateNetwork(architecture, first)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        values = network(candidates[rows], context[rows])[:, :, 0]  # (B, 1 + K)
        error = values[:, 1:] - values[:, :1] - gains[rows]
        total: torch.Tensor = (weights[rows] * error.square()).sum()
        return total / len(rows)

    fitted, held_out = split_by_episode(samples, settings.held_out, generator)
    descent = Descent(
        settings.epochs, settings.batch_size, settings.learning_rate, settings.weight_decay
    )
    best, held_loss = descend(network, loss, (fitted, held_out), descent, generator)
    nothing = float((weights * gains.square())[held_out].sum()) / len(held_out)
    some = samples.take(held_out)
    gain, share = gated_gain(some, architecture, best, settings.gain_margin)
    measures = {"loss": held_loss, "no_gain_loss": nothing, "gain": gain, "deviates": share}
    return best, measures


def gated_gain(
    samples: Samples, architecture: Architecture, weights: Weights, margin: float
) -> tuple[float, float]:
    """Return the mean gain of the gated choice among what was tried, and how often it deviates."""
    scorer = Scorer(architecture, architecture.flatten(weights), cvar_alpha=1.0)
    mask = np.concatenate([np.ones((len(samples), 1), np.bool_), samples.is_tried], axis=1)
    scores = scorer.scores(samples.candidates, samples.context, mask)
    best = scores.argmax(axis=1)
    rows = np.arange(len(samples))
    deviates = scores[rows, best] - scores[:, 0] > margin
    gains = np.concatenate([np.zeros((len(samples), 1)), samples.gains], axis=1)
    return float(np.where(deviates, gains[rows, best], 0.0).mean()), float(deviates.mean())
