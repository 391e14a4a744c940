"""Hand-made outboxes that a zone could have sent, and peers that send what they like."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tiny import tiny, zone

from federation.exchange_hub import ExchangeHub
from marl_sched.cluster.exchange import Outbox
from marl_sched.cluster.kernels.digest import N_DIGEST_AMOUNTS, N_PLAIN_DIGEST
from marl_sched.cluster.kernels.messages import N_NOTICE, N_OFFLOAD, N_SETTLEMENT
from marl_sched.cluster.model import N_SHAPES
from marl_sched.config import Experiment
from marl_sched.errors import ExchangeError
from zones.exchange_client import RemoteExchange
from zones.exchange_codec import pack_outbox
from zones.proto import exchange_pb2 as pb
from zones.records import Invitation

NAMES = ("a", "b", "c")
E, R, W = 2, 2, 5_000_000
"""Replicas, resources, window in microseconds."""
N_STEPS = 1 + 24 + 1
"""Of an episode of 120 s."""

Rows = NDArray[np.float64]


def three_zones(**training: int) -> Experiment:
    """Return an experiment of three zones; its round is one episode in E replicas."""
    settings = {"replicas": E, "rounds": 4, "validation_episodes": 0, **training}
    return tiny(*(zone(name) for name in NAMES), training=settings)


def outbox(name: str, step: int, **parts: Any) -> Outbox:
    """Return an outbox without rows, with a digest, or with the parts given."""
    values: dict[str, Any] = {
        "offloads": np.zeros((0, N_OFFLOAD + 3 * R)),
        "notices": np.zeros((0, N_NOTICE)),
        "settlements": np.zeros((0, N_SETTLEMENT)),
        "digests": np.full((E, N_PLAIN_DIGEST + (N_DIGEST_AMOUNTS + N_SHAPES) * R), 0.1 + step),
        "moments": np.full((E, R, 3), 0.3 * NAMES.index(name)),
        **parts,
    }
    return Outbox(name, step, **values)


def head(sender: str, to: str, row: int, at_us: int, replica: int = 0) -> list[float]:
    """Return the columns that all rows share."""
    return [replica, NAMES.index(to), NAMES.index(sender), row, row, at_us]


def offload(sender: str, to: str, row: int, step: int, replica: int = 0) -> Rows:
    """Return an offload of the window that a step closes."""
    now_us = step * W - 1
    instance = [now_us - 2, 7_000_000, 0, 0, 0, 1, 2_500_000, 10.0, 9.0, 0.5, 5 * W, 9 * W, 0, 3]
    amounts = [1000, 1024, 700.5, 800.25, 650.125, 900]
    return np.array([[*head(sender, to, row, now_us + 2_500_000, replica), *instance, *amounts]])


def notice(sender: str, to: str, row: int, step: int, replica: int = 0) -> Rows:
    """Return a notice that an instance has finished."""
    return np.array([[*head(sender, to, row, step * W - 5, replica), 0]], float)


def settlement(sender: str, to: str, row: int, step: int, sign: int = 1, replica: int = 0) -> Rows:
    """Return a settlement of the credit for an instance."""
    return np.array([[*head(sender, to, row, step * W - 9, replica), 0.125 * sign, sign]])


def rows(*parts: Rows) -> Rows:
    """Return rows one below the other."""
    return np.concatenate(parts)


class Peer:
    """A zone's connection without a zone behind it: it sends what it is told to."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(
            address,
            [
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_send_message_length", -1),
                ("grpc.http2.bdp_probe", 0),  # the window stays at its 64 KiB
            ],
        )
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        meet = self.channel.stream_stream("/marl_sched.exchange.Exchange/Meet")
        self._call: Any = meet(iter(self._out.get, None), timeout=30.0)

    def send(self, message: pb.FromZone | bytes) -> None:
        """Send a message, or bytes that need not be one."""
        is_raw = isinstance(message, bytes)
        self._out.put(message if is_raw else message.SerializeToString())

    def answer(self) -> pb.FromHub:
        """Return the hub's next message."""
        return pb.FromHub.FromString(next(self._call))

    def hello(self, invitation: Invitation, name: str, **changes: Any) -> "Peer":
        """Say hello for round 1, attempt 1, or as told."""
        values = {"zone": name, "round": 1, "attempt": 1, "token": invitation.token, **changes}
        self.send(pb.FromZone(hello=pb.Hello(**values)))
        return self

    def post(self, box: Outbox, number: int | None = None) -> "Peer":
        """Post an outbox."""
        chosen = box.step if number is None else number
        post = pb.Post(number=chosen, step=box.step, outbox=pack_outbox(box))
        self.send(pb.FromZone(post=post))
        return self

    def refusal(self) -> tuple[grpc.StatusCode, str]:
        """Wait for the end of the call and return why."""
        try:
            while True:
                next(self._call)
        except StopIteration:
            return grpc.StatusCode.OK, ""
        except grpc.RpcError:
            return self._call.code(), self._call.details()

    def close(self) -> None:
        """Go away without a word."""
        self._out.put(None)
        self.channel.close()


class Member(threading.Thread):
    """A zone that plays steps through the client; `outcome` tells what came of it."""

    def __init__(
        self,
        exchange: Any,
        name: str,
        steps: Sequence[int],
        box: Callable[[str, int], Outbox] = outbox,
    ) -> None:
        super().__init__(daemon=True)
        self._exchange, self._zone, self._steps, self._box = exchange, name, steps, box
        self._result: list[list[Outbox]] | ExchangeError = []
        self.start()

    def run(self) -> None:
        got: list[list[Outbox]] = []
        try:
            for step in self._steps:
                self._exchange.post(self._box(self._zone, step))
                got.append(self._exchange.collect(self._zone, step))
            self._result = got
        except ExchangeError as error:
            self._result = error

    def outcome(self) -> list[list[Outbox]] | ExchangeError:
        """Wait for the end; return what was collected, step by step, or the error."""
        self.join(timeout=30.0)
        assert not self.is_alive()
        return self._result


def meet(
    hub: ExchangeHub,
    names: Sequence[str] = NAMES,
    round_number: int = 1,
    attempt: int = 1,
    timeout_s: float = 20.0,
) -> dict[str, RemoteExchange]:
    """Open an attempt and let all its members join."""
    invitations = hub.open(names, round_number, attempt)
    found = {name: RemoteExchange(name, timeout_s=timeout_s) for name in names}
    for name, exchange in found.items():
        exchange.join(invitations[name], round_number, attempt, names)
    return found


def wait_until_lost(hub: ExchangeHub, name: str) -> str:
    """Wait until the hub names a zone as lost and return why."""
    waited = threading.Event()
    for _ in range(1500):
        if name in hub.lost():
            return hub.lost()[name]
        waited.wait(0.01)
    raise AssertionError(f"{name} is not among {hub.lost()}")
