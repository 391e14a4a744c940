"""A whole training run in one process: the composition root of `marl-sched train`.

    main thread      ServerApp over a LocalGrid
    thread a zone    ClientApp, ZoneWorker  <-- LocalExchange -->  the other zones' threads
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import Context, RecordDict

from federation.client_app import make_client_app
from federation.local_grid import RUN_ID, SERVER_NODE_ID, LocalGrid
from federation.round_driver import Limits, Stopped
from federation.server_app import make_server_app
from federation.session import RoundDone, Session
from federation.weights import select, shared_names
from marl_sched.agents.learned import save_policy
from marl_sched.cluster.exchange import LocalExchange
from marl_sched.config import Experiment
from marl_sched.run_folder import Checkpoint, RunFolder
from zones.state import require_states
from zones.worker import Tick, ZoneWorker, first_weights, make_learned_policy, score_validation

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """What a run left behind.

    Attributes:
        folder: The run's folder.
        rounds: Rounds committed.
        is_finished: Whether all rounds and the last validation are done; else resume it.
        best_round: Round of the published policy; 0 before the first validation.
        objective: Its validation objective; None if nothing was scored.
    """

    folder: Path
    rounds: int
    is_finished: bool
    best_round: int
    objective: float | None


class LocalExchangeControl:
    """Steers a LocalExchange for the round driver."""

    def __init__(self, exchange: LocalExchange) -> None:
        """Steer the exchange that the workers were given."""
        self._exchange = exchange

    def open(self, members: tuple[str, ...], round_number: int, attempt: int) -> None:
        """Start anew among `members`."""
        self._exchange.restart(members)

    def abort(self, reason: str) -> None:
        """Wake every zone that waits in the exchange."""
        self._exchange.abort(reason)


def train(
    experiment: Experiment,
    run_dir: Path,
    resume: bool = False,
    progress: Callable[[RoundDone], None] | None = None,
    tick: Tick | None = None,
    stop: threading.Event | None = None,
) -> RunResult:
    """Train all zones of an experiment in this process.

    Args:
        experiment: What to train.
        run_dir: Where to write; created, unless resumed.
        resume: Go on from the last whole round in `run_dir`.
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
    torch.set_num_threads(1)
    folder, found = _open(experiment, run_dir, resume)
    weights = first_weights(experiment)
    names = shared_names(weights, experiment)
    shared = select(weights, names)
    checkpoint = found or Checkpoint(0, shared, shared)
    require_states(folder.zones_path, checkpoint.round_number, checkpoint.members)
    exchange = LocalExchange(experiment.zone_names)
    session = Session(
        experiment=experiment,
        folder=folder,
        checkpoint=checkpoint,
        exchange=LocalExchangeControl(exchange),
        publish=(
            (lambda path, ema: save_policy(path, make_learned_policy(experiment, ema)))
            if len(names) == len(weights)
            else None
        ),
        score=lambda sums: score_validation(experiment, sums),
        limits=Limits(
            experiment.federation.quorum,
            experiment.federation.deadline_s,
            experiment.federation.grace_s,
        ),
        stop=stop or threading.Event(),
        progress=progress or _say_nothing,
    )
    workers = _workers(session, exchange, tick)
    apps = {
        SERVER_NODE_ID + number: make_client_app(worker) for number, worker in enumerate(workers, 1)
    }
    with LocalGrid(apps) as grid:
        try:
            make_server_app(session)(grid, Context(RUN_ID, SERVER_NODE_ID, {}, RecordDict(), {}))
        except Stopped:
            _logger.info("stopped after round %d", folder.checkpoint.round_number)
        finally:
            exchange.abort("the run is over")
    return _result(folder)
