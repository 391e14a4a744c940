"""`marl-sched trace generate`: a task table with the distributions of a published trace."""

import time
from typing import Annotated

import typer

from marl_sched.commands.options import command_line
from marl_sched.commands.trace_output import ForceOption, OutOption, refuse_to_replace
from marl_sched.config.streams import named_stream
from marl_sched.errors import RunError
from marl_sched.workload.generation.arrivals import DayCurve
from marl_sched.workload.generation.calibration import Calibration, shipped
from marl_sched.workload.generation.jobs import GeneratorOptions
from marl_sched.workload.generation.jobs import generate as draw_trace
from marl_sched.workload.raw.write_tasks import write_tasks

MOST_JOBS = 5_000_000
"""Jobs that are drawn at once at most; eight days of v2018 are 3.2 million."""
MOST_HOURS = 8784
"""A leap year: the rate of every second is kept in memory."""
_HOUR_S = 3600.0
_MODES = {"trace": "own", "sparse": "sparse", "dense": "dense"}


def generate(  # noqa: PLR0913 - one parameter an option
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help=f"Whose jobs: {', '.join(shipped())}.")
    ],
    out: OutOption,
    hours: Annotated[float, typer.Option(help="Length of the trace.")] = 1.0,
    jobs_per_s: Annotated[
        float | None,
        typer.Option(help="Mean rate of arrivals; default: the profile's.", show_default=False),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(help="trace: that rate; sparse, dense: as in its quietest, busiest sixtieth."),
    ] = "trace",
    day_swing: Annotated[
        float,
        typer.Option(help="Rate in the busiest hour over that in the quietest, 1 to 100."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal tables.")] = 1,
    force: ForceOption = False,
) -> None:
    """Generate a task table with the distributions of a published trace.

    Examples:
        marl-sched trace generate alibaba-v2018 --hours 2 --out generated.parquet
        marl-sched trace generate openb --hours 24 --day-swing 9 --seed 7 --out openb-day.parquet
    """
    if profile not in shipped():
        raise typer.BadParameter(f"no profile {profile!r}, expected one of {', '.join(shipped())}")
    if mode not in _MODES:
        raise typer.BadParameter(f"--mode {mode}, expected one of {', '.join(_MODES)}")
    if jobs_per_s is not None and not 0.0 < jobs_per_s < float("inf"):
        raise typer.BadParameter(f"--jobs-per-s {jobs_per_s}, expected a number > 0")
    if not 1.0 <= day_swing <= 100.0:
        raise typer.BadParameter(f"--day-swing {day_swing}, expected a number from 1 to 100")
    if not hours * _HOUR_S >= 1.0:
        raise typer.BadParameter(f"--hours {hours}, expected at least a second")
    refuse_to_replace([out], force)
    calibration = Calibration.load(profile)
    options = GeneratorOptions(jobs_per_s, _MODES[mode], DayCurve(day_swing))
    horizon_s = _horizon_s(hours, options.mean_rate_per_s(calibration))
    typer.echo(f"generating {horizon_s:,} s of {profile} ...", err=True)
    start = time.monotonic()
    stream = named_stream(seed, "generated-trace", profile)
    tasks = draw_trace(calibration, horizon_s, stream, options)
    if not tasks.n_jobs:
        raise RunError(f"no job arrived in {horizon_s} s, expected a longer time or a higher rate")
    write_tasks(out, tasks, f"generated:{profile}")
    typer.echo(f"generated in {time.monotonic() - start:.1f} s", err=True)
    typer.echo(
        f"wrote {out}: {tasks.n_jobs:,} jobs, {tasks.n_tasks:,} tasks, "
        f"{int(tasks.n_instances.sum()):,} instances"
    )
    typer.echo(f"next: {command_line('trace', 'info', out)}")


def _horizon_s(hours: float, rate_per_s: float) -> int:
    n_jobs = hours * _HOUR_S * rate_per_s
    if n_jobs > MOST_JOBS:
        raise typer.BadParameter(
            f"--hours {hours} at {rate_per_s:.4g} jobs/s: about {n_jobs:.3g} jobs, expected at "
            f"most {MOST_JOBS:,}"
        )
    if hours > MOST_HOURS:
        raise typer.BadParameter(f"--hours {hours}, expected at most {MOST_HOURS}, a year")
    return round(hours * _HOUR_S)
