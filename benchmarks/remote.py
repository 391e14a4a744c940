"""Zones as processes around an exchange hub, for benchmarks/exchange.py: who waited for what.

All clocks are the host's monotonic one, so that times of different processes can be compared. A
step's transport begins when the slowest zone hands in its outbox and ends, for each zone, when it
has everybody's; what a zone waits before that is skew between zones, not transport.
"""

import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np

from federation.exchange_hub import ExchangeHub
from marl_sched.cluster.exchange import Exchange, LocalExchange, Outbox
from marl_sched.cluster.kernels.digest import N_DIGEST_AMOUNTS, N_PLAIN_DIGEST
from marl_sched.cluster.kernels.messages import N_NOTICE, N_OFFLOAD, N_SETTLEMENT
from marl_sched.cluster.model import N_SHAPES
from marl_sched.config import Experiment
from zones.exchange_client import RemoteExchange
from zones.records import Invitation, NetworkPair, RoundOrder
from zones.worker import ZoneWorker, first_weights

DIGEST_EVERY = 4
"""Windows between two digests, as in configs/base.yaml."""
N_ROWS = 6
"""Offloads, notices and settlements each that a zone sends a window, as in configs/base.yaml."""

Play = Callable[[Experiment, str, Exchange], None]


@dataclass
class Marks:
    """When a zone handed in its outboxes and when it had everybody's, step by step, in seconds.

    Attributes:
        cpu_s: CPU time of the zone's process, or thread, from its first step to its last.
        exchange_cpu_s: The part of it that went into posting and collecting.
    """

    posted: list[float] = field(default_factory=list)
    collected: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    exchange_cpu_s: float = 0.0


class Timed:
    """An exchange that notes when it is used."""

    def __init__(self, inner: Exchange, clock: Callable[[], float]) -> None:
        """Pass everything on to another exchange; `clock` tells the CPU seconds so far."""
        self._inner = inner
        self._clock = clock
        self._cpu_s = 0.0
        self.marks = Marks()

    @property
    def zone_names(self) -> tuple[str, ...]:
        """Names of all members, sorted."""
        return self._inner.zone_names

    def post(self, outbox: Outbox) -> None:
        """Note the times, then post."""
        self.marks.posted.append(time.monotonic())
        self._cpu_s = self._clock()
        self._inner.post(outbox)

    def collect(self, zone: str, step: int) -> list[Outbox]:
        """Collect, then note the times."""
        outboxes = self._inner.collect(zone, step)
        self.marks.exchange_cpu_s += self._clock() - self._cpu_s
        self.marks.collected.append(time.monotonic())
        return outboxes


def play_hand_made(experiment: Experiment, zone: str, exchange: Exchange) -> None:
    """Do nothing but to exchange, with rows from every zone to the next and back."""
    names = sorted(experiment.zone_names)
    mine = names.index(zone)
    after, before = (mine + 1) % len(names), (mine - 1) % len(names)
    n_replicas, n_resources = experiment.training.replicas, experiment.n_resources
    n_digest = N_PLAIN_DIGEST + (N_DIGEST_AMOUNTS + N_SHAPES) * n_resources
    digests, moments = np.ones((n_replicas, n_digest)), np.ones((n_replicas, n_resources, 3))
    replicas = np.arange(N_ROWS) % n_replicas

    def rows(n_columns: int, to: int, first: int, at_us: int, **more: float) -> np.ndarray:
        made = np.ones((N_ROWS, n_columns))
        made[:, :6] = np.array([0, to, mine, 0, 0, at_us])
        made[:, 0], made[:, 4] = replicas, np.arange(first, first + N_ROWS)
        return made

    empty = {n: np.zeros((0, n)) for n in (N_OFFLOAD + 3 * n_resources, N_NOTICE, N_SETTLEMENT)}
    n_steps = 1 + experiment.n_windows + max(1, experiment.cluster.max_hops)
    for step in [
        step for _ in range(experiment.training.episodes_per_round) for step in range(n_steps)
    ]:
        from_us = min(max(0, step - 1), experiment.n_windows) * experiment.window_us
        sends, hears = 1 <= step <= experiment.n_windows, 2 <= step <= experiment.n_windows
        n = N_OFFLOAD + 3 * n_resources
        exchange.post(
            Outbox(
                zone=zone,
                step=step,
                offloads=rows(n, after, N_ROWS * step, from_us) if sends else empty[n],
                notices=rows(N_NOTICE, before, N_ROWS * (step - 1), from_us)
                if hears
                else empty[N_NOTICE],
                settlements=rows(N_SETTLEMENT, before, N_ROWS * (step - 1), from_us)
                if hears
                else empty[N_SETTLEMENT],
                digests=digests if step % DIGEST_EVERY == 0 else None,
                moments=moments,
            )
        )
        exchange.collect(zone, step)


