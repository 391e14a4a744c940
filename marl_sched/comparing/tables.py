"""The tables of a comparison, in Markdown."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from marl_sched.agents.heuristics import RULES
from marl_sched.comparing.merging import CREATION_FAILURES, Speed
from marl_sched.comparing.verdicts import TIE_HALF_WIDTH, Check, verdict
from marl_sched.evaluation import Evaluation
from marl_sched.report_tables import markdown_table, ratio_cells, show_interval, show_number
from marl_sched.statistics import BEST_FIXED, KUBE_DEFAULT, TUNED, Row

METRICS = (
    "late_start_rate",
    "finish_violation_rate",
    "mean_slowdown",
    "imbalance_cpu",
    "imbalance_memory",
    "creation_success_rate",
    "mean_completion_s",
    "p99_completion_s",
    "offload_rate",
    "cost",
)
_IMBALANCE = "imbalance_"
_DIGITS = {"creation_success_rate": 5}
_RULE_BASELINES = (KUBE_DEFAULT, BEST_FIXED, TUNED)


def shown_metrics(evaluation: Evaluation) -> list[str]:
    """Return the metrics of the tables, the imbalance of every resource among them."""
    found = dict.fromkeys(row.metric for row in evaluation.rows)
    more = [name for name in found if name.startswith(_IMBALANCE) and name not in METRICS]
    after = METRICS.index("imbalance_memory") + 1
    return [*METRICS[:after], *more, *METRICS[after:]]


def learned_names(evaluation: Evaluation) -> list[str]:
    """Return the evaluated policies that were trained."""
    return [name for name in evaluation.metrics if name not in RULES]


def by_objective(evaluation: Evaluation) -> list[str]:
    """Return all policies, the best objective first."""
    means = {name: float(part["objective"].mean()) for name, part in evaluation.metrics.items()}
    return sorted(means, key=lambda name: means[name])


def objective_table(evaluation: Evaluation) -> str:
    """Return a line a policy: the objective, its interval, and its spread over training seeds."""
    rows = {row.policy: row for row in evaluation.rows if row.metric == "objective"}
    lines = []
    for name in by_objective(evaluation):
        row, seeds = rows[name], evaluation.metrics[name]["objective"].mean(axis=1)  # (S,)
        spread = f"{show_number(seeds.min())} .. {show_number(seeds.max())}"
        is_learned = name not in RULES
        lines.append(
            [
                bold(name),
                show_number(row.mean),
                show_interval(row.ci95_low, row.ci95_high),
                str(len(seeds)) if is_learned else "",
                spread if is_learned else "",
            ]
        )
    header = ["policy", "objective", "95% interval", "training seeds", "lowest .. highest seed"]
    return markdown_table(header, lines)


def settings_table(evaluations: Mapping[str, Evaluation]) -> str:
    """Return a line a policy with its objective in every setting, the best of the first first."""
    first = next(iter(evaluations.values()))
    rows = {
        (name, row.policy): row
        for name, evaluation in evaluations.items()
        for row in evaluation.rows
        if row.metric == "objective"
    }
    lines = [
        [
            bold(policy),
            *(
                mean_cell(rows[name, policy]) if (name, policy) in rows else "missing"
                for name in evaluations
            ),
        ]
        for policy in by_objective(first)
    ]
    return markdown_table(["objective", *evaluations], lines)


def metric_table(evaluation: Evaluation) -> str:
    """Return a line a policy with the metrics beside the objective, best objective first."""
    means = {(row.policy, row.metric): row.mean for row in evaluation.rows}
    metrics = [name for name in shown_metrics(evaluation) if any(k[1] == name for k in means)]
    lines = []
    for name in by_objective(evaluation):
        cells = [_cell(metric, means.get((name, metric))) for metric in metrics]
        lines.append([bold(name), *cells])
    return markdown_table(["policy", *metrics], lines)


def rival_table(evaluation: Evaluation, policy: str) -> str:
    """Return a policy's objective over that of every rival; empty without rivals."""
    lines = []
    for ratio in evaluation.ratios:
        is_rival = ratio.baseline not in _RULE_BASELINES
        if ratio.policy == policy and ratio.metric == "objective" and is_rival:
            lines.append([ratio.baseline, *ratio_cells(ratio), verdict(ratio)])
    if not lines:
        return ""
    note = (
        f"\nA tie is claimed only where the interval holds 1 and reaches at most "
        f"{TIE_HALF_WIDTH:.0%} to either side; better or tied, where it does to the worse one.\n"
    )
    header = ["rival", f"objective of {policy} / rival", "mean log ratio", "says"]
    return markdown_table(header, lines) + note


