"""Draw docs/images/traps.png: what the traps of Alibaba's v2018 trace do to whoever overlooks them.

    python benchmarks/trap_figures.py TASKS_WITH_INSTANCE_STATS.csv.gz SELECTED_DAGS.csv OUT.png

The files are described in docs/traces-explained.md. Prints the figures that the plot shows.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from marl_sched.plots import STYLE, WIDTH, save_figure
from marl_sched.workload.raw.names import parse_task_name

_HOUR_S = 3600.0
_BAR = "#1f5fa8"


def main(hour: str, dags: str, out: str) -> None:
    """Measure and draw."""
    tasks = pl.read_csv(hour)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(WIDTH * 1.2, 3.2), layout="constrained")
        _draw_cores(axes[0], tasks)
        _draw_queueing(axes[1], tasks)
        _draw_early_children(axes[2], pl.read_csv(dags))
        save_figure(figure, Path(out))


def _draw_cores(axes: plt.Axes, tasks: pl.DataFrame) -> None:
    """Mean cores that one hour of arrivals asks for, read rightly and wrongly."""
    cores = tasks["plan_cpu"].to_numpy() / 100
    count, own = tasks["inst_num"].to_numpy(), tasks["task_duration"].to_numpy()
    mean = tasks["dur_mean"].to_numpy()
    readings = {
        "instances' durations": (cores * count * mean).sum(),
        "the task's duration": (cores * count * own).sum(),
        "... times one instance": (cores * own).sum(),
    }
    values = [total / _HOUR_S for total in readings.values()]
    for name, value in zip(readings, values, strict=True):
        print(f"{name}: {value:,.0f} cores on average")
    axes.barh(list(readings)[::-1], values[::-1], color=_BAR)
    for row, value in enumerate(values[::-1]):
        axes.annotate(f" {value:,.0f}", (value, row), va="center")
    axes.set_xlim(0, max(values) * 1.35)
    axes.set_xticks([0, 50_000, 100_000], ["0", "50,000", "100,000"])
    axes.set_title("cores requested, by what is taken\nfor a task's work")
    axes.set_xlabel("cores on average over the hour")


def _draw_queueing(axes: plt.Axes, tasks: pl.DataFrame) -> None:
    """How much longer a task lasts than its longest instance."""
    ratio = np.sort(
        np.maximum(tasks["task_duration"].to_numpy(), 1)
        / np.maximum(tasks["dur_max"].to_numpy(), 1)
    )
    is_longer = tasks["task_duration"].to_numpy() > tasks["dur_max"].to_numpy()
    print(f"tasks longer than their longest instance: {np.mean(is_longer):.1%}")
    axes.plot(ratio, np.linspace(0, 1, len(ratio)), color=_BAR)
    axes.set_xscale("log")
    axes.set_xlim(0.8, 100)
    axes.set_ylim(0, 1)
    axes.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    axes.grid(alpha=0.3)
    axes.set_title("a task's duration over that of\nits longest instance")
    axes.set_xlabel("ratio")
    axes.set_ylabel("share of tasks at or below")


def _draw_early_children(axes: plt.Axes, rows: pl.DataFrame) -> None:
    """Edges whose child starts before its parent ends, by the size of the job."""
    early, edges = {}, {}
    for job in rows.partition_by("job_name"):
        names = [parse_task_name(name) for name in job["task_name"]]
        times = list(zip(job["start_time"], job["end_time"], strict=True))
        by_number = {
            name.number: when for name, when in zip(names, times, strict=True) if name.number
        }
        size = next(limit for limit in (5, 10, 20, 50, 100, 10**9) if len(names) <= limit)
        for name, (start, _) in zip(names, times, strict=True):
            for parent in name.parents:
                end = by_number.get(parent, (0, 0))[1]
                if start > 0 and end > 0:
                    edges[size] = edges.get(size, 0) + 1
                    early[size] = early.get(size, 0) + (start < end)
    sizes = sorted(edges)
    labels = [f"{size}" if size < 10**9 else "more" for size in sizes]
    shares = [early[size] / edges[size] for size in sizes]
    print(f"early children: {sum(early.values())} of {sum(edges.values())} edges")
    axes.bar(labels, shares, color=_BAR)
    axes.set_ylim(0, 1)
    axes.set_title("children that start before\na parent ends")
    axes.set_xlabel("tasks of the job, at most")
    axes.set_ylabel("share of edges")


if __name__ == "__main__":
    main(*sys.argv[1:])
