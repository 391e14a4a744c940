"""`marl-sched federate`."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from federation.admission import open_pki
from federation.deployment import supervised
from federation.events import Event
from federation.programs import LOOPBACK, WILDCARDS, DeploymentSettings, Ports, require_host
from federation.run_result import describe, result_of
from federation.wanted_config import ConfigSource
from marl_sched.commands.event_lines import describe_event
from marl_sched.commands.observing import MetricsOption, Note, TensorBoardOption, observed
from marl_sched.commands.options import (
    RUNS,
    ConfigArgument,
    SetOption,
    command_line,
    folder_of,
)
from marl_sched.commands.progress import Progress
from marl_sched.commands.quantiles import found_quantiles, require_startable
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import load_config
from marl_sched.files import alone_in
from marl_sched.run_folder import RunFolder
from marl_sched.training_config import load_of_run
from zones.tls import is_loopback

PORTS = Ports(fleet=9092, exchange=9093, enrolment=9099)
"""Where zones on other hosts look for us; a SuperNode of Flower's own listens at 9094."""


def _port(what: str) -> typer.models.OptionInfo:
    text = f"Port of {what}; default: free on loopback"
    known = {"the weights": 9092, "the exchange": 9093, "enrolment": 9099}.get(what)
    text += "." if known is None else f", else {known}."
    option: typer.models.OptionInfo = typer.Option(
        min=0, max=65535, help=text, show_default=False, metavar="PORT"
    )
    return option


def federate(  # noqa: PLR0913 - one parameter an option
    config: ConfigArgument,
    overrides: SetOption,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Folder to write; default: runs/NAME.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last whole round of the folder.")
    ] = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen at for zones.")
    ] = LOOPBACK,
    public_host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="Name or address by which zones reach it; default: --host.",
            show_default=False,
        ),
    ] = "",
    secure: Annotated[
        bool | None,
        typer.Option(
            "--secure/--insecure",
            help="TLS, keys and certificates; default: beyond loopback, where it is always on.",
            show_default=False,
        ),
    ] = None,
    certificates: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of `marl-sched certificates`; default: RUN/federation/pki.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    zones_elsewhere: Annotated[
        bool,
        typer.Option("--zones-elsewhere", help="Start no zone here; `marl-sched zone` does it."),
    ] = False,
    join_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder to keep join tokens in, for zones that are started alike.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    join_tokens: Annotated[
        int, typer.Option(min=1, max=64, help="How many tokens to keep in --join-folder.")
    ] = 8,
    fleet_port: Annotated[int | None, _port("the weights")] = None,
    exchange_port: Annotated[int | None, _port("the exchange")] = None,
    enrolment_port: Annotated[int | None, _port("enrolment")] = None,
    control_port: Annotated[int | None, _port("Flower's Control API, always on loopback")] = None,
    metrics: MetricsOption = "",
    tensorboard: TensorBoardOption = False,
) -> None:
    """Train like `train`, every zone in a process of its own; weights travel over Flower.

    Examples:
        marl-sched federate configs/base.yaml
        marl-sched federate configs/base.yaml --resume
        marl-sched federate configs/base.yaml --host 10.0.0.1 --zones-elsewhere
    """
    is_local = is_loopback(host)
    if secure is False and not is_local:
        raise typer.BadParameter(f"--insecure with --host {host}, expected it on loopback only")
    if is_local and not secure:
        _refuse({"--certificates": certificates, "--join-folder": join_folder})
    if host in WILDCARDS and not public_host:
        raise typer.BadParameter(f"--host {host} listens everywhere, expected a --public-host too")
    for name in filter(None, (host, public_host)):
        require_host(name)
    folder = RUNS / load_config(config, overrides).name if out is None else out
    experiment = require_startable(load_of_run(config, overrides, folder, resume), folder, resume)
    usual = Ports() if is_local else PORTS
    given = {
        "fleet": fleet_port,
        "exchange": exchange_port,
        "enrolment": enrolment_port,
        "control": control_port,
    }
    ports = Ports(**{n: getattr(usual, n) if port is None else port for n, port in given.items()})
    settings = DeploymentSettings(
        experiment=experiment,
        folder=folder,
        host=host,
        public_host=public_host,
        ports=ports,
        has_zones=not zones_elsewhere,
        join_folder=join_folder,
        source=ConfigSource(config, tuple(overrides)),
        n_join_tokens=join_tokens,
    )
    is_secure = bool(secure) or not is_local
    settings = settings.secured(certificates) if is_secure else settings
    warm_up()
    for name in ("flwr", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Before anything of the run is written:
    settings.ports.chosen(host, is_secure)
    if certificates is not None:
        open_pki(settings)
    experiment = found_quantiles(experiment, folder)
    settings = replace(settings, experiment=experiment)
    if not resume:
        RunFolder.create(folder, experiment)
    if not (resume and _is_finished(settings)):
        with observed(experiment, folder, metrics, tensorboard) as note:
            _run(settings, note)
    result = result_of(folder, RunFolder(folder).last_checkpoint())
    typer.echo(f"wrote {folder}: {describe(result)}")
    following = command_line("evaluate", config, "--run", folder, overrides=overrides)
    typer.echo(f"next: {following}")


def _refuse(given: Mapping[str, object]) -> None:
    """Refuse options that are for a secured run only."""
    for option, value in given.items():
        if value is not None:
            raise typer.BadParameter(f"{option} goes with --secure, or with another --host")


def _is_finished(settings: DeploymentSettings) -> bool:
    """Check the folder of a run that is to go on; return whether there is nothing left to do."""
    with alone_in(settings.folder):
        committed = RunFolder.resume(settings.folder, settings.experiment).committed
    return committed is not None and committed.is_finished


def _run(settings: DeploymentSettings, note: Note) -> None:
    """Run with a progress bar; on Ctrl-C say how to go on."""
    rounds = settings.experiment.training.rounds
    with Progress("federate", total=rounds, unit="rounds") as progress:
        try:
            teller = _Teller(progress, note)
            with supervised(settings, teller.tell) as deployment:
                if not settings.has_zones:
                    teller.how_to_start = deployment.programs.elsewhere
                    for zone in sorted(settings.experiment.zone_names):
                        _say(f"zone {zone}: {deployment.programs.elsewhere(zone)}")
                state = deployment.run()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; the last whole round is in {settings.folder}; go on with the same "
                "command and --resume"
            ) from None
    if state is not None:
        total = (state.bytes_sent + state.bytes_received) / 1e6
        _say(f"traffic of weights, by the SuperLink's record: {total:.3f} MB")


class _Teller:
    """Says what happens, and how far the run is.

    Attributes:
        how_to_start: Returns the command that starts a zone's process, where the user has to.
    """

    def __init__(self, progress: Progress, note: Note) -> None:
        """Tell by a progress bar and lines, and to whoever observes the run."""
        self._progress = progress
        self._note = note
        self.how_to_start: Callable[[str], str] | None = None

    def tell(self, event: Event) -> None:
        """Say an event."""
        self._note(event)
        line = describe_event(event, self.how_to_start)
        if line:
            _say(line)
        if event["kind"] == "round":
            objective = event["objective"]
            note = "" if objective is None else f"validation objective {objective:.4f}"
            self._progress.advance(1 if event["n_decisions"] else 0, note)


def _say(line: str) -> None:
    typer.echo(line, err=True)
