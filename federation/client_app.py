"""The zone's side of a round: a Flower message in, a ZoneWorker's answer out."""

import logging
from collections.abc import Callable
from typing import Protocol

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from federation.messages import ABORTED, FAILED, FATAL, decode_order, encode_report
from federation.weights import unpack
from marl_sched.errors import CheckpointError, ConfigError, ExchangeAborted, TraceError
from zones.records import NetworkPair, RoundOrder, RoundReport

_logger = logging.getLogger(__name__)


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


def make_client_app(worker: Worker, fatal: tuple[type[Exception], ...] = ()) -> ClientApp:
    """Return the ClientApp of one zone.

    It answers `query` with the zone's name, `train` and `evaluate` with a report. What the worker
    raises becomes an error reply whose code says whether trying again is of use.

    Args:
        worker: The zone.
        fatal: Errors that every other zone would meet too, beside those of our own.
    """
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        content = RecordDict({"zone": ConfigRecord({"name": worker.zone_name})})
        return Message(content, reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return _answer(message, worker, worker.train_round, fatal)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return _answer(message, worker, worker.validate, fatal)

    return app


def _answer(
    message: Message,
    worker: Worker,
    work: Callable[[NetworkPair, RoundOrder], RoundReport],
    fatal: tuple[type[Exception], ...],
) -> Message:
    try:
        packed, order = decode_order(message.content)
        spec = packed.spec
        weights = NetworkPair(unpack(packed.online, spec), unpack(packed.ema, spec))
        report = work(weights, order)
        content = encode_report(worker.zone_name, report, order, spec)
    except ExchangeAborted as error:
        return Message(Error(ABORTED, str(error)), reply_to=message)
    except (ConfigError, TraceError, CheckpointError) as error:
        return Message(Error(FATAL, str(error)), reply_to=message)
    except Exception as error:
        if isinstance(error, fatal):
            return Message(Error(FATAL, f"{type(error).__name__}: {error}"), reply_to=message)
        # Whatever it is: without an answer the other zones would wait for the deadline.
        _logger.debug("zone %s failed", worker.zone_name, exc_info=True)
        return Message(Error(FAILED, f"{type(error).__name__}: {error}"), reply_to=message)
    return Message(content, reply_to=message)
