"""Orders and reports as Flower's records, the same over every transport."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from federation.weights import WeightSpec, pack
from marl_sched.array_reading import READING_ARRAYS
from zones.records import Assignment, Invitation, NetworkPair, RoundOrder, RoundReport

FAILED = 2
"""Error code of a reply: the zone failed, the round goes on without it. (Flower's own code for a
ClientApp that raised, so that a zone whose ClientApp cannot even answer counts the same.)"""
ABORTED = 1001
"""Error code of a reply: the attempt was called off; not this zone's fault."""
FATAL = 1002
"""Error code of a reply: every zone would fail like this, trying again is no use."""
STALE = 1003
"""Error code of a reply: not carried out, since a newer message was there."""

ARRAYS = ("online", "ema")
"""The two networks of a pair, as they travel."""
DECISIONS = "n_decisions"
"""The metric that weighs a zone in the average."""


@dataclass(frozen=True)
class Packed:
    """A network pair as it travels: two arrays, (P,) float32 each."""

    spec: WeightSpec
    online: NDArray[np.float32]
    ema: NDArray[np.float32]

    @classmethod
    def of(cls, pair: NetworkPair, spec: WeightSpec) -> "Packed":
        """Pack the tensors of `spec`."""
        return cls(spec, pack(pair.online, spec), pack(pair.ema, spec))

    @property
    def n_bytes(self) -> int:
        """Bytes of both arrays."""
        return self.online.nbytes + self.ema.nbytes


def encode_order(packed: Packed, order: RoundOrder) -> RecordDict:
    """Return the content of a train or evaluate message."""
    content = RecordDict(
        {
            "arrays": _arrays(packed),
            "spec": _spec(packed.spec),
            "order": ConfigRecord(
                {
                    "round": order.round_number,
                    "attempt": order.attempt,
                    "members": list(order.members),
                    "validates": order.validates,
                    "best_round": order.best_round,
                }
            ),
        }
    )
    if order.assignment is not None:
        content = assign(content, order.assignment)
    return content if order.invitation is None else invite(content, order.invitation)


def invite(content: RecordDict, invitation: Invitation) -> RecordDict:
    """Return an order as one zone gets it: the same records, with that zone's invitation."""
    record = ConfigRecord({"address": invitation.address, "token": invitation.token})
    return RecordDict({**content, "invitation": record})


def assign(content: RecordDict, assignment: Assignment) -> RecordDict:
    """Return an order as one node gets it: the same records, saying whom it is for."""
    record = ConfigRecord({"zone": assignment.zone, "epoch": assignment.epoch})
    return RecordDict({**content, "assignment": record})


def decode_order(content: RecordDict) -> tuple[Packed, RoundOrder]:
    """Read what `encode_order` wrote."""
    config = content.config_records["order"]
    order = RoundOrder(
        round_number=cast(int, config["round"]),
        attempt=cast(int, config["attempt"]),
        members=tuple(cast(list[str], config["members"])),
        validates=cast(bool, config["validates"]),
        best_round=cast(int, config["best_round"]),
        invitation=_invitation(content),
        assignment=_assignment(content),
    )
    arrays = content.array_records["arrays"]
    spec = decode_spec(content.config_records["spec"])
    with READING_ARRAYS:
        return Packed(spec, arrays["online"].numpy(), arrays["ema"].numpy()), order


def describe(content: RecordDict) -> str:
    """Say in a few words what a message asks for."""
    config = content.config_records.get("order")
    if config is None:
        return "a greeting"
    return f"round {config.get('round')!r}, attempt {config.get('attempt')!r}"


def place_of(reply: Message) -> dict[str, Any]:
    """Return round and attempt of a report, for log lines; of any other reply nothing."""
    record = None if reply.has_error() else reply.content.config_records.get("report")
    return {key: record[key] for key in ("round", "attempt") if record and key in record}


def encode_report(
    zone: str, report: RoundReport, order: RoundOrder, spec: WeightSpec
) -> RecordDict:
    """Return the content of the reply to an order.

    Args:
        zone: Who answers.
        report: What came of the order.
        order: The order.
        spec: The tensors to send back: those that are shared.
    """
    origin: dict[str, str | int] = {
        "zone": zone,
        "round": order.round_number,
        "attempt": order.attempt,
    }
    if order.assignment is not None:
        origin["epoch"] = order.assignment.epoch
    content = RecordDict(
        {
            "metrics": MetricRecord({DECISIONS: report.n_decisions, **report.metrics}),
            "timing": ConfigRecord(dict(report.timing)),
            "report": ConfigRecord({**origin}),
        }
    )
    if report.weights is not None:
        content["arrays"] = _arrays(Packed.of(report.weights, spec))
        content["spec"] = _spec(spec)
    if report.validation is not None:
        sums = {key: v.ravel().tolist() for key, v in report.validation.items()}
        content["validation"] = ConfigRecord({**sums})
    return content


def decode_validation(content: RecordDict, n_episodes: int) -> dict[str, NDArray[np.float64]]:
    """Return the validation sums of a reply by key, (V, anything) each.

    Raises:
        ValueError: The reply has none, or they are not numbers, equally many an episode.
    """
    if "validation" not in content.config_records:
        raise ValueError("the reply has no validation, but it was asked for")
    record = content.config_records["validation"]
    return {
        key: np.array(values, dtype=np.float64).reshape(n_episodes, -1)
        for key, values in record.items()
    }


def decode_metrics(content: RecordDict) -> tuple[int, dict[str, float]]:
    """Return decision count and metrics of a checked reply."""
    metrics = dict(cast(Mapping[str, float], content.metric_records["metrics"]))
    return int(metrics.pop(DECISIONS)), metrics


def decode_spec(record: ConfigRecord) -> WeightSpec:
    """Read names and shapes as a message carries them.

    Raises:
        ValueError: They are not names and shapes.
    """
    names, shapes = record.get("names"), record.get("shapes")
    if not isinstance(names, list) or not isinstance(shapes, list) or len(names) != len(shapes):
        raise ValueError(f"tensor names {names!r} with shapes {shapes!r}, expected equal lists")
    return WeightSpec(
        tuple(str(name) for name in names),
        tuple(tuple(int(n) for n in str(shape).split("x") if n) for shape in shapes),
    )


def _invitation(content: RecordDict) -> Invitation | None:
    if "invitation" not in content.config_records:
        return None
    record = content.config_records["invitation"]
    return Invitation(cast(str, record["address"]), cast(bytes, record["token"]))


def _assignment(content: RecordDict) -> Assignment | None:
    if "assignment" not in content.config_records:
        return None
    record = content.config_records["assignment"]
    return Assignment(cast(str, record["zone"]), cast(int, record["epoch"]))


def _arrays(packed: Packed) -> ArrayRecord:
    return ArrayRecord({"online": Array(packed.online), "ema": Array(packed.ema)})


def _spec(spec: WeightSpec) -> ConfigRecord:
    return ConfigRecord({"names": list(spec.names), "shapes": spec.shapes_as_text()})
