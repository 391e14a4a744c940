"""`marl-sched dashboard`."""

from pathlib import Path
from typing import Annotated

import typer

from dashboard.app import Settings
from dashboard.serving import address_of, listen, serve
from marl_sched.commands.options import folder_of
from marl_sched.comparing.folder import refuse_comparison
from marl_sched.errors import RunError

_LOOPBACK = "127.0.0.1"


def dashboard(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.", parser=folder_of)],
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help=f"Address to listen at; default: {_LOOPBACK}, for this host only.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port; 0: a free one.")
    ] = 8080,
    local_names: Annotated[
        bool,
        typer.Option(
            "--local-names",
            help="Serve requests by loopback's names only, with --host too: for a container whose "
            "port is published on loopback.",
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Serve now, also if the run begins only later.")
    ] = False,
    baseline: Annotated[
        bool,
        typer.Option(
            "--baseline/--no-baseline",
            help="Play kube-default once for comparison, at lowest priority.",
        ),
    ] = True,
) -> None:
    """Show a run in the browser while it is made, or after.

    Examples:
        marl-sched dashboard runs/demo
        marl-sched dashboard runs/base --port 8081
        marl-sched dashboard /runs/demo --wait --host 0.0.0.0
    """
    _require_run(run, wait)
    settings = Settings(
        run=run, is_loopback_only=host is None or local_names, has_baseline=baseline
    )
    with listen(_LOOPBACK if host is None else host, port) as listener:
        typer.echo(f"{run}: {address_of(listener)} (Ctrl-C ends it)")
        serve(settings, listener)


def _require_run(run: Path, wait: bool) -> None:
    """Check that there is a run to show.

    Raises:
        RunError: There is none, and it is not to be waited for; or it is a whole comparison.
    """
    refuse_comparison(run)
    if run.exists() and not run.is_dir():
        raise RunError(f"{run}: not a folder, expected that of a run")
    if wait or (run / "config.yaml").exists():
        return
    what = "no run in it (no config.yaml)" if run.exists() else "no such run"
    raise RunError(f"{run}: {what}; make it: marl-sched train CONFIG --out {run}, or --wait for it")
