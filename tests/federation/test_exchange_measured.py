"""What the hub measures of an attempt, and what a worker says of its time in the exchange."""

import json
from pathlib import Path

import pytest
from federate_process import experiment_of
from outboxes import NAMES, Member, meet, three_zones

from federation.exchange_hub import ExchangeHub
from federation.local_run import train
from federation.round_driver import Limits
from marl_sched.cluster.exchange import LocalExchange, Outbox
from marl_sched.run_folder import RunFolder
from zones.timed_exchange import TimedExchange

KEYS = {"peer_wait_s", "exchange_bytes"}


@pytest.mark.network
def test_hub_counts_bytes_and_waits_of_every_zone_anew_in_every_attempt() -> None:
    with ExchangeHub(three_zones(), "127.0.0.1:0") as hub:
        assert hub.measured() == {}
        remote = meet(hub)
        members = [Member(remote[name], name, range(3)) for name in NAMES]
        assert all(isinstance(member.outcome(), list) for member in members)
        first = hub.measured()
        assert list(first) == list(NAMES)
        for figures in first.values():
            assert set(figures) == KEYS
            assert figures["exchange_bytes"] > 0
            assert figures["peer_wait_s"] >= 0
        for exchange in remote.values():
            exchange.leave()
        hub.open(NAMES, 1, 2)
        for figures in hub.measured().values():
            assert figures == {"peer_wait_s": 0.0, "exchange_bytes": 0}


@pytest.mark.network
def test_more_steps_are_more_bytes() -> None:
    totals = []
    for n_steps in (2, 4):
        with ExchangeHub(three_zones(), "127.0.0.1:0") as hub:
            remote = meet(hub)
            members = [Member(remote[name], name, range(n_steps)) for name in NAMES]
            assert all(isinstance(member.outcome(), list) for member in members)
            totals.append([figures["exchange_bytes"] for figures in hub.measured().values()])
            for exchange in remote.values():
                exchange.leave()
    assert all(more > fewer for fewer, more in zip(*totals, strict=True))


class Recording(LocalExchange):
    """Notes who asks for what."""

    def __init__(self) -> None:
        super().__init__(["a"])
        self.calls: list[str] = []

    def post(self, outbox: Outbox) -> None:
        self.calls.append("post")

    def collect(self, zone: str, step: int) -> list[Outbox]:
        self.calls.append(f"collect {zone} {step}")
        return []


def test_timed_exchange_passes_everything_on_and_its_time_only_grows() -> None:
    inner = Recording()
    timed = TimedExchange(inner)
    assert (timed.seconds, timed.zone_names) == (0.0, ("a",))
    seen = [timed.seconds]
    for step in range(3):
        timed.post(None)  # type: ignore[arg-type] # passed on as it is
        seen.append(timed.seconds)
        timed.collect("a", step)
        seen.append(timed.seconds)
    assert inner.calls == [c for step in range(3) for c in ("post", f"collect a {step}")]
    assert seen == sorted(seen)
    assert seen[-1] > 0


def test_timing_tells_where_a_zone_was(tmp_path: Path) -> None:
    train(experiment_of(2, validation_episodes=0), tmp_path / "run")
    text = RunFolder(tmp_path / "run").timing_path.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == 2 * 3
    for line in lines:
        assert line["exchange_s"] + line["save_s"] + line["validation_s"] <= line["zone_s"] + 0.003
        assert line["zone_s"] + line["aggregation_s"] <= line["round_s"] + 0.003
        assert not KEYS & set(line)  # nobody measures them within a process
    first, second = ([line for line in lines if line["round"] == number] for number in (1, 2))
    for before, after in zip(first, second, strict=True):
        assert after["process_cpu_s"] > before["process_cpu_s"]
        assert after["server_cpu_s"] > before["server_cpu_s"]


def test_looks_become_rarer_the_longer_a_round_takes() -> None:
    limits = Limits(quorum=1, deadline_s=100.0, grace_s=10.0, poll_s=0.1, longest_poll_s=1.0)
    assert [limits.pause_s(passed) for passed in (0.0, 5.0, 20.0, 400.0)] == pytest.approx(
        [0.1, 0.1, 0.4, 1.0]
    )
    assert Limits(1, 100.0, 10.0, poll_s=0.01).pause_s(400.0) == 0.01
