"""The generator: jobs that look like a trace's, as a task table.

A task's size score decides its number of instances and its class; the class's columns (requests,
durations, real use) are drawn by a Gaussian copula. Part of all scores is common to the tasks of a
job. Shapes: J jobs, T tasks, C columns of a class, R resources.
"""

from dataclasses import dataclass, field

import numpy as np

from marl_sched.config import MICROSECONDS
from marl_sched.errors import ConfigError
from marl_sched.workload.assembly import offsets, ranks
from marl_sched.workload.generation.arrivals import DayCurve, draw_arrivals
from marl_sched.workload.generation.calibration import (
    DURATION,
    MIDDLE,
    PEAK,
    SHAPE,
    SPREAD,
    TAIL,
    USE,
    Calibration,
    TaskClass,
    mixing,
)
from marl_sched.workload.generation.dags import draw_dags
from marl_sched.workload.table import Float, Int
from marl_sched.workload.traces.tasks import TaskTable

_SHORTEST_S = 1.0


@dataclass(frozen=True)
class GeneratorOptions:
    """How much arrives, and when.

    Attributes:
        rate_per_s: Mean rate of jobs in mode `own`; None is the trace's.
        mode: One of the calibration's modes: `own`, `sparse`, `dense`. It multiplies the rate.
        day: Daily swing of the rate.
    """

    rate_per_s: float | None = None
    mode: str = "own"
    day: DayCurve = field(default_factory=DayCurve)

    def mean_rate_per_s(self, calibration: Calibration) -> float:
        """Return the mean rate of jobs.

        Raises:
            ConfigError: The calibration has no such mode, or the rate is not above 0.
        """
        modes = calibration.arrivals.modes
        if self.mode not in modes:
            raise ConfigError(f"mode = {self.mode}, expected one of {sorted(modes)}")
        rate = calibration.arrivals.rate_per_s if self.rate_per_s is None else self.rate_per_s
        if not 0.0 < rate < np.inf:
            raise ConfigError(f"rate_per_s = {rate}, expected a number > 0")
        return rate * modes[self.mode]


def generate(
    calibration: Calibration,
    horizon_s: int,
    generator: np.random.Generator,
    options: GeneratorOptions | None = None,
) -> TaskTable:
    """Draw the jobs that arrive in [0, horizon_s).

    Raises:
        ConfigError: An option or the horizon is not valid.
    """
    options = options or GeneratorOptions()
    if horizon_s < 1:
        raise ConfigError(f"horizon_s = {horizon_s}, expected an integer >= 1")
    seconds = draw_arrivals(
        calibration.arrivals,
        options.mean_rate_per_s(calibration),
        horizon_s,
        options.day,
        generator,
    )
    return draw_jobs(calibration, seconds * MICROSECONDS, generator)


def draw_jobs(
    calibration: Calibration, job_arrival_us: Int, generator: np.random.Generator
) -> TaskTable:
    """Draw the tasks of jobs that arrive at some times (J,), ascending."""
    dags = draw_dags(calibration.dag, len(job_arrival_us), generator)
    job = np.repeat(ranks(len(job_arrival_us)), dags.n_tasks)  # (T,)
    size = _size_scores(calibration, job, generator)
    n_instances = calibration.n_instances.at(size).astype(np.int64)
    uppers = np.array([part.upper_score for part in calibration.classes])
    task_class = np.searchsorted(uppers[:-1], size)  # (T,)
    width = max((len(part.margins) for part in calibration.classes), default=0)
    common = generator.standard_normal((len(job_arrival_us), width))  # (J, C)
    n, n_resources = len(job), len(calibration.reference)
    amounts = _Amounts(
        priority=np.zeros(n, np.int64),
        request=np.zeros((n, n_resources), np.int64),
        duration_s=np.zeros((n, 4)),
        use=np.zeros((n, n_resources, 2)),
    )
    for number, part in enumerate(calibration.classes):
        tasks = np.flatnonzero(task_class == number)
        scores = _scores(calibration, part, common[job[tasks]], generator)
        amounts.put(tasks, _class_amounts(calibration, part, scores))
    return TaskTable(
        resources=calibration.resources,
        resolution_us=calibration.resolution_us,
        reference=np.array(list(calibration.reference.values()), np.int64),
        job_arrival_us=job_arrival_us,
        job_task_start=offsets(dags.n_tasks),
        parent_start=offsets(dags.n_parents),
        parents=dags.parents,
        priority=amounts.priority,
        n_instances=n_instances,
        request=amounts.request,
        duration_s=amounts.duration_s,
        use=amounts.use,
    ).freeze()


