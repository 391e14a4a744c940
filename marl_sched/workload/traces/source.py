"""Where the jobs of an experiment come from: a task table on disk, or one that a seed makes."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from marl_sched.config import Experiment, GeneratedWorkload, TraceWorkload
from marl_sched.config.streams import named_stream
from marl_sched.workload.generation.arrivals import DayCurve
from marl_sched.workload.generation.calibration import Calibration
from marl_sched.workload.generation.jobs import GeneratorOptions, generate
from marl_sched.workload.traces.tasks import TaskTable, load_tasks


@dataclass(frozen=True)
class TraceFile:
    """A task table on disk.

    Attributes:
        path: As in the configuration.
    """

    path: str

    def __str__(self) -> str:
        """Return the path, for messages."""
        return self.path

    def tasks(self) -> TaskTable:
        """Read it; the same object for the same path.

        Raises:
            TraceError: The file is not a valid task table.
        """
        return load_tasks(self.path)


@dataclass(frozen=True)
class GeneratedTrace:
    """Jobs like a published trace's, the same for every zone of an experiment.

    Attributes:
        profile: Whose jobs they are like.
        length_s: Length of the trace.
        jobs_per_s: Mean rate of arrivals; None: the profile's own.
        day_swing: Rate in the busiest hour over that in the quietest.
        seed: The experiment's.
    """

    profile: str
    length_s: float
    jobs_per_s: float | None
    day_swing: float
    seed: int

    def __str__(self) -> str:
        """Return what it is, for messages."""
        return f"generated jobs ({self.profile})"

    def tasks(self) -> TaskTable:
        """Generate it; the same object for equal attributes."""
        return _generated(self)


@dataclass(frozen=True)
class CutTrace:
    """A task table whose largest tasks are cut.

    Attributes:
        whole: The table as it is.
        max_task_instances: Instances that a task keeps at most.
    """

    whole: TraceFile | GeneratedTrace
    max_task_instances: int

    def __str__(self) -> str:
        """Return what it is, for messages."""
        return f"{self.whole} (tasks cut to {self.max_task_instances} instances)"

    def tasks(self) -> TaskTable:
        """Cut it; the same object for equal attributes.

        Raises:
            TraceError: The file is not a valid task table.
        """
        return _cut(self)


Source = TraceFile | GeneratedTrace | CutTrace


def source_of(experiment: Experiment, workload: TraceWorkload | GeneratedWorkload) -> Source:
    """Return where a workload's jobs come from."""
    whole = _whole(experiment, workload)
    if workload.max_task_instances is None:
        return whole
    return CutTrace(whole, workload.max_task_instances)


def _whole(
    experiment: Experiment, workload: TraceWorkload | GeneratedWorkload
) -> TraceFile | GeneratedTrace:
    if isinstance(workload, TraceWorkload):
        return TraceFile(workload.path)
    return GeneratedTrace(
        profile=workload.profile,
        length_s=max(workload.train_arrivals_s[1], workload.test_arrivals_s[1]),
        jobs_per_s=workload.jobs_per_s,
        day_swing=workload.day_swing,
        seed=experiment.seed,
    )


@lru_cache(maxsize=4)
def _cut(trace: CutTrace) -> TaskTable:
    tasks = trace.whole.tasks()
    n_instances = np.minimum(tasks.n_instances, trace.max_task_instances)
    return replace(tasks, n_instances=n_instances).freeze()


@lru_cache(maxsize=4)
def _generated(trace: GeneratedTrace) -> TaskTable:
    generator = named_stream(trace.seed, "generated-trace", trace.profile)
    options = GeneratorOptions(rate_per_s=trace.jobs_per_s, day=DayCurve(trace.day_swing))
    length_s = math.ceil(trace.length_s)
    return generate(Calibration.load(trace.profile), length_s, generator, options).freeze()
