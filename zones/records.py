"""What passes between a zone and the federation: orders down, reports up.

A zone receives weights and an order, and returns weights and scalars. Workload rows, replay and
optimizer state are in neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Weights = Mapping[str, NDArray[np.float32]]
"""Tensors of one network by name, in the network's own order."""


@dataclass(frozen=True)
class NetworkPair:
    """A network and its moving average over updates, which is the one that is evaluated.

    Both travel and both are averaged. As averaging is linear, the mean of the zones' moving
    averages is the moving average of their mean network; a moving average kept by the server would
    see one point a round only.
    """

    online: Weights
    ema: Weights


@dataclass(frozen=True)
class Invitation:
    """Where a zone meets the others in one attempt, and what lets it in.

    Attributes:
        address: HOST:PORT of the exchange.
        token: A secret between the exchange and this zone, for this attempt only.
    """

    address: str
    token: bytes = field(repr=False)


@dataclass(frozen=True)
class Assignment:
    """Which zone a node is, since when.

    Attributes:
        zone: The zone.
        epoch: Counts how often the zone was given to a node, from 1. Who acts for an older epoch
            has been replaced.
    """

    zone: str
    epoch: int


@dataclass(frozen=True)
class RoundOrder:
    """What a zone is asked to do.

    Attributes:
        round_number: Counts from 1. An order that only validates carries the last round + 1.
        attempt: Counts from 1 within the round; above 1 after a member was lost.
        members: Zones that take part, by name.
        validates: Score the incoming weights, those of the round before, first.
        best_round: Round of the best weights so far, 0 before the first validation.
        invitation: To the exchange; None where the zones meet within one process.
        assignment: Whom the order is for; None where a zone stays where it is.
    """

    round_number: int
    attempt: int
    members: tuple[str, ...]
    validates: bool = False
    best_round: int = 0
    invitation: Invitation | None = None
    assignment: Assignment | None = None


@dataclass(frozen=True)
class RoundReport:
    """What a zone answers.

    Attributes:
        weights: The networks after the round; None after an order that only validates.
        n_decisions: Decisions of the round, all replicas: the zone's weight in the average.
        metrics: Deterministic figures of the round; equal keys in all zones.
        validation: Sums of this zone by validation episode, (V, anything) float64 a key; None if
            they were not asked for.
        timing: Seconds and sizes, which differ from run to run.
    """

    weights: NetworkPair | None
    n_decisions: int
    metrics: Mapping[str, float]
    validation: Mapping[str, NDArray[np.float64]] | None = None
    timing: Mapping[str, float] = field(default_factory=dict)
