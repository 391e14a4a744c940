"""What the next minutes cost from a situation on: fitted on plain play.

Shapes: Z zones, E episodes at once, T windows, S columns of a situation, B rows.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.architecture import Architecture, Weights, initial_weights
from marl_sched.agents.network import CandidateNetwork
from marl_sched.agents.scoring import Scorer
from marl_sched.config import Experiment
from marl_sched.distillation.descent import Descent, descend
from marl_sched.distillation.kernels.play import Rule
from marl_sched.distillation.play import ClusterPlay, draw_inputs

Array = NDArray[np.float64]
Float = NDArray[np.float32]

_AT_ONCE = 10
_EPOCHS, _BATCH, _LEARNING_RATE, _WEIGHT_DECAY = 40, 512, 3e-3, 1e-4


@dataclass(frozen=True)
class PlainPlay:
    """What was seen and paid in plain play.

    Attributes:
        situations: (E, T, Z, S) at the end of every window.
        costs: (E, T, Z) of what was done in it.
        owed: (E, T, Z) at its end, for waits so far.
    """

    situations: Float
    costs: Array
    owed: Array


def play_plainly(
    experiment: Experiment, rule: Rule, prices: Array, episodes: list[int]
) -> PlainPlay:
    """Play train episodes up to their horizon by a rule."""
    n_windows = int(experiment.episode.horizon_s / experiment.cluster.window_s)
    situations, costs, owed = [], [], []
    for start in range(0, len(episodes), _AT_ONCE):
        some = episodes[start : start + _AT_ONCE]
        play = ClusterPlay(experiment, len(some), rule, prices)
        play.begin(draw_inputs(experiment, "train", some))
        rows = np.arange(len(some))
        seen, paid, open_ = [], [], []
        for _ in range(n_windows):
            play.costs[:] = 0.0
            for zone in range(len(play.zones)):
                play.play(zone, rows)
            seen.append(play.situations(rows))
            paid.append(play.costs.T.copy())
            open_.append(play.owed(rows))
            play.end_window()
        situations.append(np.stack(seen, axis=1))
        costs.append(np.stack(paid, axis=1))
        owed.append(np.stack(open_, axis=1))
    return PlainPlay(np.concatenate(situations), np.concatenate(costs), np.concatenate(owed))


def inputs_of(situations: Float) -> Float:
    """Return (B, Z, 2 S + Z) of (B, Z, S): a zone's own, the mean of all, and which one it is."""
    n_rows, n_zones, _ = situations.shape
    means = np.broadcast_to(situations.mean(axis=1, keepdims=True), situations.shape)
    which = np.broadcast_to(np.eye(n_zones, dtype=np.float32), (n_rows, n_zones, n_zones))
    return np.concatenate([situations, means, which], axis=2)


class ValueNetwork:
    """The sum over zones of what each is expected to pay.

    A row's value does not depend on the batch it stands in: equal situations, equal values.
    """

    def __init__(self, architecture: Architecture, weights: Weights, scale: Array) -> None:
        """Build it from weights that predict costs less `scale[0]` over `scale[1]`, (2, Z)."""
        self._scorer = Scorer(architecture, architecture.flatten(weights), cvar_alpha=1.0)
        self._scale = scale

    def by_zone(self, situations: Float) -> Array:
        """Return (B, Z) costs of situations (B, Z, S)."""
        inputs = inputs_of(situations)
        none = np.zeros((len(inputs), 0), np.float32)
        scores = self._scorer.scores(inputs, none, np.ones(inputs.shape[:2], np.bool_))
        return np.asarray(scores * self._scale[1] + self._scale[0], np.float64)

    def __call__(self, situations: Float) -> Array:
        """Return (B,) costs of situations (B, Z, S)."""
        return np.asarray(self.by_zone(situations).sum(axis=1))


def fit_value(
    experiment: Experiment, plain: PlainPlay, generator: np.random.Generator
) -> tuple[ValueNetwork, float]:
    """Fit the value of a situation to what is paid and owed after it.

    Returns:
        It, and its R2 over the last episodes, which are held out.
    """
    settings = experiment.teacher
    n_episodes, _, n_zones, _ = plain.situations.shape
    ahead = max(1, round(settings.value_horizon_s / experiment.cluster.window_s))
    sums = np.concatenate([np.zeros((n_episodes, 1, n_zones)), plain.costs.cumsum(axis=1)], axis=1)
    paid = sums[:, 1 + ahead :] - sums[:, 1:-ahead]  # (E, T', Z), after each window
    paid += plain.owed[:, ahead:] - plain.owed[:, :-ahead]
    inputs = plain.situations[:, : paid.shape[1]]
    n_held = max(1, round(settings.held_out * n_episodes))
    split = (n_episodes - n_held) * paid.shape[1]
    x = inputs_of(inputs.reshape(-1, *inputs.shape[2:]))
    y = paid.reshape(-1, n_zones)
    scale = np.stack([y[:split].mean(axis=0), np.maximum(y[:split].std(axis=0), 1e-6)])
    target = torch.from_numpy(((y - scale[0]) / scale[1]).astype(np.float32))
    rows = torch.from_numpy(x)
    architecture = Architecture(x.shape[2], 0, tuple(settings.value_hidden), n_quantiles=1)
    network = CandidateNetwork(architecture, initial_weights(architecture, generator))

    def loss(batch: torch.Tensor) -> torch.Tensor:
        predicted = network.values(rows[batch].flatten(0, 1)).view(len(batch), -1)
        return (predicted - target[batch]).square().mean()

    descent = Descent(_EPOCHS, _BATCH, _LEARNING_RATE, _WEIGHT_DECAY)
    split_rows = (np.arange(split), np.arange(split, len(x)))
    weights, _ = descend(network, loss, split_rows, descent, generator)
    value = ValueNetwork(architecture, weights, scale)
    held = inputs.reshape(-1, *inputs.shape[2:])[split:]
    total = y[split:].sum(axis=1)
    error = total - value(held)
    return value, float(1 - error.var() / max(total.var(), 1e-12))
