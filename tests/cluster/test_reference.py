"""The kernels against the slow reference and the books, over random small clusters."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import play_reference
from reference_zone import RefZone
from tiny import Act, Cluster, asking, at_random, first_open, first_peer, machines, tiny, zone

from marl_sched.cluster.machines import draw_background, draw_events
from marl_sched.cluster.model import (
    FAILED,
    FINISHED,
    IN_TRANSIT,
    NOT_READY,
    OFFLOADED,
    RUNNING,
    SUM_INSTANCES,
    SUM_JOBS,
    SUM_TASKS,
    WAITING,
)
from marl_sched.cluster.state import EpisodeInput
from marl_sched.config import Experiment
from marl_sched.workload.episodes import draw_workload

STATUS = {
    "not ready": NOT_READY,
    "waiting": WAITING,
    "running": RUNNING,
    "finished": FINISHED,
    "failed": FAILED,
    "offloaded": OFFLOADED,
    "in transit": IN_TRANSIT,
}
POLICIES = {"random": at_random, "here": lambda _: first_open, "away": lambda _: first_peer}


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    """Draw a cluster of 1-3 zones with everything that can happen in it.

    With gpus as a third resource some machines have none, and some types ask for none.
    """
    has_gpus = draw(st.booleans())
    gpus = st.sampled_from([0, 4]) if has_gpus else st.none()
    zones: list[dict[str, Any]] = []
    for name in ("a", "b", "c")[: draw(st.integers(1, 3))]:
        groups = [
            machines(
                count=draw(st.integers(1, 2)),
                cpu=draw(st.sampled_from([4000, 6000])),
                memory=draw(st.sampled_from([3072, 8192])),
                speed=draw(st.sampled_from([0.7, 1.0, 1.3])),
                gpu=draw(gpus),
            )
            for _ in range(draw(st.integers(1, 2)))
        ]
        more: dict[str, Any] = {}
        if draw(st.booleans()):
            more["failures"] = {"mean_up_s": 30.0, "mean_down_s": 8.0}
        if draw(st.booleans()):
            # A large sd takes what was allocated: less than nothing is free.
            mean = {"cpu_milli": 0.2, "memory_mib": 0.1} | ({"gpu": 0.4} if has_gpus else {})
            sd = draw(st.sampled_from([0.1, 0.4]))
            more["background"] = {"mean": mean, "sd": sd, "step_s": 10.0}
        events = st.tuples(st.sampled_from(["join", "drain", "fail", "return"]), st.integers(0, 24))
        more["machine_events"] = [
            {"kind": kind, "at_s": 2.5 * at, "machine": 0}
            for kind, at in draw(st.lists(events, max_size=3))
        ]
        zones.append(zone(name, *groups, **more))
    cluster = {
        "queue": draw(st.sampled_from(["set-aside", "strict-fifo"])),
        "placement": draw(st.sampled_from(["masked", "unmasked"])),
        "interference": draw(st.sampled_from([0.0, 0.8])),
        "max_hops": draw(st.integers(0, 2)),
        "max_restarts": draw(st.integers(0, 2)),
        "peer_queue_allowance": draw(st.sampled_from([0.0, 0.5])),
        "offload_base_s": draw(st.sampled_from([0.0, 2.0])),
    }
    if has_gpus and not any(one["capacity"]["gpu"] for z in zones for one in z["machines"]):
        zones[0]["machines"][0]["capacity"]["gpu"] = 4  # some machine must have them
    requests = [{"memory_mib": draw(st.sampled_from([0, 1024]))}, {}]
    if has_gpus:
        requests = [{**request, "gpu": draw(st.integers(0, 1))} for request in requests]
    workload = {"load": draw(st.sampled_from([0.5, 1.0])), "task_types": asking(*requests)}
    seed = draw(st.integers(0, 1000))
    horizon = {"horizon_s": 40.0, "drain_s": 20.0}
    return tiny(
        *zones,
        has_gpus=has_gpus,
        cluster=cluster,
        workload=workload,
        episode=horizon,
        seed=seed,
    )


def whole_inputs(experiment: Experiment) -> dict[str, EpisodeInput]:
    """Draw an episode whose uses are whole numbers, so that their sums are exact."""
    inputs = {}
    for config in experiment.zones:
        drawn = draw_workload(experiment, config, "train", 0)
        inputs[config.name] = EpisodeInput(
            replace(drawn, use=np.round(drawn.use)),
            draw_events(experiment, config, "train", 0),
            np.round(draw_background(experiment, config, "train", 0)),
        )
    return inputs


def play_both(
    experiment: Experiment, act: Act
) -> tuple[Cluster, dict[str, RefZone], dict[str, list[list[bool]]]]:
    """Play the kernels with a policy, then the reference with the same actions."""
    inputs = whole_inputs(experiment)
    cluster = Cluster(experiment)
    for name, env in cluster.zones.items():
        env.begin_with([inputs[name]])
    cluster.opened()
    masks: dict[str, list[list[bool]]] = {name: [] for name in cluster.zones}
    cluster.play(act, each=lambda name, seen: masks[name].append(seen.mask[0].tolist()))
    actions = {name: [action for *_, action in rows] for name, rows in cluster.decided.items()}
    return cluster, play_reference(experiment, inputs, actions), masks


def check_conservation(cluster: Cluster, inputs: dict[str, EpisodeInput]) -> None:
    """Check that every instance, task and job was scored once, whatever happened."""
    tables = [given.table for given in inputs.values()]
    sums = sum(env.finish().sums[0] for env in cluster.zones.values())
    assert sums[SUM_INSTANCES] == sum(table.n_instances for table in tables)
    assert sums[SUM_TASKS] == sum(table.n_tasks for table in tables)
    assert sums[SUM_JOBS] == sum(table.n_jobs for table in tables)


def check_settlements(cluster: Cluster) -> None:
    """Check that every decision was settled, and nothing else."""
    for name, decisions in cluster.decided.items():
        taken = {(replica, number) for replica, number, _ in decisions}
        assert len(taken) == len(decisions)
        assert set(cluster.settled[name]) == taken


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(experiment=experiments(), policy=st.sampled_from(sorted(POLICIES)))
def test_kernels_do_what_the_reference_does(experiment: Experiment, policy: str) -> None:
    act = POLICIES[policy](experiment.seed)
    cluster, reference, masks = play_both(experiment, act)
    for name, expected in reference.items():
        assert masks[name] == expected.masks
        rows = cluster.rows(name)
        assert rows["status"].tolist() == [STATUS[i.status] for i in expected.instances]
        placed = [i for i in expected.instances if i.status in ("running", "finished")]
        chosen = rows[[i.row for i in placed]]
        for column in ("machine", "start_us", "finish_us", "restarts", "ready_us", "hops"):
            assert chosen[column].tolist() == [getattr(i, column) for i in placed], column
    check_conservation(cluster, whole_inputs(experiment))
    check_settlements(cluster)
