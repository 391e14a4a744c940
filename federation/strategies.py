"""Flower's strategies by name, with what they keep from round to round.

| name          | new weights                                                     | zones needed |
|---------------|-----------------------------------------------------------------|--------------|
| fedavg        | mean by decision count                                          | 1            |
| fedprox       | the same; zones are pulled towards what their round began with  | 1            |
| fedavgm       | a step along the mean change and its momentum                   | 1            |
| fedadam       | the same, scaled value by value like Adam                       | 1            |
| fedmedian     | median, value by value                                          | 3            |
| fedtrimmedavg | mean without the largest and smallest, value by value           | see below    |
| krum          | those of the zone that has the closest neighbours               | 2 f + 3      |
| multikrum     | mean by decision count of the n - f zones like that             | 2 f + 3      |
| bulyan        | of those the mean around the median, value by value             | 4 f + 3      |
| centralised   | those of the one learner, which all zones report                | 1            |

fedtrimmedavg needs enough zones for its share to cut off one at either end, and to leave one. When
zones were lost and fewer are left than a strategy needs, the round's weights are the median, value
by value; of two zones that is the plain mean.

Both networks that travel go through the strategy alike, as one vector.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp.strategy import (
    Bulyan,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedTrimmedAvg,
    MultiKrum,
    Strategy,
)
from numpy.typing import NDArray

from federation.messages import ARRAYS, DECISIONS, Packed, decode_metrics
from marl_sched.array_reading import READING_ARRAYS
from marl_sched.config import Federation
from marl_sched.config.checks import zones_needed
from marl_sched.config.learning import CENTRAL
from marl_sched.errors import AggregationError, CheckpointError

_logger = logging.getLogger(__name__)

_ADAM_STEP = 0.01


class Aggregator:
    """The strategy of a run, in the state it was left in by the last round."""

    def __init__(self, settings: Federation, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state.

        Args:
            settings: Names the strategy and its parameters.
            state: As `state` gave it; empty at the start.
        """
        self._settings = settings
        self._state = dict(state)

    @property
    def state(self) -> Mapping[str, NDArray[Any]]:
        """What the next round goes on from, by name; empty for most strategies."""
        return self._state

    def aggregate(self, round_number: int, replies: Mapping[str, Message], sent: Packed) -> Packed:
        """Make the new weights of checked replies, in the order of zone names.

        The order is part of the result: float32 sums depend on it. A zone without a decision has
        learned nothing and does not count; if no zone had one, the weights stay as they were sent.

        Returns:
            The new global weights, float32 whatever the strategy computes in.

        Raises:
            AggregationError: The strategy returned no finite weights.
            CheckpointError: The strategy's state does not fit the weights.
        """
        counted = [r for _, r in sorted(replies.items()) if decode_metrics(r.content)[0] > 0]
        if not counted:
            return sent
        if self._settings.strategy == CENTRAL:
            return _packed(sent, counted[0].content.array_records["arrays"])
        strategy = self._strategy(round_number, len(counted))
        self._prepare(strategy, sent)
        with READING_ARRAYS:
            arrays, _ = strategy.aggregate_train(round_number, counted)
        if arrays is None:
            raise AggregationError(f"round {round_number}: no reply to average")
        new = _packed(sent, arrays)
        for key in ARRAYS:
            if not np.isfinite(getattr(new, key)).all():
                raise AggregationError(
                    f"round {round_number}: the averaged {key} network is not finite"
                )
        self._state = _state_of(strategy) or self._state
        return new

    def _strategy(self, round_number: int, n_zones: int) -> Strategy:
        """Return the strategy, or the one for too few zones."""
        needed = zones_needed(self._settings)
        if n_zones < needed:
            _logger.warning(
                "round %d: %d zones, %s needs %d: the median is taken",
                round_number,
                n_zones,
                self._settings.strategy,
                needed,
            )
            return FedMedian(weighted_by_key=DECISIONS)
        return make_strategy(self._settings, n_zones)

    def _prepare(self, strategy: Strategy, sent: Packed) -> None:
        """Give a strategy what it would know if it had sent the weights and kept its state."""
        values = {key: getattr(sent, key) for key in ARRAYS}
        if isinstance(strategy, FedAvgM):
            strategy.current_arrays = ArrayRecord({k: Array(v) for k, v in values.items()})
            momentum = self._kept("momentum", values)
            strategy.momentum_vector = None if momentum is None else list(momentum.values())
        elif isinstance(strategy, FedAdam):
            strategy.current_arrays = values
            strategy.m_t = self._kept("m", values)
            strategy.v_t = self._kept("v", values)

    def _kept(
        self, name: str, values: Mapping[str, NDArray[np.float32]]
    ) -> dict[str, NDArray[Any]] | None:
        """Return a part of the state by network; None at the start."""
        found = {key: self._state.get(f"{name}/{key}") for key in values}
        kept = {key: array for key, array in found.items() if array is not None}
        if not kept:
            return None
        for key, like in values.items():
            if key not in kept or kept[key].shape != like.shape:
                raise CheckpointError(
                    f"strategy state {name}/{key}: missing or of another shape, expected "
                    f"{like.shape}"
                )
        return kept


def make_strategy(settings: Federation, n_zones: int) -> Strategy:
    """Return the Flower strategy for a number of zones, without a state.

    `none` averages like `fedavg`: there, no tensor is shared (`federation.weights.shared_names`).
    """
    step, f = settings.server_learning_rate, settings.hostile_zones
    match settings.strategy:
        case "fedavgm":
            return FedAvgM(
                weighted_by_key=DECISIONS,
                server_learning_rate=1.0 if step is None else step,
                server_momentum=settings.server_momentum,
            )
        case "fedadam":
            return FedAdam(
                weighted_by_key=DECISIONS,
                eta=_ADAM_STEP if step is None else step,
                beta_1=settings.server_momentum,
            )
        case "fedmedian":
            return FedMedian(weighted_by_key=DECISIONS)
        case "fedtrimmedavg":
            return FedTrimmedAvg(weighted_by_key=DECISIONS, beta=settings.trim_share)
        case "krum":
            return MultiKrum(weighted_by_key=DECISIONS, num_malicious_nodes=f)
        case "multikrum":
            return MultiKrum(
                weighted_by_key=DECISIONS,
                num_malicious_nodes=f,
                num_nodes_to_select=n_zones - f,
            )
        case "bulyan":
            return Bulyan(weighted_by_key=DECISIONS, num_malicious_nodes=f)
        case _:  # fedprox differs in the zones only
            return FedAvg(weighted_by_key=DECISIONS)


def _packed(sent: Packed, arrays: ArrayRecord) -> Packed:
    """Return both networks of a record, float32, as they were sent."""
    with READING_ARRAYS:
        online, ema = (arrays[key].numpy().astype(np.float32) for key in ARRAYS)
    return Packed(sent.spec, online, ema)


def _state_of(strategy: Strategy) -> dict[str, NDArray[Any]]:
    """Return what a strategy wants to keep, by name."""
    if isinstance(strategy, FedAvgM) and strategy.momentum_vector is not None:
        return _named("momentum", strategy.momentum_vector)
    if isinstance(strategy, FedAdam) and strategy.m_t and strategy.v_t:
        return _named("m", list(strategy.m_t.values())) | _named("v", list(strategy.v_t.values()))
    return {}


def _named(name: str, arrays: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    pairs = zip(ARRAYS, arrays, strict=True)
    return {f"{name}/{key}": np.asarray(array) for key, array in pairs}
