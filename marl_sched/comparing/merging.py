"""What was played, put together: an Evaluation a setting, with ratios between learned policies.

Shapes: S training seeds, E episodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marl_sched.agents.heuristics import RULES
from marl_sched.comparing.curves import Curves, Point, read_curve
from marl_sched.comparing.jobs import Evaluating, Training
from marl_sched.comparing.plan import Plan
from marl_sched.comparing.playing import Played, read_played
from marl_sched.comparing.study import Setting
from marl_sched.errors import RunError
from marl_sched.evaluation import Evaluation, compare
from marl_sched.statistics import Bootstrap, Ratio, summarize_ratio

RIVAL_RULES = ("round-robin", "random")
"""Rules that our policies are compared with as they are with learned rivals."""
CREATION_FAILURES = "creation_failure_rate"
"""1 - creation_success_rate: a ratio of successes says nothing where both are near 1."""

Metrics = Mapping[str, NDArray[np.float64]]
"""Metric -> (S, E) values."""


@dataclass(frozen=True)
class Speed:
    """What a policy costs, measured with the jobs side by side.

    Attributes:
        decision_us: A decision within a batch, by the policy alone.
        played_per_s: Decisions a second of evaluation, simulator included.
        trained_per_s: Decisions a second of training, all rounds; None for a rule.
        training_s: Wall seconds of a training run; None for a rule.
    """

    decision_us: float
    played_per_s: float
    trained_per_s: float | None = None
    training_s: float | None = None


@dataclass(frozen=True)
class Compared:
    """All that a comparison has found.

    Attributes:
        evaluations: Setting -> the comparison there, seeds of a policy in their order.
        speeds: Policy -> what it costs, in the first setting.
        curves: How the trainings went.
    """

    evaluations: Mapping[str, Evaluation]
    speeds: Mapping[str, Speed]
    curves: Curves


def merge(plan: Plan) -> Compared:
    """Put together what is there; a policy without a single finished seed is left out.

    Raises:
        RunError: There is nothing to compare.
    """
    played = {
        setting.name: _played(plan.evaluations, setting.name) for setting in plan.study.settings
    }
    evaluations = {
        setting.name: _evaluation(plan, setting, played[setting.name])
        for setting in plan.study.settings
        if played[setting.name]
    }
    if not evaluations:
        raise RunError(f"{plan.out}: no policy was evaluated, nothing to compare")
    curves = Curves(_curves(plan.trainings), _baselines(plan.yardsticks))
    first = plan.study.settings[0].name
    speeds = {
        name: _speed(list(by_seed.values()), curves.runs.get(name, []))
        for name, by_seed in played[first].items()
    }
    return Compared(evaluations, speeds, curves)


def add_rival_ratios(
    evaluation: Evaluation, ours: Iterable[str], seed: int, n_samples: int
) -> Evaluation:
    """Return the evaluation with the ratios of our policies to all rivals, learned ones first."""
    rivals = [name for name in evaluation.metrics if name not in RULES or name in RIVAL_RULES]
    bootstrap = Bootstrap(seed, n_samples, evaluation.origin["n_episodes"])
    ratios: list[Ratio] = [
        summarize_ratio(
            (policy, rival, metric), values, evaluation.metrics[rival][metric], bootstrap
        )
        for policy in ours
        if policy in evaluation.metrics
        for rival in rivals
        if rival != policy
        for metric, values in evaluation.metrics[policy].items()
        if metric in evaluation.metrics[rival]
    ]
    return replace(evaluation, ratios=[*evaluation.ratios, *ratios])


def _played(jobs: Iterable[Evaluating], setting: str) -> dict[str, dict[int, Played]]:
    """Return policy -> training seed -> episodes, of the jobs that are done."""
    found: dict[str, dict[int, Played]] = {}
    for job in jobs:
        if job.setting == setting and job.is_done():
            played = read_played(job.order.values_path)
            if played is not None:
                one = played.first(job.order.n_episodes)
                found.setdefault(job.policy, {})[job.seed] = one
    return found


def _evaluation(
    plan: Plan, setting: Setting, played: Mapping[str, Mapping[int, Played]]
) -> Evaluation:
    experiment = plan.setting_experiment(setting)
    order = [*plan.study.policy_names, *plan.study.rule_names]
    metrics: dict[str, Metrics] = {
        name: _stacked([one for _, one in sorted(played[name].items())])
        for name in order
        if name in played
    }
    evaluation = compare(experiment, metrics, setting.split)
    seeds = {n: sorted(by_seed) for n, by_seed in played.items() if n not in RULES}
    latency = {
        name: 1e6 * sum(one.decision_s for one in by_seed.values()) / max(1, _n_decisions(by_seed))
        for name, by_seed in played.items()
    }
    evaluation = replace(
        evaluation,
        origin={
            **evaluation.origin,
            "setting": setting.name,
            "training_seeds": seeds,
            **({"counted_zones": list(setting.counts)} if setting.counts else {}),
        },
        decision_latency_us=latency,
    )
    n_samples = experiment.evaluation.bootstrap_samples
    return add_rival_ratios(evaluation, plan.study.our_names, experiment.seed, n_samples)


def _stacked(parts: Sequence[Played]) -> Metrics:
    metrics = {name: np.stack([part.metrics[name] for part in parts]) for name in parts[0].metrics}
    return metrics | {CREATION_FAILURES: 1.0 - metrics["creation_success_rate"]}


def _n_decisions(by_seed: Mapping[int, Played]) -> int:
    return sum(one.n_decisions for one in by_seed.values())


def _curves(trainings: Iterable[Training]) -> dict[str, list[list[Point]]]:
    curves: dict[str, list[list[Point]]] = {}
    for training in trainings:
        if training.is_done():
            curves.setdefault(training.policy, []).append(read_curve(training.folder))
    return curves


def _baselines(jobs: Iterable[Evaluating]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for job in jobs:
        played = read_played(job.order.values_path) if job.is_done() else None
        if played is not None:
            objective = played.first(job.order.n_episodes).metrics["objective"]
            values.setdefault(job.policy, []).append(float(objective.mean()))
    return {rule: float(np.mean(means)) for rule, means in values.items()}


def _speed(played: Sequence[Played], curves: Sequence[Sequence[Point]]) -> Speed:
    n_decisions = sum(one.n_decisions for one in played)
    ends = [curve[-1] for curve in curves if curve]
    seconds = sum(end.seconds for end in ends)
    return Speed(
        decision_us=1e6 * sum(one.decision_s for one in played) / max(1, n_decisions),
        played_per_s=n_decisions / max(1e-9, sum(one.seconds for one in played)),
        trained_per_s=sum(end.decisions for end in ends) / seconds if seconds else None,
        training_s=seconds / len(ends) if ends else None,
    )
