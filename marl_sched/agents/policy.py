"""What every policy is, rule or network."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from marl_sched.observation import Observation


class Policy(Protocol):
    """Decides for one zone, for all of its replicas at once."""

    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        """Get ready for one episode in each of `n_replicas` replicas.

        Args:
            n_replicas: E; rows of the observations name replicas in [0, E).
            generator: Where all random choices of these episodes come from.
        """

    def act(self, observation: Observation) -> NDArray[np.int64]:
        """Pick one unmasked candidate a row.

        Args:
            observation: B decisions.

        Returns:
            (B,) int64, index of the candidate: below M a machine, else a peer.
        """
