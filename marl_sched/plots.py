"""Plots of runs and evaluations, as PNG files.

Colors are Okabe and Ito's, which stay apart for all forms of color blindness; figures are as wide
as a README. Shapes: T window boundaries, M machines, R resources, Z zones.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from marl_sched.statistics import BEST_FIXED, KUBE_DEFAULT, TUNED, Row

WIDTH = 9.0
_DPI = 110
INK = "#333333"
_LEARNED, _TUNED, _KUBE, _BEST, _OTHER = "#D55E00", "#0072B2", "#CC79A7", "#009E73", "#9A9A9A"
_LINE_STYLES = {KUBE_DEFAULT: (_KUBE, ":"), BEST_FIXED: (_BEST, "-."), TUNED: (_TUNED, "--")}
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


class Recording(Protocol):
    """What the plots of one episode need of VectorEnv's Recording."""

    @property
    def utilization(self) -> Mapping[str, NDArray[np.float64]]:
        """(T, M, R) per zone, at every window boundary."""

    @property
    def offloads(self) -> NDArray[np.int64]:
        """(Z, Z) instances sent from row to column."""

    @property
    def zones(self) -> Sequence[str]:
        """Z names."""


def plot_learning_curve(
    curves: Mapping[str, Sequence[tuple[int, float, bool]]],
    baselines: Mapping[str, float],
    path: Path,
) -> None:
    """Draw the validation objective by round.

    Args:
        curves: Run -> (round, objective, published as the best so far).
        baselines: Baseline -> its objective on the same validation episodes.
        path: The file to write.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
        axes = figure.subplots()
        for number, (name, points) in enumerate(curves.items()):
            rounds, values = [p[0] for p in points], [p[1] for p in points]
            shade = 1.0 - 0.5 * number / max(1, len(curves) - 1) if len(curves) > 1 else 1.0
            axes.plot(rounds, values, color=_LEARNED, alpha=shade, linewidth=2, label=name)
            published = [p for p in points if p[2]]
            if published:
                last = published[-1]
                axes.plot(last[0], last[1], "o", color=_LEARNED, markersize=8, alpha=shade)
        _draw_baselines(axes, baselines)
        axes.set_xlabel("round")
        axes.set_ylabel("validation objective (lower is better)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_title("Learning curve; the dot is the checkpoint that was kept", loc="left")
        axes.grid(axis="y", color="#DDDDDD")
        axes.set_axisbelow(True)
        figure.legend(frameon=False, loc="outside lower center", ncols=6)
        save_figure(figure, path)


def _draw_baselines(axes: Any, baselines: Mapping[str, float]) -> None:
    for name, value in baselines.items():
        color, style = _LINE_STYLES.get(name, (_OTHER, "--"))
        axes.axhline(value, color=color, linestyle=style, linewidth=1.5, label=name)


def plot_bars(
    panels: Sequence[tuple[str, Sequence[Row]]], rules: Sequence[str], path: Path
) -> None:
    """Draw one panel a metric: a bar with its 95% interval for every policy.

    Args:
        panels: (title, rows); the first panel's order of policies is that of all.
        rules: Names of the policies that are rules; the others are drawn as learned.
        path: The file to write.
    """
    policies = [row.policy for row in panels[0][1]]
    n_columns = min(4, len(panels))
    n_lines = -(-len(panels) // n_columns)
    height = n_lines * (0.25 * len(policies) + 0.75)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        grid = figure.subplots(n_lines, n_columns, sharey=True, squeeze=False)
        for axes, (title, rows) in zip(grid.flat, panels, strict=False):
            by_policy = {row.policy: row for row in rows}
            _draw_bars(axes, [by_policy[name] for name in policies], rules)
            axes.set_title(title, loc="left")
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        grid[0, 0].set_yticks(range(len(policies)), policies)
        grid[0, 0].set_ylim(len(policies) - 0.4, -0.6)
        save_figure(figure, path)


def _draw_bars(axes: Any, rows: Sequence[Row], rules: Sequence[str]) -> None:
    means = np.array([np.nan if row.mean is None else row.mean for row in rows])
    low = np.array([np.nan if row.ci95_low is None else row.ci95_low for row in rows])
    high = np.array([np.nan if row.ci95_high is None else row.ci95_high for row in rows])
    colors = [_policy_color(row.policy, rules) for row in rows]
    errors = np.maximum(np.stack([means - low, high - means]), 0.0)
    axes.barh(
        range(len(rows)),
        means,
        xerr=errors,
        color=colors,
        height=0.72,
        error_kw={"ecolor": INK, "elinewidth": 1.2, "capsize": 2},
    )
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#DDDDDD")
    axes.set_axisbelow(True)


def _policy_color(policy: str, rules: Sequence[str]) -> str:
    if policy not in rules:
        return _LEARNED
    return {TUNED: _TUNED, KUBE_DEFAULT: _KUBE}.get(policy, _OTHER)


def plot_utilization(
    recordings: Mapping[str, Recording], window_s: float, resource: tuple[int, str], path: Path
) -> None:
    """Draw the machines' utilization over one episode: a column a policy, a row a zone.

    Args:
        recordings: Policy -> its recording of the same episode.
        window_s: Length of a window.
        resource: Index and name of the resource to draw.
        path: The file to write.
    """
    index, name = resource
    first = next(iter(recordings.values()))
    n_zones = len(first.zones)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.0 + 1.6 * n_zones), layout="constrained")
        grid = figure.subplots(n_zones, len(recordings), sharex=True, squeeze=False)
        for column, (policy, recording) in enumerate(recordings.items()):
            for line, zone in enumerate(recording.zones):
                axes = grid[line, column]
                share = recording.utilization[zone][:, :, index]  # (T, M)
                spread = float(np.nanstd(share, axis=1).mean())
                image = _draw_heat_map(axes, share, window_s)
                title = f"{policy}: {zone}, mean std {spread:.3f}"
                axes.set_title(title, loc="left")
                if column == 0:
                    axes.set_ylabel("machine")
            grid[-1, column].set_xlabel("time (min)")
        bar = figure.colorbar(image, ax=grid, fraction=0.03, pad=0.01)
        bar.set_label(f"{name} utilization")
        save_figure(figure, path)


def _draw_heat_map(axes: Any, share: NDArray[np.float64], window_s: float) -> Any:
    n_windows, n_machines = share.shape
    image = axes.imshow(
        share.T,
        aspect="auto",
        interpolation="nearest",
        cmap="cividis",
        vmin=0.0,
        vmax=1.0,
        extent=(0.0, n_windows * window_s / 60.0, n_machines - 0.5, -0.5),
    )
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.spines[:].set_visible(False)
    return image


def plot_offloads(recordings: Mapping[str, Recording], path: Path) -> None:
    """Draw who sent how many instances to whom in one episode: a matrix a policy.

    Args:
        recordings: Policy -> its recording of the same episode.
        path: The file to write.
    """
    n_zones = len(next(iter(recordings.values())).zones)
    largest = max(1, *(int(recording.offloads.max()) for recording in recordings.values()))
    with rc_context(STYLE):
        height = 1.3 + 0.55 * max(3, n_zones)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        grid = figure.subplots(1, len(recordings), squeeze=False)[0]
        for axes, (policy, recording) in zip(grid, recordings.items(), strict=True):
            _draw_matrix(axes, recording, largest)
            axes.set_title(f"{policy}: {int(recording.offloads.sum())} offloads", loc="left")
            axes.set_xlabel("to")
        grid[0].set_ylabel("from")
        save_figure(figure, path)


def _draw_matrix(axes: Any, recording: Recording, largest: int) -> None:
    names, counts = list(recording.zones), np.asarray(recording.offloads)
    shown = np.where(np.eye(len(names), dtype=bool), np.nan, counts)
    axes.imshow(shown, cmap="Blues", vmin=0, vmax=1.25 * largest, aspect="auto")
    axes.set_xticks(range(len(names)), names, rotation=30 if len(names) > 4 else 0)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for line in range(len(names)):
        for column in range(len(names)):
            is_own = line == column
            text = "-" if is_own else str(counts[line, column])
            is_dark = not is_own and counts[line, column] > 0.75 * largest
            color = "white" if is_dark else INK
            axes.text(column, line, text, ha="center", va="center", color=color)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, in one step."""
    temporary = path.with_name(f"{path.name}.tmp")
    figure.savefig(temporary, format="png", dpi=_DPI)
    temporary.replace(path)
