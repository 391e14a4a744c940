"""The candidate-scoring network in torch: what the learner differentiates.

Shapes: B rows, C candidates, F candidate features, K context features, H first hidden units,
N quantiles, P parameters.
"""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from marl_sched.agents.architecture import Architecture, Weights
from marl_sched.agents.quantile import midpoints


class _Affine(nn.Module):
    """x @ weight + bias, weight (inputs, outputs)."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (
            x @ self.weight + self.bias if x.dim() > 2 else torch.addmm(self.bias, x, self.weight)
        )


class CandidateNetwork(nn.Module):
    """One MLP over (candidate, context) that gives N quantile values of the return.

    With a prior a second one over the context, and the prior's score, are added: `Architecture`.

    It is tied neither to the number of machines nor to that of zones. All parameters are views of
    one flat vector, and their gradients of another: clipping, Adam and the averaged networks are
    then one operation each.

    Attributes:
        flat: (P,) every parameter, in the order of `Architecture.parameter_shapes`.
        flat_gradient: (P,) the gradients, accumulated by backward.
        taus: (N,) quantile midpoints; no parameter, never shared.
    """

    taus: torch.Tensor

    def __init__(
        self, architecture: Architecture, weights: Mapping[str, NDArray[np.float32]]
    ) -> None:
        """Build the network on a copy of `weights`.

        Raises:
            CheckpointError: The weights are of another architecture.
        """
        super().__init__()
        self.architecture = architecture
        self.flat = torch.from_numpy(architecture.flatten(weights))
        self.flat_gradient = torch.zeros_like(self.flat)
        sizes = (architecture.n_inputs, *architecture.hidden)
        self.first = _Affine(*sizes[:2])
        self.hidden = nn.ModuleList(_Affine(n_in, n_out) for n_in, n_out in pairwise(sizes[1:]))
        self.head = _Affine(sizes[-1], architecture.n_quantiles)
        if architecture.has_prior:
            self.value = _Affine(architecture.n_context_features, architecture.value_hidden)
            self.value_head = _Affine(architecture.value_hidden, architecture.n_quantiles)
        self.register_buffer("taus", midpoints(architecture.n_quantiles), persistent=False)
        values = architecture.views(self.flat.numpy())
        gradients = architecture.views(self.flat_gradient.numpy())
        for name, parameter in self.named_parameters():
            parameter.data = torch.from_numpy(values[name])
            parameter.grad = torch.from_numpy(gradients[name])

    def forward(self, candidates: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Return (B, C, N) quantile values of every candidate; (B, C, F) and (B, K) in."""
        n_features = self.architecture.n_candidate_features
        shared = torch.addmm(self.first.bias, context, self.first.weight[n_features:])  # (B, H)
        x = candidates @ self.first.weight[:n_features] + shared[:, None, :]  # (B, C, H)
        values = self._rest(x.flatten(0, 1)).view(*candidates.shape[:2], -1)  # (B, C, N)
        if not self.architecture.has_prior:
            return values
        return values + self._value(context)[:, None, :] + self._prior(candidates)

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (B, N) quantile values of one candidate a row; (B, F + K) features in."""
        values = self._rest(self.first(rows))
        if not self.architecture.has_prior:
            return values
        n_features = self.architecture.n_candidate_features
        return values + self._value(rows[:, n_features:]) + self._prior(rows[:, :n_features])

    def _value(self, context: torch.Tensor) -> torch.Tensor:
        """Return (B, N) v of contexts (B, K)."""
        value: torch.Tensor = self.value_head(torch.relu(self.value(context)))
        return value

    def _prior(self, candidates: torch.Tensor) -> torch.Tensor:
        """Return (..., 1) prior_scale d of candidates (..., F)."""
        gap = candidates[..., self.architecture.prior_column, None]
        return self.architecture.prior_scale * gap

    def _rest(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.hidden:
            x = layer(torch.relu(x))
        values: torch.Tensor = self.head(torch.relu(x))
        return values

    def weights(self) -> Weights:
        """Return a copy of every parameter by name."""
        return {
            name: view.copy() for name, view in self.architecture.views(self.flat.numpy()).items()
        }

    def load_weights(self, weights: Mapping[str, NDArray[np.float32]]) -> None:
        """Overwrite the parameters.

        Raises:
            CheckpointError: The weights are of another architecture.
        """
        self.flat.copy_(torch.from_numpy(self.architecture.flatten(weights)))
