"""What a snapshot says of a replica against a count by hand, on machines that come and go."""

import numpy as np
import pytest
from tiny import Cluster, at_random, machines, tiny, with_gpus_on_some, zone

from marl_sched.cluster.model import ABSENT, OFFLOADED, RUNNING, WAITING
from marl_sched.cluster.snapshot import head_request, take_snapshot
from marl_sched.observation import Observation


def test_snapshot_is_of_the_replica_asked_for() -> None:
    cluster = Cluster(with_gpus_on_some(), n_replicas=2).draw("train", [0, 1])
    cluster.play(at_random(1), until_s=45.0)
    n_absent = 0
    for name, env in cluster.zones.items():
        state = env.simulator.state
        for e in range(2):
            seen, rows = take_snapshot(state, e), cluster.rows(name, e)
            assert seen.simulated_s == state.zone[e]["now_us"] / 1e6 >= 45.0
            assert seen.n_running == np.sum(rows["status"] == RUNNING)
            assert seen.n_waiting == np.sum(rows["status"] == WAITING)
            for peer in range(2):
                sent = (rows["status"] == OFFLOADED) & (rows["peer"] == peer)
                assert seen.offloads[peer] == sent.sum()
            for machine in range(env.n_machines):
                is_absent = state.machine[e, machine]["status"] == ABSENT
                n_absent += is_absent
                for r in range(3):
                    size = state.capacity[machine, r]
                    used = 0.0 if is_absent or size == 0 else state.use[e, machine, r] / size
                    share = min(max(used, 0.0), 1.0)
                    assert seen.utilization[machine, r] == pytest.approx(share)
                    room = state.allocatable[e, machine, r]
                    taken = 0.0 if is_absent else (room - state.free[e, machine, r]) / max(room, 1)
                    assert seen.allocation[machine, r] == min(max(taken, 0.0), 1.0)
    assert n_absent > 0


def test_snapshot_does_not_change_when_the_simulation_goes_on() -> None:
    cluster = Cluster(tiny(zone("a", machines(2)), zone("b"))).draw("train", [0])
    cluster.play(at_random(1), until_s=20.0)
    state = cluster.zones["a"].simulator.state
    seen = take_snapshot(state, 0)
    kept = {name: np.copy(value) for name, value in vars(seen).items()}
    cluster.play(at_random(1), until_s=40.0)
    assert not np.array_equal(take_snapshot(state, 0).utilization, seen.utilization)
    for name, value in vars(seen).items():
        np.testing.assert_array_equal(value, kept[name])


def test_request_is_that_of_the_instance_that_is_decided_on() -> None:
    cluster = Cluster(tiny(zone("a", machines(2), load=1.5), zone("b")), n_replicas=2)
    cluster.draw("train", [0, 1])
    act = at_random(1)
    expected: dict[tuple[int, int], list[int]] = {}

    def noting(name: str, observation: Observation) -> np.ndarray:
        if name == "a":
            state = cluster.zones["a"].simulator.state
            for e, decision in zip(
                observation.replica.tolist(), observation.decision.tolist(), strict=True
            ):
                expected[e, decision] = head_request(state, e).tolist()
        return act(name, observation)

    cluster.play(noting, until_s=60.0)
    state = cluster.zones["a"].simulator.state
    n_placed = 0
    for e in range(2):
        for row in cluster.rows("a", e):
            if row["decision"] >= 0:
                request = state.request[e, row["task"]].tolist()
                assert request == expected[e, int(row["decision"])]
                n_placed += 1
    assert n_placed > 50
    assert len({tuple(request) for request in expected.values()}) > 1
