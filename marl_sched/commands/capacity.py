"""`marl-sched capacity`: the largest offered load that policies carry."""

import math
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from marl_sched.agents.heuristics import FIXED_RULES, RULES
from marl_sched.agents.tuned import tuned_path
from marl_sched.commands.evaluating import say_how_it_was_trained
from marl_sched.commands.options import RUNS, ConfigArgument, SetOption, command_line, folder_of
from marl_sched.commands.side_by_side import (
    n_cores,
    print_estimate,
    require_all,
    run_jobs,
    tuned_beside,
)
from marl_sched.commands.warm_up import warm_up
from marl_sched.comparing.capacity import BASELINES, Capacity
from marl_sched.comparing.capacity_report import save, save_record, show_crossing
from marl_sched.comparing.load_plan import LoadPlan
from marl_sched.comparing.trained import Trained, trained_policies
from marl_sched.config import load_config
from marl_sched.errors import ConfigError
from marl_sched.files import alone_in
from marl_sched.run_folder import RunFolder
from marl_sched.statistics import KUBE_DEFAULT, TUNED

_ALL_RULES = "rules"
_LOADS = "0.5,0.6,0.7,0.8,0.9,1,1.1,1.2,1.3,1.4,1.5"
_LARGEST_SHARE = 10.0
_UNBOUNDED = 1000


def capacity(  # noqa: PLR0913 - one parameter an option
    config: ConfigArgument,
    overrides: SetOption,
    policies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Rules, or `rules` for all, and policies of --run; default: kube-default, tuned "
            "and all of --run.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="A training run whose policy is measured; several are training seeds of one. Or "
            "the folder of a comparison: all that it has trained.",
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    loads: Annotated[
        str,
        typer.Option(metavar="A,B,...", help="Offered loads, as shares of the configured one."),
    ] = _LOADS,
    violations: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Largest rate of finish violations that counts."),
    ] = 0.05,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Test episodes; default: evaluation.episodes of CONFIG."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes at once; default: cores.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where to write, or to go on; default: runs/NAME-capacity.",
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
    """Find the largest offered load at which few instances finish late, policy by policy.

    Examples:
        marl-sched capacity configs/three-az.yaml --policies kube-default,tuned
        marl-sched capacity configs/base.yaml --run runs/base-1 --run runs/base-2 --dry-run
        marl-sched capacity configs/three-az.yaml --run runs/three-az-comparison --policies qrdqn

    Policies play the same held-out episodes at every load. The same command goes on where it was
    stopped; more loads, episodes and policies add to what is there.
    """
    experiment = load_config(config, overrides)
    tuned = tuned_beside(config, overrides)
    learned = trained_policies(list(run or []))
    rules, learned = _chosen(policies, learned)
    if policies is None and not tuned_path(experiment, tuned).exists():
        typer.echo(
            f"no tuned weights for {experiment.name} yet ({command_line('tune', config)} makes "
            "them): `tuned` is left out",
            err=True,
        )
        rules.remove(TUNED)
    plan = LoadPlan(
        config=config,
        overrides=tuple(overrides),
        shares=_shares(loads),
        rules=tuple(rules),
        learned=tuple(learned),
        n_episodes=episodes,
        out=RUNS / f"{experiment.name}-capacity" if out is None else out,
        tuned=tuned,
    )
    plan.check()
    for path in (path for policy in plan.learned for path in policy.runs.values()):
        say_how_it_was_trained(plan.experiment, RunFolder(path))
    slots = n_cores() if jobs is None else jobs
    if dry_run:
        _print_plan(plan, violations, slots)
        return
    plan.out.mkdir(parents=True, exist_ok=True)
    with alone_in(plan.out):
        warm_up()
        failures = run_jobs("capacity", plan.jobs, slots, plan.out)
        found = plan.measure(violations)
        command = shlex.join(["marl-sched", *sys.argv[1:]])
        missing = [f"{failure.job}: {failure.reason}" for failure in failures]
        save(found, plan.out, command, missing)
    _print(found)
    typer.echo(f"wrote {plan.out}: report.md, capacity.json, capacity.png, values")
    if record is not None:
        title = f"## {experiment.name}: capacity\n\n```\n{command}\n```\n"
        save_record(found, plan.experiment, record, title)
        typer.echo(f"wrote {record}: write in its about.md what it shows, then: make docs")
    typer.echo(f"next: read {plan.out}/report.md")
    require_all(failures, plan.jobs, plan.out)


def _chosen(policies: str | None, learned: list[Trained]) -> tuple[list[str], list[Trained]]:
    """Return the rules and the learned policies to measure; kube-default is always one.

    Learned policies that none is named of are all measured.

    Raises:
        ConfigError: A name is neither.
    """
    if policies is None:
        return [*BASELINES], learned
    names = [name.strip() for name in policies.split(",")]
    allowed = [*RULES, *(one.name for one in learned)]
    for name in names:
        if name not in (*allowed, _ALL_RULES):
            raise ConfigError(
                f"--policies: {name!r}, expected `{_ALL_RULES}` or names out of "
                f"{', '.join(allowed)}"
            )
    given = [FIXED_RULES if name == _ALL_RULES else (name,) for name in names]
    flat = dict.fromkeys([KUBE_DEFAULT, *(name for group in given for name in group)])
    named = [one for one in learned if one.name in flat]
    return [name for name in flat if name in RULES], named or learned


def _shares(text: str) -> tuple[float, ...]:
    """Return the loads of --loads, rising.

    Raises:
        ConfigError: They are no list of at least two different shares.
    """
    try:
        found = sorted({float(part) for part in text.split(",")})
    except ValueError:
        found = []
    is_good = all(math.isfinite(one) and 0.0 < one <= _LARGEST_SHARE for one in found)
    if len(found) < 2 or len({f"{one:g}" for one in found}) < len(found) or not is_good:
        raise ConfigError(
            f"--loads {text}: expected at least two different shares of the configured load above "
            f"0 and at most {_LARGEST_SHARE:g}, as in {_LOADS}"
        )
    return tuple(found)


def _print_plan(plan: LoadPlan, bound: float, slots: int) -> None:
    """Print what would run."""
    load, shares = plan.experiment.workload.load, plan.shares
    typer.echo(f"violations of at most {bound:g}, {plan.experiment.evaluation.episodes} episodes")
    typer.echo(
        f"{len(shares)} loads: {', '.join(f'{share:g}' for share in shares)} of {load:g}, so "
        f"{shares[0] * load:.3g} to {shares[-1] * load:.3g}"
    )
    typer.echo(f"{len(plan.rules)} rules: {', '.join(plan.rules)}")
    for policy in plan.learned:
        typer.echo(f"{policy.name}: {', '.join(str(path) for path in policy.runs.values())}")
    print_estimate(plan.jobs, slots)
    typer.echo(f"would write {plan.out}")


def _print(found: Capacity) -> None:
    """Print the largest loads to stdout, the best first."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNBOUNDED)
    table = Table(title=None, box=None, pad_edge=False)
    for number, title in enumerate(("policy", "largest load", "offered load", "/ kube-default")):
        table.add_column(title, justify="right" if number else "left", no_wrap=True)
    ratios = {one.policy: one.found for one in found.ratios if one.baseline == KUBE_DEFAULT}
    for one in found.by_load:
        offered = (one.found.value or 0.0) * found.origin["configured_load"]
        ratio = show_crossing(ratios[one.policy]) if one.policy in ratios else "1"
        table.add_row(one.policy, show_crossing(one.found), f"{offered:.4g}", ratio)
    console.print(table)
