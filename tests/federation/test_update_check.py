from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, RecordDict

from federation.messages import DECISIONS, Packed, encode_report
from federation.update_check import UpdateCheck, check_validation
from federation.weights import WeightSpec, unpack
from marl_sched.errors import AggregationError
from zones.records import Assignment, NetworkPair, RoundOrder, RoundReport

SPEC = WeightSpec(("body", "head"), ((2, 3), (5,)))
SENT = Packed(SPEC, np.ones(11, np.float32), np.ones(11, np.float32))
ORDER = RoundOrder(3, 1, ("a", "b"), assignment=Assignment("a", 4))
CHECK = UpdateCheck(ORDER, SENT, norm_bound=2.0, epochs={"a": 4})


def reply_of(values: np.ndarray, n_decisions: int = 7, zone: str = "a") -> RecordDict:
    tensors = unpack(values.astype(np.float32), SPEC)
    report = RoundReport(NetworkPair(tensors, tensors), n_decisions, {"loss": 0.5})
    return encode_report(zone, report, ORDER, SPEC)


def put_array(name: str, array: Array) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content.array_records["arrays"][name] = array

    return change


def put_value(index: int, value: float) -> Callable[[RecordDict], None]:
    values = np.ones(11, np.float32)
    values[index] = value
    return put_array("online", Array(values))


def put_config(record: str, key: str, value: object) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content.config_records[record][key] = value  # type: ignore[assignment]  # wrong on purpose

    return change


def put_decisions(value: float) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content.metric_records["metrics"][DECISIONS] = value

    return change


def put_metric(key: str, value: object) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content.metric_records["metrics"][key] = value  # type: ignore[assignment]  # wrong on purpose

    return change


def put_many(n_values: int) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content["timing"] = ConfigRecord({f"t{i}": 1.0 for i in range(n_values)})

    return change


def without(record: str) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        del content[record]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put_value(6, np.nan), r"a: head \(online\) holds nan, expected finite numbers \(1 of 11"),
        (put_value(5, -np.inf), r"a: body \(online\) holds -inf, expected finite"),
        (put_value(8, 9e3), r"a: the change of online has norm 8999, .* at most 6\.633 .*in head"),
        (put_array("ema", Array(np.ones(11))), r"a: ema has dtype float64, expected float32"),
        (put_array("ema", Array(np.ones(10, np.float32))), r"a: ema has shape \(10,\), .*\(11,\)"),
        (
            put_array("online", Array("float32", (11,), "numpy.ndarray", b"cut")),
            r"a: online cannot be read",
        ),
        (put_metric("loss", [float("nan")]), r"a: metric 'loss' is a list, expected a number"),
        (put_metric("kind", 1), r"a: metric 'kind', expected a name .* none of kind, zone"),
        (put_config("timing", "train_s", b"x"), r"a: timing 'train_s' is a bytes, expected a num"),
        (put_config("timing", "train_s", [float("inf")]), r"a: timing 'train_s' is a list"),
        (put_config("timing", "zone", 2.0), r"a: timing 'zone', expected a name"),
        (put_config("timing", "x" * 999, 2.0), r"a: timing 'x{64}', expected a name of at most 64"),
        (put_many(999), r"a: 999 values of timing, expected at most 256"),
        (put_config("spec", "shapes", ["3x2", "5"]), r"a: body has shape \(3, 2\), .*\(2, 3\)"),
        (put_config("spec", "names", ["body", "tail"]), r"a: tensors lack 'head'"),
        (put_config("spec", "names", ["head", "body"]), r"a: tensors come in the order"),
        (put_config("spec", "names", ["body"]), r"a: tensor names .* expected equal lists"),
        (put_config("spec", "shapes", ["2xtwo", "5"]), r"a: invalid literal"),
        (put_config("report", "round", 2), r"a: round = 2, expected 3"),
        (put_config("report", "attempt", 2), r"a: attempt = 2, expected 1"),
        (put_config("report", "epoch", 3), r"a: epoch = 3, expected 4"),
        (put_config("report", "zone", "b"), r"a: zone = 'b', expected 'a'"),
        (put_decisions(-1), r"a: n_decisions = -1, expected an integer >= 0"),
        (put_decisions(float("nan")), r"a: n_decisions = nan, expected an integer >= 0"),
        (without("arrays"), r"a: the reply has no record 'arrays'"),
        (without("metrics"), r"a: the reply has no record 'metrics'"),
        (without("report"), r"a: the reply has no record 'report'"),
    ],
)
def test_bad_update_is_refused_by_name(change: Callable[[RecordDict], None], message: str) -> None:
    content = reply_of(np.ones(11))
    change(content)
    with pytest.raises(AggregationError, match=message):
        CHECK.check("a", content)


def test_good_update_passes_unchanged() -> None:
    content, untouched = reply_of(np.linspace(0, 2, 11)), reply_of(np.linspace(0, 2, 11))
    CHECK.check("a", content)
    assert content == untouched


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "no validation"),
        ([1.0, 2.0, 3.0], "cannot reshape"),
        ([1.0, float("nan")], "not finite"),
    ],
)
def test_bad_validation_is_refused(values: list[float] | None, message: str) -> None:
    content = RecordDict()
    if values is not None:
        content["validation"] = ConfigRecord({"sums": values})
    with pytest.raises(AggregationError, match=f"a: validation.*{message}"):
        check_validation("a", content, n_episodes=2)
