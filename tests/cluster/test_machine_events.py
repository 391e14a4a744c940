"""Machines that join, drain, fail and return; background use; the credit of what died."""

import numpy as np
import pytest
from tiny import Cluster, Job, Task, at_random, machines, sending, table, tiny, zone

from marl_sched.cluster.machines import draw_background, draw_events
from marl_sched.cluster.model import FAILED, FINISHED, OFFLOADED, WAITING

STILL = {"interference": 0.0}


def _event(at_s: float, kind: str, machine: int = 0) -> dict[str, object]:
    return {"at_s": at_s, "machine": machine, "kind": kind}


def test_a_machine_that_joins_is_absent_before() -> None:
    experiment = tiny(
        zone("a", machines(count=2), machine_events=[_event(8.0, "join", 1)]), cluster=STILL
    )
    full = Task([20.0], (4000, 1024))
    cluster = Cluster(experiment).start({"a": table(Job(1.0, [full, full]))}).play()
    assert cluster.times("a", "start") == [1.0, 8.0]
    assert cluster.rows("a")["machine"].tolist() == [0, 1]


def test_draining_keeps_what_runs_and_takes_nothing_new() -> None:
    experiment = tiny(
        zone("a", machine_events=[_event(2.0, "drain"), _event(30.0, "return")]), cluster=STILL
    )
    jobs = table(Job(0.0, [Task([10.0])]), Job(3.0, [Task([1.0])]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    assert cluster.times("a", "start") == [0.0, 30.0]
    assert cluster.times("a", "finish")[0] == 10.0


def test_failure_loses_progress_and_queues_the_same_work_again() -> None:
    experiment = tiny(
        zone("a", machines(), machines(speed=2.0), machine_events=[_event(4.0, "fail")]),
        cluster=STILL,
    )
    jobs = table(Job(1.0, [Task([10.0])]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    row = cluster.rows("a")[0]
    assert (row["machine"], row["restarts"], row["work_us"]) == (1, 1, 10_000_000)
    assert cluster.times("a", "ready") == [1.0]
    assert cluster.times("a", "start") == [4.0]
    assert cluster.times("a", "finish") == [9.0]
    assert cluster.metrics()["restart_rate"].tolist() == [1.0]
    assert cluster.metrics()["creation_success_rate"].tolist() == [1.0]


def test_only_what_ran_on_the_failed_machine_dies() -> None:
    experiment = tiny(
        zone("a", machines(count=2), machine_events=[_event(4.0, "fail", 0)]), cluster=STILL
    )
    jobs = table(Job(0.0, [Task([10.0, 11.0, 12.0, 13.0], (2000, 1024))]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    assert cluster.rows("a")["restarts"].tolist() == [1, 1, 0, 0]
    assert cluster.times("a", "start") == [12.0, 13.0, 0.0, 0.0]


def test_a_machine_that_returns_takes_what_waits() -> None:
    experiment = tiny(
        zone("a", machine_events=[_event(4.0, "fail"), _event(12.0, "return")]), cluster=STILL
    )
    cluster = Cluster(experiment).start({"a": table(Job(1.0, [Task([5.0])]))}).play()
    assert cluster.times("a", "start") == [12.0]


def _fails(*at_s: float) -> list[dict[str, object]]:
    return [
        event for second in at_s for event in (_event(second, "fail"), _event(second + 1, "return"))
    ]


def test_after_max_restarts_the_job_fails_and_no_child_becomes_ready() -> None:
    experiment = tiny(
        zone("a", machine_events=_fails(2.0, 4.0)), cluster={**STILL, "max_restarts": 1}
    )
    jobs = table(Job(0.0, [Task([10.0]), Task([1.0]), Task([1.0], parents=[0, 1])]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    rows = cluster.rows("a")
    assert rows["status"][:2].tolist() == [FAILED, FINISHED]
    assert rows["restarts"].tolist() == [2, 0, 0]
    assert rows["machine"][2] == -1
    metrics = cluster.metrics()
    assert metrics["unfinished_rate"].tolist() == [pytest.approx(2 / 3)]
    assert metrics["mean_job_completion_s"].tolist() == [120.0]


def test_an_offloaded_instance_that_fails_for_good_fails_the_job_at_its_origin() -> None:
    experiment = tiny(
        zone("a"),
        zone("b", machine_events=_fails(6.0)),
        cluster={**STILL, "max_restarts": 0},
    )
    jobs = table(Job(0.0, [Task([10.0]), Task([1.0], parents=[0])]))
    cluster = Cluster(experiment).start({"a": jobs}).play(sending(("a", 0)))
    assert cluster.rows("a")["status"][0] == OFFLOADED
    assert cluster.rows("b")["status"].tolist() == [FAILED]
    assert cluster.zones["a"].simulator.state.job["has_failed"][0].tolist() == [1]
    assert cluster.rows("a")["machine"][1] == -1
    assert cluster.metrics()["unfinished_rate"].tolist() == [1.0]


def test_a_failure_two_hops_away_is_scored_once_and_reaches_the_origin() -> None:
    experiment = tiny(
        zone("a"),
        zone("b"),
        zone("c", machine_events=_fails(11.0)),
        cluster={**STILL, "max_restarts": 0, "max_hops": 2},
    )
    jobs = table(Job(0.0, [Task([10.0]), Task([1.0], parents=[0])]))
    act = sending(("a", 0))

    def through_b(name: str, observation: object) -> np.ndarray:
        return (
            sending(("b", 0), peer=1)(name, observation) if name == "b" else act(name, observation)
        )

    cluster = Cluster(experiment).start({"a": jobs}).play(through_b)
    assert cluster.rows("b")["status"].tolist() == [OFFLOADED]
    assert cluster.rows("c")["status"].tolist() == [FAILED]
    assert cluster.zones["a"].simulator.state.job["has_failed"][0].tolist() == [1]
    scored = [int(env.finish().sums[0, 0]) for env in cluster.zones.values()]
    assert scored == [1, 0, 1]


def test_background_use_lowers_allocatable_and_counts_as_utilization() -> None:
    background = {"mean": {"cpu_milli": 0.5}, "step_s": 120.0}
    experiment = tiny(zone("a", background=background))
    jobs = table(Job(1.0, [Task([4.0], (2000, 1024))]), Job(2.0, [Task([1.0], (1, 1))]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    # 2 of 4 cores are background: the first fills the machine; u = 1 slows it to 7.2 s.
    assert cluster.times("a", "start") == [1.0, 8.2]
    assert cluster.times("a", "finish")[0] == pytest.approx(8.2)
    state = cluster.zones["a"].simulator.state
    assert state.allocatable[0].tolist() == [[2000, 8192]]
    assert state.use[0].tolist() == [[2000.0, 0.0]]


def test_background_that_grows_over_what_is_allocated_leaves_negative_room() -> None:
    experiment = tiny(zone("a", background={"mean": {"cpu_milli": 0.1}, "step_s": 10.0}))
    cluster = Cluster(experiment)
    env = cluster.zones["a"]
    cluster.start({"a": table(Job(0.0, [Task([50.0], (3000, 1024))]))})
    state = env.simulator.state
    state.series[0, 1:3, 0, 0] = 2000.0
    state.series[0, 3:, 0, 0] = 400.0
    cluster.play(until_s=15.0)
    assert state.free[0, 0].tolist() == [-1000, 7168]
    cluster.play(until_s=40.0)
    assert state.free[0, 0].tolist() == [600, 7168]
    cluster.play()
    assert cluster.rows("a")["status"].tolist() == [FINISHED]


def test_room_that_background_gives_back_is_retried_at_once() -> None:
    experiment = tiny(zone("a", background={"mean": {"cpu_milli": 0.5}, "step_s": 10.0}))
    cluster = Cluster(experiment)
    cluster.start({"a": table(Job(0.0, [Task([1.0], (3000, 1024))]))})
    cluster.zones["a"].simulator.state.series[0, 2:] = 0.0
    cluster.play()
    assert cluster.times("a", "start") == [20.0]


def test_random_failures_alternate_and_depend_on_seed_and_episode_alone() -> None:
    failing = {"mean_up_s": 20.0, "mean_down_s": 5.0}
    experiment = tiny(zone("a", machines(count=3), failures=failing), zone("b", failures=failing))
    first, other = experiment.zones
    events = draw_events(experiment, first, "train", 0)
    assert len(events) > 6
    assert np.all(np.diff(events["at_us"]) >= 0)
    for machine in range(3):
        kinds = events["kind"][events["machine"] == machine]
        assert kinds.tolist() == [2, 3] * (len(kinds) // 2)
    again = draw_events(experiment, first, "train", 0)
    assert events.tobytes() == again.tobytes()
    assert events.tobytes() != draw_events(experiment, first, "train", 1).tobytes()
    assert len(draw_events(experiment, other, "train", 0)) != len(events)


def test_random_failures_leave_machines_with_set_events_alone() -> None:
    experiment = tiny(
        zone(
            "a",
            machines(count=2),
            failures={"mean_up_s": 10.0, "mean_down_s": 5.0},
            machine_events=[_event(100.0, "join", 1)],
        )
    )
    events = draw_events(experiment, experiment.zones[0], "train", 0)
    assert events["kind"][events["machine"] == 1].tolist() == [0]
    assert (events["machine"] == 0).sum() > 2


def test_background_stays_within_the_capacity() -> None:
    background = {"mean": {"cpu_milli": 0.9}, "amplitude": 0.3, "sd": 0.2, "step_s": 5.0}
    experiment = tiny(zone("a", machines(count=2), background=background))
    series = draw_background(experiment, experiment.zones[0], "train", 0)
    assert series.shape == (24, 2, 2)
    assert series[:, :, 0].max() == 4000.0
    assert series[:, :, 0].min() >= 0.0
    assert not series[:, :, 1].any()


def test_credit_of_a_dead_instance_is_taken_back_whole() -> None:
    experiment = tiny(zone("a", machines(count=2), machine_events=[_event(4.0, "fail")]))
    cluster = Cluster(experiment).start({"a": table(Job(1.0, [Task([10.0])]))}).play()
    settled = cluster.settled["a"]
    first, second = settled[0, 0], settled[0, 1]
    assert len(first) == 2
    assert first[0] != 0.0
    assert sum(first) == 0.0
    assert len(second) == 1


def test_credit_of_an_offload_sums_to_what_the_last_placement_earned() -> None:
    experiment = tiny(zone("a"), zone("b", machine_events=_fails(6.0, 9.0)))
    jobs = table(Job(0.0, [Task([5.0], late_s=8.0)]))
    cluster = Cluster(experiment).start({"a": jobs}).play(sending(("a", 0)))
    at_a, at_b = cluster.settled["a"], cluster.settled["b"]
    placements = [at_b[0, number] for number in range(3)]
    assert [len(rewards) for rewards in placements] == [2, 2, 1]
    assert [sum(rewards) for rewards in placements[:2]] == [0.0, 0.0]
    assert len(at_a[0, 0]) == 5
    penalty = experiment.reward.offload
    assert sum(at_a[0, 0]) == pytest.approx(placements[2][0] - penalty, abs=1e-12)


def test_corrections_hold_under_many_random_failures() -> None:
    failing = {"mean_up_s": 25.0, "mean_down_s": 6.0}
    experiment = tiny(
        zone("a", machines(count=2), failures=failing),
        zone("b", machines(count=2), failures=failing),
        cluster={"max_hops": 2, "max_restarts": 2, "peer_queue_allowance": 0.5},
        workload={"load": 1.0},
    )
    cluster = Cluster(experiment, n_replicas=3).draw("train", [0, 1, 2]).play(at_random(1))
    restarted = 0
    for name in cluster.zones:
        for replica in range(3):
            rows = cluster.rows(name, replica)
            restarted += int(rows["restarts"].sum())
            final = {int(row["decision"]) for row in rows if row["status"] != FAILED}
            for (e, decision), rewards in cluster.settled[name].items():
                is_over = e != replica or decision in final
                assert is_over or sum(rewards) == pytest.approx(0.0, abs=1e-9)
            waiting = rows[(rows["status"] == WAITING) & (rows["via_zone"] < 0)]
            for decision in waiting["decision"][waiting["restarts"] > 0].tolist():
                assert sum(cluster.settled[name][replica, decision]) == pytest.approx(0, abs=1e-9)
    assert restarted > 20
