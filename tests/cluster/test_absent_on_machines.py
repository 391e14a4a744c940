"""A machine without a resource: its moments, what fits there, and what its zone tells others."""

import numpy as np
import pytest
from tiny import (
    Cluster,
    Job,
    Task,
    asking,
    first_open,
    first_peer,
    machines,
    sending,
    table,
    tiny,
    zone,
)

from marl_sched.agents.heuristics import make_policy
from marl_sched.cluster.model import FINISHED, PEER_LARGEST
from marl_sched.config import Experiment
from marl_sched.envs.vector import VectorEnv
from marl_sched.observation import Observation

GPU = 2  # its index among the resources


def _moments(cluster: Cluster, name: str = "a") -> np.ndarray:
    return cluster.zones[name].simulator.end_window()[0]  # (R, 3)


def _on_machine(number: int) -> object:
    return lambda _name, seen: np.full(len(seen), number, np.int64)


def test_moments_are_over_the_machines_that_have_the_resource() -> None:
    experiment = tiny(zone("a", machines(2, gpu=4), machines(3, gpu=0)), has_gpus=True)
    jobs = table(Job(0.0, [Task([99.0], (1000, 1024, 2), (1000, 1024, 2))]), n_resources=3)
    cluster = Cluster(experiment).start({"a": jobs}).play(until_s=5.0)
    moments = _moments(cluster)
    assert moments[:, 0].tolist() == [5.0, 5.0, 2.0]
    assert moments[GPU].tolist() == [2.0, 0.5, 0.25]
    cluster.play()
    assert cluster.metrics()["zone_imbalance_gpu"] == pytest.approx(0.25)  # of 0.5 and 0
    assert cluster.metrics()["utilization_gpu"] == pytest.approx(0.25)
    assert cluster.metrics()["allocation_ratio_gpu"] == pytest.approx(0.25)


def test_a_zone_without_the_resource_has_no_moments_of_it() -> None:
    experiment = tiny(zone("a", machines(2, gpu=0)), zone("b", machines(gpu=4)), has_gpus=True)
    jobs = table(Job(0.0, [Task([99.0], (1000, 1024, 0), (1000, 1024, 0))]), n_resources=3)
    cluster = Cluster(experiment).start({"a": jobs}).play(until_s=5.0)
    assert _moments(cluster)[GPU].tolist() == [0.0, 0.0, 0.0]
    cluster.play()
    for metric in ("imbalance_gpu", "zone_imbalance_gpu", "utilization_gpu"):
        assert cluster.metrics()[metric].tolist() == [0.0], metric


def test_use_of_what_a_machine_does_not_have_is_no_utilization() -> None:
    experiment = tiny(zone("a", machines(gpu=0), machines(gpu=4)), has_gpus=True)
    jobs = table(Job(0.0, [Task([99.0], (1000, 1024, 0), (1000, 1024, 3))]), n_resources=3)
    cluster = Cluster(experiment).start({"a": jobs}).play(_on_machine(0), until_s=5.0)
    assert _moments(cluster)[GPU].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("free", [0, -1])
@pytest.mark.parametrize("resource", [1, GPU])
def test_what_is_not_requested_fits_where_nothing_or_less_is_free(free: int, resource: int) -> None:
    experiment = tiny(zone("a", machines(gpu=4)), has_gpus=True)
    cluster = Cluster(experiment, checks_books=False)
    request = [1000, 1024, 1]
    request[resource] = 0
    cluster.start({"a": table(Job(7.0, [Task([5.0], request)]), n_resources=3)})
    cluster.zones["a"].simulator.state.free[0, 0, resource] = free
    cluster.play()
    assert cluster.times("a", "start") == [7.0]


def test_what_is_requested_does_not_fit_where_less_than_nothing_is_free() -> None:
    cluster = Cluster(tiny(zone("a")), checks_books=False)
    cluster.start({"a": table(Job(7.0, [Task([5.0], (1000, 1))]))})
    cluster.zones["a"].simulator.state.free[0, 0, 1] = -1
    cluster.play()
    assert cluster.rows("a")["machine"].tolist() == [-1]