def play_round(experiment: Experiment, zone: str, exchange: Exchange) -> None:
    """Train the first round."""
    weights = first_weights(experiment)
    order = RoundOrder(1, 1, tuple(sorted(experiment.zone_names)))
    ZoneWorker(experiment, zone, exchange).train_round(NetworkPair(weights, weights), order)


def in_threads(experiment: Experiment, play: Play) -> dict[str, Marks]:
    """Play all zones in this process, a thread each, over a LocalExchange."""
    exchange = LocalExchange(experiment.zone_names)
    timed = {name: Timed(exchange, time.thread_time) for name in sorted(experiment.zone_names)}

    def run(name: str, one: Timed) -> None:
        play(experiment, name, one)
        one.marks.cpu_s = time.thread_time()

    threads = [threading.Thread(target=run, args=item) for item in timed.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: one.marks for name, one in timed.items()}


def in_processes(experiment: Experiment, play: Play) -> tuple[dict[str, Marks], float]:
    """Play every zone in a process of its own, the hub in this one.

    Returns:
        What the zones noted, by name, and the CPU seconds of the hub.
    """
    names = sorted(experiment.zone_names)
    context = multiprocessing.get_context("spawn")
    with ExchangeHub(experiment, "127.0.0.1:0") as hub:
        pipes: dict[str, Connection] = {}
        for name, invitation in hub.open(names, 1, 1).items():
            ours, theirs = context.Pipe()
            arguments = (experiment, name, invitation, play, theirs)
            context.Process(target=_zone_process, args=arguments, daemon=True).start()
            theirs.close()
            pipes[name] = ours
        start = time.process_time()
        marks = {name: _received(pipe) for name, pipe in pipes.items()}
        return marks, time.process_time() - start


def _received(pipe: Connection) -> Marks:
    with closing(pipe):
        marks = pipe.recv()
    assert isinstance(marks, Marks)
    return marks


def _zone_process(
    experiment: Experiment, zone: str, invitation: Invitation, play: Play, answer: Connection
) -> None:
    exchange = RemoteExchange(zone)
    exchange.join(invitation, 1, 1, sorted(experiment.zone_names))
    timed = Timed(exchange, time.process_time)
    start = time.process_time()
    play(experiment, zone, timed)
    timed.marks.cpu_s = time.process_time() - start
    exchange.leave()
    answer.send(timed.marks)


def figures(marks: Sequence[Marks], hub_cpu_s: float = 0.0) -> dict[str, float]:
    """Return transport and skew of a run, means over zones, and the time it took.

    The first steps do not count in them: processes start and load their kernels there. In the share
    of the CPU time they do.
    """
    exchange_cpu_s = hub_cpu_s + sum(zone.exchange_cpu_s for zone in marks)
    cpu_s = hub_cpu_s + sum(zone.cpu_s for zone in marks)
    first = min(20, len(marks[0].posted) // 10)
    posted = np.array([zone.posted for zone in marks])[:, first:]  # (Z, steps)
    collected = np.array([zone.collected for zone in marks])[:, first:]
    slowest = posted.max(axis=0)
    seconds = collected[:, -1].max() - posted[:, 0].min()
    transport = collected - slowest
    return {
        "step_us": float(1e6 * seconds / posted.shape[1]),
        "transport_us": 1e6 * float(np.median(transport)),
        "transport_p95_us": 1e6 * float(np.quantile(transport, 0.95)),
        "transport_share": float(transport.sum(axis=1).mean() / seconds),
        "skew_share": float((slowest - posted).sum(axis=1).mean() / seconds),
        "transport_cpu_share": exchange_cpu_s / cpu_s,
        "hub_cpu_us": 1e6 * hub_cpu_s / len(marks[0].posted),
        "zone_cpu_us": 1e6
        * float(np.mean([zone.exchange_cpu_s / len(zone.posted) for zone in marks])),
        "seconds": float(seconds),
    }
