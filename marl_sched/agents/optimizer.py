"""Adam on a network whose parameters are one vector."""

from typing import Any

import torch
from numpy.typing import NDArray

from marl_sched.agents.network import CandidateNetwork

_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8


class FlatAdam:
    """torch's fused Adam on a network's flat vector; its moments are there from the start.

    The operation that `torch.optim.Adam(fused=True)` calls: the class itself loads torch's
    compiler, 70 MiB that nothing here uses.
    """

    def __init__(self, network: CandidateNetwork) -> None:
        """Bind to the vector and its gradient; they are changed in place."""
        self._parameter = network.flat
        self._gradient = network.flat_gradient
        self._step = torch.zeros(())
        self._exp_avg = torch.zeros_like(network.flat)
        self._exp_avg_sq = torch.zeros_like(network.flat)
        self.learning_rate = 1e-3
        """Size of a step."""

    def step(self) -> None:
        """Take one step along the gradient."""
        self._step += 1
        torch._fused_adam_(
            [self._parameter],
            [self._gradient],
            [self._exp_avg],
            [self._exp_avg_sq],
            [],
            [self._step],
            lr=self.learning_rate,
            beta1=_BETA1,
            beta2=_BETA2,
            weight_decay=0.0,
            eps=_EPS,
            amsgrad=False,
            maximize=False,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return views of the step count and both moments, by name."""
        state = {"step": self._step, "exp_avg": self._exp_avg, "exp_avg_sq": self._exp_avg_sq}
        return {f"adam.{name}": tensor.numpy() for name, tensor in state.items()}
