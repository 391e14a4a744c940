"""Plots of a trace, as PNG files: distributions, arrivals, DAGs, load on a cluster.

Shapes: K distinct values of a sample, W windows, R resources.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter

from marl_sched.files import naming
from marl_sched.plots import INK, STYLE, WIDTH, save_figure
from marl_sched.workload.figures.arrival_figures import (
    SPANS_S,
    counts_per_window,
    index_of_dispersion,
    no_dispersion,
)
from marl_sched.workload.figures.cluster_load import WINDOW_S, ClusterLoad
from marl_sched.workload.figures.describe import Description
from marl_sched.workload.figures.samples import Sample
from marl_sched.workload.table import Float
from marl_sched.workload.traces.tasks import TaskTable

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DOTTED = {"color": INK, "linewidth": 1.0, "linestyle": ":"}
_GRID = "#DDDDDD"
_MOST_POINTS = 2000
"""Steps of a curve that can be told apart at this width, and more."""
_N_BARS = 20
_WIDE_RANGE = 20.0
_SPANS_S = tuple(base * 10**power for power in range(6) for base in (1, 2, 5))


def plot_trace(
    found: Description, tasks: TaskTable, load: ClusterLoad | None, folder: Path
) -> list[Path]:
    """Draw all plots of a trace.

    Args:
        found: The figures of `tasks`.
        tasks: The trace.
        load: Its load on a cluster, if one is given.
        folder: Where to write; made if it is not there.

    Returns:
        The files.

    Raises:
        OSError: They cannot be written.
    """
    is_new = not folder.exists()
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(prefix=".plots-", dir=folder) as scratch:
                drawn = _draw(found, tasks, load, Path(scratch))
                return [path.replace(folder / path.name) for path in drawn]
        except BaseException:
            if is_new:
                folder.rmdir()
            raise


def _draw(
    found: Description, tasks: TaskTable, load: ClusterLoad | None, folder: Path
) -> list[Path]:
    paths = [folder / f"trace-{name}.png" for name in ("distributions", "arrivals", "dags")]
    plot_distributions(found, tasks, paths[0])
    plot_arrivals(found, tasks, paths[1])
    plot_dags(found, paths[2])
    if load is not None:
        paths.append(folder / "trace-load.png")
        plot_load(load, paths[-1])
    return paths


def plot_distributions(found: Description, tasks: TaskTable, path: Path) -> None:
    """Draw the cumulative distributions of sizes, durations, requests and use."""
    samples = found.samples
    panels: list[tuple[str, dict[str, Sample]]] = [
        ("tasks a job", {"": samples["tasks a job"]}),
        ("instances a task", {"": samples["instances a task"]}),
        (
            "duration (s)",
            {
                "instances": samples["instance duration"],
                "task means": samples["task mean duration"],
            },
        ),
        ("request / largest request", _relative_requests(found, tasks)),
        ("mean real use / request", _of_resources(samples, "use / request ", tasks)),
        ("core-seconds a job", {"": samples["core-seconds a job"]}),
    ]
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 5.2), layout="constrained")
        grid = figure.subplots(2, 3, sharey=True)
        for axes, (title, curves) in zip(grid.flat, panels, strict=True):
            for color, (name, sample) in zip(_COLORS, curves.items(), strict=False):
                _draw_cumulative(axes, sample, color, name)
            axes.set_xscale("log")
            axes.set_xlabel(title)
            _finish(axes, has_legend=len(curves) > 1)
        for axes in grid[:, 0]:
            axes.set_ylabel("at or below")
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        save_figure(figure, path)


def _of_resources(
    samples: Mapping[str, Sample], prefix: str, tasks: TaskTable
) -> dict[str, Sample]:
    names = [name for name in tasks.resources if f"{prefix}{name}" in samples]
    return {name: samples[f"{prefix}{name}"] for name in names}


def _relative_requests(found: Description, tasks: TaskTable) -> dict[str, Sample]:
    """Return requests as a share of the largest, for resources that anything asks for."""
    return {
        name: Sample(sample.unit, sample.values / sample.largest, sample.reached, sample.mean)
        for name, sample in _of_resources(found.samples, "request ", tasks).items()
        if sample.largest > 0.0
    }


def _draw_cumulative(axes: Any, sample: Sample, color: str, name: str) -> None:
    """Draw a step curve; a logarithmic axis has no 0, so what lies there is the first height."""
    rows = np.arange(len(sample.values))
    if len(rows) > _MOST_POINTS:
        heights = np.linspace(0.0, 1.0, _MOST_POINTS)
        rows = np.unique(np.searchsorted(sample.reached, heights).clip(max=len(rows) - 1))
    rows = rows[sample.values[rows] > 0.0]
    if not len(rows):
        return
    values, reached = sample.values[rows], sample.reached[rows]
    start = sample.reached[rows[0] - 1] if rows[0] else 0.0
    axes.step(
        np.concatenate([values[:1], values]),
        np.concatenate([[start], reached]),
        where="post",
        color=color,
        linewidth=1.8,
        label=name,
    )


def plot_arrivals(found: Description, tasks: TaskTable, path: Path) -> None:
    """Draw the rate of arrivals over time, and the dispersion of counts by window."""
    bucket_s = _bucket_s(found.arrivals.span_s)
    rate = counts_per_window(tasks, bucket_s) / bucket_s  # (W,)
    spans = [span for span in (*_SPANS_S, *SPANS_S) if not no_dispersion(tasks, span)]
    spans = sorted(set(spans))
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[2, 1])
        _draw_over_time(left, rate[:, None], bucket_s, [""])
        left.axhline(found.arrivals.rate_per_s, **_DOTTED)
        left.set_ylabel("jobs/s")
        left.set_title(f"Arrivals by {bucket_s:,.0f} s; dotted: the mean", loc="left")
        if spans:
            values = [index_of_dispersion(tasks, span) for span in spans]
            right.loglog(spans, values, "o-", color=_COLORS[0], markersize=4)
            right.axhline(1.0, **_DOTTED)
        else:
            _say_too_short(right)
        right.set_xlabel("window (s)")
        right.set_title("Index of dispersion; dotted: Poisson", loc="left")
        _finish(right)
        save_figure(figure, path)


def _bucket_s(span_s: float) -> float:
    """Return a round length that some hundreds of make up the span."""
    return float(next((s for s in _SPANS_S if span_s / s <= 400.0), _SPANS_S[-1]))


def plot_dags(found: Description, path: Path) -> None:
    """Draw the shares of depths and widths of the jobs and of parents of the tasks."""
    panels = ("depth of a job", "width of a job", "parents a task")
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
        for axes, name in zip(figure.subplots(1, 3, sharey=True), panels, strict=True):
            sample = found.samples[name]
            share = np.diff(sample.reached, prepend=0.0)
            shown = sample.values <= _N_BARS
            axes.bar(sample.values[shown], share[shown], color=_COLORS[0])
            beyond = float(share[~shown].sum())
            more = f"; above {_N_BARS}: {beyond:.2%}" if beyond else ""
            axes.set_title(f"mean {sample.mean:.2f}, max {sample.largest:.0f}{more}", loc="left")
            axes.set_xlabel(name)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.set_xlim(-0.8, max(5.0, float(sample.values[shown].max())) + 0.8)
            axes.set_yscale("log")
            axes.set_ylim(top=1.5)
            _finish(axes)
            if name == panels[0]:
                axes.set_ylabel("share")
        save_figure(figure, path)


def plot_load(load: ClusterLoad, path: Path) -> None:
    """Draw the load on the cluster over time, and that on each zone if it took all jobs alone."""
    windows, step_s = _coarser(load.cluster.windows)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.0 + 0.15 * len(load.zones)), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[2, 1])
        _draw_over_time(left, windows, step_s, list(load.resources))
        left.set_ylabel("offered load")
        title = f"Load on the cluster by {step_s:,.0f} s of arrivals"
        if left.get_ylim()[1] > 1.0:
            left.axhline(1.0, **_DOTTED)
            title += "; dotted: full"
        left.set_title(title, loc="left")
        _draw_zones(right, load)
        save_figure(figure, path)


def _coarser(windows: Float) -> tuple[Float, float]:
    """Return means (V, R) over some windows (W, R) each, few enough to draw, and their length."""
    size = max(1, round(_bucket_s(len(windows) * WINDOW_S) / WINDOW_S))
    n_whole = len(windows) // size
    grouped = windows[: n_whole * size].reshape(n_whole, size, windows.shape[1])
    return grouped.mean(axis=1), size * WINDOW_S


def _draw_zones(axes: Any, load: ClusterLoad) -> None:
    """Draw a line a zone, a dot a resource; a wide range of loads on a logarithmic axis."""
    means = np.array([zone.mean for zone in load.zones])  # (Z, R)
    rows = np.arange(len(means))
    for color, column in zip(_COLORS, means.T, strict=False):
        is_there = column > 0.0
        axes.plot(column[is_there], rows[is_there], "o", color=color, markersize=6)
    if means.max() > _WIDE_RANGE * means[means > 0.0].min():
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(0.0, 1.05 * means.max())
    axes.set_yticks(rows, [zone.name for zone in load.zones])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("mean load, had the zone all jobs")
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)


def _draw_over_time(axes: Any, values: Float, step_s: float, names: Sequence[str]) -> None:
    """Draw values (W, C) of windows of `step_s` as steps against time in a unit that fits."""
    total_s = len(values) * step_s
    unit, length_s = next(
        (
            pair
            for pair in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0))
            if total_s > 3 * pair[1]
        ),
        ("s", 1.0),
    )
    edges = np.arange(len(values) + 1) * step_s / length_s
    for column, (color, name) in enumerate(zip(_COLORS, names, strict=False)):
        axes.stairs(values[:, column], edges, baseline=None, color=color, label=name, linewidth=1.2)
    axes.set_xlabel(f"time since the first job ({unit})")
    if len(values):
        axes.set_ylim(bottom=0.0)
    else:
        _say_too_short(axes)
    _finish(axes, has_legend=len(names) > 1)


def _say_too_short(axes: Any) -> None:
    axes.text(0.5, 0.5, "too short", ha="center", transform=axes.transAxes)


def _finish(axes: Any, has_legend: bool = False) -> None:
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)
    if axes.get_xscale() == "log":
        axes.xaxis.set_minor_locator(NullLocator())
    if has_legend:
        axes.legend(frameon=False, fontsize=8)
