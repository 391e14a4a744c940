"""When instances start, how long they run, when they finish, worked out by hand."""

import pytest
from tiny import Cluster, Job, Task, first_peer, machines, sending, table, tiny, zone

from marl_sched.cluster.model import FINISHED, OFFLOADED


def test_duration_is_work_over_speed_times_interference() -> None:
    experiment = tiny(zone("a", machines(speed=2.0)))
    # 3 of 4 cores in use: u = 0.75, 1 + 0.8 * 0.25 / 0.5 = 1.4; 10 s of work at speed 2.
    jobs = table(Job(3.0, [Task([10.0], (2000, 1024), (3000, 512))]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    assert cluster.times("a", "start") == [3.0]
    assert cluster.times("a", "finish") == [pytest.approx(10.0, abs=1e-6)]
    assert cluster.rows("a")["status"].tolist() == [FINISHED]


def test_a_running_instance_keeps_the_duration_it_started_with() -> None:
    experiment = tiny(zone("a"))
    one = Task([10.0], (1000, 1024), (2000, 512))
    jobs = table(Job(0.0, [one]), Job(1.0, [one]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    # The first sees u = 0.5: no interference; the second u = 1: 1.8.
    assert cluster.times("a", "finish") == [10.0, 19.0]


def test_use_beyond_the_capacity_slows_down_further() -> None:
    jobs = table(Job(0.0, [Task([10.0], (1000, 1024), (6000, 512))]))
    cluster = Cluster(tiny(zone("a"))).start({"a": jobs}).play()
    assert cluster.times("a", "finish") == [26.0]  # u = 1.5: 1 + 0.8 * 2


def test_waiting_instance_starts_when_room_is_freed_in_the_middle_of_a_window() -> None:
    experiment = tiny(zone("a"), cluster={"interference": 0.0})
    jobs = table(Job(0.0, [Task([7.0], (3000, 1024))]), Job(1.0, [Task([2.0], (2000, 1024))]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    assert cluster.times("a", "start") == [0.0, 7.0]


def test_a_finish_frees_room_for_an_arrival_at_the_same_time() -> None:
    experiment = tiny(zone("a"), cluster={"interference": 0.0})
    jobs = table(Job(0.0, [Task([7.0], (4000, 1024))]), Job(7.0, [Task([2.0], (4000, 1024))]))
    cluster = Cluster(experiment).start({"a": jobs}).play()
    assert cluster.times("a", "start") == [0.0, 7.0]
    assert len(cluster.decided["a"]) == 2


def test_child_is_ready_when_all_instances_of_all_parents_have_finished() -> None:
    experiment = tiny(zone("a", machines(count=3)), cluster={"interference": 0.0})
    # Diamond: 0 -> 1, 0 -> 2, (1, 2) -> 3.
    jobs = table(
        Job(
            1.0,
            [
                Task([2.0, 6.0]),
                Task([3.0], parents=[0]),
                Task([4.0, 5.0], parents=[0]),
                Task([1.0], parents=[1, 2]),
            ],
        )
    )
    cluster = Cluster(experiment).start({"a": jobs}).play()
    assert cluster.times("a", "ready") == [1.0, 1.0, 7.0, 7.0, 7.0, 12.0]
    assert cluster.times("a", "finish")[-1] == 13.0


def test_offload_arrives_after_its_transfer_or_at_the_next_window() -> None:
    experiment = tiny(zone("a"), zone("b"), cluster={"interference": 0.0})
    jobs = table(
        Job(0.0, [Task([1.0], (1000, 2048))]),  # 2 + 0.5 * 2 = 3 s: before the next window at 5
        Job(3.0, [Task([1.0], (1000, 4096))]),  # 2 + 0.5 * 4 = 4 s: at 7
    )
    cluster = Cluster(experiment).start({"a": jobs}).play(first_peer)
    assert cluster.times("b", "start") == [5.0, 7.0]
    assert cluster.times("b", "ready") == [0.0, 3.0]
    assert cluster.rows("a")["status"].tolist() == [OFFLOADED, OFFLOADED]
    assert cluster.rows("b")["transfer_us"].tolist() == [3_000_000, 4_000_000]


def test_child_of_an_offloaded_parent_is_ready_at_the_window_after_its_finish() -> None:
    experiment = tiny(zone("a"), zone("b"), cluster={"interference": 0.0})
    jobs = table(Job(0.0, [Task([4.0], (1000, 1024)), Task([1.0], parents=[0])]))
    cluster = Cluster(experiment).start({"a": jobs}).play(sending(("a", 0)))
    assert cluster.times("b", "finish") == [9.0]  # arrives at 5 (2.5 s of transfer), runs 4 s
    assert cluster.times("a", "ready") == [0.0, 10.0]
    assert cluster.times("a", "start")[1] == 10.0
    metrics = cluster.metrics()
    assert metrics["mean_job_completion_s"].tolist() == [11.0]
    assert metrics["mean_completion_s"].tolist() == [pytest.approx((9.0 + 1.0) / 2)]


def test_task_with_instances_here_and_there_waits_for_both() -> None:
    experiment = tiny(zone("a"), zone("b"), cluster={"interference": 0.0})
    jobs = table(Job(0.0, [Task([2.0, 6.0], (1000, 1024)), Task([1.0], parents=[0])]))
    cluster = Cluster(experiment).start({"a": jobs}).play(sending(("a", 1)))
    assert cluster.times("b", "finish") == [11.0]
    assert cluster.times("a", "ready")[2] == 15.0


def test_offloads_that_arrive_together_go_by_sender_and_then_by_sequence() -> None:
    experiment = tiny(
        zone("a"),
        zone("b"),
        zone("c", machines(cpu=1000)),
        cluster={"interference": 0.0, "peer_queue_allowance": 1.0},
    )
    tables = {
        "a": table(Job(0.0, [Task([1.0], (1000, 1024)), Task([1.0], (1000, 1024))])),
        "b": table(Job(0.0, [Task([1.0], (1000, 1024))])),
    }
    sent = sending(("a", 0), ("a", 1), ("b", 0), peer=1)
    cluster = Cluster(experiment).start(tables).play(sent)
    # All take 2.5 s, arrive at the next window and are ready since 0.
    rows = cluster.rows("c")
    assert rows["via_zone"].tolist() == [0, 0, 1]
    assert rows["via_instance"].tolist() == [0, 1, 0]
    assert cluster.times("c", "start") == [5.0, 6.0, 7.0]
