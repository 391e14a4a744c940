"""The hub over real connections: who is let in, who is lost and when, and what the others hear."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from outboxes import N_STEPS, NAMES, Member, Peer, meet, outbox, three_zones, wait_until_lost

from federation.exchange_hub import ExchangeHub, HubLimits
from federation.exchange_plan import Plan, is_validated
from marl_sched.errors import ExchangeAborted, ExchangeError
from zones.exchange_client import RemoteExchange
from zones.records import Invitation

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
QUICK = HubLimits(silent_s=1.0, take_s=1.0)
REFUSED = (grpc.StatusCode.PERMISSION_DENIED, "not invited to the exchange")


@pytest.fixture
def hub() -> Iterator[ExchangeHub]:
    with ExchangeHub(three_zones(), "127.0.0.1:0") as hub:
        yield hub


@pytest.fixture
def quick() -> Iterator[ExchangeHub]:
    with ExchangeHub(three_zones(), "127.0.0.1:0", limits=QUICK) as hub:
        yield hub


@pytest.fixture
def impatient() -> Iterator[ExchangeHub]:
    limits = HubLimits(hello_s=0.3, min_zones=0)
    with ExchangeHub(three_zones(), "127.0.0.1:0", limits=limits) as hub:
        yield hub


@pytest.fixture
def probing() -> Iterator[ExchangeHub]:
    limits = HubLimits(keepalive_s=1.0)
    with ExchangeHub(three_zones(), "127.0.0.1:0", limits=limits) as hub:
        yield hub


def still_works(hub: ExchangeHub, remote: dict[str, RemoteExchange]) -> bool:
    members = [Member(exchange, name, range(2)) for name, exchange in remote.items()]
    return all(isinstance(member.outcome(), list) for member in members) and not hub.lost()


def test_every_zone_and_attempt_has_a_token_of_its_own(hub: ExchangeHub) -> None:
    invitations = [hub.open(NAMES, 1, attempt)[name] for attempt in (1, 2) for name in NAMES]
    tokens = {invitation.token for invitation in invitations}
    assert len(tokens) == 6
    assert {len(token) for token in tokens} == {32}
    assert {invitation.address for invitation in invitations} == {hub.address}
    assert not any(str(invitation.token) in repr(invitation) for invitation in invitations)


def test_zones_may_be_told_another_address_than_the_one_listened_on() -> None:
    with ExchangeHub(
        three_zones(), "127.0.0.1:0", public_address="coordinator.example:9093"
    ) as hub:
        assert hub.open(NAMES, 1, 1)["a"].address == "coordinator.example:9093"


def test_address_that_is_taken_is_an_error(hub: ExchangeHub) -> None:
    with pytest.raises(ExchangeError, match=f"{hub.address}: the exchange cannot listen there"):
        ExchangeHub(three_zones(), hub.address)


def test_nobody_is_lost_before_the_first_attempt(hub: ExchangeHub) -> None:
    assert hub.lost() == {}
    peer = Peer(hub.address).hello(Invitation(hub.address, b"x" * 32), "a")
    assert peer.refusal() == REFUSED


def test_abort_wakes_all_who_wait(hub: ExchangeHub) -> None:
    remote = meet(hub)
    waiting = [Member(remote[name], name, range(1)) for name in ("a", "b")]
    hub.abort("c has left")
    for member in waiting:
        assert isinstance(member.outcome(), ExchangeAborted)
        assert str(member.outcome()) == "c has left"
    late = Member(remote["c"], "c", range(1))
    assert str(late.outcome()) == "c has left"
    for exchange in remote.values():
        exchange.leave()
    assert hub.lost() == {}


def test_zone_that_leaves_is_not_lost(hub: ExchangeHub) -> None:
    remote = meet(hub)
    remote["c"].leave()
    waiting = Member(remote["a"], "a", range(1))
    hub.abort("c has failed")  # as the round driver does when c says so
    assert str(waiting.outcome()) == "c has failed"
    assert hub.lost() == {}


def test_connection_that_breaks_loses_its_zone_and_frees_the_others(hub: ExchangeHub) -> None:
    invitations = hub.open(NAMES, 1, 1)
    peer = Peer(hub.address).hello(invitations["c"], "c")
    assert peer.answer().welcome.members == list(NAMES)
    remote = RemoteExchange("a")
    remote.join(invitations["a"], 1, 1, NAMES)
    waiting = Member(remote, "a", range(1))
    peer.close()
    assert wait_until_lost(hub, "c") == "its stream broke"
    assert str(waiting.outcome()) == "c was lost: its stream broke"
    remote.leave()
    assert list(hub.lost()) == ["c"]


def test_zone_that_does_not_post_is_lost_and_who_waits_for_it_is_not(quick: ExchangeHub) -> None:
    remote = meet(quick)
    waiting = [Member(remote[name], name, range(1)) for name in ("a", "b")]
    reason = "no word of it for 1 s at step 0"
    assert [str(member.outcome()) for member in waiting] == [f"c was lost: {reason}"] * 2
    assert quick.lost() == {"c": reason}


def test_zone_that_never_comes_is_lost(quick: ExchangeHub) -> None:
    invitations = quick.open(NAMES[:2], 1, 1)
    remote = RemoteExchange("a")
    remote.join(invitations["a"], 1, 1, NAMES[:2])
    assert isinstance(Member(remote, "a", range(1)).outcome(), ExchangeAborted)
    assert quick.lost() == {"b": "no word of it for 1 s at step 0"}


def test_grace_of_the_federation_bounds_the_wait_for_a_post() -> None:
    federation = three_zones().federation.model_copy(update={"grace_s": 1.0})
    experiment = three_zones().model_copy(update={"federation": federation})
    with ExchangeHub(experiment, "127.0.0.1:0") as hub:
        invitations = hub.open(NAMES[:2], 1, 1)
        remote = RemoteExchange("a")
        remote.join(invitations["a"], 1, 1, NAMES[:2])
        assert isinstance(Member(remote, "a", range(1)).outcome(), ExchangeAborted)
        assert hub.lost() == {"b": "no word of it for 1 s at step 0"}


def test_zone_that_stays_in_a_void_attempt_is_lost(quick: ExchangeHub) -> None:
    invitations = quick.open(NAMES, 1, 1)
    peer = Peer(quick.address).hello(invitations["c"], "c")
    peer.answer()
    quick.abort("b has left")
    assert peer.post(outbox("c", 0)).answer().aborted.reason == "b has left"
    assert wait_until_lost(quick, "c") == "took no answer, or did not leave, for 1 s"


def test_caller_that_says_nothing_is_sent_away(impatient: ExchangeHub) -> None:
    remote = meet(impatient)
    code, _ = Peer(impatient.address).refusal()
    assert code == grpc.StatusCode.CANCELLED
    assert still_works(impatient, remote)


def test_refusals_do_not_fill_the_log(hub: ExchangeHub, caplog: pytest.LogCaptureFixture) -> None:
    hub.open(NAMES, 1, 1)
    for _ in range(30):
        nobody = Invitation(hub.address, b"x" * 32)
        assert Peer(hub.address).hello(nobody, "a").refusal() == REFUSED
    assert 1 <= caplog.text.count("was refused") < 10


def test_new_attempt_sends_away_who_is_in_the_old_one(hub: ExchangeHub) -> None:
    old = meet(hub)
    waiting = Member(old["a"], "a", range(1))
    new = meet(hub, NAMES[:2], attempt=2)
    assert str(waiting.outcome()) == "a new attempt has begun"
    for exchange in old.values():
        exchange.leave()
    assert still_works(hub, new)


CHANGES = {
    "another zone's": ("b", {}),
    "none": ("a", {"token": b""}),
    "a longer one": ("a", {"token": b"y" * 64}),
    "of nobody": ("a", {"zone": "nobody"}),
    "of another round": ("a", {"round": 2}),
    "of another attempt": ("a", {"attempt": 2}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_wrong_token_is_refused_without_a_reason_and_harms_nobody(
    hub: ExchangeHub, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    owner, changes = CHANGES[change]
    invitations = hub.open(NAMES, 1, 1)
    peer = Peer(hub.address).hello(invitations[owner], "a", **changes)
    assert peer.refusal() == REFUSED
    assert "was refused (call 1): " in caplog.text
    assert invitations[owner].token.hex() not in caplog.text
    remote = {name: RemoteExchange(name) for name in NAMES}
    for name, exchange in remote.items():
        exchange.join(invitations[name], 1, 1, NAMES)
    assert still_works(hub, remote)


def test_token_of_an_older_attempt_is_refused(hub: ExchangeHub) -> None:
    old = hub.open(NAMES, 1, 1)
    remote = meet(hub, attempt=2)
    for attempt in (1, 2):
        assert Peer(hub.address).hello(old["a"], "a", attempt=attempt).refusal() == REFUSED
    assert still_works(hub, remote)


def test_second_hello_of_a_zone_is_refused_and_the_first_goes_on(hub: ExchangeHub) -> None:
    invitations = hub.open(NAMES, 1, 1)
    remote = {name: RemoteExchange(name) for name in NAMES}
    for name, exchange in remote.items():
        exchange.join(invitations[name], 1, 1, NAMES)
    assert Peer(hub.address).hello(invitations["a"], "a").refusal() == REFUSED
    assert still_works(hub, remote)
    remote["a"].leave()
    assert Peer(hub.address).hello(invitations["a"], "a").refusal() == REFUSED


def test_many_callers_are_bounded_and_the_members_go_on(impatient: ExchangeHub) -> None:
    remote = meet(impatient)
    callers = [Peer(impatient.address) for _ in range(20)]
    codes = {peer.refusal()[0] for peer in callers}
    assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED}
    assert still_works(impatient, remote)


CLIENT = """
import ctypes, os, signal, sys
sys.path.insert(0, "tests")
from outboxes import NAMES, Member, outbox
from zones.exchange_client import RemoteExchange
from zones.records import Invitation
remote = RemoteExchange("c")
remote.join(Invitation(sys.argv[1], bytes.fromhex(sys.argv[2])), 1, 1, NAMES)
print("joined", flush=True)
remote.post(outbox("c", 0))
remote.collect("c", 0)
print("collected", flush=True)
DEED
"""


@contextmanager
def process_beside(
    hub: ExchangeHub, deed: str
) -> Iterator[tuple["subprocess.Popen[str]", dict[str, RemoteExchange]]]:
    """Zone c as a process of its own, a and b here; they have met once."""
    invitations = hub.open(NAMES, 1, 1)
    script = CLIENT.replace("DEED", deed)
    command = [sys.executable, "-c", script, hub.address, invitations["c"].token.hex()]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "joined\n"
            remote = {name: RemoteExchange(name) for name in NAMES[:2]}
            for name, exchange in remote.items():
                exchange.join(invitations[name], 1, 1, NAMES)
            first = [Member(exchange, name, range(1)) for name, exchange in remote.items()]
            assert all(isinstance(member.outcome(), list) for member in first)
            assert process.stdout.readline() == "collected\n"
            yield process, remote
        finally:
            process.kill()


@pytest.mark.parametrize("deed", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_or_stopped_process_is_lost_within_seconds(
    probing: ExchangeHub, deed: signal.Signals
) -> None:
    """A stopped one still has its connection: only the probe finds out."""
    with process_beside(probing, "signal.pause()") as (process, remote):
        waiting = Member(remote["a"], "a", [1])
        process.send_signal(deed)
        assert wait_until_lost(probing, "c") == "its stream broke"
        assert str(waiting.outcome()) == "c was lost: its stream broke"
        for exchange in remote.values():
            exchange.leave()
    assert list(probing.lost()) == ["c"]


def test_zone_that_computes_without_pause_is_not_lost(probing: ExchangeHub) -> None:
    """Compiling holds Python's lock for seconds; probes are answered all the same."""
    deed = """
ctypes.PyDLL(None).sleep(5)  # PyDLL: with the lock
remote.post(outbox("c", 1))
remote.collect("c", 1)
remote.leave()
"""
    with process_beside(probing, deed) as (process, remote):
        waiting = [Member(exchange, name, [1]) for name, exchange in remote.items()]
        assert all(isinstance(member.outcome(), list) for member in waiting)
        for exchange in remote.values():
            exchange.leave()
        assert process.wait(timeout=60) == 0  # killed before it has left, it would be lost
    assert probing.lost() == {}


