"""The files of the live page: written by train, and by the hub's side for zones elsewhere."""

import json
import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from outboxes import NAMES, Member, Peer, meet, outbox, three_zones, wait_until_lost
from views import view_of
from zone_double import ROOT, written

from federation import live_views
from federation.exchange_hub import ExchangeHub, HubLimits
from federation.live_views import LiveFolder, ViewSink
from federation.local_run import train
from marl_sched.config import Experiment, load_config
from zones.exchange_client import RemoteExchange
from zones.proto import exchange_pb2 as pb
from zones.view import MAX_VIEW_BYTES, parse_view


def encoded(zone: str = "a", **changes: object) -> bytes:
    return json.dumps(view_of(zone, **changes)).encode()


def shown(run: Path, zone: str = "a") -> dict[str, object]:
    view: dict[str, object] = json.loads((run / "live" / f"{zone}.json").read_bytes())
    return view


class Wall:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_newest_view_replaces_the_one_before_and_leaves_nothing_else(tmp_path: Path) -> None:
    folder = LiveFolder(tmp_path)
    folder.write("a", b"1")
    folder.write("b", b"2")
    folder.write("a", b"3")
    found = {path.name: path.read_bytes() for path in (tmp_path / "live").iterdir()}
    assert found == {"a.json": b"3", "b.json": b"2"}


def test_disk_that_takes_nothing_is_named_once_until_it_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = LiveFolder(tmp_path)
    blocker = tmp_path / "live"
    for _ in range(2):
        blocker.write_text("")
        folder.write("a", b"1")
        folder.write("b", b"2")
        blocker.unlink()
        folder.write("a", b"3")
        shutil.rmtree(blocker)
    message = f"{blocker}: not written, the live page stands still: File exists"
    assert caplog.messages == [message] * 2


def test_view_of_a_zone_is_written_with_the_time_of_this_host(tmp_path: Path) -> None:
    with ViewSink(LiveFolder(tmp_path), NAMES) as sink:
        sink.take("a", encoded(time=1e10))
    assert shown(tmp_path) == view_of(time=shown(tmp_path)["time"])
    assert shown(tmp_path)["time"] == pytest.approx(time.time(), abs=600.0)


def test_views_that_make_no_sense_are_dropped_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wall = Wall()
    hostile = (
        encoded("b"),
        encoded(share=float("nan")),
        encoded(html="<script>"),
        b"[" * 200_000,
        b"[" * (MAX_VIEW_BYTES + 1),
        b"\xff",
        b"",
    )
    with caplog.at_level(logging.WARNING):
        for data in hostile:
            wall.now_s += 1.0
            with ViewSink(LiveFolder(tmp_path), NAMES, wall) as sink:
                sink.take("a", data)
        assert len(caplog.messages) == len(hostile)
        assert caplog.messages[0] == (
            "a: views are dropped that make no sense: zone = 'b', expected 'a'"
        )
        assert not (tmp_path / "live").exists()
        caplog.clear()
        sink = ViewSink(LiveFolder(tmp_path), NAMES, wall)
        for data in hostile:
            wall.now_s += 1.0
            sink.take("a", data)
            sink.take("b", data if data != hostile[0] else hostile[1])
        wall.now_s += 1.0
        sink.take("c", encoded("c"))
        sink.close()
    assert len(caplog.messages) == 2
    assert {message.partition(":")[0] for message in caplog.messages} == {"a", "b"}
    assert [path.name for path in (tmp_path / "live").iterdir()] == ["c.json"]


def test_more_than_four_views_a_second_are_dropped(tmp_path: Path) -> None:
    wall = Wall()
    folder = Counting(tmp_path)
    sinks = ViewSink(folder, NAMES, wall)
    for number in range(64):
        wall.now_s = number / 16
        sinks.take("a", encoded(n_waiting=number))
        folder.wait_for_what_was_taken(sinks)
    sinks.close()
    assert folder.counts == list(range(0, 64, 4))


