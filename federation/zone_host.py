"""What a node hosts: no zone, or one, as the ServerApp tells it.

told another zone, epoch or experiment --> not ready --> kernels compiled, worker built, its saved
state loaded, in the background --> ready --> orders of exactly that zone and epoch are carried out
"""

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from federation.assignments import AssignmentStore, Told
from federation.client_app import Worker, joined
from federation.greeting import Hello, ZoneStatus, software
from federation.hosted_worker import Hosted, HostSettings, drop_void_states
from marl_sched.errors import RunError, SecurityError
from zones import state
from zones.records import RoundOrder
from zones.tls import is_loopback, split_address

_logger = logging.getLogger(__name__)

_SPARE_S = 60.0
"""How long a worker is kept that no zone is told for."""


class ZoneHost:
    """Holds at most one worker. `greet` never waits for it; orders come from one thread."""

    def __init__(self, settings: HostSettings, is_resident: bool = True) -> None:
        """Go on as what this node was told last, if it was.

        Args:
            settings: What the host is started with.
            is_resident: Build the worker ahead, in the background. Else the process ends with the
                message: it is built for an order only.
        """
        self._settings = settings
        self._is_resident = is_resident
        self._store = AssignmentStore(settings.folder, settings.learner_state)
        self._changing = threading.Lock()
        """Held while what the host is told changes."""
        self._working = threading.Lock()
        """Held while a worker is built or used."""
        self._told: Told | None = None
        self._coming: Told | None = None
        """For what a thread is about to build."""
        self._is_spare = False
        self._hosted: Hosted | None = None
        self.failure = ""
        """Why this node can be of no use to the run, in one line; empty: it can."""
        last = self._store.last()
        if last is not None and settings.name in ("", last.zone):
            self._told = last
            if is_resident:
                self._prepare(last)

    @property
    def zone(self) -> str:
        """The zone that this node is, or is for; empty: none yet."""
        told = self._told
        return told.zone if told is not None else self._settings.name

    @property
    def label(self) -> str:
        """How the log calls this node."""
        return self.zone or "a free zone"

    @property
    def is_busy(self) -> bool:
        """Whether a worker is being built or used."""
        return self._working.locked()

    def greet(self, hello: Hello | None) -> ZoneStatus:
        """Take what the ServerApp says, and say which zone this is."""
        with self._changing:
            if hello is None:
                return self._status("")
            self.failure = self.failure or self._objection(hello)
            problem = self.failure
            if not problem:
                problem = self._take(hello)
            return self._status(problem)

    @contextmanager
    def at_work(self, order: RoundOrder) -> Iterator[Worker]:
        """Yield the worker for an order, in the exchange of its attempt.

        Raises:
            RunError: The order is for another zone or epoch.
            MarlSchedError: The worker cannot be built.
        """
        with self._working:
            hosted = self._become(self._require(order))
            with joined(hosted.exchange, self._reachable(order)):
                yield hosted.worker

    def _objection(self, hello: Hello) -> str:
        """Return why this node can never be of use to a run, in one line."""
        if hello.refusal:
            return hello.refusal
        if hello.software not in ("", software()):
            return f"this host has {software()}, the run {hello.software}; expected the same"
        name = self._settings.name
        if name and hello.zone not in ("", name):
            return f"started for zone {name}, but told to be {hello.zone}"
        try:
            experiment = self._store.experiment_of(hello)
        except Exception as error:
            _logger.debug("a greeting cannot be used", exc_info=True)
            return _one_line(error)
        for zone in (name, hello.zone):
            if zone and zone not in experiment.zone_names:
                known = ", ".join(sorted(experiment.zone_names))
                return f"zone {zone} is not in the configuration of run {hello.run}: {known}"
        return ""

    def _take(self, hello: Hello) -> str:
        """Become what a greeting says; return why that cannot be, in one line."""
        now = self._told
        if not hello.zone:
            self._become_spare()
            return ""
        told = Told(
            hello.run, hello.zone, hello.epoch, self._store.experiment_of(hello), hello.last_round
        )
        if now is not None and told.is_like(now) and told.epoch < now.epoch:
            if told.epoch > 1:
                return f"told to be {told.zone}, epoch {told.epoch}: is of epoch {now.epoch}"
            told = replace(told, last_round=0)  # the run begins anew
        if told != now:
            self._store.save(told)
        self._told, self._is_spare = told, False
        self._prepare(told)
        return ""

    def _status(self, problem: str) -> ZoneStatus:
        told = self._told
        name = self._settings.name
        if told is None:
            return ZoneStatus(name, problem=problem)
        is_ready = not self._is_resident or (self._hosted is not None and self._hosted.told == told)
        return ZoneStatus(name, told.zone, told.epoch, is_ready and not problem, problem)

    def _become_spare(self) -> None:
        """Let go of the worker, unless it is wanted again soon: whoever asks may not know yet."""
        self._is_spare = True
        if self._hosted is not None:
            timer = threading.Timer(_SPARE_S, self._release_spare)
            timer.daemon = True
            timer.start()
        elif self._is_resident and self._told is None:
            self._start("compile", self._compile_ahead)

    def _prepare(self, told: Told) -> None:
        """Get ready for orders: in the background, or, for an order only, without a worker."""
        if not self._is_resident:
            with self._store.state_dir(told) as folder:
                drop_void_states(folder, told)
            self._settings.compile_kernels()
        elif self._coming != told and not self._has_become(told):
            self._coming = told
            self._start("build", lambda: self._become_ahead(told))

    def _start(self, name: str, target: Callable[[], None]) -> None:
        threading.Thread(target=target, name=name, daemon=True).start()

    def _has_become(self, told: Told) -> bool:
        """Return whether the worker, without being waited for, is right already."""
        if not self._working.acquire(blocking=False):
            return False
        try:
            return self._stays(told)
        finally:
            self._working.release()

    def _compile_ahead(self) -> None:
        try:
            self._settings.compile_kernels()
        except Exception as error:
            _logger.debug("the kernels are not compiled", exc_info=True)
            self.failure = _one_line(error)

    def _become_ahead(self, told: Told) -> None:
        """Build the worker, once the one before it has finished."""
        with self._working:
            try:
                if self._told == told:
                    self._become(told)
            except Exception as error:
                _logger.debug("%s: not built", told.zone, exc_info=True)
                self.failure = f"{told.zone}: {_one_line(error)}"
            finally:
                if self._coming == told:
                    self._coming = None

    def _become(self, told: Told) -> Hosted:
        """Return the worker for what this node is; it is built if need be."""
        if not self._stays(told) or self._hosted is None:
            self._release()
            self._settings.compile_kernels()
            self._hosted = Hosted.build(self._settings, self._store, told)
        return self._hosted

    def _stays(self, told: Told) -> bool:
        """Return whether the worker is right; it stays for another epoch if all it saved counts."""
        hosted = self._hosted
        if hosted is None or not told.is_like(hosted.told):
            return False
        if hosted.told.epoch != told.epoch:
            rounds = state.saved_rounds(hosted.folder)
            if told.last_round is not None and rounds and rounds[-1] > told.last_round:
                return False
            hosted.told = told
        return True

    def _release_spare(self) -> None:
        with self._working:
            if self._is_spare:
                self._release()

    def _release(self) -> None:
        if self._hosted is not None:
            self._hosted.held.close()
            self._hosted = None
            gc.collect()

    def _require(self, order: RoundOrder) -> Told:
        """Return what this node is, if the order is for just that."""
        told, wanted = self._told, order.assignment
        here = "no zone" if told is None else f"{told.zone}, epoch {told.epoch}"
        if wanted is None:
            raise RunError(f"an order for nobody: it names no zone and epoch; this node is {here}")
        if told is None or (wanted.zone, wanted.epoch) != (told.zone, told.epoch):
            raise RunError(f"an order for {wanted.zone}, epoch {wanted.epoch}: this node is {here}")
        return told

    def _reachable(self, order: RoundOrder) -> RoundOrder:
        """Return an order whose invitation can be followed from here."""
        if order.invitation is None:
            return order
        address = self._settings.exchange_address or order.invitation.address
        host, _ = split_address(address)
        if not self._settings.is_secure and not is_loopback(host):
            raise SecurityError(
                f"the exchange is at {address}, expected loopback for a zone without TLS"
            )
        return replace(order, invitation=replace(order.invitation, address=address))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
