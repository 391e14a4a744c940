import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from marl_sched.config import Experiment, load_config
from marl_sched.errors import RunError
from marl_sched.evaluation import compare
from marl_sched.report import (
    ReportExtras,
    objective_parts,
    read_learning_curve,
    write_report,
)

CONFIGS = Path(__file__).parents[1] / "configs"
PNG = b"\x89PNG"
N_EPISODES = 40


@dataclass
class Played:
    """One episode's recording, made up."""

    utilization: dict[str, NDArray[np.float64]]
    offloads: NDArray[np.int64]
    zones: list[str]


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return load_config(CONFIGS / "base.yaml", ["evaluation.bootstrap_samples=200"])


@pytest.fixture
def folder(experiment: Experiment, tmp_path: Path) -> Path:
    """An evaluation in which `learned` beats kube-default but loses to tuned and on late starts."""
    episode = np.exp(np.random.default_rng(1).normal(0, 0.3, N_EPISODES))
    metrics = {}
    for name, level, by_seed in (
        ("kube-default", 0.7, [1.0]),
        ("tetris", 0.9, [1.0]),
        ("tuned", 0.55, [1.0]),
        ("learned", 0.6, [0.99, 1.01]),
    ):
        seeds = np.array(by_seed)[:, None]
        values = level * episode * seeds
        metrics[name] = {"objective": values}
        for part in objective_parts(experiment):
            metrics[name][part.metric] = 0.1 * values
        metrics[name]["late_start_rate"] = (1.3 if name == "learned" else 1.0) * episode * seeds
        metrics[name]["creation_success_rate"] = np.ones_like(values)
    compare(experiment, metrics).save(tmp_path)
    return tmp_path


def section(text: str, title: str) -> str:
    return text.split(f"## {title}")[1].split("\n## ")[0]


def test_all_policies_are_in_the_table_best_first(experiment: Experiment, folder: Path) -> None:
    text = write_report(folder, experiment).read_text()
    lines = section(text, "All policies").splitlines()
    names = [line.split("|")[1].strip(" *") for line in lines if line.startswith("|")][2:]
    assert names == ["tuned", "learned", "kube-default", "tetris"]


def test_losing_rows_are_left_in_and_called_worse(experiment: Experiment, folder: Path) -> None:
    text = write_report(folder, experiment).read_text()
    late = next(
        line
        for line in section(text, "learned, metric by metric").splitlines()
        if line.startswith("| late_start_rate")
    )
    assert late.count("worse") == 3
    headline = next(line for line in text.splitlines() if line.startswith("- **learned**"))
    kube, best, tuned = headline.split("; ")
    assert kube.endswith("of kube-default: better")
    assert best.endswith("of best-fixed (kube-default): better")
    assert tuned.endswith("of tuned: worse")


def test_equal_metrics_show_no_difference(experiment: Experiment, folder: Path) -> None:
    text = write_report(folder, experiment).read_text()
    line = next(line for line in text.splitlines() if line.startswith("| creation_success_rate"))
    assert line.count("no difference shown") == 3


def test_every_training_seed_has_its_ratio_and_the_median_closes(
    experiment: Experiment, folder: Path
) -> None:
    text = write_report(folder, experiment).read_text()
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in section(text, "learned, by training seed").splitlines()
        if line.startswith("|")
    ][2:]
    assert [row[0] for row in rows] == ["1", "2", "median"]
    first, second, median = (float(row[2].split(" ")[0]) for row in rows)
    assert first == pytest.approx(0.99 * 0.6 / 0.7, abs=1e-3)
    assert second == pytest.approx(1.01 * 0.6 / 0.7, abs=1e-3)
    assert median == pytest.approx(0.6 / 0.7, abs=1e-3)


def test_origin_says_how_the_figures_were_made(experiment: Experiment, folder: Path) -> None:
    extras = ReportExtras(command="marl-sched evaluate configs/base.yaml")
    origin = section(write_report(folder, experiment, extras).read_text(), "How it was made")
    for words in (
        "`marl-sched evaluate configs/base.yaml`",
        "hash ",
        "duration_knowledge: type",
        "40 of the test split",
        "learned: 2",
        "kube-default, the best of 2 fixed rules",
        "numpy ",
    ):
        assert words in origin


def test_plots_are_written_and_linked(
    experiment: Experiment, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tmp_path_factory.mktemp("run")
    lines = [
        {"kind": "validation", "round": 0, "objective": 1.0, "is_best": True},
        {"kind": "train", "round": 1, "zone": "zone_0", "loss": 0.1},
        {"kind": "validation", "round": 2, "objective": None, "is_best": False},
        {"kind": "validation", "round": 4, "objective": 0.6, "is_best": True},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_learning_curve(run) == [(0, 1.0, True), (4, 0.6, True)]
    played = Played(
        {name: np.full((6, 20, 2), 0.5) for name in experiment.zone_names},
        np.array([[0, 3, 1], [2, 0, 0], [9, 1, 0]]),
        experiment.zone_names,
    )
    extras = ReportExtras(
        curves={"seed 1": run},
        curve_baselines={"kube-default": 0.7, "best-fixed": 0.65, "tuned": 0.6},
        recordings={"kube-default": played, "learned": played},
    )
    text = write_report(folder, experiment, extras).read_text()
    for name in ("objective", "learning_curve", "utilization", "offloads"):
        assert f"({name}.png)" in text
        assert (folder / f"{name}.png").read_bytes().startswith(PNG)
    assert not list(folder.glob("*.tmp"))


def test_report_of_rules_alone_has_no_learned_sections(
    experiment: Experiment, tmp_path: Path
) -> None:
    names = ["objective", *(part.metric for part in objective_parts(experiment))]
    values = {name: np.ones((1, 5)) for name in names}
    compare(experiment, {"kube-default": values}).save(tmp_path)
    text = write_report(tmp_path, experiment).read_text()
    assert "metric by metric" not in text
    assert "best-fixed: not given: fewer than two fixed rules" in text


def test_parts_of_the_objective_add_up(experiment: Experiment) -> None:
    parts = objective_parts(experiment)
    labels = [part.label for part in parts]
    assert labels == [
        "late starts",
        "finish violations",
        "(slowdown - 1)",
        "imbalance cpu",
        "imbalance memory",
        "cost",
        "offloads",
    ]
    weights = {part.metric: (part.weight, part.offset) for part in parts}
    assert weights["finish_violation_rate"] == (2.0, 0.0)
    assert weights["mean_slowdown"] == (0.5, -1.0)


def test_broken_metrics_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train"}\n{"kind": "validation"}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl: line 2"):
        read_learning_curve(tmp_path)
    with pytest.raises(RunError, match=r"metrics\.jsonl: cannot be read"):
        read_learning_curve(tmp_path / "missing")
