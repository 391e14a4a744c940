"""The Flower apps of a deployed run, as `flwr run` and SuperExec load them.

    SuperExec --> flwr-serverapp --> server_app: RunFolder, ExchangeHub, Session, rounds

Killed at any point, the same run started again goes on from its last checkpoint. Two ServerApps of
one folder keep out of each other's way by its lock.
"""

import logging
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from federation.certificates import open_authority
from federation.events import EVENTS, PRIVATE, EventLog
from federation.exchange_frames import ZoneOf
from federation.exchange_hub import ExchangeHub
from federation.flower_private import pull_replies_at_once
from federation.guarded import die_with_parent
from federation.key_claims import KeyClaims, Objection, no_objection
from federation.local_run import open_session
from federation.quantile_pilots import find_quantiles
from federation.renewal import Renewal
from federation.round_driver import Limits, Unlucky
from federation.server_app import make_server_app
from federation.session import Patience, RoundDone
from federation.stock_zone import client_app
from federation.wanted_config import Wanted
from federation.zone_keys import ZoneKeys
from marl_sched.config import Experiment, load_config
from marl_sched.errors import MarlSchedError, RunError
from marl_sched.files import FULL_DISK, alone_in
from marl_sched.log_lines import LOG_FORMAT_VARIABLE, formatter
from marl_sched.run_folder import RunFolder
from marl_sched.training_config import load_for_training, require_learners_apart
from zones.keys import make_private_folder

__all__ = ["client_app", "server_app"]

_logger = logging.getLogger(__name__)

