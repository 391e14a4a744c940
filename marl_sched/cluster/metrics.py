"""Every reported number: name, unit and formula, once. docs/metrics.md is generated from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.model import (
    HISTOGRAMS,
    LOWEST,
    N_PLAIN_SUMS,
    SUM_COST,
    SUM_CREATIONS,
    SUM_FAILED_CREATIONS,
    SUM_FRAGMENTATION,
    SUM_INSTANCES,
    SUM_JOB_COMPLETION_S,
    SUM_JOBS,
    SUM_LATE,
    SUM_MEMORY_OVERUSE,
    SUM_OFFLOADS,
    SUM_PRICE,
    SUM_RESTARTS,
    SUM_SAMPLES,
    SUM_SLOWDOWN,
    SUM_STARTED,
    SUM_TASK_COMPLETION_S,
    SUM_TASKS,
    SUM_UNFINISHED,
    SUM_VIOLATED,
    SUM_WAIT_S,
)
from marl_sched.config import Experiment

Array = NDArray[np.float64]
MINUTE_S = 60.0

DEFINITIONS = {
    "objective": (
        "1",
        "Weighted sum of late_start_rate, finish_violation_rate, mean_slowdown - 1, the zone "
        "imbalances, cost, offload_rate and mean_completion_s in minutes, with the weights of the "
        "configuration's `objective`; lower is better.",
    ),
    "late_start_rate": (
        "1",
        "Share of instances that waited longer than late_base_s + late_factor x reference "
        "duration, from ready to start (or to the end of the episode).",
    ),
    "finish_violation_rate": (
        "1",
        "Share of instances whose finish - ready exceeds slack x reference duration, that had a "
        "failed creation, or that had not finished at the end.",
    ),
    "creation_success_rate": (
        "1",
        "Picks of a machine that fitted, over all picks; an instance never started counts as one "
        "failed pick.",
    ),
    "unfinished_rate": ("1", "Share of instances that had not finished at the end."),
    "mean_slowdown": (
        "1",
        "Mean over instances of min((finish - ready) / reference duration, 12).",
    ),
    "p99_slowdown": ("1", "99th percentile of the same."),
    "mean_wait_s": ("s", "Mean over instances of start - ready."),
    "p99_wait_s": ("s", "99th percentile of the same."),
    "mean_completion_s": (
        "s",
        "Mean over tasks of the finish of the last instance - ready; unfinished tasks count to "
        "the end.",
    ),
    "p99_completion_s": ("s", "99th percentile of the same."),
    "mean_job_completion_s": ("s", "Mean over jobs of the finish of the last task - arrival."),
    "cost": (
        "1",
        "Mean over started instances of price x largest share of the machine x duration / "
        "reference duration.",
    ),
    "cost_per_hour": (
        "1/h",
        "Price of the allocated share of all machines (largest over resources), mean over window "
        "boundaries.",
    ),
    "offload_rate": ("1", "Offloads over instances."),
    "restart_rate": ("1", "Deaths of instances with their machine, over instances."),
    "fragmentation": (
        "1",
        "1 - largest free cpu slot / all free cpu, mean over zones and window boundaries.",
    ),
    "memory_overuse": (
        "machines",
        "Machines of the cluster whose real memory use exceeds their capacity, mean over window "
        "boundaries.",
    ),
    "imbalance_RESOURCE": (
        "1",
        "Standard deviation of utilization over all machines of the cluster that have the "
        "resource, mean over window boundaries of the measured span.",
    ),
    "zone_imbalance_RESOURCE": (
        "1",
        "The same over the machines of a zone, mean over zones.",
    ),
    "utilization_RESOURCE": (
        "1",
        "Real use over capacity (cpu capped at 1 per machine), mean over the machines of a zone "
        "that have the resource, zones and window boundaries; 0 in a zone without any.",
    ),
    "allocation_ratio_RESOURCE": (
        "1",
        "Allocated over allocatable of a zone, 0 if it has none, mean over zones and window "
        "boundaries.",
    ),
    "decision_latency_us": ("us", "Time a policy takes for one decision, measured in evaluation."),
}
"""Unit and definition of every metric; RESOURCE stands for cpu, memory or another resource."""


@dataclass(frozen=True)
class ZoneSums:
    """What one zone counted in E replicas of an episode.

    Attributes:
        sums: (E, N_PLAIN_SUMS + 3 R), the columns of model.py.
        histogram: (E, 3, N_BINS) of wait, task completion and slowdown.
        cluster_imbalance: (E, R) sum over samples of the cluster's standard deviation; equal in all
            zones.
    """

    sums: Array
    histogram: NDArray[np.int64]
    cluster_imbalance: Array


def short_name(resource: str) -> str:
    """Return the word a resource has in metric names: cpu_milli -> cpu."""
    return resource.split("_")[0]


def episode_metrics(experiment: Experiment, zones: Sequence[ZoneSums]) -> dict[str, Array]:
    """Return every metric of E episodes of the whole cluster, arrays (E,)."""
    sums = np.sum([zone.sums for zone in zones], axis=0)
    histogram = np.sum([zone.histogram for zone in zones], axis=0)
    instances = _at_least_one(sums[:, SUM_INSTANCES])
    started = _at_least_one(sums[:, SUM_STARTED])
    tasks, jobs = _at_least_one(sums[:, SUM_TASKS]), _at_least_one(sums[:, SUM_JOBS])
    samples = _at_least_one(sums[:, SUM_SAMPLES])
    per_zone = samples / len(zones)
    metrics = {
        "late_start_rate": sums[:, SUM_LATE] / instances,
        "finish_violation_rate": sums[:, SUM_VIOLATED] / instances,
        "creation_success_rate": 1
        - sums[:, SUM_FAILED_CREATIONS] / _at_least_one(sums[:, SUM_CREATIONS]),
        "unfinished_rate": sums[:, SUM_UNFINISHED] / instances,
        "mean_slowdown": sums[:, SUM_SLOWDOWN] / instances,
        "mean_wait_s": sums[:, SUM_WAIT_S] / instances,
        "mean_completion_s": sums[:, SUM_TASK_COMPLETION_S] / tasks,
        "mean_job_completion_s": sums[:, SUM_JOB_COMPLETION_S] / jobs,
        "cost": sums[:, SUM_COST] / started,
        "cost_per_hour": sums[:, SUM_PRICE] / per_zone,
        "offload_rate": sums[:, SUM_OFFLOADS] / instances,
        "restart_rate": sums[:, SUM_RESTARTS] / instances,
        "fragmentation": sums[:, SUM_FRAGMENTATION] / samples,
        "memory_overuse": sums[:, SUM_MEMORY_OVERUSE] / per_zone,
    }
    for index, name in enumerate(HISTOGRAMS):
        metrics[f"p99_{name}"] = quantile(histogram[:, index], 0.99)
    for index, resource in enumerate(experiment.resources):
        name, at = short_name(resource), N_PLAIN_SUMS + 3 * index
        metrics[f"imbalance_{name}"] = zones[0].cluster_imbalance[:, index] / per_zone
        metrics[f"zone_imbalance_{name}"] = sums[:, at] / samples
        metrics[f"utilization_{name}"] = sums[:, at + 1] / samples
        metrics[f"allocation_ratio_{name}"] = sums[:, at + 2] / samples
    return {"objective": objective(experiment, metrics), **metrics}


def objective(experiment: Experiment, metrics: dict[str, Array]) -> Array:
    """Return the one number (E,) that policies are compared by; lower is better."""
    weights = experiment.objective
    total = (
        weights.late * metrics["late_start_rate"]
        + weights.finish_violation * metrics["finish_violation_rate"]
        + weights.slowdown * (metrics["mean_slowdown"] - 1)
        + weights.cost * metrics["cost"]
        + weights.offload * metrics["offload_rate"]
        + weights.completion * metrics["mean_completion_s"] / MINUTE_S
    )
    for resource in weights.imbalance_resources:
        total = total + weights.imbalance * metrics[f"zone_imbalance_{short_name(resource)}"]
    return np.asarray(total, np.float64)


def quantile(histogram: NDArray[np.int64], share: float) -> Array:
    """Return a quantile (E,) of logarithmic histograms (E, N_BINS): the middle of its bin."""
    counts = np.cumsum(histogram, axis=1)
    wanted = np.ceil(share * counts[:, -1:])
    at = np.argmax(counts >= wanted, axis=1)
    return np.asarray(np.where(at == 0, 0.0, LOWEST * 1.01 ** (at + 0.5)))


def _at_least_one(values: Array) -> Array:
    return np.maximum(values, 1.0)
