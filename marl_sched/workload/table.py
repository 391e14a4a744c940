"""The instance table: jobs before they are scheduled, as columns.

J jobs, T tasks, N instances, R resources. Jobs are sorted by arrival; the tasks of a job and the
instances of a task are contiguous. Times are integer microseconds, amounts are in the units of the
configuration's resources (cpu_milli: 1000 = one core, memory_mib).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True)
class InstanceTable:
    """Everything one zone's users submit in one episode.

    Attributes:
        job_arrival_us: (J,) time the job arrives, ascending.
        job_task_start: (J + 1,) tasks of job j are job_task_start[j] : job_task_start[j + 1].
        task_instance_start: (T + 1,) instances of task t, likewise.
        task_parent_start: (T + 1,) parents of task t are task_parents[start[t] : start[t + 1]].
        task_parents: (P,) row of each parent task; always of the same job, never a cycle.
        task_priority: (T,) larger goes first.
        task_class: (T,) number of the task's type or class.
        request: (T, R) requested amount per instance.
        reference_s: (T,) mean duration that lateness, slowdown and cost are measured by.
        known_mean_s: (T,) mean duration that policies may know (duration_knowledge).
        known_sigma: (T,) sigma of a lognormal duration that policies may know.
        known_use: (T, R) mean real use per instance that policies may know.
        latest_wait_us: (T,) an instance that waited longer has started late.
        latest_finish_us: (T,) an instance whose finish - ready is longer violates its finish.
        work_us: (N,) drawn work: duration on a machine of speed 1 without interference.
        use: (N, R) drawn real use.
    """

    job_arrival_us: Int
    job_task_start: Int
    task_instance_start: Int
    task_parent_start: Int
    task_parents: Int
    task_priority: Int
    task_class: Int
    request: Int
    reference_s: Float
    known_mean_s: Float
    known_sigma: Float
    known_use: Float
    latest_wait_us: Int
    latest_finish_us: Int
    work_us: Int
    use: Float

    @property
    def n_jobs(self) -> int:
        """J."""
        return len(self.job_arrival_us)

    @property
    def n_tasks(self) -> int:
        """T."""
        return len(self.request)

    @property
    def n_instances(self) -> int:
        """N."""
        return len(self.work_us)