class Counting(LiveFolder):
    """Notes the views that were written."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.counts: list[int] = []

    def write(self, zone: str, data: bytes) -> None:
        self.counts.append(parse_view(data, zone).n_waiting)

    def wait_for_what_was_taken(self, sink: ViewSink) -> None:
        """Wait until the thread has taken what there is; it then writes it before anything else."""
        end = time.monotonic() + 20.0
        while sink._waiting:
            assert time.monotonic() < end


def test_view_of_nobody_we_know_is_no_file(tmp_path: Path) -> None:
    with ViewSink(LiveFolder(tmp_path), NAMES) as sink:
        sink.take("../a", encoded())
        sink.take("z", encoded("z"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[ExchangeHub]:
    limits = HubLimits(take_s=1.0)
    with (
        ViewSink(LiveFolder(tmp_path), NAMES) as sink,
        ExchangeHub(three_zones(), "127.0.0.1:0", limits=limits) as hub,
    ):
        hub.watch = sink.take
        yield hub


class Showing(RemoteExchange):
    """Shows before every post, and after every collect, what it is given."""

    def __init__(self, zone: str, views: list[bytes]) -> None:
        super().__init__(zone)
        self._views = views

    def post(self, box: object) -> None:
        for view in self._views:
            self.show(view)
        super().post(box)  # type: ignore[arg-type]  # an outbox


def play(hub: ExchangeHub, views: list[bytes], steps: range) -> list[object]:
    """Let all zones meet, c of them showing; return what came of each."""
    invitations = hub.open(NAMES, 1, 1)
    remote = {name: Showing(name, views if name == "c" else []) for name in NAMES}
    for name, exchange in remote.items():
        exchange.join(invitations[name], 1, 1, NAMES)
    members = [Member(exchange, name, steps) for name, exchange in remote.items()]
    outcomes: list[object] = [member.outcome() for member in members]
    for exchange in remote.values():
        exchange.leave()
    return outcomes


@pytest.mark.network
def test_view_that_a_zone_sends_is_written_and_gets_no_answer(
    hub: ExchangeHub, tmp_path: Path
) -> None:
    outcomes = play(hub, [encoded("c")], range(3))
    assert [len(one) for one in outcomes] == [3, 3, 3]  # type: ignore[arg-type]
    assert hub.lost() == {}
    hub.watch.__self__.close()  # type: ignore[union-attr]
    assert shown(tmp_path, "c")["n_decisions"] == 70


@pytest.mark.network
@pytest.mark.parametrize(
    "views",
    [[b"no view"], [b"["] * 300, [b"\0" * (MAX_VIEW_BYTES + 1)] * 3, [encoded("a")] * 200],
    ids=["no view", "a flood", "too large", "of another"],
)
def test_hostile_views_do_the_exchange_no_harm(
    hub: ExchangeHub, tmp_path: Path, views: list[bytes]
) -> None:
    outcomes = play(hub, views, range(3))
    assert [len(one) for one in outcomes] == [3, 3, 3]  # type: ignore[arg-type]
    assert hub.lost() == {}
    hub.watch.__self__.close()  # type: ignore[union-attr]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.network
def test_zone_that_sends_nothing_but_views_is_lost(hub: ExchangeHub) -> None:
    invitations = hub.open(NAMES, 1, 1)
    peer = Peer(hub.address).hello(invitations["c"], "c")
    assert peer.answer().HasField("welcome")
    for _ in range(1000):
        peer.send(pb.FromZone(view=pb.View(json=b"{}")))
    assert wait_until_lost(hub, "c") == "1000 views in a row"


@pytest.mark.network
def test_views_do_not_keep_a_zone_in_a_void_attempt(hub: ExchangeHub) -> None:
    invitations = hub.open(NAMES, 1, 1)
    peer = Peer(hub.address).hello(invitations["c"], "c")
    assert peer.answer().HasField("welcome")
    hub.abort("b has left")
    assert peer.post(outbox("c", 0)).answer().aborted.reason == "b has left"
    for _ in range(3):
        peer.send(pb.FromZone(view=pb.View(json=encoded("c"))))
    assert wait_until_lost(hub, "c") == "took no answer, or did not leave, for 1 s"


@pytest.mark.network
def test_view_before_the_hello_is_refused(hub: ExchangeHub) -> None:
    hub.open(NAMES, 1, 1)
    peer = Peer(hub.address)
    peer.send(pb.FromZone(view=pb.View(json=encoded("a"))))
    assert peer.refusal()[1] == "not invited to the exchange"
    remote = meet(hub, attempt=2)
    assert len(Member(remote["a"], "a", []).outcome()) == 0  # type: ignore[arg-type]
    for exchange in remote.values():
        exchange.leave()


def test_view_without_an_exchange_goes_nowhere() -> None:
    RemoteExchange("a").show(encoded())


MACHINES = "machines: [{count: 3, capacity: {cpu_milli: 64000, memory_mib: 131072}}]"


def two_zones(*overrides: str) -> Experiment:
    settings = (
        f"zones=[{{name: east, {MACHINES}}}, {{name: west, load: 0.9, {MACHINES}}}]",
        "episode={horizon_s: 60.0, drain_s: 60.0}",
        "training={replicas: 2, rounds: 2, validation_episodes: 2, validate_every: 1}",
        "agent={hidden: [8], n_quantiles: 4, warmup_decisions: 20, batch_size: 16, "
        "decisions_per_update: 8, replay_mib: 1}",
    )
    return load_config(ROOT / "configs" / "base.yaml", (*settings, *overrides))


def test_train_shows_its_zones_and_writes_the_same_as_without(tmp_path: Path) -> None:
    for views in ("decisions", "none"):
        train(two_zones(f"live.views={views}"), tmp_path / views)
    assert written(tmp_path / "decisions") == written(tmp_path / "none")
    assert not (tmp_path / "none" / "live").exists()
    for zone, peer in (("east", "west"), ("west", "east")):
        data = (tmp_path / "decisions" / "live" / f"{zone}.json").read_bytes()
        view = parse_view(data, zone)
        assert (view.machines.n, list(view.offloads)) == (3, [peer])


def test_run_whose_views_cannot_be_written_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    train(two_zones(), tmp_path / "whole")
    monkeypatch.setattr(live_views, "LIVE", "config.yaml")  # something is in the way
    with caplog.at_level(logging.WARNING):
        assert train(two_zones(), tmp_path / "run").is_finished
    assert written(tmp_path / "run") == written(tmp_path / "whole")
    warnings = {r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING}
    assert warnings == {
        f"{tmp_path}/run/config.yaml: not written, the live page stands still: File exists"
    }


def test_what_is_shown_may_change_when_a_run_goes_on(tmp_path: Path) -> None:
    train(two_zones("training.rounds=1"), tmp_path / "run")
    again = two_zones("training.rounds=1", "live.views=none")
    assert train(again, tmp_path / "run", resume=True).is_finished
    config = tmp_path / "run" / "config.yaml"
    text = config.read_text()
    config.write_text(text[: text.index("live:")])  # of a version that showed nothing
    assert train(again, tmp_path / "run", resume=True).is_finished
