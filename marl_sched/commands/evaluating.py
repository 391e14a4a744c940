"""`marl-sched evaluate`: policies over the same held-out episodes, a table, a report, plots."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from marl_sched.agents.heuristics import FIXED_RULES, RULES, rule_factory
from marl_sched.agents.policies import load_policy
from marl_sched.agents.tuned import tuned_path
from marl_sched.commands.options import RUNS, ConfigArgument, SetOption, folder_of, tuned_folder
from marl_sched.commands.progress import Progress
from marl_sched.commands.table import LEARNED, print_table
from marl_sched.commands.warm_up import warm_up
from marl_sched.comparing.folder import refuse_comparison
from marl_sched.config import Experiment, load_config
from marl_sched.config.hashing import environment_hash
from marl_sched.envs.vector import Recording, VectorEnv
from marl_sched.errors import ConfigError, RunError
from marl_sched.evaluation import Evaluation, PolicyFactory, open_folder
from marl_sched.evaluation import evaluate as run_evaluation
from marl_sched.observation import Layout
from marl_sched.report import ReportExtras, validation_baselines, write_report
from marl_sched.run_folder import RunFolder

KUBE_DEFAULT = "kube-default"
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
            parser=folder_of,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where to write; default: the run, else runs/NAME-evaluation.",
            parser=folder_of,
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
    tuned = _tuned_folder(experiment, config)
    names = _named(experiment, config, policies, bool(run), tuned)
    runs = list(run or [])
    if LEARNED in names and not runs:
        runs = [RUNS / experiment.name]
    folder = out or (runs[0] if len(runs) == 1 else RUNS / f"{experiment.name}-evaluation")
    factories = make_factories(experiment, [n for n in names if n != LEARNED], runs, tuned)
    open_folder(folder, experiment)
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


def make_factories(
    experiment: Experiment, rules: Sequence[str], runs: Sequence[Path], tuned: Path | None = None
) -> Factories:
    """Return what makes each policy for a zone: rules by name, and `learned` from runs.

    Bad names and files are found here, before anything runs.

    Raises:
        ConfigError: An unknown rule, no tuned weights, or a run twice.
        CheckpointError: A run without a published policy, or one of another architecture.
    """
    layout = Layout(tuple(experiment.resources))
    factories: Factories = {name: rule_factory(name, layout, experiment, tuned) for name in rules}
    for number, path in enumerate(runs):
        if path.resolve() in [other.resolve() for other in runs[:number]]:
            raise ConfigError(f"--run {path} is given twice, expected every run once")
    if runs:
        factories[LEARNED] = [_learned_factory(experiment, layout, path) for path in runs]
    return factories


def _named(
    experiment: Experiment, config: Path, policies: str | None, has_runs: bool, tuned: Path | None
) -> list[str]:
    """Return the policies to compare, each once."""
    if policies is None:
        given, place = list(experiment.evaluation.policies), f"{config}: evaluation.policies"
    else:
        given = list(FIXED_RULES) if policies == "rules" else policies.split(",")
        place = "--policies"
    names = list(dict.fromkeys(name.strip() for name in given))
    for name in names:
        if name not in (*RULES, LEARNED):
            allowed = ", ".join((*RULES, LEARNED))
            rules = "`rules` or " if policies is not None else ""
            raise ConfigError(f"{place}: {name!r}, expected {rules}names out of {allowed}")
    if policies is None and "tuned" in names and not tuned_path(experiment, tuned).exists():
        typer.echo(
            f"no tuned weights for {experiment.name} yet (marl-sched tune makes them): "
            "`tuned` is left out",
            err=True,
        )
        names.remove("tuned")
    if has_runs and LEARNED not in names:
        names.append(LEARNED)
    return names


def _tuned_folder(experiment: Experiment, config: Path) -> Path | None:
    """Return the folder of the tuned weights: beside the configuration, else configs/tuned."""
    beside = tuned_folder(config)
    has_none = not tuned_path(experiment, beside).exists() and tuned_path(experiment).exists()
    return None if has_none else beside


def _learned_factory(experiment: Experiment, layout: Layout, path: Path) -> PolicyFactory:
    if not path.is_dir():
        raise RunError(f"{path}: no such run; make it: marl-sched train")
    refuse_comparison(path)
    folder = RunFolder(path)
    files = folder.policy_paths(experiment.zone_names)
    policies = {zone: load_policy(file, layout) for zone, file in files.items()}
    say_how_it_was_trained(experiment, folder)
    return lambda zone: policies[zone]


def say_how_it_was_trained(experiment: Experiment, folder: RunFolder) -> None:
    """Warn of what makes a run's policy another than its name says."""
    checkpoint = folder.last_checkpoint()
    if checkpoint is not None and not checkpoint.is_finished:
        typer.echo(
            f"{folder.path}: stopped after round {checkpoint.round_number}: its best policy so far "
            "is compared",
            err=True,
        )
    try:
        trained = load_config(folder.config_path)
    except ConfigError:  # a policy needs no more than its own file
        return
    if environment_hash(trained.model_copy(update={"seed": experiment.seed})) != environment_hash(
        experiment
    ):
        typer.echo(
            f"{folder.path}: trained in another environment ({folder.config_path}) than it is "
            "compared in",
            err=True,
        )


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
