"""What a zone must not be able to do to the others: every such message is refused and named."""

import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from outboxes import (
    NAMES,
    E,
    Member,
    Peer,
    R,
    notice,
    offload,
    outbox,
    rows,
    three_zones,
    wait_until_lost,
)

from federation.exchange_hub import ExchangeHub, HubLimits
from marl_sched.cluster.exchange import Outbox
from marl_sched.cluster.kernels import messages as m
from marl_sched.errors import ExchangeAborted
from zones.exchange_client import RemoteExchange
from zones.exchange_codec import MAX_FRAME_BYTES, pack_outbox
from zones.proto import exchange_pb2 as pb

pytestmark = pytest.mark.network

STEP = 3
LIMITS = HubLimits(max_rows=100, max_instances=5_000)


def changed(array: np.ndarray, column: int, value: float) -> np.ndarray:
    array = array.copy()
    array[0, column] = value
    return array


@pytest.fixture
def hub() -> Iterator[ExchangeHub]:
    with ExchangeHub(three_zones(), "127.0.0.1:0", limits=LIMITS) as hub:
        yield hub


class Attack:
    """Zones a and b by the rules, c without any; they have met STEP times."""

    def __init__(self, hub: ExchangeHub) -> None:
        self.hub = hub
        invitations = hub.open(NAMES, 1, 1)
        self.peer = Peer(hub.address).hello(invitations["c"], "c")
        assert self.peer.answer().HasField("welcome")
        self.remote = {name: RemoteExchange(name) for name in NAMES[:2]}
        for name, exchange in self.remote.items():
            exchange.join(invitations[name], 1, 1, NAMES)
        members = [Member(one, name, range(STEP)) for name, one in self.remote.items()]
        for step in range(STEP):
            assert self.peer.post(outbox("c", step)).answer().collected.step == step
        assert all(isinstance(member.outcome(), list) for member in members)

    def end(self) -> str:
        """Return why c is lost, once the others know and have met again without it."""
        waiting = [Member(one, name, [STEP]) for name, one in self.remote.items()]
        reason = wait_until_lost(self.hub, "c")
        assert [str(member.outcome()) for member in waiting] == [f"c was lost: {reason}"] * 2
        for exchange in self.remote.values():
            exchange.leave()
        assert list(self.hub.lost()) == ["c"]
        invitations = self.hub.open(NAMES[:2], 1, 2)
        for name, exchange in self.remote.items():
            exchange.join(invitations[name], 1, 2, NAMES[:2])
        again = [Member(one, name, range(STEP)) for name, one in self.remote.items()]
        assert all(isinstance(member.outcome(), list) for member in again)
        for exchange in self.remote.values():
            exchange.leave()
        assert self.hub.lost() == {}
        return reason


def with_array(change: Callable[[pb.Array], object]) -> bytes:
    """Return a post whose moments are changed as a message."""
    post = pb.Post(number=STEP, step=STEP, outbox=pack_outbox(outbox("c", STEP)))
    change(post.outbox.moments)
    return pb.FromZone(post=post).SerializeToString()


def truncated(array: pb.Array) -> None:
    array.values = array.values[:-3]


def as_float32(array: pb.Array) -> None:
    array.values = np.zeros((E, R, 3), np.float32).tobytes()


def many_axes(array: pb.Array) -> None:
    array.shape.extend([1] * 1000)


def post_of(box: Outbox, **changes: Any) -> bytes:
    values = {"number": STEP, "step": STEP, "outbox": pack_outbox(box), **changes}
    return pb.FromZone(post=pb.Post(**values)).SerializeToString()


