from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from federation.flower_private import claim_identity, set_message_id
from federation.messages import DECISIONS, Packed, encode_report
from federation.strategy import UpdateCheck, average, check_validation, make_strategy
from federation.weights import WeightSpec, unpack
from marl_sched.errors import AggregationError
from zones.records import NetworkPair, RoundOrder, RoundReport

SPEC = WeightSpec(("body", "head"), ((2, 3), (5,)))
SENT = Packed(SPEC, np.ones(11, np.float32), np.ones(11, np.float32))
ORDER = RoundOrder(3, 1, ("a", "b"))
CHECK = UpdateCheck(ORDER, SENT, norm_bound=2.0)


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
        (put_config("spec", "shapes", ["3x2", "5"]), r"a: body has shape \(3, 2\), .*\(2, 3\)"),
        (put_config("spec", "names", ["body", "tail"]), r"a: tensors lack 'head'"),
        (put_config("spec", "names", ["head", "body"]), r"a: tensors come in the order"),
        (put_config("spec", "names", ["body"]), r"a: tensor names .* expected equal lists"),
        (put_config("spec", "shapes", ["2xtwo", "5"]), r"a: invalid literal"),
        (put_config("report", "round", 2), r"a: round = 2, expected 3"),
        (put_config("report", "attempt", 2), r"a: attempt = 2, expected 1"),
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


def messages(contents: dict[str, RecordDict]) -> dict[str, Message]:
    claim_identity(1, 1)
    replies = {}
    for number, (zone, content) in enumerate(contents.items()):
        order = Message(RecordDict(), 10 + number, "train")
        set_message_id(order, f"order-{number}")
        replies[zone] = Message(content, reply_to=order)
    return replies


def test_average_does_not_depend_on_the_order_of_replies() -> None:
    generator = np.random.default_rng(5)
    contents = {
        zone: reply_of(generator.standard_normal(11), n_decisions, zone)
        for zone, n_decisions in (("a", 3), ("b", 5), ("c", 11))
    }
    strategy = make_strategy("fedavg")
    forward = average(strategy, 3, messages(contents), SENT)
    backward = average(strategy, 3, messages(dict(reversed(contents.items()))), SENT)
    assert forward.online.tobytes() == backward.online.tobytes()
    expected = sum(
        n * np.asarray(contents[zone].array_records["arrays"]["online"].numpy(), np.float64)
        for zone, n in (("a", 3), ("b", 5), ("c", 11))
    )
    np.testing.assert_allclose(forward.online, expected / 19, rtol=1e-5, atol=1e-7)


def test_zone_without_decisions_has_no_weight() -> None:
    contents = {"a": reply_of(np.full(11, 4.0), 0), "b": reply_of(np.full(11, 2.0), 9, "b")}
    averaged = average(make_strategy("fedavg"), 3, messages(contents), SENT)
    np.testing.assert_array_equal(averaged.online, np.full(11, 2.0, np.float32))


def test_weights_stay_when_no_zone_decided_anything() -> None:
    averaged = average(make_strategy("fedavg"), 3, messages({"a": reply_of(np.zeros(11), 0)}), SENT)
    np.testing.assert_array_equal(averaged.online, SENT.online)


def test_result_is_float32_whatever_the_strategy_computes_in() -> None:
    class Doubling(type(make_strategy("fedavg"))):  # type: ignore[misc]  # any Flower strategy
        def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
            arrays, metrics = super().aggregate_train(server_round, replies)
            wide = {key: Array(array.numpy().astype(np.float64)) for key, array in arrays.items()}
            return ArrayRecord(wide), metrics or MetricRecord()

    strategy = Doubling(weighted_by_key=DECISIONS)
    averaged = average(strategy, 3, messages({"a": reply_of(np.ones(11))}), SENT)
    assert averaged.online.dtype == averaged.ema.dtype == np.float32
