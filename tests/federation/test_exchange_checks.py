"""What the hub lets through: all that a zone by the rules sends, and nothing else."""

import re

import numpy as np
import pytest
from outboxes import (
    NAMES,
    E,
    R,
    W,
    notice,
    offload,
    outbox,
    rows,
    settlement,
    three_zones,
)

from federation.exchange_checks import OutboxCheck, load_kernels
from federation.exchange_hub import HubLimits
from federation.exchange_ledger import Ledger
from federation.exchange_plan import Plan
from marl_sched.cluster.exchange import Outbox
from marl_sched.cluster.kernels import messages as m
from marl_sched.cluster.kernels import posts
from marl_sched.config import Experiment
from marl_sched.errors import ExchangeError
from zones.exchange_codec import pack_outbox, unpack_outbox

STEP = 3
LIMITS = HubLimits(max_rows=100, max_instances=5_000)


def check_of(experiment: Experiment, members: tuple[str, ...] = NAMES) -> OutboxCheck:
    return OutboxCheck(experiment, members, LIMITS.max_rows, LIMITS.max_instances)


class Hub:
    """The hub's judgment of outboxes, without a connection."""

    def __init__(self) -> None:
        self.experiment = three_zones()
        self.check, self.ledger = check_of(self.experiment), Ledger(len(NAMES), E)
        self.plan = Plan(self.experiment, 1)

    def take(self, *boxes: Outbox) -> "Hub":
        """Judge outboxes of one exchange, then take them down."""
        for box in boxes:
            self._judge(box, box.zone)
        self.ledger.enter(boxes)
        return self

    def refusal(self, box: Outbox, zone: str | None = None) -> str:
        with pytest.raises(ExchangeError) as caught:
            self._judge(box, zone or box.zone)
        return str(caught.value)

    def _judge(self, box: Outbox, zone: str) -> None:
        self.check.check(zone, box, self.plan.place(box.step))
        self.ledger.check(box)


def changed(array: np.ndarray, column: int, value: float) -> np.ndarray:
    array = array.copy()
    array[0, column] = value
    return array


def sent(column: int, value: float) -> Outbox:
    return outbox("a", STEP, offloads=changed(offload("a", "b", 7, STEP), column, value))


REQUEST, USE, KNOWN = m.N_OFFLOAD, m.N_OFFLOAD + R, m.N_OFFLOAD + 2 * R
LONGEST_US = 2_000_000 + 4_000_000 + 1  # 2 s + 0.5 s per GiB of the largest machine's 8
BAD_OFFLOADS: dict[str, tuple[int, float, str]] = {
    "NaN in time": (m.TIME, np.nan, "time = nan, expected an integer from"),
    "NaN in use": (USE, np.nan, "use of cpu_milli = nan"),
    "infinite work": (m.O_WORK, np.inf, "work = inf"),
    "infinite reference": (m.O_REFERENCE, np.inf, "reference = inf"),
    "time in the past": (m.TIME, (STEP - 1) * W - 1, f"from {(STEP - 1) * W} to"),
    "negative time": (m.TIME, -1, "time = -1"),
    "time beyond the longest transfer": (m.TIME, STEP * W + LONGEST_US + 1, "time = "),
    "time beyond the episode": (m.TIME, 1e12, "time = 1000000000000"),
    "time between two": (m.TIME, STEP * W + 0.5, "time = .*, expected an integer"),
    "ready after the window": (m.O_READY, STEP * W + 1, "ready = "),
    "negative request": (REQUEST, -1, "request of cpu_milli = -1"),
    "request above any machine": (REQUEST, 4001, "request of cpu_milli = 4001.* to 4000"),
    "request of half a unit": (REQUEST + 1, 0.5, "request of memory_mib = 0.5"),
    "negative use": (USE, -0.1, "use of cpu_milli = -0.1"),
    "endless use": (USE + 1, 1e300, r"use of memory_mib = 1\.0*1?e\+300"),
    "known use of less than nothing": (KNOWN, -1, "known use of cpu_milli = -1"),
    "replica of no episode": (m.REPLICA, E, "replica = 2, expected an integer from 0 to 1"),
    "negative replica": (m.REPLICA, -1, "replica = -1"),
    "zone of no cluster": (m.TO, 3, "to = 3"),
    "negative zone": (m.TO, -1, "to = -1"),
    "to itself": (m.TO, 0, "it is for no other member"),
    "from another zone": (m.FROM, 1, "from = 1, expected an integer from 0 to 0"),
    "instance beyond all": (m.INSTANCE_ROW, 5_000, "instance = 5000"),
    "negative instance": (m.INSTANCE_ROW, -1, "instance = -1"),
    "huge instance": (m.INSTANCE_ROW, 2.0**60, "instance = 1.15292"),
    "negative sequence": (m.SEQUENCE, -1, "sequence = -1"),
    "no work": (m.O_WORK, 0, "work = 0"),
    "division by zero": (m.O_REFERENCE, 0, "reference = 0"),
    "negative spread": (m.O_SIGMA, -1, "sigma = -1"),
    "negative mean": (m.O_MEAN, -1, "mean = -1"),
    "priority beyond int32": (m.O_PRIORITY, 2.0**31, "priority = 2147483648"),
    "class beyond int32": (m.O_CLASS, -(2.0**31) - 1, "class = "),
    "more hops than allowed": (m.O_HOPS, 2, "hops = 2, expected an integer from 1 to 1"),
    "no hop": (m.O_HOPS, 0, "hops = 0"),
    "more restarts than allowed": (m.O_RESTARTS, 4, "restarts = 4"),
    "endless transfer": (m.O_TRANSFER, 1e9, "transfer = "),
    "negative limit": (m.O_LATEST_WAIT, -1, "latest wait = -1"),
    "limit beyond exact integers": (m.O_LATEST_FINISH, 1e300, "latest finish = "),
    "negative failures": (m.O_FAILED_CREATIONS, -1, "failed creations = -1"),
    "negative task": (m.O_TASK, -1, "task = -1"),
}


