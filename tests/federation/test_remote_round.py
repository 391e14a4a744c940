"""Rounds whose zones meet through the hub: the same files as `train`, and a lost zone at once."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from zone_double import ROOT, written

from federation.client_app import make_client_app
from federation.exchange_hub import ExchangeHub
from federation.live_views import LiveFolder, ViewSink
from federation.local_grid import LocalGrid
from federation.local_run import train
from federation.messages import Packed, decode_order, encode_order, invite
from federation.round_driver import Limits
from federation.server_app import make_server_app
from federation.session import RoundDone, Session
from federation.weights import WeightSpec
from marl_sched.agents.learned import save_policy
from marl_sched.cluster.exchange import Outbox
from marl_sched.config import Experiment, load_config
from marl_sched.run_folder import Checkpoint, RunFolder
from zones.exchange_client import RemoteExchange
from zones.records import Invitation, NetworkPair, RoundOrder
from zones.view import parse_view
from zones.worker import ZoneWorker, first_weights, make_learned_policy, score_validation

MACHINES = "machines: [{count: 3, capacity: {cpu_milli: 64000, memory_mib: 131072}}]"
SETTINGS = (
    f"zones=[{{name: east, {MACHINES}}}, {{name: north, {MACHINES}}}, {{name: west, {MACHINES}}}]",
    "episode={horizon_s: 60.0, drain_s: 60.0}",
    "training={replicas: 2, rounds: 2, validation_episodes: 3, validate_every: 1}",
    "agent={hidden: [8], n_quantiles: 4, warmup_decisions: 20, batch_size: 16, "
    "decisions_per_update: 8, replay_mib: 1}",
)


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return load_config(ROOT / "configs" / "base.yaml", SETTINGS)


def run_over_hub(
    path: Path,
    experiment: Experiment,
    exchanges: Mapping[str, RemoteExchange],
    progress: Callable[[RoundDone], None] = lambda event: None,
) -> list[RoundDone]:
    """Run like `train`, with a hub in the middle; return the events."""
    folder = RunFolder.create(path, experiment)
    first = first_weights(experiment)
    events: list[RoundDone] = []

    def note(event: RoundDone) -> None:
        events.append(event)
        progress(event)

    with (
        ViewSink(LiveFolder(path), experiment.zone_names) as sink,
        ExchangeHub(experiment, "127.0.0.1:0") as hub,
    ):
        hub.watch = sink.take
        session = Session(
            experiment=experiment,
            folder=folder,
            checkpoint=Checkpoint(0, first, first),
            exchange=hub,
            publish=lambda file, ema: save_policy(file, make_learned_policy(experiment, ema)),
            score=lambda sums: score_validation(experiment, sums),
            limits=Limits(quorum=1, deadline_s=60.0, grace_s=60.0),
            progress=note,
        )
        apps = {}
        for number, (name, exchange) in enumerate(exchanges.items(), 10):
            zone_path = folder.zone_path(name)
            worker = ZoneWorker(experiment, name, exchange, zone_path, show=exchange.show)
            apps[number] = make_client_app(worker, exchange=exchange)
        with LocalGrid(apps) as grid:
            make_server_app(session)(grid, Context(1, 1, {}, RecordDict(), {}))
    return events


@pytest.mark.network
def test_run_over_the_hub_writes_what_train_writes(experiment: Experiment, tmp_path: Path) -> None:
    train(experiment, tmp_path / "local")
    run_over_hub(
        tmp_path / "remote",
        experiment,
        {name: RemoteExchange(name) for name in experiment.zone_names},
    )
    assert written(tmp_path / "remote") == written(tmp_path / "local")
    for name in experiment.zone_names:
        data = (tmp_path / "remote" / "live" / f"{name}.json").read_bytes()
        assert parse_view(data, name).machines.n == 3


class Failing(RemoteExchange):
    """Does something else than to post, once, in the middle of an episode."""

    def __init__(self, zone: str, deed: Callable[["Failing"], None]) -> None:
        super().__init__(zone)
        self.deed: Callable[[Failing], None] | None = deed

    def post(self, outbox: Outbox) -> None:
        if outbox.step == 5 and self.deed is not None:
            deed, self.deed = self.deed, None
            deed(self)
        super().post(outbox)


@pytest.mark.network
@pytest.mark.parametrize("gone", [("west",), ("north", "west")])
def test_zones_whose_streams_break_are_lost_at_once(
    experiment: Experiment, tmp_path: Path, gone: tuple[str, ...]
) -> None:
    """As after kill -9: the stream is gone, and no reply will ever come."""
    released = threading.Event()

    def die(exchange: Failing) -> None:
        assert exchange._stream is not None
        exchange._stream._channel.close()
        released.wait(50.0)

    exchanges: dict[str, RemoteExchange] = {
        name: Failing(name, die) if name in gone else RemoteExchange(name)
        for name in experiment.zone_names
    }
    folder = tmp_path / "run"
    events = run_over_hub(folder, experiment, exchanges, progress=lambda event: released.set())
    assert events[0].seconds < 40.0  # neither a deadline nor the bound of the deed
    assert [event.lost for event in events] == [dict.fromkeys(gone, "its stream broke"), {}, {}]
    committed = RunFolder.resume(folder, experiment).committed
    assert committed is not None
    assert committed.members == tuple(sorted(set(experiment.zone_names) - set(gone)))


@pytest.mark.network
def test_zone_that_fails_by_itself_says_so(experiment: Experiment, tmp_path: Path) -> None:
    def fail(exchange: Failing) -> None:
        raise ValueError("out of luck")

    exchanges = {name: RemoteExchange(name) for name in ("east", "north")}
    events = run_over_hub(
        tmp_path / "run", experiment, {**exchanges, "west": Failing("west", fail)}
    )
    assert events[0].lost == {"west": "ValueError: out of luck"}


def test_invitation_travels_with_the_order_to_its_zone_only(experiment: Experiment) -> None:
    first = first_weights(experiment)
    packed = Packed.of(NetworkPair(first, first), WeightSpec.of(first))
    order = RoundOrder(3, 2, ("east", "west"), True, 1)
    content = encode_order(packed, order)
    invitation = Invitation("coordinator:9093", bytes(range(32)))
    assert decode_order(invite(content, invitation))[1].invitation == invitation
    assert decode_order(content)[1] == order
    with_it = RoundOrder(3, 2, ("east", "west"), True, 1, invitation)
    assert decode_order(encode_order(packed, with_it))[1] == with_it
