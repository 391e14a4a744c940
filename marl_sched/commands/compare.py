"""`marl-sched compare`."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from federation.processes import Child, end_all
from marl_sched.agents.tuned import TUNED_FOLDER, tuned_path
from marl_sched.commands.options import (
    RUNS,
    ConfigArgument,
    SetOption,
    command_line,
    folder_of,
    tuned_folder,
)
from marl_sched.commands.progress import Progress
from marl_sched.commands.table import print_table
from marl_sched.commands.warm_up import warm_up
from marl_sched.comparing.estimates import left_s
from marl_sched.comparing.jobs import Job
from marl_sched.comparing.merging import Compared, merge
from marl_sched.comparing.plan import Plan
from marl_sched.comparing.record import save, save_record
from marl_sched.comparing.report import write_report
from marl_sched.comparing.runner import Failure, Runner, State
from marl_sched.comparing.study import load_study
from marl_sched.config import load_config
from marl_sched.errors import RunError
from marl_sched.files import alone_in
from marl_sched.statistics import TUNED

_END_S = 20.0
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}


def compare(  # noqa: PLR0913 - one parameter an option
    config: ConfigArgument,
    overrides: SetOption,
    training_seeds: Annotated[
        int, typer.Option(min=1, max=100, help="Trainings of every policy, with seeds 1, 2, ...")
    ] = 5,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Test episodes; default: evaluation.episodes of CONFIG."
        ),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What to compare: a YAML file (docs/compare.md), or agent, distribution or "
            "federation; default: all learning algorithms and all rules.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...", help="These policies and rules of the study.", show_default=False
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes at once; default: cores.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where to write, or to go on; default: runs/NAME-comparison, with --study "
            "runs/NAME-STUDY.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also write a small record, as docs/results.md is made from.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would run, and about how long.")
    ] = False,
) -> None:
    """Train policies with several seeds each, and compare them with rules on held-out episodes.

    Examples:
        marl-sched compare configs/base.yaml --training-seeds 5 --episodes 100
        marl-sched compare configs/base.yaml --only qrdqn,kube-default,tuned --dry-run
        marl-sched compare configs/disjoint.yaml --study federation

    The same command goes on where it was stopped; what is done is not done again.
    """
    chosen = load_study(study)
    plan = Plan(
        config=config,
        overrides=tuple(overrides),
        study=chosen if only is None else chosen.only(_names(only)),
        n_seeds=training_seeds,
        n_episodes=episodes,
        out=_default_out(config, overrides, study) if out is None else out,
        tuned=_tuned_folder(config, overrides),
    )
    plan.check()
    plan = _without_missing_weights(plan)
    slots = _n_cores() if jobs is None else jobs
    if dry_run:
        _print_plan(plan, slots)
        return
    plan.out.mkdir(parents=True, exist_ok=True)
    with alone_in(plan.out):
        warm_up()
        failures = _run(plan, slots)
        compared = merge(plan)
        _write(plan, compared, failures, record)
    if failures:
        raise RunError(
            f"{len(failures)} of {len(plan.jobs)} jobs failed (see above, and {plan.out}/logs); "
            "the same command tries them again"
        )


def _run(plan: Plan, slots: int) -> list[Failure]:
    """Run what is left with a progress bar; say what failed."""
    runner = Runner(plan.jobs, slots, _process, partial(end_all, within_s=_END_S))
    total = round(sum(job.cost_s for job in plan.jobs)) + 1
    done = 0
    with Progress("compare", total=total, unit="s of work") as progress:

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
                f"stopped; what is done is in {plan.out}; go on with the same command"
            ) from None
    for failure in failures:
        typer.echo(f"failed: {failure.job}: {failure.reason}", err=True)
        for line in failure.lines:
            typer.echo(f"  | {line}", err=True)
    return failures


def _process(job: Job) -> Child:
    """Return the process of a job: one thread, gone when we are, Ctrl-C is ours."""
    return Child(job.name, job.command(), job.log, {**os.environ, **_ONE_THREAD})


def _write(plan: Plan, compared: Compared, failures: Sequence[Failure], to: Path | None) -> None:
    """Write tables, report and record, and say where."""
    command = shlex.join(["marl-sched", *sys.argv[1:]])
    missing = [f"{failure.job}: {failure.reason}" for failure in failures]
    save(compared, plan.study, plan.experiment, plan.out)
    write_report(compared, plan.study, plan.out, command, missing)
    for name, evaluation in compared.evaluations.items():
        if len(compared.evaluations) > 1:
            typer.echo(f"{name}:")
        print_table(evaluation)
    typer.echo(f"wrote {plan.out}: report.md, evaluation.json, runs, plots")
    if to is not None:
        title = f"## {plan.experiment.name}: comparison\n\n```\n{command}\n```\n"
        save_record(compared, plan.study, plan.experiment, to, title)
        typer.echo(f"wrote {to}: write in its about.md what it shows, then: make docs")
    typer.echo(f"next: read {plan.out}/report.md")


def _print_plan(plan: Plan, slots: int) -> None:
    """Print what would run."""
    study = plan.study
    typer.echo(f"{len(study.policies)} policies x {plan.n_seeds} training seeds:")
    for policy in study.policies:
        what = " ".join([*policy.set, *(f"(evaluated with {text})" for text in policy.evaluate)])
        typer.echo(f"  {policy.name}: {what or 'the configuration as it is'}")
    typer.echo(f"{len(study.rule_names)} rules: {', '.join(study.rule_names)}")
    for setting in study.settings:
        what = " ".join([*([setting.config] if setting.config else []), *setting.set])
        n_episodes = plan.setting_experiment(setting).evaluation.episodes
        typer.echo(
            f"evaluated in {setting.name} ({what or 'the configuration as it is'}): {n_episodes} "
            "test episodes"
        )
    left = [job for job in plan.jobs if not job.is_done()]
    seconds, is_measured = left_s(plan.jobs)
    source = "by what has run here" if is_measured else "by a typical machine"
    typer.echo(
        f"{len(plan.jobs)} jobs, {len(left)} left: about {_time(seconds)} of CPU, "
        f"{_time(seconds / slots)} on {slots} cores ({source})"
    )
    typer.echo(f"would write {plan.out}")


def _without_missing_weights(plan: Plan) -> Plan:
    """Leave out `tuned` where a configuration has no tuned weights yet, and say so."""
    names = {plan.setting_experiment(setting).name for setting in plan.study.settings}
    folder = plan.tuned or TUNED_FOLDER
    missing = sorted(name for name in names if not (folder / f"{name}.json").exists())
    if not missing or TUNED not in plan.study.rule_names:
        return plan
    typer.echo(
        f"no tuned weights for {', '.join(missing)} yet ({command_line('tune', plan.config)} makes "
        "them): `tuned` is left out",
        err=True,
    )
    rules = [name for name in plan.study.rule_names if name != TUNED]
    return replace(plan, study=plan.study.model_copy(update={"rules": rules}))


def _tuned_folder(config: Path, overrides: Sequence[str]) -> Path | None:
    """Return the folder of the tuned weights: beside the configuration, else the default one."""
    beside = tuned_folder(config)
    return beside if tuned_path(load_config(config, overrides), beside).exists() else None


def _default_out(config: Path, overrides: Sequence[str], study: Path | None) -> Path:
    """Return a folder of the configuration's and the study's own."""
    what = "comparison" if study is None else study.stem
    return RUNS / f"{load_config(config, overrides).name}-{what}"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _n_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