FINE = post_of(outbox("c", STEP))
MESSAGES: dict[str, tuple[bytes, str]] = {
    "a replayed number": (post_of(outbox("c", STEP), number=2), "post number 2, expected 3 of 26"),
    "a number ahead": (post_of(outbox("c", STEP), number=4), "post number 4, expected 3"),
    "a huge number": (post_of(outbox("c", STEP), number=2**64 - 1), "expected 3 of 26"),
    "another step": (post_of(outbox("c", STEP), step=2), "post number 3 of step 2, expected 3"),
    "another zone's outbox": (post_of(outbox("a", STEP)), "the outbox of 'a', expected its own"),
    "NaN": (
        post_of(outbox("c", STEP, offloads=changed(offload("c", "a", 1, STEP), m.TIME, np.nan))),
        "offloads row 0: time = nan",
    ),
    "another zone's FROM": (
        post_of(outbox("c", STEP, offloads=changed(offload("c", "a", 1, STEP), m.FROM, 1))),
        "offloads row 0: from = 1, expected an integer from 2 to 2",
    ),
    "an unknown instance": (
        post_of(outbox("c", STEP, notices=notice("c", "a", 1, STEP))),
        "was never offloaded from there to this zone",
    ),
    "truncated array": (with_array(truncated), "moments: 93 bytes for an array of shape (2, 2, 3)"),
    "another dtype": (with_array(as_float32), "moments: 48 bytes for an array of shape (2, 2, 3)"),
    "a thousand axes": (with_array(many_axes), "moments: 96 bytes for an array of shape"),
    "a missing part": (
        pb.FromZone(
            post=pb.Post(number=STEP, step=STEP, outbox=pb.Outbox(zone="c"))
        ).SerializeToString(),
        "no offloads",
    ),
    "a truncated message": (FINE[:-7], "bytes that are no message of the exchange"),
    "noise": (b"\xff" * 1000, "1000 bytes that are no message of the exchange"),
    "a second hello": (
        pb.FromZone(hello=pb.Hello(zone="c", round=1, attempt=1)).SerializeToString(),
        "a message of kind hello, expected post or leave",
    ),
    "a message of no kind": (b"\xf8\x07\x01", "a message of kind None, expected post or leave"),
    "too many rows": (
        post_of(outbox("c", STEP, notices=np.zeros((101, m.N_NOTICE)))),
        "101 notices, expected at most 100",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_bad_message_is_named_and_the_others_go_on(hub: ExchangeHub, name: str) -> None:
    message, expected = MESSAGES[name]
    attack = Attack(hub)
    attack.peer.send(message)
    reason = attack.end()
    assert expected in reason
    assert attack.peer.refusal() == (grpc.StatusCode.INVALID_ARGUMENT, reason)


def test_message_of_a_million_instances_is_not_even_read(hub: ExchangeHub) -> None:
    attack = Attack(hub)
    million = np.zeros((1_000_000, m.N_OFFLOAD + 3 * R))
    attack.peer.post(outbox("c", STEP, offloads=million))
    assert attack.end() == "its stream broke"
    code, details = attack.peer.refusal()
    assert code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED), details


def test_largest_frame_of_rows_costs_no_more_than_a_few_copies(hub: ExchangeHub) -> None:
    attack = Attack(hub)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    many = np.zeros((MAX_FRAME_BYTES // 8 // 30, m.N_OFFLOAD + 3 * R))
    attack.peer.post(outbox("c", STEP, offloads=many))
    assert f"{len(many)} offloads, expected at most 100" in attack.end()
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mib < 12 * MAX_FRAME_BYTES / 2**20, grown_mib  # the peer's own copies included


def test_first_message_is_a_small_hello(hub: ExchangeHub) -> None:
    hub.open(NAMES, 1, 1)
    for first in (bytes(5_000), FINE, b"\xff", pb.FromZone(leave=pb.Leave()).SerializeToString()):
        peer = Peer(hub.address)
        peer.send(first)
        assert peer.refusal()[0] == grpc.StatusCode.PERMISSION_DENIED
    assert hub.lost() == {}


def to_the_third(name: str, step: int) -> Outbox:
    there = [offload(name, "c", 100 * step + n, step) for n in range(LIMITS.max_rows)]
    return outbox(name, step, offloads=rows(*there))


def test_peer_that_takes_no_answers_is_lost_and_the_others_are_freed() -> None:
    """It posts on, so that nobody waits for it, until its connection is full of answers."""
    with ExchangeHub(three_zones(), "127.0.0.1:0", limits=replace(LIMITS, take_s=1.0)) as hub:
        attack = Attack(hub)
        for step in range(STEP, 25):
            attack.peer.post(outbox("c", step))
        members = [
            Member(one, name, range(STEP, 25), to_the_third) for name, one in attack.remote.items()
        ]
        assert wait_until_lost(hub, "c") == "took no answer, or did not leave, for 1 s"
        assert all(isinstance(member.outcome(), ExchangeAborted) for member in members)
        for exchange in attack.remote.values():
            exchange.leave()
        assert list(hub.lost()) == ["c"]


def test_posts_sent_ahead_wait_their_turn(hub: ExchangeHub) -> None:
    attack = Attack(hub)
    for step in range(STEP, 20):
        attack.peer.post(outbox("c", step))
    members = [Member(one, name, range(STEP, 20)) for name, one in attack.remote.items()]
    assert all(isinstance(member.outcome(), list) for member in members)
    assert hub.lost() == {}
