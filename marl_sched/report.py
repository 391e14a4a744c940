"""The report of a run: report.md and its plots, from evaluation.json and metrics.jsonl."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from marl_sched import plots
from marl_sched.agents.heuristics import RULES
from marl_sched.cluster.metrics import MINUTE_S, short_name
from marl_sched.config import Experiment
from marl_sched.errors import RunError
from marl_sched.evaluation import EpisodePlayer, Evaluation, PolicyFactory, load_evaluation
from marl_sched.files import write_atomically
from marl_sched.report_tables import (
    ObjectivePart,
    duel_table,
    headline,
    main_table,
    origin_lines,
    ratio_table,
    seed_table,
)
from marl_sched.statistics import Row

REPORT_FILE = "report.md"


@dataclass(frozen=True)
class ReportExtras:
    """What a report shows beyond the evaluation; anything may be missing.

    Attributes:
        command: The command that made the run.
        curves: Training run -> its folder, whose metrics.jsonl has the learning curve.
        curve_baselines: Baseline -> objective on the validation episodes (`validation_baselines`).
        recordings: Policy -> recording of one and the same episode.
    """

    command: str = ""
    curves: Mapping[str, Path] = field(default_factory=dict)
    curve_baselines: Mapping[str, float] = field(default_factory=dict)
    recordings: Mapping[str, plots.Recording] = field(default_factory=dict)


def write_report(folder: Path, experiment: Experiment, extras: ReportExtras | None = None) -> Path:
    """Write report.md and its plots into the folder that has evaluation.json.

    Args:
        folder: A run's folder.
        experiment: What was evaluated.
        extras: Learning curves and recordings, as far as there are any.

    Returns:
        The report.

    Raises:
        RunError: The evaluation is missing or not one of ours, or a metrics.jsonl is broken.
        CheckpointError: The values of its episodes are.
    """
    extras = extras or ReportExtras()
    evaluation = load_evaluation(folder)
    parts = objective_parts(experiment)
    images = list(_draw(folder, experiment, evaluation, parts, extras))
    sections = [
        f"# {experiment.name}: evaluation\n",
        headline(evaluation),
        "## All policies\n\n" + main_table(evaluation, parts),
        "## Ratios of the objective\n\n" + ratio_table(evaluation),
        *(seed_table(evaluation, name, experiment) for name in learned_policies(evaluation)),
        *(duel_table(evaluation, name) for name in learned_policies(evaluation)),
        *(f"## {title}\n\n![{title}]({path.name})\n" for title, path in images),
        "## How it was made\n\n" + origin_lines(evaluation, extras.command),
    ]
    text = "\n".join(section for section in sections if section)
    path = folder / REPORT_FILE
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def learned_policies(evaluation: Evaluation) -> list[str]:
    """Return the evaluated policies that are no rules."""
    return [name for name in evaluation.metrics if name not in RULES]


def objective_parts(experiment: Experiment) -> list[ObjectivePart]:
    """Return the terms of the objective with a weight above 0."""
    weights = experiment.objective
    parts = [
        ObjectivePart("late starts", "late_start_rate", weights.late),
        ObjectivePart("finish violations", "finish_violation_rate", weights.finish_violation),
        ObjectivePart("(slowdown - 1)", "mean_slowdown", weights.slowdown, offset=-1.0),
        *(
            ObjectivePart(
                f"imbalance {short_name(resource)}",
                f"zone_imbalance_{short_name(resource)}",
                weights.imbalance,
            )
            for resource in weights.imbalance_resources
        ),
        ObjectivePart("cost", "cost", weights.cost),
        ObjectivePart("offloads", "offload_rate", weights.offload),
        ObjectivePart("completion", "mean_completion_s", weights.completion / MINUTE_S),
    ]
    return [part for part in parts if part.weight > 0]


def validation_baselines(
    experiment: Experiment, policies: Mapping[str, PolicyFactory]
) -> dict[str, float]:
    """Return the mean objective of rules on the validation episodes, for the learning curve."""
    player = EpisodePlayer(experiment, experiment.evaluation.replicas)
    episodes = range(experiment.training.validation_episodes)
    return {
        name: float(player.play(make, "validation", episodes)["objective"].mean())
        for name, make in policies.items()
    }


def read_learning_curve(folder: Path) -> list[tuple[int, float, bool]]:
    """Return (round, validation objective, best so far) from a run's metrics.jsonl.

    Raises:
        RunError: The file is missing or a line of it is broken.
    """
    path = folder / "metrics.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
    points: list[tuple[int, float, bool]] = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if entry["kind"] == "validation" and entry["objective"] is not None:
                points.append((entry["round"], entry["objective"], bool(entry["is_best"])))
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: line {number} is not one of ours: {error!r}") from None
    return points


def _draw(
    folder: Path,
    experiment: Experiment,
    evaluation: Evaluation,
    parts: Sequence[ObjectivePart],
    extras: ReportExtras,
) -> Iterator[tuple[str, Path]]:
    """Draw what there is; yield title and file of every plot."""
    panels = list(_bar_panels(evaluation, parts))
    plots.plot_bars(panels, RULES, folder / "objective.png")
    yield "The objective and its parts", folder / "objective.png"
    curves = {name: read_learning_curve(run) for name, run in extras.curves.items()}
    if any(curves.values()):
        path = folder / "learning_curve.png"
        plots.plot_learning_curve(curves, extras.curve_baselines, path)
        yield "Learning curve", path
    if extras.recordings:
        resource = short_name(experiment.resources[0])
        path = folder / "utilization.png"
        window_s = experiment.cluster.window_s
        plots.plot_utilization(extras.recordings, window_s, (0, resource), path)
        yield "Machine utilization over one episode", path
        if len(experiment.zones) > 1:
            path = folder / "offloads.png"
            plots.plot_offloads(extras.recordings, path)
            yield "Offloads between zones in the same episode", path


def _bar_panels(
    evaluation: Evaluation, parts: Sequence[ObjectivePart]
) -> Iterator[tuple[str, list[Row]]]:
    rows = {(row.policy, row.metric): row for row in evaluation.rows}
    policies = sorted(evaluation.metrics, key=lambda name: _mean(rows[name, "objective"]))
    yield "objective", [rows[name, "objective"] for name in policies]
    for part in parts:
        shown = [part.weighted(rows[name, part.metric]) for name in policies]
        yield part.title, shown


def _mean(row: Row) -> float:
    return np.inf if row.mean is None else row.mean
