"""`marl-sched stack`: what the coordinator's container of docker-compose.yml does."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from federation.deployment import Deployment, RunFailed, supervised
from federation.events import Event
from federation.programs import DeploymentSettings, require_host
from federation.run_result import describe, result_of
from federation.wanted_config import ConfigSource
from marl_sched.commands.event_lines import describe_event
from marl_sched.commands.federate import PORTS
from marl_sched.commands.observing import MetricsOption, Note, observed
from marl_sched.commands.options import ConfigArgument, folder_of
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Experiment, TraceWorkload
from marl_sched.errors import ConfigError, RunError, TraceError
from marl_sched.files import alone_in, write_atomically
from marl_sched.run_folder import QUANTILES_FILE, RunFolder, require_new
from marl_sched.training_config import load_of_run
from marl_sched.workload.traces.tasks import read_info, task_path

ALIVE = "stack"
"""File in RUN/federation, touched every few seconds: what the stack is at."""
_REPORT = "report.md"
"""What a comparison writes last."""
_LOOK_S = 1.0
_TOUCH_S = 2.0
_END_S = 5.0

_BASE_MIB = 1400
"""What coordinator and page take, with a comparison under way."""
_ZONE_MIB = 400
"""What a zone takes."""


def stack(  # noqa: PLR0913 - one parameter an option
    config: ConfigArgument,
    run: Annotated[
        Path, typer.Option(metavar="RUN", help="Folder to write, or to go on in.", parser=folder_of)
    ],
    certificates: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of `marl-sched certificates`.", parser=folder_of),
    ],
    join_folder: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder to keep join tokens in for the zones.", parser=folder_of
        ),
    ],
    public_host: Annotated[
        str, typer.Option(metavar="HOST", help="Name or address by which zones reach it.")
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen at for zones.")
    ] = "0.0.0.0",
    how_to_start: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="What is said of a zone without a process; {zone} and {n_zones} are filled in.",
        ),
    ] = "docker compose up -d --scale zone={n_zones}",
    metrics: MetricsOption = "",
) -> None:
    """Be the coordinator of a stack of containers: train, compare, stay up with the report.

    Examples:
        marl-sched stack my.yaml --run run --certificates pki --join-folder join --public-host node1

    Started again, it goes on where it was. What is wrong with the configuration is said once; it is
    read again until it can run.
    """
    for name in (host, public_host):
        require_host(name)
    for name in ("flwr", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
    settings = DeploymentSettings(
        experiment=usable(config, run),
        folder=run,
        host=host,
        public_host=public_host,
        ports=PORTS,
        has_zones=False,
        join_folder=join_folder,
        source=ConfigSource(config),
    ).secured(certificates)
    warm_up()
    if not RunFolder(run).config_path.exists():
        RunFolder.create(run, settings.experiment)
    try:
        with observed(settings.experiment, run, metrics, tensorboard=False) as note:
            teller = _Teller(len(settings.experiment.zones), how_to_start, note)
            with supervised(settings, teller.tell) as deployment:
                _Stack(settings, deployment).carry_out()
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; started again, the stack goes on where it was") from None


def usable(config: Path, run: Path, pause: Callable[[float], object] = time.sleep) -> Experiment:
    """Read the configuration, again and again until it can run; say what is wrong with it once.

    Args:
        config: Its file.
        run: Folder of the run, which may have begun.
        pause: Called between two looks with the seconds to wait.
    """
    said = ""
    while True:
        try:
            experiment = load_of_run(config, (), run, resume=True)
            _require_number(config, experiment)
            require_memory(len(experiment.zones), _total_mib())
            if isinstance(experiment.workload, TraceWorkload):
                read_info(task_path(experiment.workload.path))
            _require_fitting(run, experiment)
        except (ConfigError, TraceError, RunError) as error:
            if str(error) != said:
                said = str(error)
                _say(f"error: {said}")
                _say("nothing runs until that is put right; it is looked at again every second")
        else:
            return experiment
        pause(_LOOK_S)


def _require_number(config: Path, experiment: Experiment) -> None:
    """Check that nothing has to be tried before the run: zones wait for it to begin.

    Raises:
        ConfigError: The number of quantiles is to be found.
    """
    if experiment.agent.finds_quantiles:
        raise ConfigError(
            f"{config}: agent.n_quantiles = auto, expected an integer > 0 in a stack; "
            f"`marl-sched train` finds one and says which ({QUANTILES_FILE} in its folder)"
        )


def _require_fitting(run: Path, experiment: Experiment) -> None:
    """Check that an experiment may begin, or go on, in a folder.

    Raises:
        RunError: It may not.
    """
    if not RunFolder(run).config_path.exists():
        require_new(run)
        return
    try:
        with alone_in(run):
            RunFolder.resume(run, experiment)
    except RunError as error:
        raise RunError(f"{error}; `docker compose down -v` forgets the earlier run") from None


def require_memory(n_zones: int, total_mib: int) -> None:
    """Check that the machine can hold a stack.

    Raises:
        RunError: It has too little memory.
    """
    needed_mib = _BASE_MIB + n_zones * _ZONE_MIB
    if total_mib < needed_mib:
        raise RunError(
            f"{n_zones} zones: this machine has {total_mib / 1024:.1f} GiB of memory, expected at "
            f"least {needed_mib / 1024:.1f} GiB ({_BASE_MIB / 1024:.1f} GiB, and "
            f"{_ZONE_MIB / 1024:.1f} GiB a zone); give it more, or take zones out"
        )


def _total_mib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


class _Stack:
    """A run in its deployment, then what comes after it."""

    def __init__(self, settings: DeploymentSettings, deployment: Deployment) -> None:
        self._run = settings.folder
        self._deployment = deployment
        self._alive = _Alive(settings.private / ALIVE)

    def carry_out(self) -> None:
        """Do what is left to do, then stay up until told to end.

        Raises:
            RunError: The run or the comparison failed.
        """
        checkpoint = RunFolder(self._run).last_checkpoint()
        if checkpoint is None or not checkpoint.is_finished:
            try:
                self._deployment.run(lambda: self._alive.tell("training"))
            except RunFailed as error:
                _say(f"error: {error}")
                _say("nothing runs; put it right, then: docker compose restart superlink")
                self._deployment.stay(lambda: False)
            checkpoint = RunFolder(self._run).last_checkpoint()
        _say(f"trained: {describe(result_of(self._run, checkpoint))}")
        if not (self._run / _REPORT).exists():
            self._compare()
        _say(f"done: the report is {self._run / _REPORT}; the page shows it")
        self._stay("finished", lambda: False)

    def _compare(self) -> None:
        """Compare the policies in a process of its own, whose memory is then free."""
        program = Path(sys.executable).parent / "marl-sched"
        config = RunFolder(self._run).config_path
        child = subprocess.Popen([program, "evaluate", config, "--run", self._run])
        try:
            self._stay("comparing", lambda: child.poll() is not None)
        finally:
            _end(child)
        if child.returncode != 0:
            raise RunError(f"{self._run}: the policies could not be compared: see above")

    def _stay(self, state: str, until: Callable[[], bool]) -> None:
        def look() -> bool:
            self._alive.tell(state)
            return until()

        self._deployment.stay(look)


class _Alive:
    """A file that says what the stack is at, and by its age that it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = ""
        self._written = 0.0

    def tell(self, state: str) -> None:
        """Write or touch the file; a disk that is full is for others to complain of."""
        now = time.monotonic()
        if state == self._state and now - self._written < _TOUCH_S:
            return
        with suppress(OSError):
            if state == self._state:
                os.utime(self._path)
            else:
                write_atomically(self._path, lambda file: file.write(f"{state}\n".encode()))
        self._state, self._written = state, now


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(_END_S)
    child.kill()
    child.wait()


class _Teller:
    """Says what happens, for those who read the containers' logs."""

    def __init__(self, n_zones: int, how_to_start: str, note: Note) -> None:
        self._n_zones = n_zones
        self._how_to_start = how_to_start
        self._note = note

    def tell(self, event: Event) -> None:
        """Say an event, if there is anything to say."""
        self._note(event)
        if event["kind"] == "zones":
            self._n_zones += len(event["added"]) - len(event["removed"])
        is_round = event["kind"] == "round"
        line = _round_line(event) if is_round else describe_event(event, self._command)
        if line:
            _say(line)

    def _command(self, zone: str) -> str:
        said = self._how_to_start.replace("{n_zones}", str(self._n_zones))
        return said.replace("{zone}", zone)


def _round_line(event: Event) -> str:
    objective = event["objective"]
    scored = "" if objective is None else f", validation objective {objective:.4f}"
    if not event["n_decisions"]:
        return f"last validation: {event['seconds']:.1f} s{scored}"
    return (
        f"round {event['round_number']}/{event['n_rounds']}: {event['seconds']:.1f} s, "
        f"{event['n_decisions']:,} decisions{scored}"
    )


def _say(line: str) -> None:
    typer.echo(line, err=True)
