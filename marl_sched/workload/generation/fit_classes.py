"""Fit the classes of v2018's tasks: what tasks of similar size ask for, take and use.

Shapes: T tasks of the hour, K classes, C columns, N instances, V published values.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from marl_sched.workload.generation.calibration import (
    DURATION,
    MIDDLE,
    SPREAD,
    TAIL,
    TaskClass,
)
from marl_sched.workload.generation.fit_hour import (
    CPU_PEAK,
    CPU_USE,
    MEMORY_PEAK,
    MEMORY_USE,
    QUANTITIES,
    Hour,
    histogram,
)
from marl_sched.workload.generation.fit_margins import (
    Histogram,
    latent_correlation,
    match_curve,
    rake,
)
from marl_sched.workload.generation.jobs import duration_statistics
from marl_sched.workload.generation.margins import (
    LAST_SCORE,
    Margin,
    average_ranks,
    curve_margin,
    normal_score,
    steps_margin,
)
from marl_sched.workload.table import Float, Int
from marl_sched.workload.traces.expansion import expand_durations, expand_use

LARGEST = (1, 9, 99, 999)
"""Instances up to which a task belongs to each class; the last class has no bound."""
REQUESTS = ("cpu_milli", "memory_mib")
MATCHED = (DURATION, CPU_USE, MEMORY_USE)
SPREADS = (SPREAD, TAIL, MIDDLE, CPU_PEAK, MEMORY_PEAK)
PEAK_OF = {CPU_USE: CPU_PEAK, MEMORY_USE: MEMORY_PEAK}
LOWERED = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1)
"""Shares of the hour's peaks above 1 that are tried."""
_TOLERANCE = 0.01
_SAMPLES, _MOST_INSTANCES = 10_000, 48
"""Tasks that a curve is matched by, and instances each is cut to."""


def fit_classes(
    histograms: dict[str, Any], hour: Hour, n_instances: Margin
) -> tuple[TaskClass, ...]:
    """Return the classes; together they have the histograms' margins."""
    task_class = np.searchsorted(LARGEST, hour.columns["n_instances"])
    raked = _raked(histograms, hour, task_class)
    scores = dict(zip(n_instances.values, n_instances.scores, strict=True))
    result = []
    for number, largest in enumerate((*LARGEST, None)):
        tasks = np.flatnonzero(task_class == number)
        names = [*REQUESTS, *MATCHED, *(SPREADS if number else ())]
        margins = {name: _first_margin(name, hour, tasks, raked, number) for name in names}
        columns = np.column_stack([hour.columns[name][tasks] for name in names])
        latent = latent_correlation(columns, list(margins.values()))
        mixing = np.linalg.cholesky(latent).astype(np.float64)
        counts = np.minimum(hour.columns["n_instances"][tasks], _MOST_INSTANCES).astype(np.int64)
        for name in MATCHED:
            margins |= _matched(name, margins, mixing, counts, raked[name][number])
        result.append(
            TaskClass(
                name=_class_name(number),
                upper_score=LAST_SCORE if largest is None else scores[float(largest)],
                margins=margins,
                mixing=tuple(tuple(float(f"{v:.4g}") for v in row) for row in mixing),
            )
        )
    return tuple(result)


def _raked(histograms: dict[str, Any], hour: Hour, task_class: Int) -> dict[str, list[Histogram]]:
    """Return each class's distribution of each published column, in the generator's units."""
    sizes = histogram(histograms, "n_instances")
    of_size = np.searchsorted(LARGEST, sizes.values)
    by_task = np.bincount(of_size, sizes.counts)
    by_instance = np.bincount(of_size, sizes.counts * sizes.values)
    generator = np.random.default_rng(0)
    counts = hour.columns["n_instances"].astype(np.int64)
    expanded = {
        DURATION: expand_durations(hour.duration_s, counts, generator),
        # of use, the tasks' means: the expansion would take large tasks' memory down to 0
        CPU_USE: np.repeat(hour.columns[CPU_USE], counts),
        MEMORY_USE: np.repeat(hour.columns[MEMORY_USE], counts),
    }
    result = {}
    for name in (*REQUESTS, *MATCHED):
        quantity, found = QUANTITIES[name], histogram(histograms, name)
        whole = Histogram(np.round(found.values / quantity.step), found.counts)
        is_matched = name in MATCHED
        values = expanded[name] if is_matched else hour.columns[name]
        members = np.repeat(task_class, counts) if is_matched else task_class
        share = by_instance if is_matched else by_task
        steps = np.round(values / quantity.factor / quantity.step)
        table = rake(whole, steps, members, share / share.sum())
        scale = quantity.step * quantity.factor
        rows = [Histogram(found.values * quantity.factor, row) for row in table]
        result[name] = [row.continuous(scale) if is_matched else row for row in rows]
    return result


def _first_margin(
    name: str, hour: Hour, tasks: Int, raked: dict[str, list[Histogram]], number: int
) -> Margin:
    values, weights = hour.columns[name][tasks], np.ones(len(tasks))
    if name in REQUESTS:
        target = raked[name][number]
        return steps_margin(np.round(target.values), target.counts)
    if name in MATCHED:
        return curve_margin("log", values, weights)
    return curve_margin("linear" if name == TAIL else "log", values, weights)


def _matched(
    name: str, margins: dict[str, Margin], mixing: Float, counts: Int, target: Histogram
) -> dict[str, Margin]:
    """Return a column's curve of task means and, of a use, its peak's margin.

    Instances' use falls from its task's maximum as a power, to 0, while real memory has a floor:
    with the hour's maxima no means give the histogram's low quantiles. Peaks are lowered towards 1
    as little as it takes.
    """
    peak = PEAK_OF.get(name)
    found: list[tuple[float, dict[str, Margin]]] = []
    for share in LOWERED if peak in margins else (1.0,):
        tried = dict(margins)
        if peak in margins:
            values = tuple(float(f"{1.0 + share * (v - 1.0):.5g}") for v in margins[peak].values)
            tried[peak] = Margin(kind="log", values=values)
        expand = _expansion(name, tried, mixing, counts)
        curve, error = match_curve(margins[name], target, expand, QUANTITIES[name].smallest)
        found.append((error, {name: curve} | ({peak: tried[peak]} if peak in margins else {})))
        if error < _TOLERANCE:
            break
    return min(found, key=lambda entry: entry[0])[1]


def _expansion(
    name: str, margins: dict[str, Margin], mixing: Float, counts: Int
) -> Callable[[Margin], Float]:
    """Return what draws the instances of a class's tasks under another curve of means."""
    generator = np.random.default_rng(1)
    scores = generator.standard_normal((_SAMPLES, len(margins))) @ mixing.T
    # by rank: else the sample's error would be taken for the curve's where the curve is steep
    scores = np.column_stack([normal_score(average_ranks(column)) for column in scores.T])
    n = generator.choice(counts, _SAMPLES)
    columns = {
        column: margin.at(scores[:, place])
        for place, (column, margin) in enumerate(margins.items())
    }
    place = list(margins).index(name)

    def expand(curve: Margin) -> Float:
        means = curve.at(scores[:, place])
        if name == DURATION:
            statistics = duration_statistics(columns | {DURATION: means})
            return expand_durations(statistics, n, np.random.default_rng(2))
        top = means * columns.get(PEAK_OF[name], 1.0)
        return expand_use(np.column_stack([means, top]), n, np.random.default_rng(2))

    return expand


def _class_name(number: int) -> str:
    lowest = 1 if number == 0 else LARGEST[number - 1] + 1
    return f"{lowest}+" if number == len(LARGEST) else f"{lowest}-{LARGEST[number]}"
