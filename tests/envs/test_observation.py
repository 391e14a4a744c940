"""Every column of the observation, by name, against a slow computation from the instance rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tiny import Act, Cluster, asking, at_random, first_open, given, machines, tiny, zone
from truth import W_S, Truth

from marl_sched.config import Experiment
from marl_sched.envs import observation as columns
from marl_sched.observation import LIMIT, Layout, Observation
from marl_sched.workload.episodes import draw_workload

SOME_GPUS = (2, 0, 4, 0)
"""Of the machines of zone a, its large machine, zone b and zone c."""


def _experiment(gpus: tuple[int, ...] = (), **changes: Any) -> Experiment:
    """Zones of unequal machines where everything happens: events, background, prices, offloads.

    With `gpus` on the groups of machines, one type of task asks for none, and for no memory.
    """
    on = gpus or (None,) * 4
    types = {"task_types": asking({"gpu": 0, "memory_mib": 0}, {"gpu": 1})} if gpus else {}
    use = {"cpu_milli": 0.3, "memory_mib": 0.1} | ({"gpu": 0.2} if gpus else {})
    events = [
        {"at_s": 12.0, "machine": 1, "kind": "drain"},
        {"at_s": 31.0, "machine": 1, "kind": "return"},
        {"at_s": 16.0, "machine": 2, "kind": "join"},
        {"at_s": 33.3, "machine": 0, "kind": "fail"},
        {"at_s": 47.0, "machine": 0, "kind": "return"},
    ]
    return tiny(
        zone(
            "a",
            machines(2, price_per_hour=1.5, gpu=on[0]),
            machines(cpu=8000, speed=1.3, reserved={"cpu_milli": 500}, gpu=on[1]),
            load=1.4,
            machine_events=events,
        ),
        zone(
            "b",
            machines(2, memory=4096, speed=0.8, gpu=on[2]),
            background={"mean": use, "sd": 0.1, "step_s": 10.0},
        ),
        zone("c", machines(cpu=6000, price_per_hour=0.3, gpu=on[3])),
        has_gpus=bool(gpus),
        workload=types,
        cluster={"peer_queue_allowance": 0.4, "max_hops": 2, **changes},
        seed=3,
    )


def _walk(experiment: Experiment, act: Act) -> Iterator[tuple[Truth, Observation]]:
    """Play an episode and yield each zone's truth with its observation."""
    cluster = Cluster(experiment)
    for env in cluster.zones.values():
        config = env.simulator.zone
        env.begin_with([given(experiment, config, draw_workload(experiment, config, "train", 0))])
    truths = {name: Truth(experiment, cluster, name) for name in cluster.zones}
    _tell(truths)
    cluster.opened()
    period = round(experiment.cluster.digest_period_s / W_S)
    number = 0
    while not cluster.done:
        for name, env in cluster.zones.items():
            while (seen := env.observe()) is not None:
                truths[name].note_starts()
                yield truths[name], seen
                env.step(act(name, seen))
            truths[name].note_starts()
            truths[name].close_window(number)
        number += 1
        if number % period == 0:
            _tell(truths)
        cluster.end_window()


def _tell(truths: dict[str, Truth]) -> None:
    digests = {name: truth.digest() for name, truth in truths.items()}
    for truth in truths.values():
        truth.digests, truth.digest_us = digests, truth.now_us


def _check_columns(names: tuple[str, ...], found: np.ndarray, expected: dict[str, float]) -> None:
    assert set(names) == set(expected)
    for name, value in zip(names, found.tolist(), strict=True):
        if not np.isnan(expected[name]):
            wanted = np.clip(expected[name], -LIMIT, LIMIT)
            assert value == pytest.approx(wanted, rel=1e-5, abs=2e-6), name


@pytest.mark.parametrize(
    ("rules", "act"),
    [
        ({}, at_random(1)),
        ({"interference": 1.6, "queue": "strict-fifo"}, first_open),
        ({"placement": "unmasked"}, at_random(2)),
        ({"gpus": (4, 4, 4, 4)}, at_random(6)),
        ({"gpus": SOME_GPUS}, at_random(4)),
        ({"gpus": SOME_GPUS, "placement": "unmasked"}, at_random(5)),
    ],
)
def test_every_column_says_what_its_name_says(rules: dict[str, Any], act: Act) -> None:
    experiment = _experiment(**rules)
    layout = Layout(tuple(experiment.resources))
    n_seen = 0
    for truth, seen in _walk(experiment, act):
        n_seen += 1
        m = seen.n_machines
        assert seen.mask[0].tolist() == truth.mask()
        _check_columns(layout.instance, seen.instance[0], truth.instance_columns())
        _check_columns(layout.zone, seen.zone[0], truth.zone_columns(seen.mask[0]))
        for machine in range(m):
            expected = truth.machine_columns(machine)
            _check_columns(layout.candidate, seen.candidates[0, machine], expected)
        for number, peer in enumerate(truth.peers):
            expected = truth.peer_columns(peer)
            _check_columns(layout.candidate, seen.candidates[0, m + number], expected)
    assert n_seen > 60


