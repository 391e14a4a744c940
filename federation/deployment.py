"""The supervisor of a federated run: starts every process of it, keeps them alive, ends them all.

    SuperLink   its HTTP API on loopback only; the Fleet API where zones reach it
    SuperExec   starts the ServerApp, which runs the rounds and the exchange
    zones       one process each, on this host; or elsewhere, started by others
    CONFIG      watched: what zones it has may change while the run goes on

A SuperLink, SuperExec or zone that dies is started again; a ServerApp that dies is submitted again
and goes on from the last checkpoint. All of it a bounded number of times between two rounds.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Self

from federation.admission import Admission
from federation.control import Control, RunState
from federation.events import EVENTS, Event, EventReader
from federation.fleet_errors import LinkDown
from federation.kept_up import MAX_STARTS, KeptUp, ServerLife
from federation.local_zones import LocalZones
from federation.processes import Child, end_all
from federation.programs import DeploymentSettings, Programs
from federation.wanted_config import Handover
from marl_sched.errors import MarlSchedError, RunError
from marl_sched.files import alone_in, require_space
from zones.keys import make_private_folder

_logger = logging.getLogger(__name__)

_HEALTHY_S = 60.0
"""Longest wait for a SuperLink to answer."""
_START_S = 60.0
"""Longest wait for a submitted ServerApp to say that it has begun."""
_END_S = 8.0
"""What processes are given to end by themselves."""
_SUPERLINK_END_S = 1.0
"""The same for the SuperLink, which waits for callers; there is nothing for it to save."""
_LOOK_S = 0.1

Tell = Callable[[Event], None]


class RunFailed(RunError):
    """A run has ended in a way that another start would repeat."""


class Deployment:
    """All processes of a run. Use it in a `with` statement: its end is theirs."""

    def __init__(self, settings: DeploymentSettings, tell: Tell) -> None:
        """Prepare the folder and choose the ports; nothing is started.

        Args:
            settings: What to run, and where.
            tell: Told every event, from the thread that calls `run`.

        Raises:
            RunError: A port is taken.
            OSError: The folder cannot be written.
        """
        self._settings = settings
        self._tell = tell
        self.ports = settings.ports.chosen(settings.host, settings.security is not None)
        """Where it listens."""
        self.programs = Programs(settings, self.ports)
        """How its processes are started."""
        make_private_folder(settings.private)
        (settings.private / "logs").mkdir(0o700, exist_ok=True)
        self._admission: Admission | None = None
        self._env = self.programs.environment()
        self._superlink = self._watched("superlink", self.programs.superlink())
        self._superexec = self._watched("superexec", self.programs.superexec())
        self._zones = LocalZones(
            settings.experiment.zone_names if settings.has_zones else None,
            lambda zone: self._watched(f"zone-{zone}", self.programs.zone(zone)),
        )
        self._handover = Handover(settings.private, settings.experiment, settings.source)
        self._events = EventReader(settings.private / EVENTS)
        self._control: Control | None = None
        self._server = ServerLife()

    def __enter__(self) -> Self:
        """Return the deployment."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End every process."""
        self.close()

    def close(self) -> None:
        """End every process that is left."""
        end_all([*self._zones.children, self._superexec.child], _END_S)
        end_all([self._superlink.child], _SUPERLINK_END_S)
        self._drop_control()
        if self._admission is not None:
            self._admission.close()
            self._admission = None

    def run(self, look: Callable[[], object] = lambda: None) -> RunState | None:
        """Carry the run out to its end.

        Args:
            look: Called again and again meanwhile.

        Returns:
            What the SuperLink knows of it, if it still does.

        Raises:
            RunFailed: The run failed in a way that another start would repeat.
            RunError: It was started often enough, or a process does not stay up.
        """
        self._start_all()
        while not self._step():
            look()
            time.sleep(_LOOK_S)
        return self._final_state()

    def stay(self, until: Callable[[], bool]) -> None:
        """Keep up what zones talk to while there is no run to carry out, before or after it.

        Args:
            until: Called again and again; ends this by returning true.

        Raises:
            RunError: A process does not stay up.
        """
        if not self._superlink.is_started:
            self._start_all()
        while not until():
            self._keep_all_up()
            time.sleep(_LOOK_S)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name, of those that run."""
        children = [self._superlink, self._superexec, *self._zones.watched]
        return {w.child.name: w.child.pid for w in children if w.child.is_running}

    def _start_all(self) -> None:
        if self._settings.security is not None:
            self._admission = Admission(self._settings, self.ports, self.programs)
        self._handover.begin()
        self._superlink.start()
        self._zones.start(self._environment)
        self._wait_healthy()
        self._superexec.start()
        for run_id in self._api.unfinished():  # what a killed supervisor has left
            self._api.stop(run_id)

    def _step(self) -> bool:
        """Look after everything once; return whether the run has finished."""
        if self._take_events():
            return True
        self._keep_all_up()
        zone_names = self._handover.look()
        if zone_names and self._admission is not None:
            self._admission.use_zones(zone_names)
        with suppress(LinkDown):
            return self._look_after_server()
        return False

    def _keep_all_up(self) -> None:
        """Start again what has died."""
        self._keep_up(self._superlink)
        if self._superlink.child.is_running and self._control is None:
            self._wait_healthy()
        self._keep_up(self._superexec)
        for watched in self._zones.watched:
            self._keep_up(watched, is_needed=False)
        self._zones.sweep()

    def _take_events(self) -> bool:
        """Pass events on; return whether the run has finished.

        Raises:
            RunFailed: It failed in a way that another start would repeat.
        """
        for event in self._events.new():
            self._tell(event)
            self._server.note(event)
            if event["kind"] == "round":
                for watched in (self._superlink, self._superexec, *self._zones.watched):
                    watched.note_round()
            if event["kind"] == "zones":
                self._zones.change(event["added"], event["removed"], self._environment)
            if event["kind"] == "end" and event["outcome"] == "finished":
                return True
            if event["kind"] == "end" and event["outcome"] == "failed":
                raise RunFailed(str(event["error"]))
        return False

    def _look_after_server(self) -> bool:
        """Submit the run when no ServerApp is at it; return whether it has finished.

        Raises:
            RunError: It was submitted often enough, or the disk is full.
            LinkDown: The SuperLink does not answer.
        """
        server, now = self._server, time.monotonic()
        if server.flower_run is None:
            if now >= server.submit_at:
                self._submit()
            return False
        if server.is_started:
            if not server.has_ended and self._is_at_work():
                self._end_hung(now)
                return False
            if self._take_events():  # what it said last
                return True
            reason = server.error or "the ServerApp died"
        else:
            if now < server.ask_at:
                return False
            server.asked()
            state = self._api.state(server.flower_run)
            if state is not None and not state.is_over and now < server.submitted + _START_S:
                return False
            reason = "the SuperLink does not know the run" if state is None else state.details
            reason = reason or f"no ServerApp within {_START_S:g} s"
        require_space(self._settings.private)
        self._api.stop(server.flower_run)
        self._tell({"kind": "again", "reason": reason})
        server.forget(reason)
        if server.n_starts >= MAX_STARTS:
            raise RunError(
                f"the ServerApp was started {MAX_STARTS} times without a round in between, "
                f"last: {reason}"
            )
        return False

    def _end_hung(self, now: float) -> None:
        """Kill a ServerApp that is at work for itself alone: stopped, or stuck."""
        server = self._server
        if now < server.ask_at or server.flower_run is None:
            return
        server.asked()
        state = self._api.state(server.flower_run)
        if server.is_hung(state is not None and state.is_over) and server.pid:
            _logger.warning("the ServerApp, process %d, does nothing: killed", server.pid)
            with suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGKILL)

    def _submit(self) -> None:
        self._server.submit(self._api.start(self.programs.run_config()))
        self._tell({"kind": "submitted", "flower_run": str(self._server.flower_run)})

    def _is_at_work(self) -> bool:
        """Return whether a ServerApp holds the run's folder."""
        try:
            with alone_in(self._settings.folder):
                return False
        except RunError:
            return True

    def _keep_up(self, watched: KeptUp, is_needed: bool = True) -> None:
        """Start a process again that has died.

        Raises:
            RunError: It does not stay up, and nothing goes on without it.
        """
        how = watched.look()
        if not how:
            return
        if watched is self._superlink:
            self._drop_control()
        name = watched.child.name
        self._tell({"kind": "died", "process": name, "how": how})
        if watched.is_given_up and is_needed:
            raise RunError(f"{name}: does not stay up: {how}")

    def _wait_healthy(self) -> None:
        """Wait until the SuperLink answers.

        Raises:
            RunError: It has ended, or does not answer in time.
        """
        control = Control(self.programs.control_address, self.programs.ca)
        child = self._superlink.child
        deadline = time.monotonic() + _HEALTHY_S
        while not control.is_healthy():
            if not child.is_running:
                raise RunError(f"{child.name}: {child.describe_end()}")
            if time.monotonic() > deadline:
                raise RunError(
                    f"{child.name}: no answer within {_HEALTHY_S:g} s ({child.last_line()})"
                )
            time.sleep(_LOOK_S)
        self._control = control
        if self._admission is not None:
            self._admission.use(control)

    def _drop_control(self) -> None:
        if self._admission is not None:
            self._admission.pause()
        if self._control is not None:
            self._control.close()
            self._control = None

    @property
    def _api(self) -> Control:
        if self._control is None:
            raise LinkDown("the SuperLink is not up")
        return self._control

    def _final_state(self) -> RunState | None:
        """Return what the SuperLink knows of the run."""
        with suppress(MarlSchedError):
            if self._server.flower_run is not None:
                return self._api.state(self._server.flower_run)
        return None

    def _environment(self, zone: str) -> Mapping[str, str]:
        return {} if self._admission is None else self._admission.environment(zone)

    def _watched(self, name: str, command: Sequence[str]) -> KeptUp:
        log = self._settings.private / "logs" / f"{name}.log"
        return KeptUp(Child(name, command, log, self._env))


@contextmanager
def supervised(settings: DeploymentSettings, tell: Tell) -> Iterator[Deployment]:
    """Hold the run's folder, and a deployment that ends with the block.

    Raises:
        RunError: Another supervisor is at work there, or a port is taken.
        OSError: The folder cannot be written.
    """
    make_private_folder(settings.private)
    with alone_in(settings.private), Deployment(settings, tell) as deployment:
        yield deployment