def duel_table(evaluation: Evaluation, policy: str) -> str:
    """Return the metrics of a policy over those of all it is compared with, and what they say."""
    ratios = {(r.metric, r.baseline): r for r in evaluation.ratios if r.policy == policy}
    baselines = list(dict.fromkeys(baseline for _, baseline in ratios))
    lines = []
    for metric in ("objective", *shown_metrics(evaluation), CREATION_FAILURES):
        found = [ratios.get((metric, baseline)) for baseline in baselines]
        if any(ratio is not None and ratio.ratio is not None for ratio in found):
            cells = ["" if r is None else f"{ratio_cells(r)[0]} {verdict(r)}" for r in found]
            lines.append([metric, *(cell.strip() for cell in cells)])
    if not lines:
        return ""
    best = evaluation.origin["best_fixed"]
    titles = [f"{BEST_FIXED} ({best})" if name == BEST_FIXED else name for name in baselines]
    return markdown_table([f"{policy} over", *titles], lines)


def mean_cell(row: Row) -> str:
    """Return a mean with its interval, in as many digits as the metric needs."""
    digits = _DIGITS.get(row.metric)
    if digits is None:
        return f"{show_number(row.mean)} {show_interval(row.ci95_low, row.ci95_high)}"
    values = [row.mean, row.ci95_low, row.ci95_high]
    mean, low, high = ("n/a" if v is None else f"{v:.{digits}f}" for v in values)
    return f"{mean} [{low}, {high}]"


def seeds_table(evaluation: Evaluation) -> str:
    """Return the objective of every training seed of the learned policies; empty for one seed."""
    seeds: Mapping[str, Sequence[int]] = evaluation.origin.get("training_seeds", {})
    numbers = sorted({seed for given in seeds.values() for seed in given})
    if len(numbers) < 2:
        return ""
    lines = []
    for name in by_objective(evaluation):
        if name not in seeds:
            continue
        means = evaluation.metrics[name]["objective"].mean(axis=1)  # (S,)
        found = dict(zip(seeds[name], means, strict=True))
        cells = [show_number(found[s]) if s in found else "missing" for s in numbers]
        spread = show_number(means.std(ddof=1)) if len(means) > 1 else ""
        lines.append([name, *cells, show_number(float(np.median(means))), spread])
    header = ["objective", *(f"seed {number}" for number in numbers), "median", "sd"]
    return markdown_table(header, lines)


def speed_table(speeds: Mapping[str, Speed], order: Iterable[str]) -> str:
    """Return what policies cost beside their quality."""
    lines = [
        [
            bold(name),
            show_number(speed.decision_us),
            _thousands(speed.played_per_s),
            _thousands(speed.trained_per_s),
            "" if speed.training_s is None else f"{speed.training_s:.0f}",
        ]
        for name in order
        if (speed := speeds.get(name)) is not None
    ]
    header = [
        "policy",
        "a decision, us (batched)",
        "decisions/s in play",
        "decisions/s in training",
        "wall s of a training",
    ]
    return markdown_table(header, lines)


def check_table(checks: Iterable[Check]) -> str:
    """Return the bars as a checklist; empty if none is about this comparison."""
    lines = []
    for check in checks:
        mark = "reached" if check.is_reached else "**not reached**"
        if check.note:
            mark = f"not claimed: {check.note}"
        elif check.is_aim_reached:
            mark = "reached, the aim too"
        lines.append([check.measure, check.must, check.aim, ratio_cells(check.ratio)[0], mark])
    if not lines:
        return ""
    return markdown_table(["measure", "must", "aim", "measured", "verdict"], lines)


def bold(name: str) -> str:
    """Return a policy's name as tables show it: learned ones stand out."""
    return name if name in RULES else f"**{name}**"


def _cell(metric: str, value: float | None) -> str:
    if value is not None and metric in _DIGITS:
        return f"{value:.{_DIGITS[metric]}f}"
    return show_number(value)


def _thousands(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
