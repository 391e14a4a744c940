"""Both ways to hold a call to the hub: the same answers, the same ends."""

import threading
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from outboxes import NAMES, E, Peer, meet, outbox, three_zones

from federation.exchange_hub import ExchangeHub
from marl_sched.errors import ExchangeAborted, ExchangeError
from zones import exchange_calls, exchange_client
from zones.exchange_calls import Call, CallEnded, QueuedCall, direct_call, new_call
from zones.exchange_client import RemoteExchange
from zones.proto import exchange_pb2 as pb

pytestmark = pytest.mark.network

Begin = Callable[[grpc.Channel], Call]


@pytest.fixture
def hub() -> Iterator[ExchangeHub]:
    with ExchangeHub(three_zones(), "127.0.0.1:0") as hub:
        yield hub


@pytest.fixture(params=[direct_call, QueuedCall])
def begin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Begin:
    monkeypatch.setattr(exchange_client, "new_call", request.param)
    begin: Begin = request.param
    return begin


def play(zones: dict[str, RemoteExchange], step: int) -> list[list[bytes]]:
    for name, zone in zones.items():
        zone.show(b"{}")
        zone.post(outbox(name, step, moments=np.full((E, 2, 3), 0.1 + ord(name))))
    return [[box.moments.tobytes() for box in zones[name].collect(name, step)] for name in zones]


def moments_of_all() -> list[bytes]:
    return [np.full((E, 2, 3), 0.1 + ord(name)).tobytes() for name in NAMES]


@pytest.mark.usefixtures("begin")
def test_steps_and_views_go_on_in_turn_and_zones_leave(hub: ExchangeHub) -> None:
    zones = meet(hub)
    for step in range(3):
        assert play(zones, step) == [moments_of_all()] * len(NAMES)
    for zone in zones.values():
        zone.leave()
    assert hub.lost() == {}


@pytest.mark.usefixtures("begin")
def test_zone_leaves_without_waiting_for_an_answer(hub: ExchangeHub) -> None:
    zones = meet(hub)
    zones["a"].post(outbox("a", 0))
    zones["a"].show(b"{}")
    hub.abort("enough")
    for zone in zones.values():
        zone.leave()
    assert hub.lost() == {}


@pytest.mark.usefixtures("begin")
def test_refusal_and_silence_are_told_and_the_call_can_be_left(hub: ExchangeHub) -> None:
    zones = meet(hub, timeout_s=0.2)
    zones["b"].post(outbox("b", 0))
    with pytest.raises(ExchangeAborted, match=r"no answer for 0\.2 s"):
        zones["b"].collect("b", 0)
    zones = meet(hub)
    zones["a"].post(outbox("a", 0, moments=np.full((E, 2, 3), np.nan)))
    with pytest.raises(ExchangeError, match="refused: moments hold nan"):
        zones["a"].collect("a", 0)
    zones["c"].post(outbox("c", 0))
    with pytest.raises(ExchangeAborted, match="a was lost: moments hold nan"):
        zones["c"].collect("c", 0)
    for zone in zones.values():
        zone.leave()


def test_call_that_has_ended_takes_frames_and_tells_its_end_again(
    hub: ExchangeHub, begin: Begin
) -> None:
    peer = Peer(hub.address)
    call = begin(peer.channel)
    call.ask(pb.FromZone(hello=pb.Hello(zone="a")).SerializeToString())
    for _ in range(100):  # the end comes in between
        call.tell(b"more")
    for _ in range(2):
        with pytest.raises(CallEnded, match="PERMISSION_DENIED: not invited") as ended:
            call.answer()
        assert ended.value.code is grpc.StatusCode.PERMISSION_DENIED
        call.ask(b"more")
        call.tell(b"more")
    call.cancel()
    call.finish()
    peer.close()


def test_call_of_this_grpc_has_no_thread_of_its_own(hub: ExchangeHub) -> None:
    hub.open(NAMES, 1, 1)
    peer = Peer(hub.address)
    before = threading.active_count()
    call = new_call(peer.channel)
    call.tell(b"")
    assert threading.active_count() == before
    assert not isinstance(call, QueuedCall)
    call.cancel()
    call.finish()
    peer.close()


@pytest.mark.parametrize("error", [ImportError, AttributeError, TypeError])
def test_other_grpc_is_called_by_its_public_names(
    monkeypatch: pytest.MonkeyPatch, hub: ExchangeHub, error: type[Exception]
) -> None:
    def gone(_: grpc.Channel) -> Call:
        raise error

    monkeypatch.setattr(exchange_calls, "direct_call", gone)
    zones = meet(hub)
    assert play(zones, 0)[0] == moments_of_all()
    for zone in zones.values():
        zone.leave()
