"""The plots of a comparison. On white, so that they are read on light and dark pages alike."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from marl_sched.agents.heuristics import RULES
from marl_sched.comparing.capacity import Capacity
from marl_sched.comparing.curves import Curves, Point
from marl_sched.comparing.merging import Speed
from marl_sched.plots import INK, STYLE, WIDTH, save_figure
from marl_sched.statistics import KUBE_DEFAULT, TUNED

_COLORS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#7A5195", "#B8860B", "#56B4E9", "#000000")
"""Okabe and Ito's, the yellow darkened and a violet added, to be told apart on white."""
_MARKERS = "osD^vPXh"
_GRID = "#DDDDDD"
_MANY = 10_000


def plot_curves(curves: Curves, path: Path) -> None:
    """Draw the validation objective by decisions and by wall time.

    A line is the mean over training seeds, a band reaches from the lowest to the highest.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for number, (name, runs) in enumerate(curves.runs.items()):
            points = [run for run in runs if run]
            if points:
                _draw_curve(left, name, number, points, "decisions")
                _draw_curve(right, "", number, points, "seconds")
        for axes in (left, right):
            for number, (name, value) in enumerate(curves.baselines.items()):
                label = name if axes is left else None
                style = (":", "--")[number % 2]
                axes.axhline(value, color=INK, linestyle=style, linewidth=1.4, label=label)
            axes.grid(axis="y", color=_GRID)
            axes.set_axisbelow(True)
        left.set_ylabel("validation objective (lower is better)")
        left.set_xlabel("decisions of all zones")
        left.xaxis.set_major_formatter(EngFormatter(sep=""))
        right.set_xlabel("wall seconds of the run")
        figure.legend(frameon=False, loc="outside lower center", ncols=5)
        save_figure(figure, path)


def _draw_curve(
    axes: Any, label: str, number: int, runs: Sequence[Sequence[Point]], by: str
) -> None:
    n_points = min(len(run) for run in runs)
    objective = np.array([[p.objective for p in run[:n_points]] for run in runs])  # (S, T)
    x = np.mean([[getattr(p, by) for p in run[:n_points]] for run in runs], axis=0)  # (T,)
    color = _COLORS[number % len(_COLORS)]
    marker = _MARKERS[number % len(_MARKERS)]
    axes.fill_between(
        x, objective.min(axis=0), objective.max(axis=0), color=color, alpha=0.13, linewidth=0
    )
    axes.plot(
        x,
        objective.mean(axis=0),
        color=color,
        marker=marker,
        markersize=4,
        linewidth=1.8,
        label=label or None,
    )


def plot_speed(objectives: Mapping[str, float], speeds: Mapping[str, Speed], path: Path) -> None:
    """Draw the objective beside what a decision costs and how many are taken a second.

    Args:
        objectives: Policy -> its mean objective.
        speeds: Policy -> what it costs.
        path: The file to write.
    """
    names = [name for name in objectives if name in speeds]
    learned = [name for name in names if name not in RULES]
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for name in names:
            color, marker = _look(name, learned)
            size = 55 if name in learned else 30
            speed = speeds[name]
            for axes, x in ((left, speed.decision_us), (right, speed.played_per_s)):
                axes.scatter([x], [objectives[name]], color=color, marker=marker, s=size, zorder=3)
        for axes in (left, right):
            axes.set_xscale("log")
            axes.grid(color=_GRID)
            axes.set_axisbelow(True)
        _label_points(left, [(n, speeds[n].decision_us, objectives[n]) for n in names])
        left.set_ylabel("objective (lower is better)")
        left.set_xlabel("a decision within a batch, microseconds")
        right.set_xlabel("decisions a second in play, simulator included")
        for axes in (left, right):
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.xaxis.set_minor_formatter(EngFormatter(sep=""))
            axes.tick_params(axis="x", which="minor", labelsize=8)
        save_figure(figure, path)


def plot_violations(capacity: Capacity, path: Path) -> None:
    """Draw the violations of every policy by load, with its interval, and the bound."""
    bound, names = capacity.origin["bound"], [one.policy for one in capacity.by_load]
    others = [name for name in names if name not in (KUBE_DEFAULT, TUNED)]
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        axes = figure.subplots()
        for name in names:
            rows = capacity.rows[name]
            color, marker = _look(name, others) if name in others else (INK, "o")
            style = ":" if name == KUBE_DEFAULT else "-"
            means = [np.nan if row.mean is None else row.mean for row in rows]
            lows, highs = ([getattr(r, f"ci95_{end}") for r in rows] for end in ("low", "high"))
            axes.fill_between(capacity.shares, lows, highs, color=color, alpha=0.13, linewidth=0)
            axes.plot(
                capacity.shares, means, style, color=color, marker=marker, markersize=4, label=name
            )
        axes.axhline(bound, color=INK, linestyle="--", linewidth=1.2, label=f"bound {bound:g}")
        axes.set_ylim(0.0, 4.0 * bound or 0.2)
        axes.set_xlabel("offered load, share of the configured one")
        axes.set_ylabel("finish violations (lower is better)")
        axes.grid(color=_GRID)
        axes.set_axisbelow(True)
        figure.legend(frameon=False, loc="outside lower center", ncols=5)
        save_figure(figure, path)


def _look(name: str, learned: Sequence[str]) -> tuple[str, str]:
    if name in learned:
        number = learned.index(name)
        return _COLORS[number % len(_COLORS)], _MARKERS[number % len(_MARKERS)]
    return INK if name == TUNED else "#9A9A9A", "o"


def _label_points(axes: Any, points: Sequence[tuple[str, float, float]]) -> None:
    """Write names to the right of the points, moved apart from one another."""
    values = [y for _, _, y in points]
    low, high = min(values), max(values)
    step = max(high - low, 1e-9) / 22
    at = -np.inf
    for name, x, y in sorted(points, key=lambda point: point[2]):
        at = max(y, at + step)
        axes.annotate(
            name,
            (x, y),
            xytext=(1.02, at),
            textcoords=axes.get_yaxis_transform(),
            fontsize=8,
            va="center",
            color=INK,
            arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "linewidth": 0.6},
        )