def test_request_of_an_absent_resource_waits_for_a_peer() -> None:
    experiment = tiny(zone("a", machines(2, gpu=0)), zone("b", machines(gpu=1)), has_gpus=True)
    jobs = table(Job(0.0, [Task([5.0], (1000, 1024, 1), (1000, 1024, 1))]), n_resources=3)
    cluster = Cluster(experiment).start({"a": jobs}).play(first_open)
    assert cluster.decided["a"] == [(0, 0, 2)]
    assert cluster.rows("b")["status"].tolist() == [FINISHED]
    assert cluster.rows("b")["machine"].tolist() == [0]


def _five_shapes_then_gpus() -> Experiment:
    shapes = [machines(cpu=2000 * n, memory=16384 - 2048 * n, gpu=0) for n in range(1, 6)]
    gpus = [machines(cpu=1000, memory=2048, gpu=n) for n in (1, 4)]
    return tiny(
        zone("a", machines(gpu=0)),
        zone("b", *shapes, *gpus),
        has_gpus=True,
        workload={"task_types": asking({"gpu": 0}, {"gpu": 0})},
    )


def test_digest_names_a_machine_of_every_resource_however_many_shapes_there_are() -> None:
    experiment = _five_shapes_then_gpus()
    jobs = table(Job(0.0, [Task([5.0], (1000, 1024, 4), (1000, 1024, 4))]), n_resources=3)
    cluster = Cluster(experiment).start({"a": jobs}).play(first_peer)
    shapes = cluster.zones["a"].simulator.state.peer_shape[0, 0]
    assert shapes.tolist() == [
        [2000, 14336, 0],
        [4000, 12288, 0],
        [6000, 10240, 0],
        [1000, 2048, 4],
    ]
    largest = cluster.zones["a"].simulator.state.peer_amount[0, 0, PEER_LARGEST]
    assert largest.tolist() == [2000, 14336, 4]
    assert cluster.rows("b")["machine"].tolist() == [6]


def test_placement_where_the_resource_is_absent_fails_when_it_is_unmasked() -> None:
    experiment = tiny(
        zone("a", machines(gpu=0), machines(gpu=1)),
        has_gpus=True,
        cluster={"placement": "unmasked"},
    )
    jobs = table(Job(0.0, [Task([5.0], (1000, 1024, 1), (1000, 1024, 1))]), n_resources=3)
    seen: list[int] = []

    def wrong_first(_name: str, observation: Observation) -> np.ndarray:
        seen.append(len(seen))
        return np.array([min(1, len(seen) - 1)])

    cluster = Cluster(experiment).start({"a": jobs}).play(wrong_first)
    row = cluster.rows("a")[0]
    assert (row["failed_creations"], row["machine"], row["status"]) == (1, 1, FINISHED)


def test_recorded_utilization_of_what_is_absent_is_0() -> None:
    experiment = tiny(zone("a", machines(gpu=4), machines(gpu=0)), has_gpus=True)
    env = VectorEnv(experiment, 1, with_rewards=False)
    layout = env.zones["a"].layout
    recording = env.record({"a": make_policy("first-fit", layout, experiment)}, "test", 0)
    share = recording.utilization["a"]
    assert share[:, 0, GPU].max() > 0
    assert (share[:, 1, GPU] == 0).all()


def test_an_offload_keeps_its_request_of_none() -> None:
    experiment = tiny(zone("a", machines(gpu=4)), zone("b", machines(gpu=0)), has_gpus=True)
    jobs = table(Job(0.0, [Task([5.0], (1000, 0, 0), (1000, 0, 0))]), n_resources=3)
    cluster = Cluster(experiment).start({"a": jobs}).play(sending(("a", 0)))
    state = cluster.zones["b"].simulator.state
    assert state.request[0, cluster.rows("b")["task"][0]].tolist() == [1000, 0, 0]
    assert cluster.rows("b")["status"].tolist() == [FINISHED]
