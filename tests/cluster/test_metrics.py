"""Every metric against a slow computation from the reference's instances."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from reference import play_reference, scored
from reference_zone import Instance, RefZone
from tiny import (
    Act,
    Cluster,
    Job,
    Task,
    at_random,
    first_open,
    given,
    machines,
    table,
    tiny,
    with_gpus_on_some,
    zone,
)

from marl_sched.cluster.metrics import DEFINITIONS, quantile, short_name
from marl_sched.cluster.model import LOWEST, N_BINS
from marl_sched.config import Experiment

PRICED = {"price_per_hour": 2.5}


def _three_zones(**cluster: object) -> Experiment:
    return tiny(
        zone("a", machines(2, **PRICED), machines(cpu=8000, speed=1.4), load=1.3),
        zone("b", machines(3), failures={"mean_up_s": 40.0, "mean_down_s": 6.0}),
        zone("c", machines(1), background={"mean": {"cpu_milli": 0.3}, "step_s": 10.0}, load=0.4),
        cluster={"peer_queue_allowance": 0.3, "max_restarts": 1, **cluster},
        episode={"horizon_s": 60.0, "drain_s": 15.0, "measured_from": 0.2},
        objective={
            "late": 1.5,
            "imbalance": 0.7,
            "imbalance_resources": ["memory_mib"],
            "completion": 0.4,
        },
        seed=5,
    )


def _expected(experiment: Experiment, zones: Mapping[str, RefZone]) -> dict[str, float]:
    end_us = experiment.n_windows * experiment.window_us
    metrics = _of_instances(experiment, zones, end_us)
    metrics |= _of_tasks(zones, end_us)
    metrics |= _of_samples(experiment, zones)
    weights = experiment.objective
    metrics["objective"] = (
        weights.late * metrics["late_start_rate"]
        + weights.finish_violation * metrics["finish_violation_rate"]
        + weights.slowdown * (metrics["mean_slowdown"] - 1)
        + weights.cost * metrics["cost"]
        + weights.offload * metrics["offload_rate"]
        + weights.completion * metrics["mean_completion_s"] / 60
        + weights.imbalance
        * sum(metrics[f"zone_imbalance_{short_name(r)}"] for r in weights.imbalance_resources)
    )
    return metrics


def _of_instances(
    experiment: Experiment, zones: Mapping[str, RefZone], end_us: int
) -> dict[str, float]:
    late, violated, unfinished, slowdowns, waits, costs = [], [], [], [], [], []
    picks = misses = restarts = 0
    for where, one in scored(zones):
        ready_us = one.ready_us if one.ready_us >= 0 else one.task.job.arrival_us
        has_started = one.status in ("running", "finished")
        over_us = one.finish_us if one.status == "finished" else end_us
        wait_us = (one.start_us if has_started else end_us) - ready_us
        completion_us = over_us - ready_us
        late.append(wait_us > one.task.latest_wait_us)
        is_slow = completion_us > one.task.latest_finish_us
        violated.append(one.status != "finished" or is_slow or one.failed_creations > 0)
        unfinished.append(one.status != "finished")
        slowdowns.append(min(completion_us / 1e6 / one.task.reference_s, 12.0))
        waits.append(wait_us / 1e6)
        if has_started:
            costs.append(_cost(where, one))
        starts = one.restarts + has_started
        picks += max(1, starts) + one.failed_creations
        misses += (starts == 0) + one.failed_creations
        restarts += one.restarts
    n = len(late)
    return {
        "late_start_rate": sum(late) / n,
        "finish_violation_rate": sum(violated) / n,
        "creation_success_rate": 1 - misses / picks,
        "unfinished_rate": sum(unfinished) / n,
        "mean_slowdown": float(np.mean(slowdowns)),
        "p99_slowdown": _nearest_rank(slowdowns),
        "mean_wait_s": float(np.mean(waits)),
        "p99_wait_s": _nearest_rank(waits),
        "cost": float(np.mean(costs)),
        "offload_rate": sum(zone.offloads for zone in zones.values()) / n,
        "restart_rate": restarts / n,
    }


def _cost(where: RefZone, one: Instance) -> float:
    share = max(one.task.request / np.maximum(where.park.capacity[one.machine], 1))
    duration_s = (one.finish_us - one.start_us) / 1e6
    return float(where.park.price_per_hour[one.machine] * share * duration_s / one.task.reference_s)


def _of_tasks(zones: Mapping[str, RefZone], end_us: int) -> dict[str, float]:
    tasks_s, jobs_s = [], []
    for where in zones.values():
        for job in where.jobs:
            for task in job.tasks:
                ready_us = task.ready_us if task.ready_us >= 0 else job.arrival_us
                tasks_s.append(((end_us if task.left else task.finish_us) - ready_us) / 1e6)
            is_over = all(task.left == 0 for task in job.tasks)
            over_us = max(task.finish_us for task in job.tasks) if is_over else end_us
            jobs_s.append((over_us - job.arrival_us) / 1e6)
    return {
        "mean_completion_s": float(np.mean(tasks_s)),
        "p99_completion_s": _nearest_rank(tasks_s),
        "mean_job_completion_s": float(np.mean(jobs_s)),
    }


def _of_samples(experiment: Experiment, zones: Mapping[str, RefZone]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    windows = list(zip(*(zone.samples for zone in zones.values()), strict=True))
    each = [sample for window in windows for sample in window]
    for index, resource in enumerate(experiment.resources):
        name = short_name(resource)
        shares = [_of_those_that_have_it(sample, index) for sample in each]
        metrics[f"zone_imbalance_{name}"] = _mean(
            share.std() if len(share) else 0.0 for share in shares
        )
        metrics[f"utilization_{name}"] = _mean(
            share.mean() if len(share) else 0.0 for share in shares
        )
        metrics[f"allocation_ratio_{name}"] = _mean(
            sample["allocated"][:, index].sum() / max(1, sample["allocatable"][:, index].sum())
            for sample in each
        )
        metrics[f"imbalance_{name}"] = _mean(
            np.concatenate([_of_those_that_have_it(sample, index) for sample in window]).std()
            for window in windows
        )
    free = [(sample["allocatable"] - sample["allocated"])[:, 0].clip(0) for sample in each]
    metrics["fragmentation"] = _mean(1 - f.max() / f.sum() if f.sum() else 0.0 for f in free)
    metrics["memory_overuse"] = _mean(
        sum((sample["use"] > sample["capacity"])[:, 1].sum() for sample in window)
        for window in windows
    )
    metrics["cost_per_hour"] = _mean(
        sum((sample["price"] * _largest_share(sample)).sum() for sample in window)
        for window in windows
    )
    return metrics


def _of_those_that_have_it(sample: dict[str, Any], index: int) -> np.ndarray:
    return sample["utilization"][sample["capacity"][:, index] > 0, index]


def _largest_share(sample: dict[str, Any]) -> np.ndarray:
    return (sample["allocated"] / np.maximum(sample["capacity"], 1)).max(axis=1)


def _mean(values: object) -> float:
    return float(np.mean(list(values)))


def _nearest_rank(values: list[float]) -> float:
    return sorted(values)[int(np.ceil(0.99 * len(values))) - 1]


def _play(experiment: Experiment, act: Act) -> tuple[dict[str, float], dict[str, float]]:
    cluster = Cluster(experiment).draw("train", [0]).play(act)
    inputs = {
        config.name: given(experiment, config, cluster.drawn[config.name])
        for config in experiment.zones
    }
    actions = {name: [action for *_, action in rows] for name, rows in cluster.decided.items()}
    zones = play_reference(experiment, inputs, actions)
    found = {name: float(values[0]) for name, values in cluster.metrics().items()}
    return found, _expected(experiment, zones)


@pytest.mark.parametrize(
    ("rules", "policy"),
    [
        ({}, "random"),
        ({}, "here"),
        ({"placement": "unmasked"}, "random"),
        ({"queue": "strict-fifo", "max_hops": 2}, "random"),
    ],
)
def test_metrics_are_what_their_definitions_say(rules: dict[str, object], policy: str) -> None:
    experiment = _three_zones(**rules)
    act = at_random(3) if policy == "random" else first_open
    found, expected = _play(experiment, act)
    assert set(found) == set(expected)
    for name, value in expected.items():
        rel, least = (0.01, 2 * LOWEST) if name.startswith("p99") else (1e-9, 1e-12)
        assert found[name] == pytest.approx(value, rel=rel, abs=least), name


@pytest.mark.parametrize("placement", ["masked", "unmasked"])
def test_metrics_of_a_resource_are_over_the_machines_that_have_it(placement: str) -> None:
    experiment = with_gpus_on_some(
        cluster={"peer_queue_allowance": 0.3, "placement": placement},
        objective={"imbalance_resources": ["cpu_milli", "gpu"]},
    )
    found, expected = _play(experiment, at_random(4))
    for name, value in expected.items():
        rel, least = (0.01, 2 * LOWEST) if name.startswith("p99") else (1e-9, 1e-12)
        assert found[name] == pytest.approx(value, rel=rel, abs=least), name
    assert found["imbalance_gpu"] > 0
    assert 0 < found["allocation_ratio_gpu"] < 1


def test_metrics_move() -> None:
    """None of what is compared above is zero by accident."""
    found, _ = _play(_three_zones(placement="unmasked"), at_random(3))
    assert {name for name, value in found.items() if value == 0.0} <= {"memory_overuse"}


def test_every_metric_is_defined_with_a_unit() -> None:
    experiment = _three_zones()
    found, _ = _play(experiment, first_open)
    names = {short_name(resource) for resource in experiment.resources}
    general = {
        name.rsplit("_", 1)[0] + "_RESOURCE" if name.rsplit("_", 1)[-1] in names else name
        for name in found
    }
    assert general | {"decision_latency_us"} == set(DEFINITIONS)


def test_memory_overuse_counts_machines() -> None:
    jobs = table(Job(0.0, [Task([100.0], (1000, 1024), (100, 9000))] * 2))
    experiment = tiny(zone("a", machines(1)), zone("b"))
    cluster = Cluster(experiment).start({"a": jobs, "b": jobs}).play()
    assert cluster.metrics()["memory_overuse"].tolist() == [2.0]


def test_what_is_never_placed_is_late_violated_and_unfinished() -> None:
    jobs = table(Job(20.0, [Task([1.0], (9000, 1), reference_s=10.0), Task([1.0], parents=[0])]))
    cluster = Cluster(tiny(zone("a"))).start({"a": jobs}).play()
    found = {name: values[0] for name, values in cluster.metrics().items()}
    for name in ("late_start_rate", "finish_violation_rate", "unfinished_rate"):
        assert found[name] == 1.0
    assert found["mean_wait_s"] == 100.0  # the child counts from its job's arrival
    assert found["mean_slowdown"] == 10.0
    assert found["mean_completion_s"] == found["mean_job_completion_s"] == 100.0
    assert found["creation_success_rate"] == 0.0


def test_an_instance_without_a_late_wait_at_the_end_is_not_late() -> None:
    jobs = table(Job(118.0, [Task([1.0], (9000, 1), late_s=5.0)]))
    cluster = Cluster(tiny(zone("a"))).start({"a": jobs}).play()
    found = cluster.metrics()
    assert found["late_start_rate"].tolist() == [0.0]
    assert found["finish_violation_rate"].tolist() == [1.0]


def test_slowdown_is_capped() -> None:
    jobs = table(Job(0.0, [Task([1.0], (9000, 1), reference_s=1.0)]))
    cluster = Cluster(tiny(zone("a"))).start({"a": jobs}).play()
    assert cluster.metrics()["mean_slowdown"].tolist() == [12.0]


def test_quantiles_of_histograms_are_within_a_bin() -> None:
    values = np.sort(np.random.default_rng(0).lognormal(3.0, 2.0, (2, 500)), axis=1)
    histogram = np.zeros((2, N_BINS), np.int64)
    for row in range(2):
        bins = (np.log(values[row] / LOWEST) / np.log(1.01)).astype(int)
        np.add.at(histogram[row], bins, 1)
    for share in (0.01, 0.5, 0.99, 1.0):
        exact = values[:, int(np.ceil(share * 500)) - 1]
        assert quantile(histogram, share) == pytest.approx(exact, rel=0.006)


def test_quantile_of_nothing_is_zero() -> None:
    assert quantile(np.zeros((1, N_BINS), np.int64), 0.99).tolist() == [0.0]
