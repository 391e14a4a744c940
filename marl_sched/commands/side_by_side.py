"""Jobs run side by side with a progress bar: what `compare` and `capacity` share."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from federation.processes import Child, end_all
from marl_sched.agents.tuned import tuned_path
from marl_sched.commands.options import tuned_folder
from marl_sched.commands.progress import Progress
from marl_sched.comparing.estimates import left_s
from marl_sched.comparing.jobs import Job
from marl_sched.comparing.runner import Failure, Runner, State
from marl_sched.config import load_config
from marl_sched.errors import RunError

_END_S = 20.0
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}


def run_jobs(what: str, jobs: Sequence[Job], slots: int, out: Path) -> list[Failure]:
    """Run what is left with a progress bar; say what failed.

    Args:
        what: What is going on, in a word.
        jobs: All jobs, done or not.
        slots: How many run at once.
        out: The folder of it all, for messages.

    Raises:
        KeyboardInterrupt: Ctrl-C, after all processes have ended; it says how to go on.
    """
    runner = Runner(jobs, slots, _process, partial(end_all, within_s=_END_S))
    total = round(sum(job.cost_s for job in jobs)) + 1
    done = 0
    with Progress(what, total=total, unit="s of work") as progress:

        def tell(state: State) -> None:
            nonlocal done
            step = max(0, round(state.done_s) - done)
            done += step
            said = f"{state.n_done}/{state.n_jobs} jobs"
            progress.advance(step, ", ".join([said, *state.running]))

        tell(runner.state())
        try:
            failures = runner.run(tell)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; what is done is in {out}; go on with the same command"
            ) from None
    for failure in failures:
        typer.echo(f"failed: {failure.job}: {failure.reason}", err=True)
        for line in failure.lines:
            typer.echo(f"  | {line}", err=True)
    return failures


def require_all(failures: Sequence[Failure], jobs: Sequence[Job], out: Path) -> None:
    """Check that no job has failed.

    Raises:
        RunError: One has.
    """
    if failures:
        raise RunError(
            f"{len(failures)} of {len(jobs)} jobs failed (see above, and {out}/logs); the same "
            "command tries them again"
        )


def print_estimate(jobs: Sequence[Job], slots: int) -> None:
    """Print how many jobs are left and about how long they take."""
    left = [job for job in jobs if not job.is_done()]
    seconds, is_measured = left_s(jobs)
    source = "by what has run here" if is_measured else "by a typical machine"
    typer.echo(
        f"{len(jobs)} jobs, {len(left)} left: about {_time(seconds)} of CPU, "
        f"{_time(seconds / slots)} on {slots} cores ({source})"
    )


def tuned_beside(config: Path, overrides: Sequence[str]) -> Path | None:
    """Return the folder of the tuned weights: beside the configuration; None: the default one."""
    beside = tuned_folder(config)
    return beside if tuned_path(load_config(config, overrides), beside).exists() else None


def n_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _process(job: Job) -> Child:
    """Return the process of a job: one thread, gone when we are, Ctrl-C is ours."""
    return Child(job.name, job.command(), job.log, {**os.environ, **_ONE_THREAD})


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
