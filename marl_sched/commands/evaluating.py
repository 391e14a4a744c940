"""`marl-sched evaluate`: policies over the same held-out episodes, a table, a report, plots."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from marl_sched.agents.heuristics import FIXED_RULES, RULES, make_policy
from marl_sched.agents.learned import load_policy
from marl_sched.agents.policy import Policy
from marl_sched.agents.tuned import tuned_path
from marl_sched.commands.options import RUNS, ConfigArgument, SetOption
from marl_sched.commands.progress import Progress
from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Experiment, load_config
from marl_sched.envs.vector import Recording, VectorEnv
from marl_sched.errors import ConfigError, RunError
from marl_sched.evaluation import Evaluation, PolicyFactory
from marl_sched.evaluation import evaluate as run_evaluation
from marl_sched.observation import Layout
from marl_sched.report import ReportExtras, validation_baselines, write_report
from marl_sched.run_folder import RunFolder

LEARNED = "learned"
KUBE_DEFAULT = "kube-default"
_COLUMNS = (
    "objective",
    "late_start_rate",
    "finish_violation_rate",
    "mean_slowdown",
    "zone_imbalance_cpu",
    "zone_imbalance_memory",
    "cost",
    "creation_success_rate",
    "mean_completion_s",
)
Factories = dict[str, PolicyFactory | Sequence[PolicyFactory]]


def evaluate(
    config: ConfigArgument,
    overrides: SetOption,
    policies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Rules to compare, or `rules` for all; default: the configuration's.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="A training run whose policy is compared; several are training seeds of one.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where to write; default: the run, else runs/NAME-evaluation.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Compare policies over the same held-out episodes; write a report and plots.

    Examples:
        marl-sched evaluate configs/demo.yaml --run runs/demo
        marl-sched evaluate configs/base.yaml --policies rules --set evaluation.episodes=20
        marl-sched evaluate configs/base.yaml --run runs/base-1 --run runs/base-2 --out runs/both
    """
    experiment = load_config(config, overrides)
    names = _named(experiment, policies, has_runs=bool(run))
    runs = list(run or [])
    if LEARNED in names and not runs:
        runs = [RUNS / experiment.name]
    folder = out or (runs[0] if len(runs) == 1 else RUNS / f"{experiment.name}-evaluation")
    factories = make_factories(experiment, [n for n in names if n != LEARNED], runs)
    warm_up()
    command = shlex.join(["marl-sched", *sys.argv[1:]])
    evaluation = evaluate_and_report(experiment, factories, folder, runs, command)
    print_table(evaluation)
    typer.echo(f"wrote {folder}/evaluation.json, report.md and plots")
    typer.echo(f"next: read {folder}/report.md")


def evaluate_and_report(
    experiment: Experiment,
    factories: Factories,
    folder: Path,
    runs: Sequence[Path],
    command: str,
) -> Evaluation:
    """Play all policies with a progress bar, then write evaluation, report and plots."""
    n_policies = sum(1 if callable(given) else len(given) for given in factories.values())
    total = n_policies * experiment.evaluation.episodes
    with Progress("evaluate", total=total, unit="episodes") as progress:
        last: dict[str, int] = {}

        def say(name: str, done: int, of: int) -> None:
            progress.advance(done - last.get(name, 0), name)
            last[name] = done

        evaluation = run_evaluation(experiment, factories, progress=say)
    evaluation.save(folder)
    write_report(folder, experiment, _extras(experiment, evaluation, factories, runs, command))
    return evaluation


def make_factories(experiment: Experiment, rules: Sequence[str], runs: Sequence[Path]) -> Factories:
    """Return what makes each policy for a zone: rules by name, and `learned` from runs.

    Raises:
        ConfigError: An unknown rule, or no tuned weights.
        CheckpointError: A run without a published policy, or one of another architecture.
    """
    layout = Layout(tuple(experiment.resources))
    factories: Factories = {}
    for name in rules:
        make_policy(name, layout, experiment)  # bad names and files are found before anything runs
        factories[name] = partial(_make_rule, name, layout, experiment)
    if runs:
        factories[LEARNED] = [_learned_factory(experiment, layout, path) for path in runs]
    return factories


