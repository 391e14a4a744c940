"""Creation success, imbalance and completion: is a policy the best of many, or tied with it?"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from marl_sched.comparing.tables import bold, by_objective, mean_cell, shown_metrics
from marl_sched.comparing.verdicts import BETTER, NOT_WORSE, OPEN, TIED, WORSE, verdict
from marl_sched.evaluation import Evaluation
from marl_sched.report_tables import HIGHER_IS_BETTER, markdown_table, ratio_cells
from marl_sched.statistics import Ratio, Row

_CREATION, _IMBALANCE, _COMPLETION = "creation_success_rate", "imbalance_", "mean_completion_s"


def grid_tables(evaluation: Evaluation, policy: str, rivals: Sequence[str]) -> str:
    """Return the tables of creation success, imbalance of every resource, and completion.

    First the means of all with their intervals, then a line a metric: the policy over the best of
    its rivals, half the width of that interval, and what the intervals against all of them say.

    Args:
        evaluation: What was found.
        policy: Whose.
        rivals: Whom it is measured with; those that were not played are left out.

    Returns:
        Two tables and a sentence; empty without rivals.
    """
    rows = {(row.policy, row.metric): row for row in evaluation.rows}
    ratios = {(r.baseline, r.metric): r for r in evaluation.ratios if r.policy == policy}
    metrics = [
        name
        for name in shown_metrics(evaluation)
        if name in (_CREATION, _COMPLETION) or name.startswith(_IMBALANCE)
        if (policy, name) in rows
    ]
    met = [name for name in rivals if name in evaluation.metrics and name != policy]
    if not met or not metrics:
        return ""
    shown = [name for name in by_objective(evaluation) if name in (policy, *met)]
    means = [[bold(name), *(mean_cell(rows[name, m]) for m in metrics)] for name in shown]
    lines, lost = [], []
    for metric in metrics:
        best = _best(rows, metric, met)
        against_all = _against_all({name: ratios.get((name, metric)) for name in met})
        lines.append([metric, best, *_against_cells(ratios.get((best, metric))), against_all])
        if not against_all.startswith(BETTER):
            lost.append(metric)
    header = ["metric", "best rival", f"{policy} / it", "half-width", "says", "against all"]
    absent = [name for name in rivals if name not in evaluation.metrics]
    end = (
        f"Neither best nor tied with the best, by these intervals: {', '.join(lost)}."
        if lost
        else "Best, or tied with the best, in all of them, by these intervals."
    )
    end += f" Not played: {', '.join(absent)}." if absent else ""
    return (
        f"{markdown_table(['policy', *metrics], means)}\n{markdown_table(header, lines)}\n{end}\n"
    )


def _best(rows: Mapping[tuple[str, str], Row], metric: str, names: Iterable[str]) -> str:
    """Return who has the best mean of a metric."""
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0

    def key(name: str) -> float:
        mean = rows[name, metric].mean
        return np.inf if mean is None else sign * mean

    return min(names, key=key)


def _against_cells(ratio: Ratio | None) -> list[str]:
    if ratio is None or ratio.ci95_low is None or ratio.ci95_high is None:
        return ["n/a", "", ""]
    half = (ratio.ci95_high - ratio.ci95_low) / 2.0
    return [ratio_cells(ratio)[0], f"{half:.1%}", verdict(ratio)]


def _against_all(ratios: Mapping[str, Ratio | None]) -> str:
    """Say where a policy stands against all rivals in one metric."""
    said = {name: OPEN if ratio is None else verdict(ratio) for name, ratio in ratios.items()}
    for what in (WORSE, OPEN):
        names = [name for name, verdict_ in said.items() if verdict_ == what]
        if names:
            return f"{what}: {', '.join(names)}"
    ties = [name for name, verdict_ in said.items() if verdict_ in (TIED, NOT_WORSE)]
    return f"{BETTER}, or tied with {', '.join(ties)}" if ties else f"{BETTER} than all"