@pytest.mark.parametrize("name", BAD_OFFLOADS)
def test_offload_out_of_bounds_is_refused_by_name(name: str) -> None:
    column, value, expected = BAD_OFFLOADS[name]
    assert re.search(expected, Hub().refusal(sent(column, value)))


def test_every_column_of_an_offload_is_checked_for_nan() -> None:
    columns = offload("a", "b", 7, STEP).shape[1]
    for column in range(columns):
        assert "= nan, expected" in Hub().refusal(sent(column, np.nan)), column


def test_bad_row_among_good_ones_is_found() -> None:
    good = [offload("a", "b", row, STEP) for row in range(9)]
    bad = changed(offload("a", "c", 9, STEP), m.O_WORK, -4)
    box = outbox("a", STEP, offloads=rows(*good, bad))
    assert "offloads row 9: work = -4" in Hub().refusal(box)


def test_honest_offloads_notices_and_settlements_pass() -> None:
    hub = Hub()
    hub.take(
        outbox("a", 3, offloads=rows(offload("a", "b", 7, 3), offload("a", "c", 8, 3, 1))),
        outbox("b", 3),
        outbox("c", 3, offloads=offload("c", "b", 7, 3)),
    )
    hub.take(
        outbox("a", 4),
        outbox("b", 4, settlements=rows(settlement("b", "a", 7, 4), settlement("b", "c", 7, 4))),
        outbox("c", 4, settlements=settlement("c", "a", 8, 4, replica=1)),
    )
    dies_and_starts_again = rows(
        settlement("b", "a", 7, 5, sign=-1), settlement("b", "a", 7, 5, sign=1)
    )
    hub.take(outbox("b", 5, settlements=dies_and_starts_again))
    hub.take(
        outbox("b", 6, notices=rows(notice("b", "a", 7, 6), notice("b", "c", 7, 6))),
        outbox("c", 6, notices=notice("c", "a", 8, 6, 1)),
    )


def held() -> Hub:
    """Zone a has sent instance 7 to b and instance 8 to c."""
    there = rows(offload("a", "b", 7, 3), offload("a", "c", 8, 3))
    return Hub().take(outbox("a", 3, offloads=there))


