"""A whole training run in one process: the composition root of `marl-sched train`.

main thread      ServerApp over a LocalGrid
thread a zone    ClientApp, ZoneWorker  <-- LocalExchange -->  the other zones' threads

With one learner for all zones the first zone's thread has the CentralWorker, the others wait.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from flwr.app import Context, RecordDict

from federation.client_app import Worker, make_client_app
from federation.live_views import LiveFolder
from federation.local_grid import RUN_ID, SERVER_NODE_ID, LocalGrid
from federation.round_driver import ExchangeControl, Limits, Stopped
from federation.run_result import RunResult, result_of
from federation.server_app import make_server_app
from federation.session import Progress, Session
from federation.weights import select, shared_names
from marl_sched.agents.policies import save_policy
from marl_sched.cluster.exchange import LocalExchange
from marl_sched.config import Experiment
from marl_sched.config.learning import CENTRAL
from marl_sched.distillation.start import taught
from marl_sched.errors import ConfigError
from marl_sched.files import alone_in
from marl_sched.run_folder import Checkpoint, RunFolder
from marl_sched.starting import keep_start, start_weights
from zones import state
from zones.central_seats import CentralSeat, SharedWork
from zones.central_worker import CentralWorker
from zones.figures import Tick
from zones.records import Invitation, Weights
from zones.worker import ZoneWorker, first_weights, make_learned_policy, score_validation

_logger = logging.getLogger(__name__)


class LocalExchangeControl:
    """Steers a LocalExchange for the round driver."""

    def __init__(self, exchange: LocalExchange) -> None:
        """Steer the exchange that the workers were given."""
        self._exchange = exchange

    def open(
        self, members: Sequence[str], round_number: int, attempt: int
    ) -> dict[str, Invitation]:
        """Start anew among `members`, who need no invitation."""
        self._exchange.restart(members)
        return {}

    def lost(self) -> dict[str, str]:
        """Return nothing: a thread that fails says so itself."""
        return {}

    def abort(self, reason: str) -> None:
        """Wake every zone that waits in the exchange."""
        self._exchange.abort(reason)

    def measured(self) -> dict[str, dict[str, float]]:
        """Return nothing: within a process there is no transport to tell waits from."""
        return {}


def train(
    experiment: Experiment,
    run_dir: Path,
    resume: bool = False,
    progress: Progress | None = None,
    tick: Tick | None = None,
    stop: threading.Event | None = None,
) -> RunResult:
    """Train all zones of an experiment in this process.

    Args:
        experiment: What to train.
        run_dir: Where to write; created, unless resumed.
        resume: Go on from the last whole round in `run_dir`; without one from the start that was
            kept there (`marl_sched.starting`), else from drawn weights.
        progress: Called after every round, from this thread.
        tick: Called with the share of the round that is over, from a zone's thread.
        stop: Set it from another thread to end the run early; Ctrl-C does the same. The last whole
            round is on disk either way.

    Raises:
        RunError: The folder exists (or, to resume, does not or is of another configuration), or too
            few zones are left.
        CheckpointError: Nothing whole to resume from.
        KeyboardInterrupt: Ctrl-C, after all threads have ended.
    """
    logging.getLogger("flwr").setLevel(logging.WARNING)
    new = None if resume else RunFolder.create(run_dir, experiment)
    with alone_in(run_dir):
        if new is not None:
            keep_start(new, experiment, {})
        folder = new or RunFolder.resume(run_dir, experiment)
        exchange = LocalExchange(experiment.zone_names)
        session = open_session(experiment, folder, LocalExchangeControl(exchange))
        _require_states(session)
        session = replace(
            session,
            stop=stop or session.stop,
            progress=progress or session.progress,
        )
        _run(session, exchange, tick)
    return result_of(folder.path, folder.committed)


def _run(session: Session, exchange: LocalExchange, tick: Tick | None) -> None:
    """Run server and zones to the end of the session, or until it is stopped."""
    is_central = session.experiment.federation.strategy == CENTRAL
    workers = (_seats if is_central else _workers)(session, exchange, tick)
    # The zones share one disk: what one of them cannot write, none can. One learner's failure is
    # the failure of all.
    fatal: tuple[type[Exception], ...] = (Exception,) if is_central else (OSError,)
    apps = {
        SERVER_NODE_ID + number: make_client_app(worker, fatal=fatal)
        for number, worker in enumerate(workers, 1)
    }
    with LocalGrid(apps) as grid:
        try:
            make_server_app(session)(grid, Context(RUN_ID, SERVER_NODE_ID, {}, RecordDict(), {}))
        except Stopped:
            _logger.info("%s: stopped early", session.folder.path)
        finally:
            exchange.abort("the run is over")


def open_session(experiment: Experiment, folder: RunFolder, exchange: ExchangeControl) -> Session:
    """Find what to start from.

    Args:
        experiment: What to run.
        folder: The run's folder.
        exchange: The exchange between the zones.

    Raises:
        ConfigError: Zones that are to share tensors begin with different ones.
        CheckpointError: What is committed does not fit the experiment.
    """
    weights = first_weights(experiment)
    names = shared_names(weights, experiment)
    is_whole = len(names) == len(weights)
    shared = select(weights, names)
    folder.check_committed(shared)
    checkpoint = folder.committed
    if checkpoint is None:
        if experiment.teacher.samples:
            weights = taught(experiment, weights)
        shared = select(_begun(experiment, folder, weights), names)
        checkpoint = Checkpoint(0, shared, shared)
    federation = experiment.federation
    return Session(
        experiment=experiment,
        folder=folder,
        checkpoint=checkpoint,
        exchange=exchange,
        publish=partial(_publish, experiment) if is_whole else None,
        score=partial(score_validation, experiment),
        limits=Limits(federation.quorum, federation.deadline_s, federation.grace_s),
    )


def _begun(experiment: Experiment, folder: RunFolder, drawn: Weights) -> Weights:
    """Return the weights that all zones begin with.

    Raises:
        ConfigError: They differ in what is to be shared.
    """
    zones = sorted(experiment.zone_names)
    first, *others = (start_weights(folder.zone_path(z), experiment, drawn) for z in zones)
    names = shared_names(drawn, experiment)
    if all(np.array_equal(first[name], other[name]) for other in others for name in names):
        return first
    raise ConfigError(
        f"federation.strategy = {experiment.federation.strategy}, expected none where zones begin "
        "with different policies (--from, --takes)"
    )


def _require_states(session: Session) -> None:
    """Check that the zones can go on from where the run does."""
    checkpoint = session.checkpoint
    if not checkpoint.is_finished:
        is_central = session.experiment.federation.strategy == CENTRAL
        for zone in checkpoint.members[:1] if is_central else checkpoint.members:
            state.require_state(session.folder.zone_path(zone), checkpoint.round_number)


def _workers(session: Session, exchange: LocalExchange, tick: Tick | None) -> list[Worker]:
    """Create one worker a zone; the first by name tells how far the round is."""
    names = sorted(session.experiment.zone_names)
    live = LiveFolder(session.folder.path)
    return [
        ZoneWorker(
            session.experiment,
            name,
            exchange,
            session.folder.zone_path(name),
            tick if name == names[0] else None,
            partial(live.write, name),
        )
        for name in names
    ]


def _seats(session: Session, exchange: LocalExchange, tick: Tick | None) -> list[Worker]:
    """Create the worker of all zones; its states lie with the first of them by name."""
    experiment = session.experiment
    names = sorted(experiment.zone_names)
    worker = CentralWorker(
        experiment,
        exchange,
        session.folder.zone_path(names[0]),
        tick,
        LiveFolder(session.folder.path).write,
    )
    shared = SharedWork(worker, experiment.federation.deadline_s)
    return [CentralSeat(name, shared) for name in names]


def _publish(experiment: Experiment, path: Path, ema: Weights) -> None:
    save_policy(path, make_learned_policy(experiment, ema))
