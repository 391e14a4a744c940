"""The task types of a synthetic workload as columns, and what follows from them on average.

Shapes: K task types, R resources.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from marl_sched.config import Experiment, Stream, SyntheticWorkload, TaskType, Zone
from marl_sched.workload.table import Float, Int

MILLI_PER_CORE = 1000.0


@dataclass(frozen=True)
class TypeColumns:
    """All task types of a workload.

    Attributes:
        request: (K, R) nominal request.
        mean_s: (K,) mean work.
        sigma: (K,) of the lognormal work.
        finish_slack: (K,) times mean_s.
        priority: (K,) larger goes first.
        use_mean: (K, R) mean share of the request that is really used; 0, as the other three, for
            a request of 0 whose use is left out.
        use_sd: (K, R) its standard deviation over instances.
        use_low: (K, R) smallest share.
        use_high: (K, R) largest share.
    """

    request: Float
    mean_s: Float
    sigma: Float
    finish_slack: Float
    priority: Int
    use_mean: Float
    use_sd: Float
    use_low: Float
    use_high: Float

    @classmethod
    def of(cls, experiment: Experiment, workload: SyntheticWorkload) -> Self:
        """Read the types in the order of the file."""
        types, resources = workload.task_types, experiment.resources
        use = np.array([[_use_columns(t, r) for r in resources] for t in types], float)  # (K, R, 4)
        return cls(
            request=np.array([[t.request[r] for r in resources] for t in types], float),
            mean_s=np.array([t.mean_s for t in types]),
            sigma=np.array([t.sigma for t in types]),
            finish_slack=np.array([t.finish_slack for t in types]),
            priority=np.array([t.priority for t in types], np.int64),
            use_mean=use[:, :, 0],
            use_sd=use[:, :, 1],
            use_low=use[:, :, 2],
            use_high=use[:, :, 3],
        )

    def success_probability(self, source: Stream) -> Float:
        """Return (K,) p of the geometric number of instances: 1 / (mean / sqrt(cores)), <= 1."""
        cores = np.maximum(1.0, self.request[:, 0] / MILLI_PER_CORE)
        p: Float = 1.0 / np.maximum(1.0, source.mean_instances / np.sqrt(cores))
        return p

    def mean_instances(self, source: Stream) -> Float:
        """Return (K,) mean of min(geometric(p), max_instances)."""
        p = self.success_probability(source)
        mean: Float = (1.0 - (1.0 - p) ** source.max_instances) / p
        return mean


def _use_columns(task_type: TaskType, resource: str) -> tuple[float, float, float, float]:
    """Return mean, sd, low and high of the use of a resource."""
    use = task_type.use.get(resource)
    return (0.0, 0.0, 0.0, 0.0) if use is None else (use.mean, use.sd, use.low, use.high)


def type_mix(workload: SyntheticWorkload, zone: Zone, source: Stream) -> Float:
    """Return (K,) the share of each type in a source's tasks: its own mix, the zone's, or equal."""
    mix = source.mix if source.mix is not None else zone.mix
    if mix is None:
        mix = {task_type.name: 1.0 for task_type in workload.task_types}
    shares = np.array([mix.get(task_type.name, 0.0) for task_type in workload.task_types])
    normalised: Float = shares / shares.sum()
    return normalised


def mean_stages(source: Stream) -> float:
    """Return the mean number of tasks of a job."""
    return sum((i + 1) * p for i, p in enumerate(source.stage_probabilities))
