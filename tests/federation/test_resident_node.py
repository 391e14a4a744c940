"""A resident node against a real SuperLink, with a ClientApp that a test can hold up."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from superlink import Driver, SuperLink, Tls, driving, error_of, running, wait_for

from federation.certificates import make_authority
from federation.fleet_errors import MessageLost
from federation.fleet_line import SuperLinkAddress
from federation.fleet_link import LEASE_S, FleetLink, Head
from federation.messages import FAILED, STALE
from federation.resident_node import Pace, ResidentNode, Watch
from marl_sched.errors import RunError, SecurityError
from zones.identity import own_key
from zones.keys import PrivateKey, new_key

pytestmark = pytest.mark.network

PACE = Pace(wait_s=30.0, idle_s=0.05, refused_s=0.2)


def order(number: int) -> RecordDict:
    return RecordDict({"order": ConfigRecord({"round": number, "attempt": 1})})


def round_of(reply: Message) -> object:
    assert not reply.has_error(), reply.error
    return reply.content.config_records["order"]["round"]


@dataclass
class Echo:
    """A ClientApp that answers an order with itself, once it is let go."""

    gate: threading.Event = field(default_factory=threading.Event)
    begun: list[object] = field(default_factory=list)
    is_open: bool = True

    def app(self) -> ClientApp:
        app = ClientApp()

        @app.query()
        def query(message: Message, context: Context) -> Message:
            return Message(message.content, reply_to=message)

        @app.train()
        def train(message: Message, context: Context) -> Message:
            self.begun.append(message.content.config_records["order"]["round"])
            if not self.is_open:
                self.gate.wait(60.0)
            return Message(message.content, reply_to=message)

        return app


@dataclass
class Running:
    """A node in a thread of this process."""

    node: ResidentNode
    stop: threading.Event
    thread: threading.Thread
    told: list[str]
    errors: list[BaseException]

    def end(self) -> float:
        """Stop the node; return how long it took."""
        start = time.monotonic()
        self.stop.set()
        self.thread.join(20.0)
        assert not self.thread.is_alive()
        return time.monotonic() - start


def start_node(
    address: SuperLinkAddress,
    key: PrivateKey,
    echo: Echo,
    pace: Pace = PACE,
    after_reply: Callable[[], None] = lambda: None,
    left_node: int = 0,
    link: type[FleetLink] = FleetLink,
) -> Running:
    stop = threading.Event()
    told: list[str] = []
    errors: list[BaseException] = []

    def tell(state: str, node_id: int) -> None:
        if told[-1:] != [state]:
            told.append(state)

    watch = Watch(lambda: "zone_0", tell, after_reply)
    node = ResidentNode(link(address, key, stop), echo.app(), stop, watch, pace, left_node)

    def run() -> None:
        try:
            node.run()
        except BaseException as error:  # noqa: BLE001 - for the test to see
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return Running(node, stop, thread, told, errors)


@contextmanager
def serving(
    superlink: SuperLink,
    key: PrivateKey,
    echo: Echo,
    pace: Pace = PACE,
    link: type[FleetLink] = FleetLink,
) -> Iterator[Running]:
    ca = None if superlink.tls is None else superlink.tls.ca
    address = SuperLinkAddress(superlink.fleet, ca)
    running_node = start_node(address, key, echo, pace, link=link)
    try:
        yield running_node
    finally:
        echo.gate.set()
        running_node.end()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperLink]:
    with running(SuperLink(tmp_path_factory.mktemp("plain"))) as superlink:
        yield superlink


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperLink]:
    folder = tmp_path_factory.mktemp("secured")
    files = make_authority(folder / "pki").files
    tls = Tls(files.ca, files.certificate, files.key)
    with running(SuperLink(folder, tls)) as superlink:
        yield superlink


@pytest.fixture
def driver(plain: SuperLink) -> Iterator[Driver]:
    with driving(plain) as driver:
        yield driver


def test_node_answers_queries_and_orders(plain: SuperLink, driver: Driver) -> None:
    echo = Echo()
    with serving(plain, new_key(), echo):
        (node_id,) = driver.wait_for_nodes(1)
        assert round_of(driver.ask(node_id, order(4), MessageType.QUERY)) == 4
        assert round_of(driver.ask(node_id, order(5))) == 5
        assert echo.begun == [5]


def test_query_is_answered_while_an_order_is_under_way(plain: SuperLink, driver: Driver) -> None:
    echo = Echo(is_open=False)
    with serving(plain, new_key(), echo):
        (node_id,) = driver.wait_for_nodes(1)
        message_id = driver.push(node_id, order(1))
        wait_for(lambda: echo.begun, "the order is under way")
        assert round_of(driver.ask(node_id, order(9), MessageType.QUERY)) == 9
        echo.gate.set()
        assert round_of(driver.pull(message_id)) == 1


def test_node_that_leaves_is_gone_at_once(plain: SuperLink, driver: Driver) -> None:
    with serving(plain, new_key(), Echo()) as node:
        driver.wait_for_nodes(1)
        assert node.end() < 5.0
        assert driver.nodes() == []


def test_stop_waits_for_no_order_under_way(plain: SuperLink, driver: Driver) -> None:
    echo = Echo(is_open=False)
    with serving(plain, new_key(), echo) as node:
        (node_id,) = driver.wait_for_nodes(1)
        driver.push(node_id, order(1))
        wait_for(lambda: echo.begun, "the order is under way")
        assert node.end() < 5.0
        assert node.node.is_busy
        assert driver.nodes() == []


def test_of_what_was_missed_only_the_newest_is_carried_out(
    plain: SuperLink, driver: Driver
) -> None:
    key, echo = new_key(), Echo()
    with serving(plain, key, echo):
        (node_id,) = driver.wait_for_nodes(1)
    wait_for(lambda: not driver.nodes(), "the node has left")
    missed = [driver.push(node_id, order(number)) for number in (1, 2)]
    newest = driver.push(node_id, order(3))
    # Its answers to what it missed are for nobody but this test.
    with serving(plain, key, echo):
        driver.wait_for_nodes(1)  # before that, the SuperLink answers in its place
        assert round_of(driver.pull(newest)) == 3
        for message_id in missed:
            assert error_of(driver.pull(message_id)).code == STALE
    assert echo.begun == [3]


class LossyLink(FleetLink):
    """Loses a part of the first message."""

    n_lost = 0

    def fetch(self, head: Head) -> Message:
        if not self.n_lost:
            self.n_lost = 1
            raise MessageLost("part 0123abcd of a message is not there")
        return super().fetch(head)


def test_message_that_does_not_arrive_whole_is_answered(plain: SuperLink, driver: Driver) -> None:
    echo = Echo()
    with serving(plain, new_key(), echo, link=LossyLink):
        (node_id,) = driver.wait_for_nodes(1)
        error = error_of(driver.pull(driver.push(node_id, order(1))))
        assert (error.code, error.reason) == (FAILED, "part 0123abcd of a message is not there")
        assert round_of(driver.ask(node_id, order(2))) == 2
        assert echo.begun == [2]


def test_newer_order_takes_the_place_of_one_that_waits(plain: SuperLink, driver: Driver) -> None:
    echo = Echo(is_open=False)
    with serving(plain, new_key(), echo):
        (node_id,) = driver.wait_for_nodes(1)
        first = driver.push(node_id, order(1))
        wait_for(lambda: echo.begun, "the order is under way")
        second, third = (driver.push(node_id, order(number)) for number in (2, 3))
        assert error_of(driver.pull(second)).code == STALE
        echo.gate.set()
        assert round_of(driver.pull(first)) == 1
        assert round_of(driver.pull(third)) == 3
        assert echo.begun == [1, 3]


def test_second_process_with_a_key_waits_until_the_first_is_gone(
    plain: SuperLink, driver: Driver
) -> None:
    key = new_key()
    with serving(plain, key, Echo()) as first:
        (node_id,) = driver.wait_for_nodes(1)
        with serving(plain, key, Echo()) as second:
            second.thread.join(1.0)
            assert (second.told, second.errors) == (["connecting"], [])
            first.end()
            wait_for(lambda: second.told[-1] == "online", "the second is admitted")
            assert driver.nodes() == [node_id]


@pytest.mark.parametrize("is_secure", [False, True])
def test_node_takes_the_place_of_a_killed_process_before_its_lease_ends(
    plain: SuperLink, secured: SuperLink, is_secure: bool
) -> None:
    superlink, key = secured if is_secure else plain, new_key()
    if is_secure:
        superlink.register(key.public_key(), "zone_0")
    address = SuperLinkAddress(superlink.fleet, superlink.tls.ca if superlink.tls else None)
    killed = FleetLink(address, key, threading.Event())
    node_id = killed.activate()
    pace = Pace(wait_s=LEASE_S / 4, refused_s=0.2)
    node = start_node(address, key, Echo(), pace, left_node=node_id)
    try:
        wait_for(lambda: "online" in node.told or bool(node.errors), "it is admitted")
        assert node.errors == []
        assert node.node._node_id == node_id
    finally:
        node.end()
        killed.close()


def test_node_that_is_never_admitted_gives_up_and_says_why(plain: SuperLink) -> None:
    key = new_key()
    with serving(plain, key, Echo()) as first:
        wait_for(lambda: first.told[-1:] == ["online"], "the first is there")
        with serving(plain, key, Echo(), Pace(wait_s=0.5, refused_s=0.2)) as second:
            second.thread.join(10.0)
            (error,) = second.errors
            assert isinstance(error, RunError)
            assert "a process with this key is there" in str(error)


def test_error_after_a_reply_ends_the_node(plain: SuperLink, driver: Driver) -> None:
    def refuse() -> None:
        raise RunError("the run does not want this zone")

    node = start_node(SuperLinkAddress(plain.fleet, None), new_key(), Echo(), PACE, refuse)
    (node_id,) = driver.wait_for_nodes(1)
    assert round_of(driver.ask(node_id, order(1))) == 1
    node.thread.join(10.0)
    assert [str(error) for error in node.errors] == ["the run does not want this zone"]
    assert driver.nodes() == []


def test_reply_to_a_run_that_was_stopped_is_dropped(plain: SuperLink) -> None:
    echo = Echo(is_open=False)
    with serving(plain, new_key(), echo) as node:
        with driving(plain) as driver:
            (node_id,) = driver.wait_for_nodes(1)
            driver.push(node_id, order(1))
            wait_for(lambda: echo.begun, "the order is under way")
            driver.stop_run()
        echo.gate.set()
        echo.is_open = True
        with driving(plain) as driver:
            assert round_of(driver.ask(node_id, order(2))) == 2
        assert not node.errors


def test_silent_superlink_holds_up_no_end(plain: SuperLink, driver: Driver) -> None:
    with serving(plain, new_key(), Echo()) as node:
        driver.wait_for_nodes(1)
        assert plain.process is not None
        plain.process.send_signal(19)  # SIGSTOP: its sockets stay open and say nothing
        try:
            node.stop.wait(1.0)  # some calls hang by now
            assert node.end() < 5.0
        finally:
            plain.process.send_signal(18)


def test_node_outlives_a_superlink_that_is_killed(tmp_path: Path) -> None:
    """The order it works on is answered to the SuperLink that comes after, from its database."""
    superlink = SuperLink(tmp_path)
    echo = Echo(is_open=False)
    with (
        running(superlink),
        driving(superlink) as driver,
        serving(superlink, new_key(), echo) as node,
    ):
        (node_id,) = driver.wait_for_nodes(1)
        message_id = driver.push(node_id, order(1))
        wait_for(lambda: echo.begun, "the order is under way")
        superlink.kill()
        echo.gate.set()
        wait_for(lambda: node.told[-1] == "connecting", "the node has noticed")
        superlink.start()
        assert round_of(driver.pull(message_id)) == 1
        assert driver.nodes() == [node_id]
        echo.is_open = True
        assert round_of(driver.ask(node_id, order(2))) == 2


def test_node_is_admitted_anew_by_a_superlink_without_memory(tmp_path: Path) -> None:
    superlink = SuperLink(tmp_path)
    with running(superlink), serving(superlink, new_key(), Echo()) as node:
        with driving(superlink) as driver:
            driver.wait_for_nodes(1)
        superlink.kill()
        (tmp_path / "superlink.db").unlink()
        superlink.start()
        with driving(superlink) as driver:
            (node_id,) = driver.wait_for_nodes(1)
            assert round_of(driver.ask(node_id, order(2))) == 2
        assert not node.errors


def test_registered_key_is_admitted_over_tls(secured: SuperLink) -> None:
    key = new_key()
    secured.register(key.public_key(), "zone_0")
    with driving(secured) as driver, serving(secured, key, Echo()):
        (node_id,) = driver.wait_for_nodes(1)
        assert round_of(driver.ask(node_id, order(1))) == 1


def test_key_that_is_not_registered_is_refused(secured: SuperLink) -> None:
    with serving(secured, new_key(), Echo(), Pace(wait_s=0.5, refused_s=0.2)) as node:
        node.thread.join(10.0)
        (error,) = node.errors
        assert isinstance(error, RunError)
        assert "not registered with the SuperLink" in str(error)


@pytest.mark.parametrize(
    ("seconds", "is_fine"), [(-600.0, False), (600.0, False), (-200.0, True), (3.0, True)]
)
def test_clocks_far_apart_are_named(
    secured: SuperLink, seconds: float, is_fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datetime as dt

    from flwr.client.grpc_rere_client import node_auth_client_interceptor as signing

    shift = dt.timedelta(seconds=seconds)
    monkeypatch.setattr(signing, "now", lambda: dt.datetime.now(dt.UTC) + shift)
    key = new_key()
    secured.register(key.public_key(), f"clock{seconds}")
    with serving(secured, key, Echo(), Pace(wait_s=5.0)) as node:
        wait_for(lambda: node.errors or "online" in node.told, "an outcome")
        if is_fine:
            assert not node.errors
        else:
            (error,) = node.errors
            assert isinstance(error, SecurityError)
            assert "set the clocks" in str(error)


def test_node_key_is_made_once_and_kept(tmp_path: Path) -> None:
    first = own_key(tmp_path).public_key()
    assert own_key(tmp_path).public_key() == first
