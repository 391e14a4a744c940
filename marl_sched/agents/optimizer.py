"""Adam on a network whose parameters are one vector."""

from typing import Any

import torch
from numpy.typing import NDArray

from marl_sched.agents.network import CandidateNetwork


class FlatAdam:
    """torch's fused Adam on a network's flat vector; its moments are there from the start."""

    def __init__(self, network: CandidateNetwork) -> None:
        """Bind to the vector and its gradient; they are changed in place."""
        self._parameter = torch.nn.Parameter(network.flat)
        self._parameter.grad = network.flat_gradient
        self._optimizer = torch.optim.Adam([self._parameter], fused=True)
        # Made here and not at the first step, so that a state always has the same arrays.
        self._optimizer.state[self._parameter] = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(network.flat),
            "exp_avg_sq": torch.zeros_like(network.flat),
        }

    @property
    def learning_rate(self) -> float:
        """Size of a step."""
        rate: float = self._optimizer.param_groups[0]["lr"]
        return rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._optimizer.param_groups[0]["lr"] = rate

    def step(self) -> None:
        """Take one step along the gradient."""
        self._optimizer.step()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return views of the step count and both moments, by name."""
        state = self._optimizer.state[self._parameter]
        return {f"adam.{name}": tensor.numpy() for name, tensor in state.items()}
