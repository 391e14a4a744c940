"""The zone's side of a round: a Flower message in, a ZoneWorker's answer out.

The same code answers over every transport. Where the worker comes from is the host's matter: in
one process every zone has its own, a node of its own is told which zone it is.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from federation.greeting import Hello, ZoneStatus, decode_hello, encode_status
from federation.messages import ABORTED, FAILED, FATAL, Packed, decode_order, encode_report
from federation.weights import unpack
from marl_sched.errors import (
    CheckpointError,
    ConfigError,
    ExchangeAborted,
    ExchangeError,
    TraceError,
)
from marl_sched.log_lines import at_place
from zones.records import Invitation, NetworkPair, RoundOrder, RoundReport

_logger = logging.getLogger(__name__)

_SHARED: tuple[type[Exception], ...] = (ConfigError, TraceError, CheckpointError)
"""Errors that all zones of one process would meet: they share configuration, traces and run."""


class Worker(Protocol):
    """What a zone offers: the ZoneWorker, or a test's double."""

    @property
    def zone_name(self) -> str:
        """Name of the zone."""
        ...

    def train_round(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        """Train one round from the given shared weights."""
        ...

    def validate(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        """Score the given shared weights without training."""
        ...


class JoinableExchange(Protocol):
    """An exchange that a zone enters for one attempt at a time, like RemoteExchange."""

    def join(
        self, invitation: Invitation, round_number: int, attempt: int, members: Sequence[str]
    ) -> None:
        """Meet the other members of an attempt."""
        ...

    def leave(self) -> None:
        """Leave them; without effect for who is not there."""
        ...


class Host(Protocol):
    """Has the worker of the zone that this node is."""

    def greet(self, hello: Hello | None) -> ZoneStatus:
        """Take what the ServerApp says, and say which zone this is."""
        ...

    def at_work(self, order: RoundOrder) -> AbstractContextManager[Worker]:
        """Return the worker for an order, in the exchange of its attempt.

        Raises:
            MarlSchedError: The order is not for this node, or the worker cannot be made.
        """
        ...


class FixedHost:
    """A host of one worker that is there from the start."""

    def __init__(self, worker: Worker, exchange: JoinableExchange | None = None) -> None:
        """Host a worker.

        Args:
            worker: The zone.
            exchange: Its exchange, if it has to be joined; orders then carry an invitation.
        """
        self._worker = worker
        self._exchange = exchange

    def greet(self, hello: Hello | None) -> ZoneStatus:
        """Say which zone this is, and always will be."""
        zone = self._worker.zone_name
        epoch = hello.epoch if hello is not None and hello.zone == zone else 0
        return ZoneStatus(name=zone, assigned=zone, epoch=epoch, is_ready=True)

    @contextmanager
    def at_work(self, order: RoundOrder) -> Iterator[Worker]:
        """Yield the worker."""
        with joined(self._exchange, order):
            yield self._worker


def make_client_app(
    worker: Worker,
    fatal: tuple[type[Exception], ...] = (),
    exchange: JoinableExchange | None = None,
) -> ClientApp:
    """Return the ClientApp of one zone among others in one process.

    Args:
        worker: The zone.
        fatal: Errors that every other zone would meet too, beside those of our own.
        exchange: The worker's exchange, if it has to be joined; orders then carry an invitation.
    """
    host = FixedHost(worker, exchange)
    return make_host_app(lambda context: host, (*_SHARED, *fatal))


class Observer(Protocol):
    """Is told how orders end, from the thread that carries them out."""

    def note_report(self, zone: str, order: RoundOrder, report: RoundReport) -> None:
        """Note an order that was carried out."""
        ...

    def note_failure(self, zone: str) -> None:
        """Note an order that ended in an error."""
        ...


def make_host_app(
    host_of: Callable[[Context], Host],
    fatal: tuple[type[Exception], ...] = (),
    observer: Observer | None = None,
) -> ClientApp:
    """Return the ClientApp of a host.

    It answers `query` with the state of its zone, `train` and `evaluate` with a report. What the
    worker raises becomes an error reply whose code says whether trying again is of use.

    Args:
        host_of: Returns the host, given what Flower tells of the node.
        fatal: Errors that every other zone would meet too: they end the run.
        observer: Told how orders end.
    """
    app = ClientApp()
    answers = _Answers(host_of, fatal, observer)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        try:
            status = host_of(context).greet(decode_hello(message.content))
        except Exception as error:
            # The ServerApp is told, or it would wait in vain.
            _logger.debug("a greeting failed", exc_info=True)
            return _failed(message, error)
        return Message(encode_status(status), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return answers.to(message, context, _train)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return answers.to(message, context, _validate)

    return app


_Work = Callable[[Worker, NetworkPair, RoundOrder], RoundReport]


def _train(worker: Worker, weights: NetworkPair, order: RoundOrder) -> RoundReport:
    return worker.train_round(weights, order)


def _validate(worker: Worker, weights: NetworkPair, order: RoundOrder) -> RoundReport:
    return worker.validate(weights, order)


@dataclass(frozen=True)
class _Answers:
    """Carries orders out."""

    host_of: Callable[[Context], Host]
    fatal: tuple[type[Exception], ...]
    observer: Observer | None

    def to(self, message: Message, context: Context, work: _Work) -> Message:
        """Return the answer to a message that holds an order."""
        try:
            packed, order = decode_order(message.content)
            with at_place(**_place(order)):
                report, zone = self._report(context, packed, order, work)
            content = encode_report(zone, report, order, packed.spec)
        except ExchangeAborted as error:
            return Message(Error(ABORTED, str(error)), reply_to=message)
        except Exception as error:
            if isinstance(error, self.fatal):
                reason = str(error)
                if not isinstance(error, _SHARED):
                    reason = f"{type(error).__name__}: {error}"
                return Message(Error(FATAL, reason), reply_to=message)
            # Whatever it is: without an answer the other zones would wait for the deadline.
            _logger.debug("an order failed", exc_info=True)
            return _failed(message, error)
        return Message(content, reply_to=message)

    def _report(
        self, context: Context, packed: Packed, order: RoundOrder, work: _Work
    ) -> tuple[RoundReport, str]:
        """Return what the worker reports, and which zone it is."""
        spec = packed.spec
        weights = NetworkPair(unpack(packed.online, spec), unpack(packed.ema, spec))
        try:
            with self.host_of(context).at_work(order) as worker:
                report = work(worker, weights, order)
                zone = worker.zone_name
        except Exception:
            if self.observer is not None:
                self.observer.note_failure(_place(order).get("zone", ""))
            raise
        if self.observer is not None:
            self.observer.note_report(zone, order, report)
        return report, zone


def _place(order: RoundOrder) -> dict[str, Any]:
    """Return what log lines about an order say of it."""
    place = {"round": order.round_number, "attempt": order.attempt}
    return place if order.assignment is None else {"zone": order.assignment.zone, **place}


def _failed(message: Message, error: Exception) -> Message:
    return Message(Error(FAILED, f"{type(error).__name__}: {error}"), reply_to=message)


@contextmanager
def joined(exchange: JoinableExchange | None, order: RoundOrder) -> Iterator[None]:
    """Take part in the exchange of an attempt, if it has to be joined."""
    if exchange is None:
        yield
        return
    if order.invitation is None:
        raise ExchangeError("the order holds no invitation to the exchange")
    try:
        exchange.join(order.invitation, order.round_number, order.attempt, order.members)
        yield
    finally:
        exchange.leave()