UNKNOWN: dict[str, Outbox] = {
    "never offloaded": outbox("b", 4, notices=notice("b", "a", 6, 4)),
    "beyond what was offloaded": outbox("b", 4, notices=notice("b", "a", 4_999, 4)),
    "held by another zone": outbox("b", 4, notices=notice("b", "a", 8, 4)),
    "of another replica": outbox("b", 4, notices=notice("b", "a", 7, 4, replica=1)),
    "of a zone that sent nothing": outbox("b", 4, notices=notice("b", "c", 7, 4)),
    "credit never offloaded": outbox("b", 4, settlements=settlement("b", "a", 6, 4)),
    "credit of another zone": outbox("c", 4, settlements=settlement("c", "a", 7, 4)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_news_of_an_instance_that_is_not_there_is_refused(name: str) -> None:
    refusal = held().refusal(UNKNOWN[name])
    assert "was never offloaded from there to this zone" in refusal


def test_instance_is_offloaded_once() -> None:
    again = offload("a", "c", 7, 4)
    assert "instance 7 of replica 0 was offloaded before" in held().refusal(
        outbox("a", 4, offloads=again)
    )
    twice = rows(offload("a", "b", 9, 4), offload("a", "c", 9, 4))
    assert "offloads row 1: instance 9" in held().refusal(outbox("a", 4, offloads=twice))


def test_instance_ends_once() -> None:
    twice = rows(notice("b", "a", 7, 4), notice("b", "a", 7, 4))
    assert "notices row 1: instance 7 of replica 0 has ended before" in held().refusal(
        outbox("b", 4, notices=twice)
    )
    hub = held().take(outbox("b", 4, notices=notice("b", "a", 7, 4)))
    assert "has ended before" in hub.refusal(outbox("b", 5, notices=notice("b", "a", 7, 5)))


def test_credit_is_given_once_and_taken_back_once() -> None:
    hub = held()
    taken = outbox("b", 4, settlements=settlement("b", "a", 7, 4, sign=-1))
    assert "settlements row 0: instance 7 of replica 0 has that" in hub.refusal(taken)
    many = rows(*[settlement("b", "a", 7, 4)] * 3)
    assert "has that credit already" in hub.refusal(outbox("b", 4, settlements=many))
    hub.take(outbox("b", 4, settlements=settlement("b", "a", 7, 4)))
    given = outbox("b", 5, settlements=settlement("b", "a", 7, 5))
    assert "has that credit already" in hub.refusal(given)
    wrapped = rows(*[settlement("b", "a", 7, 5, sign=-1)] * 2)
    assert "has that credit already" in hub.refusal(outbox("b", 5, settlements=wrapped))


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        (outbox("b", 4, notices=changed(notice("b", "a", 7, 4), m.TIME, 0)), "time = 0"),
        (outbox("b", 4, notices=changed(notice("b", "a", 7, 4), m.TIME, 1e9)), "time = 1e9"),
        (outbox("b", 4, notices=changed(notice("b", "a", 7, 4), m.N_FAILED, 2)), "failed = 2"),
        (outbox("b", 4, notices=changed(notice("b", "a", 7, 4), m.N_FAILED, 0.5)), "failed = 0.5"),
        (
            outbox("b", 4, settlements=changed(settlement("b", "a", 7, 4), m.S_REWARD, np.nan)),
            "reward = nan",
        ),
        (
            outbox("b", 4, settlements=changed(settlement("b", "a", 7, 4), m.S_REWARD, -1e200)),
            "reward = -",
        ),
        (outbox("b", 4, settlements=changed(settlement("b", "a", 7, 4), m.S_SIGN, 3)), "sign = 3"),
        (outbox("b", 4, settlements=changed(settlement("b", "a", 7, 4), m.S_SIGN, 0)), "no sign"),
    ],
)
def test_notice_and_settlement_out_of_bounds_are_refused(box: Outbox, expected: str) -> None:
    assert expected.replace("1e9", "1000000000") in held().refusal(box)


@pytest.mark.parametrize(
    ("part", "array", "expected"),
    [
        ("moments", np.zeros((E + 1, R, 3)), r"moments of shape \(3, 2, 3\), expected \(2, 2, 3\)"),
        ("moments", np.zeros((E, R + 1, 3)), "moments of shape"),
        ("moments", np.zeros((E, R)), "moments of shape"),
        ("moments", np.full((E, R, 3), np.nan), "moments hold nan"),
        ("moments", np.full((E, R, 3), -1e-5), "moments hold -1e-05"),
        ("digests", np.zeros((E, 5)), "digests of shape"),
        ("digests", np.zeros((E - 1, 22)), "digests of shape"),
        ("digests", np.full((E, 22), np.inf), "digests hold inf"),
        ("offloads", np.zeros((1, 25)), r"offloads of shape \(1, 25\), expected \(None, 26\)"),
        ("offloads", np.zeros(26), "offloads of shape"),
        ("offloads", np.zeros((0, 7)), "offloads of shape"),
        ("notices", np.zeros((2, 8)), "notices of shape"),
        ("settlements", np.zeros((2, 7)), "settlements of shape"),
        ("notices", np.zeros((101, 7)), "101 notices, expected at most 100"),
    ],
)
def test_part_of_another_shape_is_refused(part: str, array: np.ndarray, expected: str) -> None:
    assert re.search(expected, Hub().refusal(outbox("a", STEP, **{part: array})))


def test_dust_of_sums_below_zero_is_no_offence() -> None:
    dust = {"moments": np.full((E, R, 3), -4e-16), "digests": np.full((E, 22), -4e-16)}
    assert Hub().take(outbox("a", STEP, **dust)).check is not None


def test_outbox_of_another_zone_is_refused() -> None:
    assert Hub().refusal(outbox("b", STEP), zone="a") == "the outbox of 'b', expected its own"


