"""RemoteExchange against a real hub on loopback: the same as LocalExchange, or an error in time."""

import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays
from outboxes import N_STEPS, NAMES, E, Member, meet, offload, outbox, rows, three_zones

from federation.exchange_hub import ExchangeHub
from marl_sched.cluster.exchange import LocalExchange, Outbox
from marl_sched.errors import ExchangeAborted, ExchangeError
from zones.exchange_client import RemoteExchange
from zones.exchange_codec import (
    MAX_FRAME_BYTES,
    PARTS,
    pack_array,
    pack_outbox,
    unpack_array,
    unpack_collected,
    unpack_outbox,
)
from zones.proto import exchange_pb2 as pb
from zones.records import Invitation

pytestmark = pytest.mark.network


@pytest.fixture
def hub() -> Iterator[ExchangeHub]:
    with ExchangeHub(three_zones(), "127.0.0.1:0") as hub:
        yield hub


def as_bytes(box: Outbox) -> tuple[object, ...]:
    arrays = [getattr(box, name) for name in PARTS]
    return box.zone, box.step, *(a if a is None else (a.shape, a.tobytes()) for a in arrays)


@given(arrays(np.float64, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
def test_array_travels_to_the_last_bit(array: np.ndarray) -> None:
    got = unpack_array(pb.Array.FromString(pack_array(array).SerializeToString()))
    assert (got.shape, got.dtype) == (array.shape, np.float64)
    assert got.tobytes() == array.tobytes()


def test_array_of_another_layout_travels_by_value() -> None:
    array = np.arange(12.0).reshape(3, 4)
    for other in (array.T, array[:, ::2], array.astype(">f8"), array.astype(np.int64)):
        np.testing.assert_array_equal(unpack_array(pack_array(other)), other)


def test_unpacked_array_may_be_written_to() -> None:
    unpack_array(pack_array(np.zeros((2, 2))))[0, 0] = 1.0


@pytest.mark.parametrize(
    ("shape", "n_bytes"),
    [
        ([2, 3], 40),
        ([2, 3], 24),  # float32
        ([2**32 - 1, 2**32 - 1], 8),
        ([1, 1, 1, 1], 8),
        ([2**32 - 1, 0, 2**32 - 1], 0),
        ([0, 3], 8),
        ([], 0),
        ([1] * 100_000, 8),
    ],
)
def test_bytes_that_do_not_fit_the_shape_are_refused(shape: list[int], n_bytes: int) -> None:
    with pytest.raises(ExchangeError, match=f"{n_bytes} bytes for an array of shape"):
        unpack_array(pb.Array(shape=shape, values=bytes(n_bytes)))


def test_outbox_without_a_part_is_refused() -> None:
    message = pack_outbox(outbox("a", 3))
    message.ClearField("moments")
    with pytest.raises(ExchangeError, match="zone a, step 3: no moments"):
        unpack_outbox(message, 3)


def collected(**changes: Any) -> pb.Collected:
    """What three zones without rows have posted; the second has sent no digest."""
    parts: dict[str, Any] = {
        "moments": pb.Array(shape=[E, 2, 3], values=bytes(3 * E * 2 * 3 * 8)),
        "with_digests": [0, 2],
        "digests": pb.Array(shape=[E, 5], values=bytes(2 * E * 5 * 8)),
        "offloads": pb.Rows(n_columns=26),
        "notices": pb.Rows(n_columns=7),
        "settlements": pb.Rows(n_columns=8, counts=[1, 0, 2], values=bytes(3 * 8 * 8)),
    }
    return pb.Collected(number=3, step=3, **{**parts, **changes})


def test_collected_parts_go_to_the_zones_that_sent_them() -> None:
    boxes = unpack_collected(collected(), NAMES)
    assert [box.zone for box in boxes] == list(NAMES)
    assert [None if box.digests is None else box.digests.shape for box in boxes] == [
        (E, 5),
        None,
        (E, 5),
    ]
    assert [box.settlements.shape for box in boxes] == [(1, 8), (0, 8), (2, 8)]
    assert {box.moments.shape for box in boxes} == {(E, 2, 3)}
    assert {box.offloads.shape for box in boxes} == {(0, 26)}


GARBAGE: dict[str, tuple[pb.Collected, str]] = {
    "moments of too few": (
        collected(moments=pb.Array(shape=[E, 2, 3], values=bytes(2 * E * 2 * 3 * 8))),
        "192 bytes for 3 arrays of shape",
    ),
    "no moments": (collected(moments=None), "0 bytes for 3 arrays of shape"),
    "many axes": (
        collected(moments=pb.Array(shape=[1] * 100_000, values=bytes(24))),
        "24 bytes for 3 arrays of shape",
    ),
    "digests of nobody": (collected(with_digests=[0, 3]), r"digests of zones \[0, 3\]"),
    "digests twice": (collected(with_digests=[0, 0]), r"digests of zones \[0, 0\]"),
    "digests in another order": (collected(with_digests=[2, 0]), r"digests of zones \[2, 0\]"),
    "a million digests": (collected(with_digests=[0] * 1_000_000), "digests of zones"),
    "too few digests": (collected(with_digests=[0, 1, 2]), "160 bytes for 3 arrays"),
    "counts of too few": (
        collected(notices=pb.Rows(n_columns=7, counts=[1, 1], values=bytes(2 * 7 * 8))),
        "112 bytes for rows of 7 columns of 2 zones",
    ),
    "counts of too many": (
        collected(notices=pb.Rows(n_columns=7, counts=[1] * 9, values=bytes(3 * 7 * 8))),
        "168 bytes for rows of 7 columns of 4 zones",
    ),
    "huge counts": (
        collected(notices=pb.Rows(n_columns=7, counts=[2**32 - 1] * 3, values=bytes(56))),
        "56 bytes for rows of 7 columns of 3 zones",
    ),
    "rows without counts": (
        collected(notices=pb.Rows(n_columns=7, values=bytes(56))),
        "56 bytes for rows of 7 columns of 0 zones",
    ),
    "huge rows": (
        collected(notices=pb.Rows(n_columns=2**32 - 1)),
        "0 bytes for rows of 4294967295 columns of 0 zones",
    ),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_answer_that_no_hub_by_the_rules_gives_is_an_error(name: str) -> None:
    message, expected = GARBAGE[name]
    with pytest.raises(ExchangeError, match=expected):
        unpack_collected(message, NAMES)


def test_outbox_without_digest_has_none() -> None:
    assert unpack_outbox(pack_outbox(outbox("a", 3, digests=None)), 3).digests is None


def busy(name: str, step: int) -> Outbox:
    """Every zone sends one instance to each other zone, in all windows but the first two."""
    if not 3 <= step <= 24:
        return outbox(name, step, digests=None)
    others = [other for other in NAMES if other != name]
    sent = [offload(name, to, 10 * step + n, step, n % E) for n, to in enumerate(others)]
    return outbox(name, step, offloads=rows(*sent))


def test_zones_get_what_a_local_exchange_gives_of_it_what_is_theirs(hub: ExchangeHub) -> None:
    steps = range(N_STEPS)
    remote = meet(hub)
    members = [Member(remote[name], name, steps, busy) for name in NAMES]
    local = LocalExchange(NAMES)
    expected = [Member(local, name, steps, busy) for name in NAMES]
    for index, (member, plain) in enumerate(zip(members, expected, strict=True)):
        got, all_rows = member.outcome(), plain.outcome()
        assert isinstance(got, list)
        assert isinstance(all_rows, list)
        assert len(got) == N_STEPS
        for ours, theirs in zip(got, all_rows, strict=True):
            for box, whole in zip(ours, theirs, strict=True):
                offloads = whole.offloads[whole.offloads[:, 1] == index]
                mine = Outbox(**{**vars(whole), "offloads": offloads})
                assert as_bytes(box) == as_bytes(mine)
    for exchange in remote.values():
        exchange.leave()
    assert hub.lost() == {}


def test_zone_joins_one_attempt_after_the_other(hub: ExchangeHub) -> None:
    for attempt in (1, 2, 3):
        remote = meet(hub, NAMES[:2], attempt=attempt)
        assert remote["a"].zone_names == ("a", "b")
        members = [Member(exchange, name, range(2)) for name, exchange in remote.items()]
        assert [len(member.outcome()) for member in members] == [2, 2]  # type: ignore[arg-type]
        for exchange in remote.values():
            exchange.leave()
        assert hub.lost() == {}


def test_exchange_has_to_be_joined() -> None:
    with pytest.raises(ExchangeError, match="zone a has not joined an exchange"):
        RemoteExchange("a").post(outbox("a", 0))


def test_posts_and_collects_take_turns(hub: ExchangeHub) -> None:
    members = meet(hub)  # all are kept: one that is collected is lost
    remote = members["a"]
    with pytest.raises(ExchangeError, match="zone a, step 0: not posted, or not a"):
        remote.collect("a", 0)
    with pytest.raises(ExchangeError, match="zone b, step 0: posted twice, or not a"):
        remote.post(outbox("b", 0))
    remote.post(outbox("a", 0))
    with pytest.raises(ExchangeError, match="zone a, step 0: posted twice, or not a"):
        remote.post(outbox("a", 0))
    with pytest.raises(ExchangeError, match="zone a, step 1: not posted, or not a"):
        remote.collect("a", 1)


def test_outbox_beyond_the_largest_frame_is_not_sent(hub: ExchangeHub) -> None:
    members = meet(hub)  # all are kept: one that is collected is lost
    remote = members["a"]
    many = np.zeros((MAX_FRAME_BYTES // 8, 1))
    with pytest.raises(ExchangeError, match=r"zone a, step 0: an outbox of \d+ bytes, expected"):
        remote.post(outbox("a", 0, offloads=many))
    assert hub.lost() == {}


def test_hub_that_is_not_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    remote = RemoteExchange("a")
    with pytest.raises(ExchangeError, match=rf"{address}: .*[Cc]onnection refused") as caught:
        remote.join(Invitation(address, b"x" * 32), 1, 1, NAMES)
    assert not isinstance(caught.value, ExchangeAborted)  # nobody else is to blame


def test_hub_that_says_nothing_is_waited_for_within_a_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        remote = RemoteExchange("a", connect_s=0.2)
        with pytest.raises(ExchangeError, match=rf"{address}: .*no answer for 0\.2 s"):
            remote.join(Invitation(address, b"x" * 32), 1, 1, NAMES)


def test_others_are_waited_for_within_a_bound(hub: ExchangeHub) -> None:
    members = meet(hub, timeout_s=0.2)  # all are kept: one that is collected is lost
    remote = members["a"]
    remote.post(outbox("a", 0))
    with pytest.raises(ExchangeAborted, match=r"step 0: no answer for 0\.2 s"):
        remote.collect("a", 0)
    with pytest.raises(ExchangeAborted, match=r"step 0: no answer for 0\.2 s"):
        remote.collect("a", 0)  # and stays so
    remote.leave()


def test_refusal_is_an_error_of_this_zone(hub: ExchangeHub) -> None:
    invitation = hub.open(NAMES, 1, 1)["b"]
    with pytest.raises(ExchangeError, match="refused: not invited to the exchange") as caught:
        RemoteExchange("a").join(invitation, 1, 1, NAMES)
    assert not isinstance(caught.value, ExchangeAborted)


def test_what_the_hub_does_not_take_is_an_error_of_this_zone(hub: ExchangeHub) -> None:
    members = meet(hub)  # all are kept: one that is collected is lost
    remote = members["a"]
    remote.post(outbox("a", 0, moments=np.full((E, 2, 3), np.nan)))
    with pytest.raises(ExchangeError, match="refused: moments hold nan") as caught:
        remote.collect("a", 0)
    assert not isinstance(caught.value, ExchangeAborted)
    remote.leave()


def test_void_attempt_is_told_to_who_comes_late(hub: ExchangeHub) -> None:
    invitation = hub.open(NAMES, 1, 1)["a"]
    hub.abort("b has left")
    with pytest.raises(ExchangeAborted, match="b has left"):
        RemoteExchange("a").join(invitation, 1, 1, NAMES)


def test_members_must_be_those_of_the_exchange(hub: ExchangeHub) -> None:
    invitation = hub.open(NAMES, 1, 1)["a"]
    with pytest.raises(ExchangeError, match="the exchange is one of a, b, c"):
        RemoteExchange("a").join(invitation, 1, 1, ("a", "b"))


def test_closed_hub_ends_the_wait(hub: ExchangeHub) -> None:
    remote = meet(hub)
    member = Member(remote["a"], "a", range(1))
    hub.close()
    assert isinstance(member.outcome(), ExchangeAborted)
    for exchange in remote.values():
        exchange.leave()


def test_leaving_twice_or_before_joining_is_nothing(hub: ExchangeHub) -> None:
    members = meet(hub)  # all are kept: one that is collected is lost
    remote = members["a"]
    remote.leave()
    remote.leave()
    RemoteExchange("a").leave()
    assert hub.lost() == {}