def test_plan_of_a_round_has_its_validation_first() -> None:
    experiment = three_zones(validation_episodes=5, validate_every=2)
    assert [is_validated(experiment, number) for number in range(5)] == [False] * 2 + [
        True,
        False,
        True,
    ]
    plan = Plan(experiment, 3)
    assert plan.n_exchanges == 4 * N_STEPS
    replicas = [plan.place(number).n_replicas for number in range(0, 4 * N_STEPS, N_STEPS)]
    assert replicas == [2, 2, 1, 2]
    assert Plan(experiment, 2).n_exchanges == N_STEPS
    assert Plan(experiment, 5).n_exchanges == 3 * N_STEPS


def test_last_round_is_validated_whatever_the_period() -> None:
    assert is_validated(three_zones(validation_episodes=1, validate_every=3), 4)
    assert not is_validated(three_zones(), 4)


def test_plan_knows_the_window_of_every_step() -> None:
    plan = Plan(three_zones(), 1)
    spans = [(plan.place(n).from_us, plan.place(n).to_us) for n in (0, 1, 2, 24, 25)]
    second = 1_000_000
    assert spans == [
        (0, 0),
        (0, 5 * second),
        (5 * second, 10 * second),
        (115 * second, 120 * second),
        (120 * second, 120 * second),
    ]


def test_zones_of_another_experiment_meet_in_the_next_attempt(hub: ExchangeHub) -> None:
    assert still_works(hub, meet(hub))
    first = three_zones().zones[0]
    names = ("a", "b")
    zones = [first.model_copy(update={"name": name}) for name in names]
    hub.use(three_zones().model_copy(update={"zones": zones}))
    invitations = hub.open(names, 2, 1)
    assert sorted(invitations) == ["a", "b"]
    found = {name: RemoteExchange(name, timeout_s=20.0) for name in names}
    for name, exchange in found.items():
        exchange.join(invitations[name], 2, 1, names)
        exchange.leave()
    assert not hub.lost()


def test_more_zones_than_the_hub_has_room_for_are_refused(hub: ExchangeHub) -> None:
    first = three_zones().zones[0]
    zones = [first.model_copy(update={"name": f"zone_{number}"}) for number in range(129)]
    with pytest.raises(ExchangeError, match="129 zones, expected at most 128 in a run that began"):
        hub.use(three_zones().model_copy(update={"zones": zones}))
    assert still_works(hub, meet(hub))
