"""A zone on Flower's own SuperNode, which starts a process for every message."""

import os
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from superlink import BIN, SuperLink, driving, free_ports, processes, running
from tiny import tiny, zone

from federation.exchange_hub import ExchangeHub
from federation.greeting import Hello
from federation.messages import Packed, encode_order
from federation.stock_zone import StockSettings, _host_of
from federation.weights import WeightSpec, unpack
from marl_sched.cluster.exchange import LocalExchange
from marl_sched.config import dump_config
from marl_sched.errors import ConfigError
from zones.records import Assignment, NetworkPair, RoundOrder
from zones.worker import ZoneWorker, first_weights

QUICK = tiny(
    zone("a"),
    agent={"hidden": [8], "n_quantiles": 4, "warmup_decisions": 5, "batch_size": 8},
    training={"replicas": 2, "rounds": 3, "validation_episodes": 0},
)
ANSWER_S = 110.0


def test_settings_come_from_the_node_then_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MARL_SCHED_STATE_DIR", "there")
    monkeypatch.setenv("MARL_SCHED_ZONE", "b")
    assert StockSettings.of({"zone": "a"}) == StockSettings("there", "a")
    assert StockSettings.of({"state-dir": "here"}) == StockSettings("here", "b")


def test_node_without_a_folder_is_told_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARL_SCHED_STATE_DIR", raising=False)
    with pytest.raises(ConfigError, match="no state-dir, expected --node-config"):
        _host_of(Context(1, 2, {}, RecordDict(), {}))


@pytest.mark.processes
@pytest.mark.network
def test_rounds_on_a_stock_supernode_equal_those_of_one_worker(tmp_path: Path) -> None:
    expected = ZoneWorker(QUICK, "a", LocalExchange(["a"]))
    first = first_weights(QUICK)
    pair = NetworkPair(first, first)
    spec = WeightSpec.of(first)
    with (
        running(SuperLink(tmp_path)) as superlink,
        driving(superlink) as driver,
        processes() as start,
        ExchangeHub(QUICK, "127.0.0.1:0") as hub,
    ):
        start(
            BIN / "flower-supernode",
            "--insecure",
            "--superlink",
            superlink.fleet,
            "--port",
            str(free_ports(1)[0]),
            "--node-config",
            f'zone="a" state-dir="{tmp_path / "zone"}"',
            log=tmp_path / "supernode.log",
            PATH=f"{BIN}:{os.environ['PATH']}",  # it starts others by name
            FLWR_HOME=str(tmp_path / "home"),
            FLWR_TELEMETRY_ENABLED="0",
            FLWR_DISABLE_UPDATE_CHECK="1",
        )
        (node_id,) = driver.wait_for_nodes(1)
        hello = Hello(dump_config(QUICK), "run", "a", 1)
        status = driver.greet(node_id, hello, ANSWER_S)
        assert (status.problem, status.assigned, status.is_ready) == ("", "a", True)
        for number in (1, 2):
            order = RoundOrder(
                number,
                1,
                ("a",),
                invitation=hub.open(["a"], number, 1)["a"],
                assignment=Assignment("a", 1),
            )
            reply = driver.ask(node_id, encode_order(Packed.of(pair, spec), order), s=ANSWER_S)
            assert not reply.has_error(), reply.error
            report = expected.train_round(pair, RoundOrder(number, 1, ("a",)))
            assert report.weights is not None
            pair = report.weights
            got = unpack(reply.content.array_records["arrays"]["online"].numpy(), spec)
            for name, tensor in got.items():
                np.testing.assert_array_equal(tensor, pair.online[name])