@dataclass(frozen=True)
class _Amounts:
    """What tasks ask for and do; as in the task table."""

    priority: Int
    request: Int
    duration_s: Float
    use: Float

    def put(self, tasks: Int, other: "_Amounts") -> None:
        """Write the amounts of some tasks."""
        self.priority[tasks] = other.priority
        self.request[tasks] = other.request
        self.duration_s[tasks] = other.duration_s
        self.use[tasks] = other.use


def _size_scores(calibration: Calibration, job: Int, generator: np.random.Generator) -> Float:
    """Return standard normals (T,), of which tasks of a job have a share in common."""
    share = calibration.alike_size
    n_jobs = int(job[-1]) + 1 if len(job) else 0
    common = generator.standard_normal(n_jobs)
    own = generator.standard_normal(len(job))
    return np.asarray(np.sqrt(share) * common[job] + np.sqrt(1.0 - share) * own)


def _scores(
    calibration: Calibration, part: TaskClass, common: Float, generator: np.random.Generator
) -> Float:
    """Return correlated standard normals (T, C) of one class's tasks."""
    names = list(part.margins)
    share = np.array([calibration.alike[name] for name in names])
    own = generator.standard_normal((len(common), len(names)))
    mixed = np.sqrt(share) * common[:, : len(names)] + np.sqrt(1.0 - share) * own
    # einsum, not BLAS: its sums do not depend on the number of threads
    return np.asarray(np.einsum("tj,ij->ti", mixed, mixing(part)))


def _class_amounts(calibration: Calibration, part: TaskClass, scores: Float) -> _Amounts:
    """Turn the scores (T, C) of one class's tasks into amounts."""
    columns = {
        name: margin.at(scores[:, number])
        for number, (name, margin) in enumerate(part.margins.items())
    }
    names = calibration.resources
    if SHAPE in columns:
        rows = np.array(calibration.shapes, np.int64)[columns[SHAPE].astype(np.int64)]
        request, priority = rows[:, :-1], rows[:, -1]
    else:
        request = np.column_stack([columns[name] for name in names]).astype(np.int64)
        priority = np.zeros(len(request), np.int64)
    use = np.zeros((*request.shape, 2))
    for number, name in enumerate(names):
        mean = columns.get(f"{USE}{name}", request[:, number])  # unknown: what is asked for
        use[:, number, 0] = mean
        use[:, number, 1] = mean * columns.get(f"{PEAK}{name}", 1.0)
    return _Amounts(priority, request, duration_statistics(columns), use)


def duration_statistics(columns: dict[str, Float]) -> Float:
    """Return mean, p50, p95 and maximum (T, 4) in s, of a class's columns (T,) by name."""
    mean = np.maximum(columns[DURATION], _SHORTEST_S)
    if SPREAD not in columns:
        return np.repeat(mean[:, None], 4, axis=1)
    top = mean * np.maximum(columns[SPREAD], 1.0)
    p50 = np.clip(mean * columns[MIDDLE], _SHORTEST_S, top)
    p95 = np.clip(mean + columns[TAIL] * (top - mean), p50, top)
    return np.round(np.column_stack([mean, p50, p95, top]), 3)
