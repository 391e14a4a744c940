"""Who goes first, who steps aside, who blocks, and which peers are open."""

import numpy as np
import pytest
from tiny import Cluster, Job, Task, first_peer, machines, sending, table, tiny, zone

from marl_sched.cluster.model import PEER_SENT
from marl_sched.errors import PlacementError
from marl_sched.observation import Observation

STILL = {"interference": 0.0}


def _filled(*waiting: Job, cpu: int = 4000) -> object:
    """A job that fills the machine for 10 s, then others."""
    return table(Job(0.0, [Task([10.0], (cpu, 1024))]), *waiting)


def test_priority_goes_before_ready_time_before_sequence() -> None:
    jobs = _filled(
        Job(1.0, [Task([1.0], (4000, 1024))]),
        Job(2.0, [Task([1.0], (4000, 1024), priority=1)]),
        Job(3.0, [Task([1.0], (4000, 1024), priority=1), Task([1.0], (4000, 1024), priority=2)]),
        Job(3.0, [Task([1.0], (4000, 1024), priority=1)]),
    )
    cluster = Cluster(tiny(zone("a"), cluster=STILL)).start({"a": jobs}).play()
    assert cluster.times("a", "start") == [0.0, 14.0, 11.0, 12.0, 10.0, 13.0]


def test_instances_of_a_task_go_in_the_order_of_their_rows() -> None:
    jobs = table(Job(0.0, [Task([3.0, 2.0, 1.0], (4000, 1024))]))
    cluster = Cluster(tiny(zone("a"), cluster=STILL)).start({"a": jobs}).play()
    assert cluster.times("a", "start") == [0.0, 3.0, 5.0]


def test_a_head_that_fits_nowhere_steps_aside_and_is_retried_at_a_release() -> None:
    jobs = table(
        Job(0.0, [Task([12.0], (3000, 1024))]),
        Job(1.0, [Task([1.0], (2000, 1024))]),  # fits nowhere until 12
        Job(2.0, [Task([1.0], (1000, 1024))]),
    )
    cluster = Cluster(tiny(zone("a"), cluster=STILL)).start({"a": jobs}).play()
    assert cluster.times("a", "start") == [0.0, 12.0, 2.0]


def test_strict_head_blocks_those_behind_it() -> None:
    jobs = table(
        Job(0.0, [Task([12.0], (3000, 1024))]),
        Job(1.0, [Task([1.0], (2000, 1024))]),
        Job(2.0, [Task([1.0], (1000, 1024))]),
    )
    experiment = tiny(zone("a"), cluster={**STILL, "queue": "strict-fifo"})
    cluster = Cluster(experiment).start({"a": jobs}).play()
    assert cluster.times("a", "start") == [0.0, 12.0, 12.0]


def test_a_group_set_aside_keeps_its_place_among_equals() -> None:
    same = Task([1.0], (4000, 1024))
    jobs = _filled(Job(1.0, [same]), Job(1.0, [same]), Job(9.0, [same]))
    cluster = Cluster(tiny(zone("a"), cluster=STILL)).start({"a": jobs}).play()
    assert cluster.times("a", "start") == [0.0, 10.0, 11.0, 12.0]


def test_release_of_too_little_leaves_the_group_aside() -> None:
    jobs = table(
        Job(0.0, [Task([6.0], (1000, 1024)), Task([8.0], (3000, 1024))]),
        Job(1.0, [Task([1.0], (2000, 1024))]),
    )
    cluster = Cluster(tiny(zone("a"), cluster=STILL)).start({"a": jobs}).play()
    assert cluster.times("a", "start")[2] == 8.0
    assert len(cluster.decided["a"]) == 3


def test_a_peer_that_frees_up_is_tried_when_a_window_opens() -> None:
    experiment = tiny(
        zone("a", machines(cpu=1000)), zone("b"), cluster={**STILL, "digest_period_s": 5.0}
    )
    big = Task([1.0], (4000, 1024))
    tables = {
        "a": table(Job(1.0, [big])),  # never fits here; b's first digest shows room at once
        "b": table(Job(0.0, [Task([7.0], (4000, 1024))])),
    }
    cluster = Cluster(experiment).start(tables).play()
    # b's opening digest (all free) lets it go at 1; b is full from 0 to 7.
    assert cluster.times("b", "start") == [0.0, 7.0]
    tables["a"] = table(Job(6.0, [big]))
    cluster = Cluster(experiment).start(tables).play()
    # The digest at 5 shows b full, the one at 10 shows it empty: sent at 10, there at 15.
    assert [decision[:2] for decision in cluster.decided["a"]] == [(0, 0)]
    assert cluster.rows("a")["start_us"].tolist() == [10_000_000]
    assert cluster.times("b", "start") == [0.0, 15.0]


