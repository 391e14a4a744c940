"""The words and tables of a report, in Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from marl_sched.config import Experiment
from marl_sched.evaluation import Evaluation
from marl_sched.statistics import (
    BEST_FIXED,
    KUBE_DEFAULT,
    TUNED,
    Bootstrap,
    Ratio,
    Row,
    summarize_ratio,
)

_BASELINES = (KUBE_DEFAULT, BEST_FIXED, TUNED)
_MAIN_METRICS = ("unfinished_rate", "mean_completion_s", "p99_wait_s")
HIGHER_IS_BETTER = ("creation_success_rate",)
NEUTRAL = ("utilization_", "allocation_ratio_", "offload_rate", "fragmentation")
"""Metrics where more or less is neither better nor worse by itself."""


@dataclass(frozen=True)
class ObjectivePart:
    """One term of the objective: weight x (metric + offset)."""

    label: str
    metric: str
    weight: float
    offset: float = 0.0

    @property
    def title(self) -> str:
        """What a plot calls the term."""
        return self.label if self.weight == 1 else f"{self.weight:g} x {self.label}"

    def weighted(self, row: Row) -> Row:
        """Return the metric's row as the term's."""

        def term(value: float | None) -> float | None:
            return None if value is None else self.weight * (value + self.offset)

        low, high = term(row.ci95_low), term(row.ci95_high)
        return replace(row, mean=term(row.mean), ci95_low=low, ci95_high=high)


def headline(evaluation: Evaluation) -> str:
    """Say in a sentence a learned policy how it stands against every baseline."""
    rows = {row.policy: row for row in evaluation.rows if row.metric == "objective"}
    ratios = {(r.policy, r.baseline): r for r in evaluation.ratios if r.metric == "objective"}
    origin = evaluation.origin
    kind = "held-out" if origin["split"] == "test" else origin["split"]
    counted = origin.get("counted_zones")
    of_whom = f" of {', '.join(counted)} alone" if counted else ""
    lines = [
        f"Objective (lower is better){of_whom} over {origin['n_episodes']} {kind} episodes, "
        "the same for all policies; brackets are 95% intervals.\n"
    ]
    for name in _learned(evaluation):
        said = [
            f"{show_number(ratio.ratio)} {show_interval(ratio.ci95_low, ratio.ci95_high)} of "
            f"{baseline_title(baseline, evaluation)}: {_verdict(ratio, 'objective')}"
            for baseline in _BASELINES
            if (ratio := ratios.get((name, baseline))) is not None
        ]
        if said:
            lines.append(f"- **{name}** ({show_number(rows[name].mean)}) is at " + "; ".join(said))
    return "\n".join(lines) + "\n"


def main_table(evaluation: Evaluation, parts: Sequence[ObjectivePart]) -> str:
    """Return a line a policy, best objective first, none left out."""
    rows = {(row.policy, row.metric): row for row in evaluation.rows}
    metrics = [part.metric for part in parts]
    metrics += [name for name in _MAIN_METRICS if any(key[1] == name for key in rows)]
    order = sorted(evaluation.metrics, key=lambda name: _or_inf(rows[name, "objective"].mean))
    header = ["policy", "objective", "95% interval", *metrics]
    has_latency = bool(evaluation.decision_latency_us)
    lines = []
    for name in order:
        objective = rows[name, "objective"]
        cells = [f"**{name}**" if name in _learned(evaluation) else name]
        cells += [
            show_number(objective.mean),
            show_interval(objective.ci95_low, objective.ci95_high),
        ]
        cells += [show_number(rows[name, metric].mean) for metric in metrics]
        if has_latency:
            cells.append(show_number(evaluation.decision_latency_us.get(name)))
        lines.append(cells)
    if has_latency:
        header.append("decision, us (batched)")
    return markdown_table(header, lines)


def ratio_table(evaluation: Evaluation) -> str:
    """Return the ratios of the objective to every baseline, a line a policy."""
    ratios = {(r.policy, r.baseline): r for r in evaluation.ratios if r.metric == "objective"}
    baselines = [name for name in _BASELINES if any(key[1] == name for key in ratios)]
    if not baselines:
        return "No baseline was evaluated.\n"
    means = {row.policy: row.mean for row in evaluation.rows if row.metric == "objective"}
    header = ["policy"]
    for baseline in baselines:
        header += [f"/ {baseline_title(baseline, evaluation)}", "mean log ratio"]
    lines = []
    for name in sorted(evaluation.metrics, key=lambda name: _or_inf(means[name])):
        cells = [name]
        for baseline in baselines:
            ratio = ratios.get((name, baseline))
            cells += ["1", "0"] if ratio is None else list(ratio_cells(ratio))
        lines.append(cells)
    note = (
        "Ratio of the means and, beside it, the mean of the log ratios (less noise from "
        "overload), paired over the same episodes.\n"
    )
    return markdown_table(header, lines) + "\n" + note


def seed_table(evaluation: Evaluation, policy: str, experiment: Experiment) -> str:
    """Return the ratios of every training seed of a learned policy and their median."""
    values = evaluation.metrics[policy]["objective"]
    played = _played_baselines(evaluation)
    if len(values) < 2 or not played:
        return ""
    n_samples = experiment.evaluation.bootstrap_samples
    bootstrap = Bootstrap(experiment.seed, n_samples, values.shape[1])
    lines, ratios = [], np.zeros((len(values), len(played)))
    for number, one in enumerate(values):
        cells = [str(number + 1), show_number(float(one.mean()))]
        for column, (baseline, rule) in enumerate(played.items()):
            yardstick = evaluation.metrics[rule]["objective"]
            ratio = summarize_ratio(
                (policy, baseline, "objective"), one[None], yardstick, bootstrap
            )
            ratios[number, column] = np.nan if ratio.ratio is None else ratio.ratio
            cells.append(ratio_cells(ratio)[0])
        lines.append(cells)
    median = [show_number(float(value)) for value in np.median(ratios, axis=0)]
    lines.append(["median", show_number(float(np.median(values.mean(axis=1)))), *median])
    header = ["training seed", "objective"]
    header += [f"/ {baseline_title(name, evaluation)}" for name in played]
    return f"## {policy}, by training seed\n\n" + markdown_table(header, lines)


def duel_table(evaluation: Evaluation, policy: str) -> str:
    """Return every metric of a learned policy against every baseline, wins and losses alike."""
    ratios = {(r.metric, r.baseline): r for r in evaluation.ratios if r.policy == policy}
    baselines = [name for name in _BASELINES if any(key[1] == name for key in ratios)]
    if not baselines:
        return ""
    lines = []
    for row in evaluation.rows:
        if row.policy != policy:
            continue
        cells = [
            row.metric,
            f"{show_number(row.mean)} {show_interval(row.ci95_low, row.ci95_high)}",
        ]
        for baseline in baselines:
            ratio = ratios[row.metric, baseline]
            verdict = _verdict(ratio, row.metric)
            cells.append(f"{ratio_cells(ratio)[0]} {verdict}".strip())
        lines.append(cells)
    header = ["metric", policy, *(f"/ {baseline_title(name, evaluation)}" for name in baselines)]
    return f"## {policy}, metric by metric\n\n" + markdown_table(header, lines)


def origin_lines(evaluation: Evaluation, command: str) -> str:
    """Say how the figures were made."""
    origin = evaluation.origin
    seeds = {name: len(part["objective"]) for name, part in evaluation.metrics.items()}
    learned = ", ".join(f"{name}: {seeds[name]}" for name in _learned(evaluation)) or "none"
    best = origin["best_fixed"]
    chosen = (
        f"{best}, the best of {len(origin['fixed_rules'])} fixed rules on these very episodes "
        "(chosen with hindsight, which favors the baseline)"
        if best
        else "not given: fewer than two fixed rules were evaluated"
    )
    lines = [
        *([f"command: `{command}`"] if command else []),
        f"configuration: {origin['experiment']}, hash {origin['config_hash']}, seed "
        f"{origin['seed']}",
        f"episodes: {origin['n_episodes']} of the {origin['split']} split, "
        f"{origin['replicas']} at once",
        f"training seeds of learned policies: {learned}",
        f"duration_knowledge: {origin['duration_knowledge']}; placement: {origin['placement']}",
        f"best-fixed: {chosen}",
        f"intervals: 95%, bootstrap of {origin['bootstrap_samples']} resamples over training seeds "
        "and episodes; with one training seed over episodes only",
        "versions: " + ", ".join(f"{k} {v}" for k, v in origin["versions"].items()),
    ]
    return "\n".join(f"- {line}" for line in lines) + "\n"


def _learned(evaluation: Evaluation) -> list[str]:
    rules = {*evaluation.origin["fixed_rules"], TUNED}
    return [name for name in evaluation.metrics if name not in rules]


def _played_baselines(evaluation: Evaluation) -> dict[str, str]:
    """Return baseline -> the rule that stands for it, of those that were played."""
    rules = {KUBE_DEFAULT: KUBE_DEFAULT, BEST_FIXED: evaluation.origin["best_fixed"], TUNED: TUNED}
    return {name: rule for name, rule in rules.items() if rule in evaluation.metrics}


def baseline_title(baseline: str, evaluation: Evaluation) -> str:
    """Return what tables call a baseline."""
    return f"best-fixed ({evaluation.origin['best_fixed']})" if baseline == BEST_FIXED else baseline


def _verdict(ratio: Ratio, metric: str) -> str:
    """Say better or worse only where the interval excludes 1."""
    low, high = ratio.ci95_low, ratio.ci95_high
    if low is None or high is None or metric.startswith(NEUTRAL):
        return ""
    if low <= 1.0 <= high:
        return "no difference shown"
    return "better" if (high < 1.0) != (metric in HIGHER_IS_BETTER) else "worse"


def ratio_cells(ratio: Ratio) -> tuple[str, str]:
    """Return the ratio and the mean log ratio, each with its interval."""
    interval = show_interval(ratio.ci95_low, ratio.ci95_high)
    log_interval = show_interval(ratio.log_ci95_low, ratio.log_ci95_high)
    return (
        f"{show_number(ratio.ratio)} {interval}".strip(),
        f"{show_number(ratio.mean_log_ratio)} {log_interval}",
    )


def show_interval(low: float | None, high: float | None) -> str:
    """Return an interval as tables show it."""
    return "" if low is None or high is None else f"[{show_number(low)}, {show_number(high)}]"


def show_number(value: float | None) -> str:
    """Return a number as tables show it."""
    if value is None or not np.isfinite(value):
        return "n/a"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def _or_inf(value: float | None) -> float:
    return np.inf if value is None else value


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, all columns but the first to the right."""
    rules = ["---"] + ["---:"] * (len(header) - 1)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [header, rules, *lines])
