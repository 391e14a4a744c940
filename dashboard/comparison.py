"""How the learned policy compares with kube-default: measured ratios, or the validation so far."""

from typing import Any

from dashboard.following import finite, parse_object, text, whole
from dashboard.rounds import Validation

LEARNED, KUBE_DEFAULT = "learned", "kube-default"
METRICS = (
    "objective",
    "late_start_rate",
    "finish_violation_rate",
    "mean_slowdown",
    "mean_completion_s",
    "imbalance_cpu",
    "imbalance_memory",
    "cost_per_hour",
)
"""What is compared; lower is better in all of them."""
_MAX_POLICIES = 32


def from_evaluation(content: bytes) -> dict[str, Any] | None:
    """Return the ratios of learned over kube-default that evaluation.json has, with intervals.

    Returns:
        None if it is not a file of ours, or does not have both policies.
    """
    found = parse_object(content)
    if found is None:
        return None
    ratios = [row for row in _rows(found.get("ratios")) if _is_wanted(row)]
    by_metric = {row["metric"]: row for row in ratios if row["baseline"] == KUBE_DEFAULT}
    compared = [_ratio(by_metric[name]) for name in METRICS if name in by_metric]
    objectives = [row for row in _rows(found.get("rows")) if row.get("metric") == "objective"]
    if not compared:
        return None
    first = next((row for row in objectives if row.get("policy") == LEARNED), {})
    return {
        "basis": "evaluation",
        "n_episodes": whole(first.get("n_episodes")),
        "n_seeds": whole(first.get("n_training_seeds")),
        "rows": compared,
        "policies": [_interval(row) for row in objectives[:_MAX_POLICIES]],
        "others": [
            {"baseline": text(row["baseline"], 80), **_ratio(row)}
            for row in ratios
            if row["metric"] == "objective" and row["baseline"] != KUBE_DEFAULT
        ],
    }


def from_validation(
    best: Validation | None, baseline: dict[str, Any], n_episodes: int
) -> dict[str, Any]:
    """Return the best validation over kube-default's on the same episodes.

    Args:
        best: None before the first.
        baseline: As `Baseline.result`.
        n_episodes: Validation episodes.
    """
    metrics: dict[str, float] = baseline.get("metrics", {})
    rows = []
    for name in METRICS:
        learned = None if best is None else best.metrics.get(name)
        rule = metrics.get(name)
        ratio = learned / rule if learned is not None and rule else None
        if learned is not None or rule is not None:
            rows.append({"metric": name, "learned": learned, "baseline": rule, "ratio": ratio})
    return {
        "basis": "validation",
        "state": baseline["state"],
        "reason": baseline.get("reason", ""),
        "n_episodes": n_episodes,
        "round": None if best is None else best.round_number,
        "rows": rows,
    }


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _is_wanted(row: dict[str, Any]) -> bool:
    names = (row.get("metric"), row.get("baseline"))
    return row.get("policy") == LEARNED and all(isinstance(name, str) for name in names)


def _ratio(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "metric": text(row["metric"], 80),
        "ratio": finite(row.get("ratio")),
        "low": finite(row.get("ci95_low")),
        "high": finite(row.get("ci95_high")),
    }


def _interval(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "policy": text(row.get("policy"), 80),
        "mean": finite(row.get("mean")),
        "low": finite(row.get("ci95_low")),
        "high": finite(row.get("ci95_high")),
    }
