"""`marl-sched zone`."""

import logging
import os
import re
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from federation.zone_process import Trust, ZoneProcess, ZoneSettings, stopping_on_signals
from marl_sched.commands.observing import MetricsOption
from marl_sched.commands.options import folder_of
from marl_sched.config.base import NAME_PATTERN
from marl_sched.errors import MarlSchedError
from marl_sched.log_lines import LOG_FORMAT_VARIABLE, Place, formatter
from zones.join_token import parse_join_token

_STATES = Path("zone-state")
_LINE = "%(asctime)s %(message)s"


def zone(  # noqa: PLR0913 - one parameter an option
    superlink: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Fleet port of the SuperLink; default: as the enrolment said.",
            show_default=False,
        ),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            "--zone",
            metavar="NAME",
            help="The zone to be; default: the one its key is for, or any that is free.",
            show_default=False,
        ),
    ] = "",
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for key and states, of this process alone; "
            "default: zone-state/NAME, or zone-state/free.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    learner_state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the learners' states of all zones on this host; default: in --state.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CAs of the coordinator.", show_default=False),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The zone's key, EC P-384 in OpenSSH format; default: node_key in the folder.",
            show_default=False,
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The zone's certificate, for the exchange.", show_default=False
        ),
    ] = None,
    join_token: Annotated[
        str,
        typer.Option(
            metavar="TOKEN",
            help="Lets a new zone in, with --enrol; better in the environment than on the line.",
            envvar="MARL_SCHED_JOIN_TOKEN",
            show_default=False,
            show_envvar=True,
        ),
    ] = "",
    join_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder that the coordinator keeps join tokens in; one is taken once, with "
            "--enrol.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    enrol: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="The coordinator's enrolment port.", show_default=False
        ),
    ] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Plain text; on loopback only.")
    ] = False,
    exchange: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="The exchange as seen from here; default: as the coordinator says.",
            show_default=False,
        ),
    ] = "",
    wait_s: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=86_400.0,
            help="Longest wait for a token of the join folder, for the coordinator, and to be "
            "admitted by the SuperLink.",
        ),
    ] = 300.0,
    metrics: MetricsOption = "",
) -> None:
    """Be a zone of a run on this host: train where the coordinator is told so, until stopped.

    Examples:
        marl-sched zone --superlink 127.0.0.1:9092 --insecure
        marl-sched zone --enrol coordinator.example.org:9099 --join-token TOKEN
        marl-sched zone --enrol superlink:9099 --join-folder /join
        marl-sched zone --superlink 10.0.0.1:9092 --zone zone_b --ca ca.pem --key node_key
    """
    if name and re.fullmatch(NAME_PATTERN, name) is None:
        raise typer.BadParameter(f"--zone {name!r}, expected a zone's name as in the configuration")
    if insecure and (ca or key or certificate or join_token or join_folder or enrol):
        raise typer.BadParameter("--insecure goes with none of --ca, --key, --certificate, --enrol")
    if (join_token or join_folder) and not enrol:
        option = "--join-token" if join_token else "--join-folder"
        raise typer.BadParameter(f"{option} is for --enrol HOST:PORT")
    if join_token and join_folder:
        raise typer.BadParameter("--join-token and --join-folder, expected one of them")
    if not superlink and (insecure or (ca is not None and not enrol)):
        raise typer.BadParameter("expected --superlink HOST:PORT")
    trust = Trust(
        is_insecure=insecure,
        ca=ca,
        key=key,
        certificate=certificate,
        enrolment=enrol,
        token=parse_join_token(join_token) if join_token else None,
        join_folder=join_folder,
    )
    settings = ZoneSettings(
        superlink=superlink,
        name=name,
        folder=state or _STATES / (name or "free"),
        trust=trust,
        learner_state=learner_state,
        exchange_address=exchange,
        wait_s=wait_s,
        metrics=metrics,
    )
    with stopping_on_signals() as stop:
        process = ZoneProcess(settings, stop)
        _log_lines(lambda: process.place)
        try:
            process.run()
        except (MarlSchedError, OSError) as error:
            if process.is_busy:
                _end_at_once(f"error: {error}", getattr(error, "exit_code", 1))
            raise
    _end_at_once("stopped", 0)


def _end_at_once(line: str, exit_code: int) -> NoReturn:
    """End the process without waiting for anything.

    An order under way is void, but its thread ends in minutes only; and to unload compiled code
    and torch in good order takes seconds.
    """
    typer.echo(line, err=True)
    sys.stderr.flush()
    os._exit(exit_code)


def _log_lines(place: Place) -> None:
    """Log what a long-lived process does, with the time of day, or the zone if as JSON."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    logging.getLogger("federation").setLevel(min(logging.INFO, logging.getLogger().level))
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter(os.environ.get(LOG_FORMAT_VARIABLE, ""), _LINE, place))