def test_columns_vary() -> None:
    """No column above agrees because it is the same number all the time."""
    experiment = _experiment()
    layout = Layout(tuple(experiment.resources))
    instance, candidate, whole = [], [], []
    for _, seen in _walk(experiment, at_random(1)):
        instance.append(seen.instance[0].copy())
        candidate.append(seen.candidates[0].copy())
        whole.append(seen.zone[0].copy())
    still = {
        name
        for names, rows in (
            (layout.instance, np.array(instance)),
            (layout.candidate, np.concatenate(candidate)),
            (layout.zone, np.array(whole)),
        )
        for name, sd in zip(names, rows.std(axis=0), strict=True)
        if sd == 0
    }
    assert still == set()


def test_features_stay_in_their_bounds_when_everything_is_extreme() -> None:
    events = [{"at_s": 10.0, "machine": 1, "kind": "fail"}]
    experiment = tiny(
        zone("a", machines(cpu=4000), machines(cpu=400_000, memory=900_000), machine_events=events),
        zone("b", machines(cpu=400_000, memory=900_000, speed=0.01, price_per_hour=1e6)),
        cluster={"interference": 50.0, "peer_queue_allowance": 1.0},
        workload={"load": 1.0},
    )
    n_seen = 0
    for _, seen in _walk(experiment, at_random(0)):
        n_seen += 1
        for array in (seen.instance, seen.candidates, seen.zone):
            assert np.isfinite(array).all()
            assert np.abs(array).max() <= LIMIT
    assert n_seen > 50


def test_names_and_numbers_of_columns_agree() -> None:
    layout = Layout(("cpu_milli", "memory_mib", "gpu"))
    r = 3
    plain = {
        "is_machine": columns.IS_MACHINE,
        "is_peer": columns.IS_PEER,
        "speed": columns.SPEED,
        "price": columns.PRICE,
        "alignment": columns.ALIGNMENT,
        "allocation_gap": columns.ALLOCATION_GAP,
        "expected_duration": columns.EXPECTED_DURATION,
        "expected_late": columns.EXPECTED_LATE,
        "expected_slack": columns.EXPECTED_SLACK,
        "running": columns.RUNNING,
        "takes_largest_slot": columns.TAKES_LARGEST_SLOT,
        "cost": columns.COST,
        "digest_age": columns.DIGEST_AGE,
        "sent_share": columns.SENT_SHARE,
        "transfer": columns.TRANSFER,
        "fits_largest_slot": columns.FITS_LARGEST_SLOT,
    }
    blocks = {
        "free_share": columns.FREE_SHARE,
        "free_share_after": columns.FREE_SHARE_AFTER,
        "utilization": columns.UTILIZATION,
        "utilization_after": columns.UTILIZATION_AFTER,
        "utilization_mean": columns.UTILIZATION_MEAN,
        "utilization_sd": columns.UTILIZATION_SD,
        "imbalance_change": columns.IMBALANCE_CHANGE,
        "relative_size": columns.RELATIVE_SIZE,
    }
    numbers = dict(plain)
    for name, block in blocks.items():
        for index, resource in enumerate(layout.resources):
            numbers[f"{name}:{resource}"] = columns.N_PLAIN_CANDIDATE + block * r + index
    assert [name for name, _ in sorted(numbers.items(), key=lambda item: item[1])] == list(
        layout.candidate
    )
    assert len(blocks) == columns.N_CANDIDATE_BLOCKS
    assert layout.instance[columns.N_PLAIN_INSTANCE :] == tuple(
        f"{name}:{resource}" for name in ("request", "use") for resource in layout.resources
    )
    assert layout.instance[columns.GROUP] == "group"
    assert layout.instance[columns.PRIORITY] == "priority"
    assert len(layout.zone) == columns.N_PLAIN_ZONE + 4 * r
    assert layout.zone[columns.ARRIVALS] == "arrivals"
    assert layout.zone[columns.N_PLAIN_ZONE + columns.QUEUE_SHARE * r] == "queue_share:cpu_milli"


def test_rewriting_into_the_same_arrays_leaves_nothing_behind() -> None:
    experiment = _experiment()
    cluster = Cluster(experiment).draw("train", [0])
    env = cluster.zones["a"]
    while (seen := env.observe()) is None:
        cluster.play(until_s=cluster.now_s + W_S)
    before = seen.candidates.copy()
    env._candidates[:] = np.nan
    env._instance[:] = np.nan
    env._zone[:] = np.nan
    again = env.observe()
    assert again is not None
    assert again.candidates.tobytes() == before.tobytes()
    assert np.isfinite(again.instance).all()
    assert np.isfinite(again.zone).all()
