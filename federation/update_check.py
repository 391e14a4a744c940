"""Check every update before it is averaged: the gate in front of Flower's strategies.

Flower's averaging trusts its replies: one NaN zone makes the global network NaN, arrays of shapes
(2,) and (1,) broadcast, weights of zero divide by zero. So nothing reaches a strategy unchecked.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, RecordDict
from numpy.typing import NDArray

from federation.messages import (
    ARRAYS,
    DECISIONS,
    Packed,
    decode_spec,
    decode_validation,
)
from marl_sched.array_reading import READING_ARRAYS
from marl_sched.errors import AggregationError
from zones.records import RoundOrder

_PLACE = ("kind", "zone", "round", "attempt")
"""What every line of metrics.jsonl and timing.jsonl has from us."""
_MAX_KEYS, _MAX_KEY = 256, 64


@dataclass(frozen=True)
class UpdateCheck:
    """What an update of a zone must be like to be averaged.

    Attributes:
        order: The order that the update answers.
        sent: The global weights the zones started from.
        norm_bound: Largest norm of the change over the norm of the weights sent (at least 1, so
            that a network of zeros can be left).
        epochs: Epoch of the assignment of every zone: a process that was replaced answers for an
            older one.
    """

    order: RoundOrder
    sent: Packed
    norm_bound: float
    epochs: Mapping[str, int] = field(default_factory=dict)

    def check(self, zone: str, content: RecordDict) -> None:
        """Check one zone's reply.

        Raises:
            AggregationError: It must not be averaged; the message names zone, tensor, the value
                got and what is allowed.
        """
        self.check_origin(zone, content)
        self._check_records(zone, content)
        self._check_metrics(zone, content)
        self._check_spec(zone, content)
        arrays = content.array_records["arrays"]
        for key in ARRAYS:
            if key not in arrays:
                raise AggregationError(f"{zone}: array {key!r} is missing, expected {list(ARRAYS)}")
            values = self._check_array(zone, key, arrays[key])
            self._check_change(zone, key, values)

    def check_origin(self, zone: str, content: RecordDict) -> None:
        """Check that a reply is this zone's and answers this order.

        Raises:
            AggregationError: It is another's, or of another round or attempt.
        """
        if "report" not in content.config_records:
            raise AggregationError(f"{zone}: the reply has no record 'report'")
        expected: dict[str, str | int] = {
            "zone": zone,
            "round": self.order.round_number,
            "attempt": self.order.attempt,
        }
        if zone in self.epochs:
            expected["epoch"] = self.epochs[zone]
        report = content.config_records["report"]
        for key, value in expected.items():
            if report.get(key) != value:
                raise AggregationError(f"{zone}: {key} = {report.get(key)!r}, expected {value!r}")

    def _check_records(self, zone: str, content: RecordDict) -> None:
        places: Mapping[str, Mapping[str, object]] = {
            "metrics": content.metric_records,
            "spec": content.config_records,
            "timing": content.config_records,
            "arrays": content.array_records,
        }
        for record, place in places.items():
            if record not in place:
                raise AggregationError(f"{zone}: the reply has no record {record!r}")

    def _check_metrics(self, zone: str, content: RecordDict) -> None:
        for kind, record in (
            ("metric", content.metric_records["metrics"]),
            ("timing", content.config_records["timing"]),
        ):
            _check_numbers(zone, kind, record)
        n_decisions = content.metric_records["metrics"].get(DECISIONS)
        if not isinstance(n_decisions, int) or n_decisions < 0:
            raise AggregationError(
                f"{zone}: {DECISIONS} = {n_decisions!r}, expected an integer >= 0"
            )

    def _check_spec(self, zone: str, content: RecordDict) -> None:
        try:
            spec = decode_spec(content.config_records["spec"])
        except ValueError as error:
            raise AggregationError(f"{zone}: {error}") from None
        if spec.names != self.sent.spec.names:
            raise AggregationError(
                f"{zone}: tensors {_first_difference(spec.names, self.sent.spec.names)}"
            )
        shapes = zip(spec.names, spec.shapes, self.sent.spec.shapes, strict=True)
        for name, got, expected in shapes:
            if got != expected:
                raise AggregationError(f"{zone}: {name} has shape {got}, expected {expected}")

    def _check_array(self, zone: str, key: str, array: Array) -> NDArray[np.float32]:
        try:
            with READING_ARRAYS:
                values = array.numpy()
        except (ValueError, TypeError, EOFError) as error:
            raise AggregationError(f"{zone}: {key} cannot be read: {error}") from None
        if values.dtype != np.float32:
            raise AggregationError(f"{zone}: {key} has dtype {values.dtype}, expected float32")
        expected = (self.sent.spec.n_values,)
        if values.shape != expected:
            raise AggregationError(f"{zone}: {key} has shape {values.shape}, expected {expected}")
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            name, value = self.sent.spec.name_at(int(wrong[0])), values[wrong[0]]
            raise AggregationError(
                f"{zone}: {name} ({key}) holds {value}, expected finite numbers "
                f"({len(wrong)} of {len(values)} are not)"
            )
        return values

    def _check_change(self, zone: str, key: str, values: NDArray[np.float32]) -> None:
        sent = getattr(self.sent, key).astype(np.float64)
        change = values - sent
        norm = float(np.linalg.norm(change))
        allowed = self.norm_bound * max(1.0, float(np.linalg.norm(sent)))
        if norm > allowed:
            name = self.sent.spec.name_at(int(np.argmax(np.abs(change))))
            raise AggregationError(
                f"{zone}: the change of {key} has norm {norm:.4g}, expected at most {allowed:.4g} "
                f"(federation.norm_bound = {self.norm_bound}); it is largest in {name}"
            )


def _check_numbers(zone: str, kind: str, record: Mapping[str, object]) -> None:
    """Check that what a zone has measured can be written down as a line of that zone.

    Raises:
        AggregationError: A name is ours, too long or one of too many; a value is no number.
    """
    if len(record) > _MAX_KEYS:
        raise AggregationError(
            f"{zone}: {len(record)} values of {kind}, expected at most {_MAX_KEYS}"
        )
    for key, value in record.items():
        if key in _PLACE or len(key) > _MAX_KEY:
            raise AggregationError(
                f"{zone}: {kind} {key[:_MAX_KEY]!r}, expected a name of at most {_MAX_KEY} "
                f"characters that is none of {', '.join(_PLACE)}"
            )
        if not isinstance(value, int | float):
            raise AggregationError(
                f"{zone}: {kind} {key!r} is a {type(value).__name__}, expected a number"
            )


def check_validation(zone: str, content: RecordDict, n_episodes: int) -> None:
    """Check the validation sums of one zone's reply.

    Raises:
        AggregationError: They are missing, not finite, or not one a validation episode.
    """
    try:
        sums = decode_validation(content, n_episodes)
    except (ValueError, TypeError) as error:
        raise AggregationError(f"{zone}: validation: {error}") from None
    for key, values in sums.items():
        if not np.isfinite(values).all():
            raise AggregationError(f"{zone}: validation {key} is not finite")


def odd_metrics(contents: Mapping[str, RecordDict]) -> dict[str, str]:
    """Return the zones whose metric keys differ from those of most zones, with the reason.

    Flower ends the run when keys differ; here it is known who is to blame.
    """
    keys = {zone: _metric_keys(content) for zone, content in sorted(contents.items())}
    if not keys:
        return {}
    usual = Counter(keys.values()).most_common(1)[0][0]
    return {
        zone: f"{zone}: metrics {_first_difference(got, usual)}"
        for zone, got in keys.items()
        if got != usual
    }


def _metric_keys(content: RecordDict) -> tuple[str, ...]:
    """Return the names of all metrics, and of validation sums also how many there are."""
    names = [f"{record}.{key}" for record, keys in content.metric_records.items() for key in keys]
    sums: Mapping[str, Any] = content.config_records.get("validation") or {}
    sizes = [f"validation.{key} ({np.size(values)})" for key, values in sums.items()]
    return tuple(sorted([*names, *sizes]))


def _first_difference(got: tuple[str, ...], expected: tuple[str, ...]) -> str:
    missing = [name for name in expected if name not in got]
    unknown = [name for name in got if name not in expected]
    if missing:
        return f"lack {missing[0]!r} ({len(missing)} missing), expected {list(expected)}"
    if unknown:
        return f"have {unknown[0]!r} ({len(unknown)} unknown), expected {list(expected)}"
    return f"come in the order {list(got)}, expected {list(expected)}"
