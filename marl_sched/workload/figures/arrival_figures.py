"""When the jobs of a trace arrive, and how far from a Poisson process that is.

The index of dispersion of counts over T seconds is

    IDC(T) = variance of N(T) / mean of N(T)

N(T) being the jobs that arrive in a window of T seconds. The windows lie side by side from the
first arrival on, a last one that is not whole is left out, and the variance is over all n windows
(divided by n). A Poisson process has 1 at every T. Shapes: J jobs, W windows.
"""

from dataclasses import dataclass, field

import numpy as np

from marl_sched.workload.figures.samples import Sample
from marl_sched.workload.table import Float, Int
from marl_sched.workload.traces.tasks import TaskTable

SPANS_S = (1, 10, 60, 300)
LEAST_WINDOWS = 10
"""Windows that a variance needs to say something."""
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Arrivals:
    """The figures of a trace's arrivals.

    Attributes:
        span_s: From the first arrival to the last, with one tick of the trace's clock.
        rate_per_s: Jobs over the span.
        gap_s: Times between arrivals one after the other; None: there is one job only.
        gap_cv: Their standard deviation over their mean; None: no gap is above 0.
        dispersion: IDC(T) by T in s.
        left_out: Why there is no IDC(T), by T in s.
    """

    span_s: float
    rate_per_s: float
    gap_s: Sample | None
    gap_cv: float | None
    dispersion: dict[int, float] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)


def describe_arrivals(tasks: TaskTable) -> Arrivals:
    """Measure the arrivals of a task table."""
    span = span_s(tasks)
    gaps = np.diff(tasks.job_arrival_us) / _MICROSECONDS
    is_known = len(gaps) > 0
    mean = float(gaps.mean()) if is_known else 0.0
    dispersion, left_out = {}, {}
    for window_s in SPANS_S:
        if reason := no_dispersion(tasks, window_s):
            left_out[window_s] = reason
        else:
            dispersion[window_s] = index_of_dispersion(tasks, window_s)
    return Arrivals(
        span_s=span,
        rate_per_s=tasks.n_jobs / span,
        gap_s=Sample.of(gaps, unit="s") if is_known else None,
        gap_cv=float(gaps.std()) / mean if mean > 0.0 else None,
        dispersion=dispersion,
        left_out=left_out,
    )


def span_s(tasks: TaskTable) -> float:
    """Return the time from the first arrival to the last in s, with one tick of the clock."""
    first, last = tasks.job_arrival_us[[0, -1]].tolist()
    return float(last - first + tasks.resolution_us) / _MICROSECONDS


def no_dispersion(tasks: TaskTable, window_s: int) -> str:
    """Return why the trace has no IDC over windows of this length; empty: it has."""
    if window_s * _MICROSECONDS < tasks.resolution_us:
        return f"the trace's clock ticks every {tasks.resolution_us / _MICROSECONDS:g} s"
    n_windows = int(span_s(tasks) // window_s)
    if n_windows < LEAST_WINDOWS:
        return f"{n_windows} whole windows, {LEAST_WINDOWS} are needed"
    return ""


def index_of_dispersion(tasks: TaskTable, window_s: int) -> float:
    """Return IDC(T); only where `no_dispersion` has no objection."""
    counts = counts_per_window(tasks, window_s)
    return float(counts.var() / counts.mean()) if counts.any() else 0.0


def counts_per_window(tasks: TaskTable, window_s: float) -> Int:
    """Return the jobs (W,) that arrive in every whole window."""
    return sums_per_window(tasks, window_s, np.ones((tasks.n_jobs, 1)))[:, 0].astype(np.int64)


def sums_per_window(tasks: TaskTable, window_s: float, amounts: Float) -> Float:
    """Return sums (W, C) of amounts (J, C) of the jobs that arrive in every whole window."""
    n_windows = int(span_s(tasks) // window_s)
    since_us = tasks.job_arrival_us - tasks.job_arrival_us[0]
    window = since_us // round(window_s * _MICROSECONDS)  # (J,)
    inside = window < n_windows
    return np.column_stack(
        [np.bincount(window[inside], column[inside], minlength=n_windows) for column in amounts.T]
    )
