"""`marl-sched compare`."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from marl_sched.agents.tuned import TUNED_FOLDER
from marl_sched.commands.options import (
    RUNS,
    ConfigArgument,
    SetOption,
    command_line,
    folder_of,
)
from marl_sched.commands.side_by_side import (
    n_cores,
    print_estimate,
    require_all,
    run_jobs,
    tuned_beside,
)
from marl_sched.commands.table import print_table
from marl_sched.commands.warm_up import warm_up
from marl_sched.comparing.merging import Compared, merge
from marl_sched.comparing.plan import Plan
from marl_sched.comparing.record import save, save_record, save_study
from marl_sched.comparing.report import write_report
from marl_sched.comparing.runner import Failure
from marl_sched.comparing.study import Setting, load_study, study_path
from marl_sched.config import load_config
from marl_sched.files import alone_in
from marl_sched.statistics import TUNED


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
        tuned=tuned_beside(config, overrides),
        study_file=study_path(study),
    )
    plan.check()
    plan = _without_missing_weights(plan)
    slots = n_cores() if jobs is None else jobs
    if dry_run:
        _print_plan(plan, slots)
        return
    plan.out.mkdir(parents=True, exist_ok=True)
    with alone_in(plan.out):
        save_study(plan.study, plan.out)
        warm_up()
        failures = run_jobs("compare", plan.jobs, slots, plan.out)
        compared = merge(plan)
        _write(plan, compared, failures, record)
    require_all(failures, plan.jobs, plan.out)


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
        typer.echo(f"  {policy.name}: {policy.what}")
    typer.echo(f"{len(study.rule_names)} rules: {', '.join(study.rule_names)}")
    for setting in study.settings:
        n_episodes = plan.setting_experiment(setting).evaluation.episodes
        typer.echo(
            f"evaluated in {setting.name} ({setting.what}): {n_episodes} {setting.split} "
            f"episodes{_also(setting)}"
        )
    print_estimate(plan.jobs, slots)
    typer.echo(f"would write {plan.out}")


def _also(setting: Setting) -> str:
    """Say what else is particular to a setting."""
    counted = f", figures of {', '.join(setting.counts)}" if setting.counts else ""
    if setting.adapt is None:
        return counted
    how = " ".join(setting.adapt.set) or "the configuration as it is"
    zones = ", ".join(
        f"{zone} from drawn weights" if zone in setting.adapt.fresh else zone
        for zone in setting.adapt.zones
    )
    return f"{counted}, after training there ({how}): {zones}"


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


def _default_out(config: Path, overrides: Sequence[str], study: Path | None) -> Path:
    """Return a folder of the configuration's and the study's own."""
    what = "comparison" if study is None else study.stem
    return RUNS / f"{load_config(config, overrides).name}-{what}"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
