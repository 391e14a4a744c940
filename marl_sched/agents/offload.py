"""The one offload rule of all fixed rules, so that they differ in placement only.

Shapes: B rows, P peers, R resources.
"""

import numpy as np
from numpy.typing import NDArray

from marl_sched.observation import Layout, Observation


class PeerFormula:
    """Score of a peer: free cpu share + free memory share - expected slowdown there.

    The free shares are those of the peer's digest, less what this zone sent since; the expected
    slowdown is the expected duration there over the known mean.
    """

    def __init__(self, layout: Layout) -> None:
        """Look up the formula's columns."""
        self._free = layout.candidate_indices("free_share")[:2]
        self._expected_duration = layout.candidate_index("expected_duration")

    def scores(self, observation: Observation) -> NDArray[np.float64]:
        """Return (B, P) scores; masked peers have -inf."""
        peers = observation.candidates[:, observation.n_machines :]
        cpu, memory = self._free
        scores = (
            peers[:, :, cpu].astype(np.float64)
            + peers[:, :, memory]
            - peers[:, :, self._expected_duration]
        )
        return np.where(observation.mask[:, observation.n_machines :], scores, -np.inf)