def print_table(evaluation: Evaluation) -> None:
    """Print the main metrics of every policy to stdout, best objective first."""
    means = {(row.policy, row.metric): row for row in evaluation.rows}
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column("policy")
    for column in ("objective", "95% interval", *_COLUMNS[1:]):
        table.add_column(column.replace("_", " "), justify="right")
    order = sorted(evaluation.metrics, key=lambda name: means[name, "objective"].mean or 0.0)
    for name in order:
        row = means[name, "objective"]
        cells = [_number(row.mean), f"{_number(row.ci95_low)} .. {_number(row.ci95_high)}"]
        cells += [_number(means[name, column].mean) for column in _COLUMNS[1:]]
        table.add_row(name, *cells)
    console = Console()
    console.print(table, width=max(console.width, 150), crop=False, no_wrap=False)
    for ratio in evaluation.ratios:
        if ratio.policy == LEARNED and ratio.metric == "objective" and ratio.ratio is not None:
            typer.echo(
                f"objective of learned over {ratio.baseline}: {ratio.ratio:.3f} "
                f"[{_number(ratio.ci95_low)}, {_number(ratio.ci95_high)}]"
            )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _named(experiment: Experiment, policies: str | None, has_runs: bool) -> list[str]:
    if policies is None:
        names = list(experiment.evaluation.policies)
    else:
        names = list(FIXED_RULES) if policies == "rules" else policies.split(",")
    names = [name.strip() for name in names]
    unknown = [name for name in names if name not in (*RULES, LEARNED)]
    if unknown:
        raise ConfigError(
            f"--policies {unknown[0]}: expected `rules` or names out of "
            f"{', '.join((*RULES, LEARNED))}"
        )
    if policies is None and "tuned" in names and not tuned_path(experiment).exists():
        typer.echo(
            f"no tuned weights for {experiment.name} yet (marl-sched tune makes them): "
            "`tuned` is left out",
            err=True,
        )
        names.remove("tuned")
    if has_runs and LEARNED not in names:
        names.append(LEARNED)
    return names


def _make_rule(name: str, layout: Layout, experiment: Experiment, zone: str) -> Policy:
    return make_policy(name, layout, experiment)


def _learned_factory(experiment: Experiment, layout: Layout, path: Path) -> PolicyFactory:
    if not path.is_dir():
        raise RunError(f"{path}: no such run; make it: marl-sched train")
    files = RunFolder(path).policy_paths(experiment.zone_names)
    policies = {zone: load_policy(file, layout) for zone, file in files.items()}
    return lambda zone: policies[zone]


def _extras(
    experiment: Experiment,
    evaluation: Evaluation,
    factories: Factories,
    runs: Sequence[Path],
    command: str,
) -> ReportExtras:
    best = evaluation.origin["best_fixed"]
    singles: Mapping[str, PolicyFactory] = {
        name: given if callable(given) else given[0] for name, given in factories.items()
    }
    baselines = [name for name in (KUBE_DEFAULT, best, "tuned") if name in singles]
    shown = [name for name in (KUBE_DEFAULT, LEARNED) if name in singles]
    if len(shown) < 2:
        shown = list(singles)[:2]
    return ReportExtras(
        command=command,
        curves={path.name: path for path in runs},
        curve_baselines=(
            validation_baselines(experiment, {name: singles[name] for name in baselines})
            if runs and experiment.training.validation_episodes
            else {}
        ),
        recordings={name: _record(experiment, singles[name]) for name in shown},
    )


def _record(experiment: Experiment, make: PolicyFactory) -> Recording:
    env = VectorEnv(experiment, 1)
    return env.record({zone: make(zone) for zone in experiment.zone_names}, "test", 0)
