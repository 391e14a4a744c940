"""`marl-sched certificates`."""

import re
from pathlib import Path
from typing import Annotated

import typer

from federation.certificates import (
    LEAF_DAYS,
    Authority,
    change_authority,
    make_authority,
    open_authority,
)
from federation.join_tokens import MAX_MINUTES, JoinTokens
from federation.zone_keys import ZoneKeys
from marl_sched.commands.options import command_line, folder_of
from marl_sched.config.base import NAME_PATTERN
from zones.chains import load_certificates, names_of, show_time
from zones.join_token import JoinToken

_ACTIONS = ("--renew", "--renew-ca", "--retire-ca", "--join-token", "--revoke")


def certificates(  # noqa: PLR0913 - one parameter an option
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="New, or made by this command.", parser=folder_of),
    ],
    hosts: Annotated[
        list[str],
        typer.Option(
            "--host",
            metavar="NAME",
            help="Name or address by which zones reach the coordinator; may be repeated. "
            "localhost and 127.0.0.1 are always in.",
            default_factory=list,
            show_default=False,
        ),
    ],
    days: Annotated[
        int,
        typer.Option(min=1, max=3650, help="How long a new certificate of the listeners is valid."),
    ] = LEAF_DAYS,
    renew: Annotated[
        bool, typer.Option("--renew", help="Make the listeners a new key and certificate.")
    ] = False,
    renew_ca: Annotated[
        bool, typer.Option("--renew-ca", help="Put a new CA beside the present one.")
    ] = False,
    retire_ca: Annotated[
        bool, typer.Option("--retire-ca", help="Stop trusting all CAs but the newest.")
    ] = False,
    join_token: Annotated[
        bool, typer.Option("--join-token", help="Print a token that lets one new zone in.")
    ] = False,
    zone: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Zone whose key the token lets in; default: none, a free key for any zone.",
            show_default=False,
        ),
    ] = None,
    valid_minutes: Annotated[
        int, typer.Option(min=1, max=MAX_MINUTES, help="How long the token is valid.")
    ] = 60,
    revoke: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Refuse a key from now on: its zone, or the first 8 or more characters of it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make the coordinator's certificates; let new zones in, and put them out.

    Examples:
        marl-sched certificates pki --host coordinator.example.org
        marl-sched certificates pki --join-token --zone zone_b
        marl-sched certificates pki --renew --days 90
        marl-sched certificates pki --revoke zone_b
        marl-sched certificates pki --revoke 3f9a01bc
    """
    given = (renew, renew_ca, retire_ca, join_token, revoke is not None)
    chosen = [name for name, is_given in zip(_ACTIONS, given, strict=True) if is_given]
    if len(chosen) > 1:
        raise typer.BadParameter(f"{' and '.join(chosen)}, expected one of them at a time")
    if zone is not None and not join_token:
        raise typer.BadParameter("--zone is for --join-token")
    if hosts and chosen and not renew:
        raise typer.BadParameter(f"--host does not go with {chosen[0]}")
    if join_token:
        _print_token(folder, zone or "", valid_minutes)
    elif revoke is not None:
        _revoke(folder, revoke)
    elif renew:
        _show(change_authority(folder, lambda found: found.renew_server(hosts, days), hosts))
        typer.echo("next: restart the coordinator, which shows the new certificate from then on")
    elif renew_ca:
        _show(change_authority(folder, Authority.renew_ca))
        typer.echo(
            "next: restart the coordinator and then every zone, which fetches both CAs; "
            f"then {command_line('certificates', folder, '--renew')}"
        )
    elif retire_ca:
        _show(change_authority(folder, Authority.retire_ca))
        typer.echo("next: restart the coordinator, which refuses the old CA from then on")
    else:
        _show(make_authority(folder, hosts, days))
        _show_keys(ZoneKeys(folder))
        typer.echo(f"next: {command_line('certificates', folder, '--join-token')}")


def _print_token(folder: Path, zone: str, minutes: int) -> None:
    """Print the token alone to stdout, and all else to stderr."""
    if zone and re.fullmatch(NAME_PATTERN, zone) is None:
        raise typer.BadParameter(f"--zone {zone!r}, expected a zone's name as in the configuration")
    tls = open_authority(folder).files.load()
    secret = JoinTokens(folder).create(zone, minutes)
    typer.echo(JoinToken(secret, tls.ca_fingerprint).text())
    whom = f"a key of zone {zone}" if zone else "a free key, for any zone"
    typer.echo(f"for {whom}, once, within {minutes} minutes; only its hash is kept", err=True)


def _revoke(folder: Path, which: str) -> None:
    open_authority(folder)
    key = ZoneKeys(folder).revoke(which)
    if key.zone:
        typer.echo(
            f"{key.zone}: its key {key.label} is refused from now on; the zone is free for another"
        )
    else:
        typer.echo(f"free key {key.label} is refused from now on")
    zone = ("--zone", key.zone) if key.zone else ()
    typer.echo(f"next: {command_line('certificates', folder, '--join-token', *zone)}")


def _show_keys(keys: ZoneKeys) -> None:
    for key in keys.all():
        whose = f"key {key.label} of zone {key.zone}" if key.zone else f"free key {key.label}"
        until = "no certificate yet" if key.expires is None else f"until {show_time(key.expires)}"
        typer.echo(f"{whose}, {until}")
    n_revoked = len(keys.revoked())
    if n_revoked:
        typer.echo(f"revoked: {n_revoked}")


def _show(authority: Authority) -> None:
    for path in (authority.files.ca, authority.files.certificate):
        for certificate in load_certificates(path):
            names = ", ".join(names_of(certificate)) or certificate.subject.rfc4514_string()
            typer.echo(f"{path}: {names}, until {show_time(certificate.not_valid_after_utc)}")