def test_zone_that_takes_no_part_is_sent_nothing() -> None:
    experiment = three_zones()
    box = outbox("a", STEP, offloads=offload("a", "c", 7, STEP))
    with pytest.raises(ExchangeError, match="offloads row 0: it is for no other member"):
        check_of(experiment, ("a", "b")).check("a", box, Plan(experiment, 1).place(STEP))


def test_books_of_all_zones_are_kept_as_they_grow() -> None:
    hub = Hub()
    places = [(row, e) for row in (7, 1_200, 1_700, 4_999) for e in range(E)]
    for row, e in places:  # every one but the first is beyond the zone's room
        hub.take(
            outbox("a", 3, offloads=offload("a", "b", row, 3, e)),
            outbox("b", 3, offloads=offload("b", "c", row, 3, e)),
            outbox("c", 3, offloads=offload("c", "b", row, 3, e)),
        )
        given = rows(settlement("b", "a", row, 4, 1, e), settlement("b", "c", row, 4, 1, e))
        hub.take(outbox("b", 4, settlements=given, notices=notice("b", "a", row, 4, e)))
    for row, e in places:
        again = outbox("c", 5, offloads=offload("c", "a", row, 5, e))
        assert f"instance {row} of replica {e} was offloaded before" in hub.refusal(again)
        ended = outbox("b", 5, notices=notice("b", "a", row, 5, e))
        assert f"instance {row} of replica {e} has ended before" in hub.refusal(ended)
        credited = outbox("b", 5, settlements=settlement("b", "c", row, 5, 1, e))
        assert f"instance {row} of replica {e} has that credit" in hub.refusal(credited)
        other = outbox("b", 5, notices=notice("b", "a", row - 1, 5, e))
        assert "was never offloaded" in hub.refusal(other)
    ends = [notice("c", "b", row, 5, e) for row, e in places]
    hub.take(outbox("c", 5, notices=rows(*ends)))


def test_refusal_leaves_the_books_as_they_were() -> None:
    hub = held()
    fresh = [offload("a", "b", 9, 4), offload("a", "b", 10, 4)]
    hub.refusal(outbox("a", 4, offloads=rows(*fresh, offload("a", "b", 7, 4))))
    hub.take(outbox("a", 4, offloads=rows(*fresh)))
    twice = rows(notice("b", "a", 9, 5), notice("b", "a", 9, 5))
    hub.refusal(outbox("b", 5, notices=twice))
    hub.refusal(outbox("b", 5, settlements=rows(*[settlement("b", "a", 9, 5)] * 2)))
    hub.take(outbox("b", 5, notices=twice[:1], settlements=settlement("b", "a", 9, 5)))


def test_credit_that_comes_and_goes_without_end_is_refused() -> None:
    signs = [1, -1] * (LIMITS.max_rows // 2)
    hub = held()
    hub.take(outbox("b", 4, settlements=rows(*(settlement("b", "a", 7, 4, s) for s in signs))))
    check = OutboxCheck(hub.experiment, NAMES, 100_000, LIMITS.max_instances)
    many = rows(*[settlement("b", "a", 7, 5)] * 300, *[settlement("b", "a", 7, 5, -1)] * 300)
    box = outbox("b", 5, settlements=many)
    check.check("b", box, hub.plan.place(5))
    with pytest.raises(ExchangeError, match="instance 7 of replica 0 has that credit already"):
        hub.ledger.check(box)


def test_kernels_are_compiled_once_for_all_that_comes() -> None:
    load_kernels()
    kernels = [posts.first_fault, posts.first_untrue, posts.enter]
    before = [len(kernel.signatures) for kernel in kernels]  # type: ignore[attr-defined]
    hub = Hub()
    for box in (
        outbox("a", 3, offloads=rows(offload("a", "b", 7, 3), offload("a", "c", 8, 3))),
        outbox("b", 3, digests=None),
        outbox("b", 4, notices=notice("b", "a", 7, 4), settlements=settlement("b", "a", 7, 4)),
    ):
        hub.take(unpack_outbox(pack_outbox(box), box.step))  # as it comes
        hub.refusal(outbox("a", 5, offloads=np.asfortranarray(offload("a", "b", 7, 5))))
    after = [len(kernel.signatures) for kernel in kernels]  # type: ignore[attr-defined]
    assert before == after == [1, 1, 1]


def test_ledger_stays_small_whatever_is_offloaded() -> None:
    hub = Hub()
    for first in range(0, LIMITS.max_instances, 50):
        there = [offload("a", "b", first + n, STEP, e) for n in range(50) for e in range(E)]
        hub.take(outbox("a", STEP, offloads=rows(*there)))
    assert hub.ledger.n_bytes <= 1.5 * 4 * E * LIMITS.max_instances
