"""Zones that meet through the hub play, byte for byte, what zones of one process play."""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from tiny import tiny, zone
from trajectory import TRAIN, VALIDATE, Episodes, Trajectory, offloading, play

from federation.exchange_hub import ExchangeHub
from federation.exchange_plan import Plan
from marl_sched.cluster.exchange import Exchange, LocalExchange, Outbox
from marl_sched.config import Experiment
from zones.exchange_client import RemoteExchange

ROOT = Path(__file__).parents[2]


def play_all(
    experiment: Experiment, exchanges: Mapping[str, Exchange], episodes: Episodes
) -> dict[str, Trajectory]:
    """Play every zone in a thread of its own."""
    found: dict[str, Trajectory] = {}

    def run(name: str) -> None:
        found[name] = play(experiment, name, exchanges[name], episodes)

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in exchanges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120.0)
    return found


def play_locally(experiment: Experiment, episodes: Episodes) -> dict[str, Trajectory]:
    exchange = LocalExchange(experiment.zone_names)
    return play_all(experiment, dict.fromkeys(experiment.zone_names, exchange), episodes)


def play_remotely(
    experiment: Experiment, episodes: Episodes, round_number: int
) -> dict[str, Trajectory]:
    names = sorted(experiment.zone_names)
    with ExchangeHub(experiment, "127.0.0.1:0") as hub:
        invitations = hub.open(names, round_number, 1)
        remote = {name: RemoteExchange(name) for name in names}
        for name, exchange in remote.items():
            exchange.join(invitations[name], round_number, 1, names)
        found = play_all(experiment, remote, episodes)
        for exchange in remote.values():
            exchange.leave()
        assert hub.lost() == {}
    return found


@pytest.mark.network
@pytest.mark.parametrize(("max_hops", "placement"), [(1, "masked"), (2, "masked"), (3, "unmasked")])
def test_threads_over_the_hub_play_what_one_exchange_gives(max_hops: int, placement: str) -> None:
    experiment = offloading(max_hops, placement=placement)
    expected = play_locally(experiment, TRAIN)
    assert sum(one.n_offloads for one in expected.values()) > 100
    assert play_remotely(experiment, TRAIN, 1) == expected


@pytest.mark.network
def test_validation_in_batches_is_the_same_too() -> None:
    experiment = offloading()
    expected = play_locally(experiment, VALIDATE)
    assert play_remotely(experiment, VALIDATE, 2) == expected


@pytest.mark.network
def test_processes_over_the_hub_play_what_one_exchange_gives() -> None:
    experiment = offloading()
    names = sorted(experiment.zone_names)
    expected = play_locally(experiment, TRAIN)
    with ExchangeHub(experiment, "127.0.0.1:0") as hub:
        processes = {}
        for name, invitation in hub.open(names, 1, 1).items():
            given = {"zone": name, "address": hub.address, "token": invitation.token.hex()}
            command = [sys.executable, str(ROOT / "tests" / "trajectory.py"), json.dumps(given)]
            processes[name] = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            found = {
                name: Trajectory(**json.loads(process.communicate(timeout=120.0)[0]))
                for name, process in processes.items()
            }
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
        assert hub.lost() == {}
    assert found == expected


class Counting(LocalExchange):
    """Counts the posts of one zone."""

    n_posts = 0

    def post(self, outbox: Outbox) -> None:
        self.n_posts += 1
        super().post(outbox)


@pytest.mark.parametrize("max_hops", [0, 1, 3])
def test_plan_has_as_many_exchanges_as_an_episode(max_hops: int) -> None:
    experiment = tiny(
        zone("a"),
        cluster={"max_hops": max_hops},
        training={"replicas": 2, "rounds": 1, "episodes_per_round": 1},
    )
    exchange = Counting(["a"])
    play(experiment, "a", exchange, [("train", (0, 1))])
    assert Plan(experiment, 1).n_exchanges == exchange.n_posts
