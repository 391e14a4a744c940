"""Decisions with what their alternatives gained: what the teacher's network is fitted to.

Shapes: S samples, 1 + K candidates a sample, F + 3 columns of a candidate, X of the context.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Float = NDArray[np.float32]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Decisions with what their alternatives gained.

    Attributes:
        candidates: (S, 1 + K, F + 3) extended; first the one that was taken.
        context: (S, X).
        gains: (S, K) what it saves to take the other candidate instead.
        is_tried: (S, K) False where there were fewer candidates.
        load: (S,) of the zone: what is allocated or queued, as a share.
        episode: (S,) number of the episode.
    """

    candidates: Float
    context: Float
    gains: Array
    is_tried: NDArray[np.bool_]
    load: Array
    episode: Int

    def __len__(self) -> int:
        """Return S."""
        return len(self.context)

    def take(self, rows: Int) -> "Samples":
        """Return some of the samples."""
        return Samples(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @staticmethod
    def together(parts: Sequence["Samples"]) -> "Samples":
        """Return the samples of all parts."""
        return Samples(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in Samples.__dataclass_fields__
            )
        )
