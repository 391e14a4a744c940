"""What a node becomes when it is told so; the worker is a double."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tiny import tiny, zone

from federation.greeting import (
    Hello,
    ZoneStatus,
    decode_hello,
    decode_status,
    encode_hello,
    encode_status,
    software,
)
from federation.hosted_worker import HostSettings, ZoneExchange
from federation.messages import Packed, decode_order, encode_order, encode_report
from federation.weights import WeightSpec
from federation.zone_host import ZoneHost
from marl_sched.cluster.exchange import LocalExchange
from marl_sched.config import Experiment, dump_config
from marl_sched.errors import (
    CheckpointError,
    ExchangeError,
    MarlSchedError,
    RunError,
    SecurityError,
)
from marl_sched.files import alone_in
from zones import state
from zones.records import Assignment, Invitation, NetworkPair, RoundOrder, RoundReport
from zones.tls import is_loopback

WAIT_S = 20.0
CONFIG = dump_config(tiny(zone("a"), zone("b")))
HELLO = Hello(CONFIG, "run", "a", 1, software=software())


class Meeting(LocalExchange):
    """An exchange that notes who came."""

    def __init__(self, zone_name: str) -> None:
        super().__init__([zone_name])
        self.joined: list[tuple[Invitation, int, int, Sequence[str]]] = []
        self.is_left = True

    def join(
        self, invitation: Invitation, round_number: int, attempt: int, members: Sequence[str]
    ) -> None:
        self.joined.append((invitation, round_number, attempt, members))
        self.is_left = False

    def leave(self) -> None:
        self.is_left = True


@dataclass
class Double:
    """A worker whose state is a file with the round in it."""

    experiment: Experiment
    zone_name: str
    exchange: ZoneExchange
    folder: Path
    loaded: list[str] = field(default_factory=list)

    def load_state(self, path: Path) -> None:
        if not path.read_text():
            raise CheckpointError(f"{path}: half-written")
        self.loaded.append(path.name)

    def train_round(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        state.state_path(self.folder, order.round_number).write_text("whole")
        return RoundReport(weights, 1, {})

    def validate(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        return RoundReport(None, 0, {})


@dataclass
class Bench:
    """A host, and what it has made."""

    settings: HostSettings
    host: ZoneHost
    workers: list[Double]
    meetings: list[Meeting]

    def ready(self, hello: Hello) -> ZoneStatus:
        """Greet until the zone is ready."""
        looks = threading.Event()
        for _ in range(int(WAIT_S / 0.01)):
            status = self.host.greet(hello)
            if status.is_ready or status.problem:
                return status
            looks.wait(0.01)
        raise AssertionError(f"not ready within {WAIT_S:g} s")

    def work(self, order: RoundOrder) -> None:
        with self.host.at_work(order) as worker:
            worker.train_round(NetworkPair({}, {}), order)


Start = Callable[..., Bench]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def begin(name: str = "", is_resident: bool = True, **more: object) -> Bench:
        workers: list[Double] = []
        meetings: list[Meeting] = []

        def connect(zone_name: str) -> Meeting:
            meetings.append(Meeting(zone_name))
            return meetings[-1]

        def make(experiment: Experiment, zone_name: str, exchange: ZoneExchange, p: Path) -> Double:
            workers.append(Double(experiment, zone_name, exchange, p))
            return workers[-1]

        settings = HostSettings(name, tmp_path, connect, lambda: None, make_worker=make)
        settings = replace(settings, **more)
        return Bench(settings, ZoneHost(settings, is_resident), workers, meetings)

    return begin


def order(number: int = 1, zone_name: str = "a", epoch: int = 1) -> RoundOrder:
    return RoundOrder(
        number,
        1,
        ("a", "b"),
        invitation=Invitation("127.0.0.1:9093", b"secret"),
        assignment=Assignment(zone_name, epoch),
    )


def test_free_node_becomes_what_it_is_told(start: Start) -> None:
    bench = start()
    assert bench.host.greet(Hello(CONFIG, "run")) == ZoneStatus("")
    assert bench.ready(HELLO) == ZoneStatus("", "a", 1, is_ready=True)
    assert [worker.zone_name for worker in bench.workers] == ["a"]
    assert bench.workers[0].experiment == tiny(zone("a"), zone("b"))


def test_named_node_says_its_name(start: Start) -> None:
    assert start("b").host.greet(Hello(CONFIG, "run")) == ZoneStatus("b")


def test_node_is_not_ready_while_the_kernels_compile_but_answers(start: Start) -> None:
    compiled = threading.Event()
    bench = start(compile_kernels=lambda: compiled.wait(WAIT_S))
    assert bench.host.greet(HELLO) == ZoneStatus("", "a", 1, is_ready=False)
    assert bench.workers == []
    compiled.set()
    assert bench.ready(HELLO).is_ready


def test_order_is_carried_out_in_the_exchange_it_is_invited_to(start: Start) -> None:
    bench = start()
    bench.ready(HELLO)
    (meeting,) = bench.meetings
    with bench.host.at_work(order(4)):
        assert not meeting.is_left
    assert meeting.joined == [(Invitation("127.0.0.1:9093", b"secret"), 4, 1, ("a", "b"))]
    assert meeting.is_left


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (order(epoch=2), "an order for a, epoch 2: this node is a, epoch 1"),
        (order(zone_name="b"), "an order for b, epoch 1: this node is a, epoch 1"),
        (replace(order(), assignment=None), "names no zone and epoch"),
    ],
)
def test_order_for_somebody_else_is_refused(start: Start, given: RoundOrder, message: str) -> None:
    bench = start()
    bench.ready(HELLO)
    with pytest.raises(RunError, match=message):
        bench.work(given)
    assert not bench.meetings[0].joined


def test_order_to_a_node_without_a_zone_is_refused(start: Start) -> None:
    with pytest.raises(RunError, match="this node is no zone"):
        start().work(order())


def test_order_without_an_invitation_is_refused(start: Start) -> None:
    bench = start()
    bench.ready(HELLO)
    with pytest.raises(ExchangeError, match="no invitation"):
        bench.work(replace(order(), invitation=None))


def test_worker_stays_for_a_higher_epoch_of_its_zone(start: Start) -> None:
    bench = start()
    bench.ready(HELLO)
    bench.work(order())
    assert bench.host.greet(replace(HELLO, epoch=2, last_round=1)).is_ready
    assert len(bench.workers) == 1
    with pytest.raises(RunError, match="epoch 1: this node is a, epoch 2"):
        bench.work(order(2))
    bench.work(order(2, epoch=2))


def test_what_was_saved_in_a_void_round_is_dropped_with_its_worker(start: Start) -> None:
    bench = start()
    bench.ready(HELLO)
    for number in (1, 2, 3):
        bench.work(order(number))
    assert bench.ready(replace(HELLO, epoch=2, last_round=2)).is_ready
    first, second = bench.workers
    assert state.saved_rounds(first.folder) == [1, 2]
    assert second.loaded == ["state-00002.npz"]


def test_lower_epoch_is_a_problem_but_not_the_end(start: Start) -> None:
    bench = start()
    bench.ready(replace(HELLO, epoch=3))
    status = bench.host.greet(replace(HELLO, epoch=2))
    assert status.problem == "told to be a, epoch 2: is of epoch 3"
    assert (status.assigned, status.epoch, bench.host.failure) == ("a", 3, "")


def test_first_epoch_begins_anew_without_old_states(start: Start) -> None:
    bench = start()
    bench.ready(replace(HELLO, epoch=3))
    bench.work(order(7, epoch=3))
    assert bench.ready(HELLO).epoch == 1
    assert state.saved_rounds(bench.workers[0].folder) == []


def test_another_zone_or_experiment_has_another_worker(start: Start) -> None:
    bench = start()
    bench.ready(HELLO)
    bench.ready(replace(HELLO, zone="b"))
    other = dump_config(tiny(zone("a"), zone("b"), seed=2))
    bench.ready(replace(HELLO, zone="b", epoch=2, config=other))
    assert [worker.zone_name for worker in bench.workers] == ["a", "b", "b"]
    assert [worker.experiment.seed for worker in bench.workers] == [1, 1, 2]
    assert len({worker.folder for worker in bench.workers}) == 2


def test_new_worker_waits_for_the_order_under_way(start: Start) -> None:
    bench = start()
    bench.ready(HELLO)
    with bench.host.at_work(order()):
        assert not bench.host.greet(replace(HELLO, zone="b")).is_ready
        assert len(bench.workers) == 1
    assert bench.ready(replace(HELLO, zone="b")).is_ready


def test_node_without_a_zone_says_what_it_was(start: Start) -> None:
    bench = start()
    bench.ready(HELLO)
    assert bench.host.greet(Hello(CONFIG, "run")).assigned == "a"
    assert bench.host.greet(replace(HELLO, epoch=2)).is_ready
    assert len(bench.workers) == 1


@pytest.mark.parametrize(
    ("name", "hello", "problem"),
    [
        ("c", replace(HELLO, zone=""), "zone c is not in the configuration of run run: a, b"),
        ("", replace(HELLO, zone="c"), "zone c is not in the configuration of run run: a, b"),
        ("b", HELLO, "started for zone b, but told to be a"),
        ("", replace(HELLO, refusal="zone a is node 5 already"), "zone a is node 5 already"),
        ("", replace(HELLO, software="marl-sched 9"), "the run marl-sched 9; expected the same"),
        ("", replace(HELLO, config=CONFIG.replace("version: 1", "version: 2")), "version = 2"),
        ("", replace(HELLO, config="zones: ["), "not valid YAML"),
        ("", replace(HELLO, run="../../etc"), "run = '../../etc', expected letters"),
        ("", replace(HELLO, run=""), "run = '', expected letters"),
    ],
)
def test_node_of_no_use_says_why_in_one_line(
    start: Start, name: str, hello: Hello, problem: str
) -> None:
    bench = start(name)
    status = bench.host.greet(hello)
    assert problem in status.problem
    assert "\n" not in status.problem
    assert (status.is_ready, bench.host.failure) == (False, status.problem)
    assert bench.workers == []


def test_worker_that_cannot_be_built_is_a_problem(start: Start) -> None:
    def fail(experiment: Experiment, zone_name: str, exchange: ZoneExchange, p: Path) -> Double:
        raise MarlSchedError("no such\ntrace")

    bench = start(make_worker=fail)
    assert bench.ready(HELLO).problem == "a: no such trace"


def test_restarted_node_goes_on_as_what_it_was(start: Start) -> None:
    before = start()
    before.ready(HELLO)
    before.work(order())
    before.host._release()
    after = start()
    after.work(order(2))
    assert after.workers[0].loaded == ["state-00001.npz"]


def test_restarted_node_with_another_name_forgets(start: Start) -> None:
    before = start()
    before.ready(HELLO)
    before.host._release()
    assert start("b").host.greet(Hello(CONFIG, "run")) == ZoneStatus("b")


def test_half_written_state_is_passed_over_and_deleted(start: Start) -> None:
    before = start()
    before.ready(HELLO)
    before.work(order(1))
    before.work(order(2))
    folder = before.workers[0].folder
    state.state_path(folder, 2).write_text("")
    before.host._release()
    after = start()
    after.ready(HELLO)
    assert after.workers[0].loaded == ["state-00001.npz"]
    assert state.saved_rounds(folder) == [1]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1, "run": "..", "zone": "a"}'])
def test_foreign_assignment_is_no_assignment(start: Start, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "assignment.json").write_bytes(content)
    assert start().host.greet(None) == ZoneStatus("")


def test_states_go_where_the_run_keeps_them(start: Start, tmp_path: Path) -> None:
    bench = start(learner_state=tmp_path / "zones")
    bench.ready(HELLO)
    assert bench.workers[0].folder == tmp_path / "zones" / "a"


def test_states_that_another_process_holds_are_left_alone(start: Start, tmp_path: Path) -> None:
    (tmp_path / "zones" / "a").mkdir(parents=True)
    with alone_in(tmp_path / "zones" / "a"):
        bench = start(learner_state=tmp_path / "zones")
        bench.ready(HELLO)
    assert bench.workers[0].folder == tmp_path / "runs" / "run" / "a"


def test_process_for_one_message_remembers_between_messages(start: Start) -> None:
    assert start(is_resident=False).host.greet(HELLO).is_ready
    for number in (1, 2):
        bench = start(is_resident=False)
        assert bench.workers == []
        bench.work(order(number))
        bench.host._release()
    assert bench.workers[0].loaded == ["state-00001.npz"]
    with pytest.raises(RunError, match="epoch 2: this node is a, epoch 1"):
        start(is_resident=False).work(order(3, epoch=2))


def test_plain_text_exchange_beyond_loopback_is_refused(start: Start) -> None:
    far = replace(order(), invitation=Invitation("10.0.0.1:9093", b"secret"))
    bench = start()
    bench.ready(HELLO)
    with pytest.raises(SecurityError, match=r"exchange is at 10\.0\.0\.1:9093, expected loopback"):
        bench.work(far)
    assert not bench.meetings[0].joined


def test_exchange_is_where_we_were_told_it_is_seen_from_here(start: Start) -> None:
    bench = start(exchange_address="10.0.0.9:1", is_secure=True)
    bench.ready(HELLO)
    bench.work(order())
    assert bench.meetings[0].joined[0][0] == Invitation("10.0.0.9:1", b"secret")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_only_this_host_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("last_round", [None, 0, 7])
def test_greeting_and_answer_survive_the_way(last_round: int | None) -> None:
    hello = replace(HELLO, last_round=last_round, refusal="why")
    assert decode_hello(encode_hello(hello)) == hello
    status = ZoneStatus("a", "b", 3, is_ready=True, problem="why")
    assert decode_status(encode_status(status)) == status


def test_greeting_says_what_the_serverapp_runs_on() -> None:
    sent = decode_hello(encode_hello(replace(HELLO, software="")))
    assert sent is not None
    assert sent.software == software()


@pytest.mark.parametrize(
    ("key", "value"), [("epoch", "1"), ("epoch", -1), ("epoch", True), ("run", 3), ("zone", 1.0)]
)
def test_greeting_with_a_value_of_another_type_is_refused(key: str, value: object) -> None:
    content = encode_hello(HELLO)
    content.config_records["hello"][key] = value  # type: ignore[assignment]
    with pytest.raises(ValueError, match=f"{key} = "):
        decode_hello(content)


def test_order_and_report_carry_zone_and_epoch() -> None:
    packed = Packed.of(NetworkPair({}, {}), WeightSpec((), ()))
    _, decoded = decode_order(encode_order(packed, order(3, "b", 5)))
    assert decoded == order(3, "b", 5)
    report = encode_report("b", RoundReport(None, 0, {}), decoded, packed.spec)
    assert report.config_records["report"]["epoch"] == 5


def test_restarted_node_whose_zone_has_left_the_configuration_is_free(start: Start) -> None:
    before = start()
    before.ready(replace(HELLO, zone="b"))
    only_a = dump_config(tiny(zone("a")))
    assert before.host.greet(Hello(only_a, "run")).problem == ""  # a spare from now on
    before.host._release()
    after = start()
    assert after.host.greet(Hello(only_a, "run")) == ZoneStatus("")
    assert after.ready(replace(HELLO, config=only_a)).is_ready
    assert after.host.failure == ""


def test_zone_that_stays_rebuilds_its_worker_for_other_zones_from_its_state(start: Start) -> None:
    bench = start()
    bench.ready(HELLO)
    bench.work(order(1))
    more = dump_config(tiny(zone("a"), zone("b"), zone("c")))
    assert bench.ready(replace(HELLO, config=more, last_round=1)).epoch == 1
    first, second = bench.workers
    assert [z.name for z in second.experiment.zones] == ["a", "b", "c"]
    assert second.loaded == ["state-00001.npz"]
    assert first.folder == second.folder
