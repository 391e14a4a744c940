"""Random choices that depend on neither the batch nor the order of calls.

A generator that is drawn from per call would make an episode's decisions depend on which other
episodes are simulated beside it. Here one salt is drawn at reset, and every choice is a hash of
(salt, number of the decision in its episode, candidate). Shapes: B rows, C candidates.
"""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def draw_salt(generator: np.random.Generator) -> np.uint64:
    """Draw the salt of one policy, at its reset."""
    return np.uint64(generator.integers(2**64, dtype=np.uint64))


def hashed_uniforms(
    salt: np.uint64, decision: NDArray[np.int64], n_candidates: int
) -> NDArray[np.float64]:
    """Return (B, C) uniform numbers in [0, 1) from (B,) decision numbers.

    The bits are SplitMix64's finaliser (Steele, Lea and Flood 2014) over two rounds.
    """
    rows = _mix(decision.astype(np.uint64) * _GOLDEN + salt)[:, None]
    columns = np.arange(1, n_candidates + 1, dtype=np.uint64) * _GOLDEN
    return (_mix(rows + columns) >> np.uint64(11)).astype(np.float64) * 2.0**-53  # (B, C)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))
