"""A zone's worker on a node, and what it is made from."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from federation.assignments import AssignmentStore, Told
from federation.client_app import JoinableExchange, Worker
from marl_sched.cluster.exchange import Exchange
from marl_sched.config import Experiment
from marl_sched.errors import CheckpointError
from zones import state
from zones.worker import ZoneWorker

_logger = logging.getLogger(__name__)


class ZoneExchange(Exchange, JoinableExchange, Protocol):
    """An exchange between zones that is entered for one attempt at a time."""

    def show(self, view: bytes) -> None:
        """Send a view of the zone to whoever watches."""
        ...


class HostedWorker(Worker, Protocol):
    """A worker that goes on from what an earlier one has saved."""

    def load_state(self, path: Path) -> None:
        """Load a state; raises CheckpointError."""
        ...


MakeWorker = Callable[[Experiment, str, ZoneExchange, Path], HostedWorker]


def _make_worker(
    experiment: Experiment, zone: str, exchange: ZoneExchange, state_dir: Path
) -> ZoneWorker:
    return ZoneWorker(experiment, zone, exchange, state_dir, show=exchange.show)


@dataclass(frozen=True)
class HostSettings:
    """What a host is started with.

    Attributes:
        name: The zone it is for; empty: any.
        folder: For what it keeps; it exists, and no other process uses it.
        connect: Returns a zone's exchange.
        compile_kernels: Returns once the kernels are compiled.
        learner_state: Folder for the states of all zones of this host; None: below `folder`.
        exchange_address: HOST:PORT of the exchange as seen from here; empty: as invited.
        is_secure: The exchange is encrypted; else it is used on loopback only.
        make_worker: Makes the worker of a zone.
    """

    name: str
    folder: Path
    connect: Callable[[str], ZoneExchange]
    compile_kernels: Callable[[], None]
    learner_state: Path | None = None
    exchange_address: str = ""
    is_secure: bool = False
    make_worker: MakeWorker = _make_worker


@dataclass
class Hosted:
    """A worker and what belongs to it.

    Attributes:
        told: What it was built for.
        worker: The worker.
        exchange: Its exchange.
        folder: Its states.
        held: Ends the hold of the folder.
    """

    told: Told
    worker: HostedWorker
    exchange: ZoneExchange
    folder: Path
    held: ExitStack

    @classmethod
    def build(cls, settings: HostSettings, store: AssignmentStore, told: Told) -> "Hosted":
        """Make the worker of a zone, which goes on from what it has saved."""
        with ExitStack() as stack:
            folder = stack.enter_context(store.state_dir(told))
            drop_void_states(folder, told)
            exchange = settings.connect(told.zone)
            worker = settings.make_worker(told.experiment, told.zone, exchange, folder)
            _load_newest(worker, folder, told.zone)
            _logger.info("%s: ready, epoch %d of run %s", told.zone, told.epoch, told.run)
            return cls(told, worker, exchange, folder, stack.pop_all())


def drop_void_states(folder: Path, told: Told) -> None:
    """Delete what the zone saved in rounds that were committed without it, or not at all."""
    if told.last_round is not None:
        state.discard_after(folder, told.last_round)


def _load_newest(worker: HostedWorker, folder: Path, zone: str) -> None:
    """Go on from the newest state that is whole; those that are not are of no use to anybody."""
    for number in reversed(state.saved_rounds(folder)):
        path = state.state_path(folder, number)
        try:
            worker.load_state(path)
        except CheckpointError as error:
            _logger.warning("%s: deleted, %s", zone, error)
            path.unlink(missing_ok=True)
        else:
            _logger.info("%s: goes on from its state after round %d", zone, number)
            return
