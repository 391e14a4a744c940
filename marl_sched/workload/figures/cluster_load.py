"""What load a whole trace would be on a given cluster, and which tasks fit nowhere.

Load is that of offered_load.py: requested work (request x mean duration) over allocatable capacity
at the mean speed, plus background use over allocatable; work counts when its job arrives. Each zone
is measured as if it alone were offered the whole trace; the cluster's capacity is the sum of its
zones'. Shapes: J jobs, T tasks, W windows, Z zones, R resources of the configuration.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from marl_sched.config import Experiment
from marl_sched.errors import ConfigError
from marl_sched.workload.capacity import ZoneCapacity
from marl_sched.workload.figures.arrival_figures import span_s, sums_per_window
from marl_sched.workload.figures.describe import job_work
from marl_sched.workload.table import Float, Int
from marl_sched.workload.traces.tasks import TaskTable

WINDOW_S = 300.0


@dataclass(frozen=True)
class PlaceLoad:
    """The load of a trace on one zone, or on the cluster.

    Attributes:
        name: Of the zone; `cluster` for all of them.
        mean: (R,) over the whole span of the trace.
        windows: (W, R) in every whole window of 300 s; no rows if the trace is shorter.
        too_large: Share of the tasks of which no machine can hold an instance.
    """

    name: str
    mean: Float
    windows: Float
    too_large: float

    @property
    def binding(self) -> int:
        """The resource with the largest mean load."""
        return int(np.argmax(self.mean))

    def largest(self, resource: int) -> float | None:
        """Return the load of a resource in its fullest window; None if there is no whole one."""
        return float(self.windows[:, resource].max()) if len(self.windows) else None


@dataclass(frozen=True)
class ClusterLoad:
    """The load of a trace on every zone of a configuration, and on all together.

    Attributes:
        resources: R names.
        zones: Each as if it were offered all jobs.
        cluster: All zones together.
    """

    resources: tuple[str, ...]
    zones: tuple[PlaceLoad, ...]
    cluster: PlaceLoad

    def as_json(self) -> dict[str, Any]:
        """Return the loads as `trace info --json` prints them."""
        return {
            "window_s": WINDOW_S,
            "cluster": self._place(self.cluster),
            "zones": {place.name: self._place(place) for place in self.zones},
        }

    def _place(self, place: PlaceLoad) -> dict[str, Any]:
        return {
            "mean": dict(zip(self.resources, place.mean.tolist(), strict=True)),
            "max": {name: place.largest(i) for i, name in enumerate(self.resources)},
            "binding": self.resources[place.binding],
            "too_large_task_share": place.too_large,
        }


def cluster_load(tasks: TaskTable, experiment: Experiment) -> ClusterLoad:
    """Measure a task table on the cluster of a configuration.

    Raises:
        ConfigError: The trace asks for a resource that the configuration does not have.
    """
    request = _requests(tasks, experiment)
    work = job_work(tasks, request)  # (J, R)
    span = span_s(tasks)
    window_work = sums_per_window(tasks, WINDOW_S, work)  # (W, R)
    zones, fits = [], np.zeros(tasks.n_tasks, bool)
    shapes, which = np.unique(request, axis=0, return_inverse=True)
    capacities = [ZoneCapacity.of(experiment, zone) for zone in experiment.zones]
    for zone, capacity in zip(experiment.zones, capacities, strict=True):
        fits_here = capacity.fits(shapes)[which.reshape(-1)]  # (T,)
        fits |= fits_here
        zones.append(
            PlaceLoad(
                name=zone.name,
                mean=capacity.work_load(work.sum(0), span) + capacity.background_load,
                windows=capacity.work_load(window_work, WINDOW_S) + capacity.background_load,
                too_large=1.0 - float(fits_here.mean()),
            )
        )
    whole = PlaceLoad(
        name="cluster",
        mean=_together(capacities, work.sum(0), span),
        windows=_together(capacities, window_work, WINDOW_S),
        too_large=1.0 - float(fits.mean()),
    )
    return ClusterLoad(tuple(experiment.resources), tuple(zones), whole)


def _requests(tasks: TaskTable, experiment: Experiment) -> Int:
    """Return the requests (T, R) in the resources of the configuration."""
    for column, name in enumerate(tasks.resources):
        if name not in experiment.resources and tasks.request[:, column].any():
            raise ConfigError(
                f"resources = {experiment.resources}, expected {name} among them: "
                f"{(tasks.request[:, column] > 0).mean():.1%} of the trace's tasks ask for it "
                "(capacity 0 where a machine has none)"
            )
    request = np.zeros((tasks.n_tasks, experiment.n_resources), np.int64)
    for place, name in enumerate(experiment.resources):
        if name in tasks.resources:
            request[:, place] = tasks.request[:, tasks.resources.index(name)]
    return request


def _together(capacities: list[ZoneCapacity], work: Float, seconds: float) -> Float:
    """Return the load (..., R) of work on all zones: their capacities at their speeds add up."""
    allocatable = np.array([zone.allocatable for zone in capacities])  # (Z, R)
    background = np.array([zone.background for zone in capacities]).sum(0)
    at_speed = np.array([zone.mean_speed for zone in capacities]) @ allocatable  # (R,)
    has_any = at_speed > 0
    load = np.where(has_any, work / np.where(has_any, at_speed * seconds, 1.0), 0.0)
    return np.asarray(load + background / np.maximum(allocatable.sum(0), 1.0))
