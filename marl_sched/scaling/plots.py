"""Plots of a study of scale, as PNG files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from marl_sched.plots import STYLE, WIDTH, save_figure
from marl_sched.scaling.cases import Variant
from marl_sched.scaling.cost_model import predict
from marl_sched.scaling.measured import SPLIT, Measured
from marl_sched.scaling.study import Projection, Study

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#9A9A9A")
_VARIANTS: dict[Variant, tuple[str, str]] = {
    "federated": (_COLORS[1], "-"),
    "central": (_COLORS[0], "--"),
    "alone": (_COLORS[2], "-."),
}
_GRID = "#DDDDDD"


def plot_study(study: Study, projection: Projection | None, folder: Path) -> list[Path]:
    """Draw all plots of a study and return their files."""
    paths = [folder / "scaleout.png"]
    _plot_sizes(study, paths[0])
    if projection is not None:
        paths.append(folder / "projection.png")
        _plot_projection(study.federated, projection, paths[-1])
    return paths


def _plot_sizes(study: Study, path: Path) -> None:
    runs = study.federated
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 7.2), layout="constrained")
        (cost, rate), (seconds, curve) = figure.subplots(2, 2)
        parts = [
            ("zones", [run.cpu_per_1000(run.zone_cpu_s) for run in runs]),
            (
                "coordinator",
                [run.cpu_per_1000(sum(run.coordinator_cpu_s.values())) for run in runs],
            ),
        ]
        _stack(cost, runs, parts)
        cost.set_title("CPU seconds per 1,000 decisions", loc="left")
        rate.plot(
            range(len(runs)), [run.decisions_per_s for run in runs], "o-", color=_COLORS[1], lw=2
        )
        rate.set_xticks(range(len(runs)), [str(run.n_zones) for run in runs])
        rate.set_ylim(0, 1.1 * max(run.decisions_per_s for run in runs))
        cores = "1 core" if study.n_cores == 1 else f"{study.n_cores} cores"
        rate.set_title(f"Decisions a second, all zones, on {cores}", loc="left")
        _stack(seconds, runs, [(part, [run.split_s[part] for run in runs]) for part in SPLIT])
        seconds.set_title(f"Wall seconds a round, on {cores}", loc="left")
        for axes in (cost, rate, seconds):
            axes.set_xlabel("zones")
        _draw_curves(curve, study)
        for axes in (cost, rate, seconds, curve):
            axes.grid(axis="y", color=_GRID)
            axes.set_axisbelow(True)
        save_figure(figure, path)


def _stack(
    axes: Any, runs: Sequence[Measured], parts: Sequence[tuple[str, Sequence[float]]]
) -> None:
    below = np.zeros(len(runs))
    for color, (name, values) in zip(_COLORS, parts, strict=False):
        axes.bar(range(len(runs)), values, 0.6, bottom=below, color=color, label=name)
        below = below + np.array(values)
    axes.set_xticks(range(len(runs)), [str(run.n_zones) for run in runs])
    axes.set_ylim(top=1.3 * max(below.max(), 1e-9))
    axes.legend(frameon=False, ncols=2, loc="upper left", fontsize=8)


def _draw_curves(axes: Any, study: Study) -> None:
    """Draw the objective over kube-default's by decisions, at the largest size with a curve."""
    sizes = [case.n_zones for case, run in study.runs.items() if run.curve and run.baseline]
    if not sizes:
        axes.set_visible(False)
        return
    for case, run in study.runs.items():
        if case.n_zones != max(sizes) or not run.baseline:
            continue
        color, style = _VARIANTS[case.variant]
        decisions = [point.n_decisions / 1000 for point in run.curve]
        values = [point.objective / run.baseline for point in run.curve]
        axes.plot(decisions, values, style, marker="o", color=color, lw=2, label=case.variant)
    axes.axhline(1.0, color="#9A9A9A", linestyle=":", label="kube-default")
    axes.set_xlabel("training decisions of all zones, thousands")
    axes.set_title(f"Validation objective over kube-default's, {max(sizes)} zones", loc="left")
    axes.legend(frameon=False, fontsize=8)


def _plot_projection(runs: Sequence[Measured], projection: Projection, path: Path) -> None:
    model = projection.model
    largest = max(size.n_zones for size in projection.sizes)
    sizes = np.unique(np.geomspace(min(model.sizes), largest, 60).round().astype(int))
    said = [predict(model, int(size)) for size in sizes]
    marks = [run.n_zones for run in runs]
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        cost, rate = figure.subplots(1, 2)
        cost.plot(sizes, [p.cpu_per_1000 for p in said], color=_COLORS[0], lw=2, label="model")
        measured = [run.cpu_per_1000(run.cpu_s) for run in runs]
        cost.plot(marks, measured, "o", color=_COLORS[1], label="measured")
        cost.set_title("CPU seconds per 1,000 decisions", loc="left")
        cost.set_ylim(bottom=0)
        rate.plot(sizes, [p.decisions_per_s for p in said], color=_COLORS[0], lw=2, label="model")
        rate.set_yscale("log")
        rate.set_title("Decisions a second, as many cores as processes", loc="left")
        ticks = sorted({*marks, *(size.n_zones for size in projection.sizes)})
        for axes in (cost, rate):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(FixedLocator(ticks))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticklabels([str(tick) for tick in ticks])
            axes.axvspan(max(marks), largest, color="#F2F2F2", zorder=0)
            axes.set_xlabel("zones; gray: beyond what was measured")
            axes.grid(color=_GRID)
            axes.set_axisbelow(True)
            axes.legend(frameon=False, fontsize=8)
        save_figure(figure, path)
