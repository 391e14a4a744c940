"""A comparison as files: what was found, what was compared, and the command that made it.

evaluation.json ...     of the first setting; those of others below a folder of their name
comparison.json         settings, curves, speeds
config.yaml, study.yaml, about.md
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from marl_sched.agents.heuristics import RULES
from marl_sched.comparing.curves import Curves, Point
from marl_sched.comparing.drawing import plot_curves, plot_speed
from marl_sched.comparing.folder import STUDY_FILE
from marl_sched.comparing.merging import CREATION_FAILURES, Compared, Speed
from marl_sched.comparing.study import Study, dump_study, load_study
from marl_sched.comparing.tables import shown_metrics
from marl_sched.config import Experiment, dump_config
from marl_sched.errors import RunError
from marl_sched.evaluation import Evaluation, load_evaluation
from marl_sched.files import write_atomically
from marl_sched.report import objective_parts
from marl_sched.statistics import KUBE_DEFAULT, TUNED, Ratio

COMPARISON_FILE, CONFIG_FILE = "comparison.json", "config.yaml"
ABOUT_FILE = "about.md"
CURVES_PLOT, SPEED_PLOT = "convergence.png", "speed.png"


def save(compared: Compared, study: Study, experiment: Experiment, folder: Path) -> None:
    """Write a comparison with its plots; the folder is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, evaluation) in enumerate(compared.evaluations.items()):
        evaluation.save(folder if number == 0 else folder / name)
    content = {
        "settings": list(compared.evaluations),
        "speeds": {name: asdict(speed) for name, speed in compared.speeds.items()},
        "curves": compared.curves.as_json(),
    }
    _write(folder / COMPARISON_FILE, json.dumps(content, allow_nan=False) + "\n")
    save_study(study, folder)
    _write(folder / CONFIG_FILE, dump_config(experiment))
    list(draw(compared, folder))


def save_study(study: Study, folder: Path) -> None:
    """Write what is compared; from then on the folder is that of a comparison."""
    _write(folder / STUDY_FILE, dump_study(study))


def load(folder: Path) -> tuple[Compared, Study]:
    """Read what `save` wrote.

    Raises:
        RunError: It is not one of ours.
        ConfigError: The study is not.
    """
    path = folder / COMPARISON_FILE
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        names = [str(name) for name in content["settings"]]
        speeds = {name: Speed(**speed) for name, speed in content["speeds"].items()}
        curves = Curves(
            {
                name: [[Point(**point) for point in run] for run in runs]
                for name, runs in content["curves"]["runs"].items()
            },
            content["curves"]["baselines"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path}: not a file written by `compare`: {error!r}") from None
    evaluations = {
        name: load_evaluation(folder if number == 0 else folder / name)
        for number, name in enumerate(names)
    }
    return Compared(evaluations, speeds, curves), load_study(folder / STUDY_FILE)


def draw(compared: Compared, folder: Path) -> Iterator[tuple[str, str]]:
    """Draw the plots; yield title and name of each."""
    if any(run for runs in compared.curves.runs.values() for run in runs):
        plot_curves(compared.curves, folder / CURVES_PLOT)
        yield "Convergence by decisions and by wall time", CURVES_PLOT
    evaluation = next(iter(compared.evaluations.values()))
    objectives = {
        name: float(evaluation.metrics[name]["objective"].mean())
        for name in evaluation.metrics  # the study's order: colors are those of the curves
    }
    plot_speed(objectives, compared.speeds, folder / SPEED_PLOT)
    yield "What a decision costs, beside the objective", SPEED_PLOT


def save_record(
    compared: Compared, study: Study, experiment: Experiment, folder: Path, about: str
) -> None:
    """Write what docs/results.md is made from, as small as it can be.

    Values by episode are kept of the objective alone; ratios of all metrics for the study's own
    policies, of the objective for all.

    An about.md that is there is kept: people write in it.
    """
    small = {
        name: _reduced(evaluation, experiment, study.our_names)
        for name, evaluation in compared.evaluations.items()
    }
    save(replace(compared, evaluations=small), study, experiment, folder)
    if not (folder / ABOUT_FILE).exists():
        _write(folder / ABOUT_FILE, about)


def _reduced(evaluation: Evaluation, experiment: Experiment, ours: list[str]) -> Evaluation:
    kept = {*shown_metrics(evaluation), "objective", CREATION_FAILURES, "unfinished_rate"}
    kept |= {part.metric for part in objective_parts(experiment)}

    def is_kept(ratio: Ratio) -> bool:
        if ratio.metric == "objective":
            return True
        is_ours = ratio.policy in ours
        is_learned = ratio.policy not in RULES or ratio.policy == TUNED
        return ratio.metric in kept and (is_ours or (is_learned and ratio.baseline == KUBE_DEFAULT))

    return replace(
        evaluation,
        metrics={name: {"objective": m["objective"]} for name, m in evaluation.metrics.items()},
        rows=[row for row in evaluation.rows if row.metric in kept],
        ratios=[ratio for ratio in evaluation.ratios if is_kept(ratio)],
    )


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))
