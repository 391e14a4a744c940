"""The networks of one learner that is made of parts: stepping, averaging, saving.

Every part (an actor, a value) is a `CandidateNetwork` with an Adam and a clipping of its own, so
that the scale of one part's gradient says nothing about another's steps.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from marl_sched.agents.architecture import HEAD_NAMES, Architecture, Weights
from marl_sched.agents.exploration import learning_rate_at
from marl_sched.agents.network import CandidateNetwork
from marl_sched.agents.optimizer import FlatAdam
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError, RunError

GivenWeights = Mapping[str, NDArray[np.float32]]
Parts = dict[str, CandidateNetwork]


class Networks:
    """Online parts that learn, targets that follow them, and their moving average.

    Attributes:
        online: The parts that learn and act, by prefix.
        target: The same, following by Polyak averaging; bootstrapped from.
        averaged: The same, the moving average over updates; evaluated.
        n_updates: Updates so far.
        proximal_mu: Pull of every update to the weights loaded last (FedProx, arXiv 1812.06127).
    """

    def __init__(
        self, architectures: Mapping[str, Architecture], agent: Agent, initial: GivenWeights
    ) -> None:
        """Build all three on copies of the first weights.

        Raises:
            CheckpointError: The weights are of another architecture.
        """
        self._architectures, self._agent = dict(architectures), agent
        self._check(initial)
        self.online, self.target, self.averaged = (self._built(initial) for _ in range(3))
        self._adams = {prefix: FlatAdam(network) for prefix, network in self.online.items()}
        self._anchors = {prefix: net.flat.clone() for prefix, net in self.online.items()}
        self._sums = np.zeros(3)  # updates, loss, gradient norm
        self.n_updates = 0
        self.proximal_mu = 0.0

    def set_progress(self, share: float) -> None:
        """Set Adam's step for the point of the run that `share` is."""
        for adam in self._adams.values():
            adam.learning_rate = learning_rate_at(self._agent, share)

    def step(self, loss: torch.Tensor) -> None:
        """Take one step down the loss; let targets and averages follow.

        Raises:
            RunError: Loss or gradient is not finite.
        """
        for network in self.online.values():
            network.flat_gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        norms = [self._clip(prefix, network) for prefix, network in self.online.items()]
        if not np.isfinite((loss.item(), *norms)).all():
            raise RunError(
                f"update {self.n_updates}: loss {loss.item()}, gradient norms {norms}, expected "
                "finite numbers; lower agent.learning_rate"
            )
        for adam in self._adams.values():
            adam.step()
        self.n_updates += 1
        # A plain mean at first, so that the untrained weights do not linger.
        rate = max(self._agent.ema, 1 / self.n_updates)
        with torch.no_grad():
            for prefix, network in self.online.items():
                self.target[prefix].flat.lerp_(network.flat, self._agent.polyak)
                self.averaged[prefix].flat.lerp_(network.flat, rate)
        self._sums += (1, loss.item(), float(np.linalg.norm(norms)))

    def _clip(self, prefix: str, network: CandidateNetwork) -> float:
        """Add FedProx's pull and scale a part's gradient down to the largest norm; return it."""
        gradient = network.flat_gradient
        if self.proximal_mu > 0:
            gradient.add_(network.flat.detach() - self._anchors[prefix], alpha=self.proximal_mu)
        norm = float(gradient.norm())
        if norm > self._agent.max_gradient_norm:
            gradient.mul_(self._agent.max_gradient_norm / norm)
        return norm

    def take_metrics(self) -> dict[str, float]:
        """Return means over the updates since the last call, and begin anew."""
        n_updates, loss, norm = (float(value) for value in self._sums)
        self._sums[:] = 0
        return {
            "loss": loss / max(n_updates, 1.0),
            "gradient_norm": norm / max(n_updates, 1.0),
            "updates": n_updates,
            "learning_rate": next(iter(self._adams.values())).learning_rate,
        }

    def weights(self) -> Weights:
        """Return a copy of the online parameters by name."""
        return _named(self.online)

    def averaged_weights(self) -> Weights:
        """Return a copy of the averaged parameters by name."""
        return _named(self.averaged)

    def load_weights(self, weights: GivenWeights, averaged: GivenWeights | None) -> None:
        """Replace online and averaged parameters; targets follow, but take the very first.

        Raises:
            CheckpointError: Other names, shapes or dtypes, or not finite; nothing has changed then.
        """
        is_new = self.n_updates == 0
        online = self._completed(weights, self.online)
        average = self._completed(weights if is_new else averaged, self.averaged)
        self._load(self.online, online)
        self._anchors = {prefix: net.flat.clone() for prefix, net in self.online.items()}
        self._load(self.averaged, average)
        if is_new:
            self._load(self.target, online)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return views of all that changes but the count of updates."""
        sets = {"online": self.online, "target": self.target, "averaged": self.averaged}
        views: dict[str, NDArray[Any]] = {"metric_sums": self._sums}
        for name, parts in sets.items():
            views |= {f"{prefix}{name}": net.flat.numpy() for prefix, net in parts.items()}
        for prefix, adam in self._adams.items():
            views |= {f"{prefix}{name}": array for name, array in adam.arrays().items()}
        return views

    def check_arrays(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Check that a state has the arrays of these networks.

        Raises:
            CheckpointError: One is missing, or of another shape or dtype.
        """
        for name, array in self.arrays().items():
            if name not in state:
                raise CheckpointError(f"learner state: no array {name}")
            given = state[name]
            if given.shape != array.shape or given.dtype != array.dtype:
                raise CheckpointError(
                    f"learner state: {name} is {given.dtype} {given.shape}, expected "
                    f"{array.dtype} {array.shape}"
                )

    def load_arrays(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Overwrite all from a checked state."""
        for name, array in self.arrays().items():
            array[...] = state[name]

    def _built(self, weights: GivenWeights) -> Parts:
        return {
            prefix: CandidateNetwork(architecture, _part(weights, prefix, architecture))
            for prefix, architecture in self._architectures.items()
        }

    def _load(self, parts: Parts, weights: GivenWeights) -> None:
        for prefix, network in parts.items():
            network.load_weights(_part(weights, prefix, network.architecture))

    def _completed(self, weights: GivenWeights | None, parts: Parts) -> GivenWeights:
        """Return checked weights, what is missing of a personal head taken from the parts."""
        own = _named(parts)
        if weights is None:
            return own
        if self._agent.personal_head and not set(weights) & set(HEAD_NAMES):
            weights = dict(weights) | {name: own[name] for name in HEAD_NAMES}
        self._check(weights)
        return weights

    def _check(self, weights: GivenWeights) -> None:
        names = [
            f"{p}{name}" for p, a in self._architectures.items() for name in a.parameter_shapes
        ]
        if set(weights) != set(names):
            raise CheckpointError(f"weights: tensors {sorted(weights)}, expected {sorted(names)}")
        for prefix, architecture in self._architectures.items():
            architecture.check(_part(weights, prefix, architecture))


def masked_scores(
    network: CandidateNetwork,
    candidates: torch.Tensor,
    context: torch.Tensor,
    mask: torch.Tensor,
    filling: float,
) -> torch.Tensor:
    """Return (B, C) values of a network with one output; `filling` where masked.

    Only unmasked candidates are computed.

    Args:
        network: A part with N = 1.
        candidates: (B, C, F).
        context: (B, K).
        mask: (B, C).
        filling: Value of masked candidates.
    """
    row, _ = places = mask.nonzero(as_tuple=True)
    rows = torch.cat([candidates[places], context[row]], dim=1)  # (unmasked, F + K)
    scores = candidates.new_full(mask.shape, filling)
    return scores.index_put(places, network.values(rows)[:, 0])


def unmasked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return (B,) means over unmasked candidates; `values` (B, C) are 0 where masked."""
    return values.sum(dim=1) / mask.sum(dim=1)


def huber(errors: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the mean Huber loss, as Eq. 9 of QR-DQN has it; threshold 0: of the absolute error."""
    size = errors.abs()
    if threshold == 0:
        return size.mean()
    return torch.where(
        size <= threshold, 0.5 * size**2, threshold * (size - 0.5 * threshold)
    ).mean()


def _part(weights: GivenWeights, prefix: str, architecture: Architecture) -> Weights:
    return {name: weights[f"{prefix}{name}"] for name in architecture.parameter_shapes}


def _named(parts: Parts) -> Weights:
    return {
        f"{p}{name}": tensor for p, net in parts.items() for name, tensor in net.weights().items()
    }