def _masks(cluster: Cluster, until_s: float, act: object = first_peer) -> list[list[bool]]:
    seen: list[list[bool]] = []

    def note(name: str, observation: Observation) -> None:
        if name == "a":
            seen.append(observation.mask[0, observation.n_machines :].tolist())

    cluster.play(act, until_s, each=note)
    return seen


def test_an_instance_without_hops_left_stays() -> None:
    experiment = tiny(zone("a"), zone("b"), cluster={**STILL, "max_hops": 1})
    jobs = table(Job(0.0, [Task([1.0])]))
    cluster = Cluster(experiment).start({"a": jobs})
    seen: list[list[bool]] = []
    cluster.play(first_peer, each=lambda _, o: seen.append(o.mask[0, o.n_machines :].tolist()))
    assert seen == [[True], [False]]  # at a, then at b


def test_two_hops_lead_on_and_back() -> None:
    experiment = tiny(zone("a"), zone("b"), zone("c"), cluster={**STILL, "max_hops": 2})
    jobs = table(Job(0.0, [Task([1.0], finish_s=60.0), Task([1.0], parents=[0])]))
    act = sending(("a", 0), ("b", 0))
    cluster = Cluster(experiment).start({"a": jobs}).play(act)
    # a -> b (2.5 s: at 5), b -> its first peer a (at 10); a's own row learns it through b.
    rows = cluster.rows("a")
    assert rows["hops"].tolist() == [0, 0, 2]
    assert cluster.times("a", "finish")[2] == 11.0
    # Finished at 11, notice to b at 15, from b to a at 20: the child is ready then.
    assert cluster.times("a", "ready")[1] == 20.0


def test_a_request_that_no_machine_of_the_peer_can_hold_masks_it() -> None:
    experiment = tiny(
        zone("a", machines(cpu=8000, memory=16384)),
        zone("b", machines(cpu=8000, memory=1024), machines(cpu=1000, memory=16384)),
        zone("c", machines(cpu=4000, memory=8192)),
        cluster=STILL,
    )
    # 2 cores and 4 GiB: b has either on one machine, never both; c has both.
    jobs = table(Job(0.0, [Task([1.0], (2000, 4096))]), Job(0.5, [Task([1.0], (500, 8192))]))
    seen = _masks(Cluster(experiment).start({"a": jobs}), 5.0, sending())
    assert seen == [[False, True], [True, True]]


def test_reserved_amounts_do_not_count_as_room_of_a_peer() -> None:
    experiment = tiny(
        zone("a"), zone("b", machines(cpu=4000, reserved={"cpu_milli": 1500})), cluster=STILL
    )
    jobs = table(Job(0.0, [Task([1.0], (2500, 1024))]), Job(0.5, [Task([1.0], (2501, 1024))]))
    act = sending()
    assert _masks(Cluster(experiment).start({"a": jobs}), 5.0, act) == [[True], [False]]


def test_what_was_sent_since_the_digest_closes_a_peer_until_the_next_one() -> None:
    experiment = tiny(zone("a"), zone("b"), cluster=STILL)  # digests at 0, 10, ...
    one = Task([1.0], (2000, 1024))
    jobs = table(*(Job(s, [one]) for s in (0.0, 1.0, 2.0, 6.0, 11.0)))
    cluster = Cluster(experiment).start({"a": jobs})
    assert _masks(cluster, 15.0) == [[True], [True], [False], [False], [True]]
    sent = cluster.zones["a"].simulator.state.peer_amount[0, 0, PEER_SENT]
    assert sent.tolist() == [2000.0, 1024.0]


def test_allowance_adds_a_share_of_the_peers_allocatable() -> None:
    experiment = tiny(zone("a"), zone("b"), cluster={**STILL, "peer_queue_allowance": 0.5})
    one = Task([1.0], (2000, 1024))
    jobs = table(*(Job(s, [one]) for s in (0.0, 1.0, 2.0, 3.0)))
    assert _masks(Cluster(experiment).start({"a": jobs}), 5.0) == [[True], [True], [True], [False]]


def test_a_masked_action_changes_nothing_and_says_which() -> None:
    experiment = tiny(zone("a", machines(cpu=1000), machines(cpu=4000)))
    jobs = table(Job(0.0, [Task([1.0], (2000, 1024))]))
    cluster = Cluster(experiment).start({"a": jobs})
    env = cluster.zones["a"]
    before = {name: array.copy() for name, array in env.simulator.state._asdict().items()}
    assert env.observe() is not None
    with pytest.raises(PlacementError, match=r"zone a, replica 0: action 0 is masked"):
        env.step(np.array([0]))
    for name, array in env.simulator.state._asdict().items():
        assert np.array_equal(array, before[name]), name


def test_no_decision_is_asked_for_while_nothing_is_open() -> None:
    jobs = table(Job(0.0, [Task([1.0], (9000, 1024))]))
    cluster = Cluster(tiny(zone("a"))).start({"a": jobs}).play()
    assert cluster.decided["a"] == []
    assert cluster.metrics()["unfinished_rate"].tolist() == [1.0]