POLL_S = 0.1
_LONGEST_POLL_S = 1.0
"""In a long round: a look costs the SuperLink a few hundredths of a CPU second."""
_LOCK_S = 20.0
"""Longest wait for an earlier ServerApp of the same folder to end."""
_RETURNS = 3
CONFIG = "config.yaml"
"""File in the run's folder: the configuration of its last committed round."""
_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True)
class ServerSettings:
    """The run configuration of Flower, `[tool.flwr.app.config]`.

    Attributes:
        config: A configuration file, for a run folder that does not exist yet.
        run_dir: The run's folder, created or resumed.
        exchange_address: HOST:PORT for the exchange to listen at; port 0 takes a free one.
        exchange_public: HOST:PORT of the exchange as zones reach it; empty: where it listens.
        security_dir: Folder of `marl-sched certificates`; empty: plain text, on loopback.
    """

    config: str
    run_dir: Path
    exchange_address: str
    exchange_public: str = ""
    security_dir: str = ""

    @classmethod
    def of(cls, run_config: Mapping[str, Any]) -> "ServerSettings":
        """Read what `flwr run` was given."""
        return cls(
            config=str(run_config.get("config", "")),
            run_dir=Path(str(run_config["run-dir"])).expanduser(),
            exchange_address=str(run_config.get("exchange-address", "127.0.0.1:0")),
            exchange_public=str(run_config.get("exchange-public", "")),
            security_dir=str(run_config.get("security-dir", "")),
        )


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out a run to its end."""
    die_with_parent(os.getppid())
    pull_replies_at_once(grid)
    settings = ServerSettings.of(context.run_config)
    wanted = Wanted(settings.run_dir / PRIVATE)
    experiment = _open(settings, wanted)
    log = EventLog(settings.run_dir / PRIVATE / EVENTS)
    log.write("start", {"pid": os.getpid(), "flower_run": str(context.run_id)})
    try:
        _serve(settings, (experiment, wanted), log, grid, context)
    except MarlSchedError as error:
        outcome = "broken" if isinstance(error, Unlucky) else "failed"
        log.write("end", {"outcome": outcome, "error": str(error)})
        raise
    except Exception as error:
        _logger.exception("the run broke")
        log.write("end", _outcome(error))
        raise
    log.write("end", {"outcome": "finished", "error": ""})


def _outcome(error: Exception) -> dict[str, str]:
    """Return what is said of an end that nobody foresaw; a full disk stays full."""
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return {"outcome": "failed", "error": f"{error.filename}: {error.strerror}"}
    return {"outcome": "broken", "error": f"{type(error).__name__}: {error}"}


def _open(settings: ServerSettings, wanted: Wanted) -> Experiment:
    """Return the experiment that the run is to have; set the log up.

    Without a supervisor it is that of the run's folder, which is created if need be.
    """
    config = settings.run_dir / CONFIG
    if not config.exists():
        create_run(settings.run_dir, settings.config)
    private = settings.run_dir / PRIVATE
    make_private_folder(private)
    handler = logging.FileHandler(private / "serverapp.log")
    handler.setFormatter(formatter(os.environ.get(LOG_FORMAT_VARIABLE, ""), _LINE))
    for name in ("federation", "marl_sched", "zones", "flwr"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    return wanted.take() or load_config(config)


def create_run(run_dir: Path, config: str) -> None:
    """Create the folder of a new run of a configuration file; what is to be found first is found.

    Raises:
        ConfigError: The file is not valid.
        RunError: The folder holds something else.
    """
    RunFolder.create(run_dir, find_quantiles(load_for_training(config), run_dir))


def _serve(
    settings: ServerSettings,
    wanted: tuple[Experiment, Wanted],
    log: EventLog,
    grid: Grid,
    context: Context,
) -> None:
    with ExitStack() as stack:
        _lock(stack, settings.run_dir)
        folder, experiment = open_folder(settings.run_dir, wanted[0], log)
        require_learners_apart(experiment)
        hub = stack.enter_context(
            ExchangeHub(
                experiment,
                settings.exchange_address,
                _credentials(settings.security_dir),
                public_address=settings.exchange_public or None,
                zone_of=_zone_of(settings.security_dir),
            )
        )
        renewal = Renewal(wanted[1], hub, folder.path, stack)
        renewal.prepare(experiment)
        federation = experiment.federation
        limits = Limits(
            federation.quorum,
            federation.deadline_s,
            federation.grace_s,
            poll_s=POLL_S,
            longest_poll_s=_LONGEST_POLL_S,
            is_fatal=False,
        )
        patience = Patience(wait_s=federation.wait_s, poll_s=POLL_S, n_returns=_RETURNS)

        def note_round(event: RoundDone) -> None:
            log.write("round", asdict(event))

        session = replace(
            open_session(experiment, folder, hub),
            limits=limits,
            patience=patience,
            objection=_objection(settings.security_dir),
            progress=note_round,
            note=log.write,
            keeps_zones=True,
            renew=renewal.renew,
        )
        make_server_app(session)(grid, context)


def open_folder(
    run_dir: Path, experiment: Experiment, log: EventLog
) -> tuple[RunFolder, Experiment]:
    """Open a run's folder to go on with an experiment, or with that of its last committed round.

    What was handed over while the run went on may turn out to be more than other zones, compared
    with what was committed. That is noted, as it is between two rounds, and is no end of the run.

    Raises:
        ConfigError: There is no run.
        CheckpointError: There are checkpoints, but none is whole.
    """
    try:
        return RunFolder.resume(run_dir, experiment), experiment
    except RunError as error:
        committed = load_config(run_dir / CONFIG)
        folder = RunFolder.resume(run_dir, committed)
        log.write("config", {"problem": str(error)})
        return folder, committed


def _lock(stack: ExitStack, run_dir: Path) -> None:
    """Keep others out of the run's folder; one that ends is waited for."""
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            stack.enter_context(alone_in(run_dir))
            return
        except RunError as error:
            if time.monotonic() > deadline:
                raise Unlucky(str(error)) from None
            time.sleep(POLL_S)


def _credentials(security_dir: str) -> grpc.ServerCredentials | None:
    """Return the exchange's credentials: mutual TLS, or none."""
    if not security_dir:
        return None
    authority = open_authority(Path(security_dir))
    return authority.files.load().credentials(client_ca=authority.roots())


def _objection(security_dir: str) -> Objection:
    """Return how nodes that name a zone are told from its own."""
    return KeyClaims(Path(security_dir)) if security_dir else no_objection


def _zone_of(security_dir: str) -> ZoneOf | None:
    """Return how a caller of the exchange is known by its certificate."""
    return ZoneKeys(Path(security_dir)).zone_of_certificate if security_dir else None
