from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marl_sched.config import Experiment, TraceWorkload, load_config
from marl_sched.errors import TraceError
from marl_sched.workload.assembly import offsets
from marl_sched.workload.episodes import draw_workload
from marl_sched.workload.offered_load import offered_load
from marl_sched.workload.table import InstanceTable
from marl_sched.workload.traces.episodes import TraceAccount, draw_trace
from marl_sched.workload.validation import check_table

Rows = list[dict[str, Any]]
Writer = Callable[[Rows], str]
CONFIGS = Path(__file__).parents[3] / "configs"


def columns(table: InstanceTable) -> dict[str, bytes]:
    return {field.name: getattr(table, field.name).tobytes() for field in fields(table)}


def draw(
    experiment: Experiment, zone: int = 0, split: str = "train", episode: int = 0
) -> tuple[InstanceTable, TraceAccount]:
    assert isinstance(experiment.workload, TraceWorkload)
    return draw_trace(experiment, experiment.workload, experiment.zones[zone], split, episode)


@pytest.fixture
def experiment(trace: str) -> Experiment:
    """One machine of 100 cores; a job of the small trace asks for 160 core-s, a giant 160,000."""
    return load_config(
        CONFIGS / "demo.yaml",
        [
            f"workload.path={trace}",
            "workload.train_arrivals_s=[0.0, 120.0]",
            "workload.test_arrivals_s=[120.0, 200.0]",
            "workload.max_job_share=0.5",
            "workload.load=0.8",
            "workload.load_tolerance=0.1",
            "episode.horizon_s=50.0",
            "zones=[{name: only, machines: [{count: 1, capacity: "
            "{cpu_milli: 100000, memory_mib: 393216}}]}]",
        ],
    )


@pytest.mark.parametrize("name", ["demo", "alibaba-v2018", "alibaba-v2018-whole"])
def test_real_hour_offers_the_configured_load_within_its_tolerance(name: str) -> None:
    experiment = load_config(CONFIGS / f"{name}.yaml")
    for number, zone in enumerate(experiment.zones):
        for split, episode in (("train", 0), ("validation", 1), ("test", 2), ("tune", 3)):
            table, account = draw(experiment, number, split, episode)
            load = offered_load(experiment, zone, table).max()
            assert load == pytest.approx(account.load)
            assert load == pytest.approx(experiment.workload.load, rel=0.02)
            check_table(table, experiment)


@pytest.mark.parametrize(
    ("name", "n_episodes"), [("demo", 60), ("alibaba-v2018", 60), ("alibaba-v2018-whole", 4)]
)
def test_every_window_of_the_real_hour_holds_enough_jobs(name: str, n_episodes: int) -> None:
    experiment = load_config(CONFIGS / f"{name}.yaml")
    accounts = [
        draw(experiment, zone, split, episode)[1]
        for zone in range(3)
        for split in ("train", "test")
        for episode in range(n_episodes)
    ]
    assert min(account.n_not_needed for account in accounts) > 100


def test_equal_arguments_give_equal_bytes(experiment: Experiment) -> None:
    assert columns(draw(experiment)[0]) == columns(draw(experiment)[0])
    assert columns(draw(experiment)[0]) != columns(draw(experiment, episode=1)[0])


def test_adding_a_zone_leaves_the_other_tables_unchanged() -> None:
    experiment = load_config(CONFIGS / "demo.yaml")
    group = experiment.zones[0].machines[0]
    newcomer = experiment.zones[0].model_copy(
        update={
            "name": "newcomer",
            "machines": [
                group.model_copy(update={"capacity": {"cpu_milli": 999_000, "memory_mib": 999_000}})
            ],
        }
    )
    larger = experiment.model_copy(update={"zones": [newcomer, *experiment.zones]})
    for zone in experiment.zones:
        alone = columns(draw_workload(experiment, zone, "train", 0))
        assert alone == columns(draw_workload(larger, zone, "train", 0))


def test_zones_of_an_episode_share_the_window_but_not_the_jobs() -> None:
    experiment = load_config(CONFIGS / "demo.yaml")
    (one, first), (other, second) = draw(experiment, 0), draw(experiment, 1)
    assert first.window_start_s == second.window_start_s
    assert one.job_arrival_us[:30].tolist() != other.job_arrival_us[:30].tolist()


@pytest.mark.parametrize(
    ("split", "low", "high"), [("train", 0, 120), ("tune", 0, 120), ("test", 120, 200)]
)
def test_splits_draw_from_their_arrivals_only(
    experiment: Experiment, split: str, low: int, high: int
) -> None:
    starts = {draw(experiment, split=split, episode=e)[1].window_start_s for e in range(40)}
    assert min(starts) >= low
    assert max(starts) <= high - 50
    assert len(starts) > 15


def test_every_job_of_the_window_is_accounted_for(experiment: Experiment) -> None:
    _, account = draw(experiment)
    assert account.n_window_jobs == 50
    assert account.n_too_large == 5  # every tenth is a giant
    # 100 cores x 50 s x .8 = 4,000 core-s: 25 jobs of 160
    assert account.n_drawn == 25
    assert account.n_not_needed == 20
    assert account.n_overshooting == account.n_unplaceable == 0
    assert account.load == pytest.approx(0.8)


def test_cut_tasks_keep_so_many_instances_and_their_jobs_are_in(experiment: Experiment) -> None:
    workload = experiment.workload.model_copy(update={"max_task_instances": 3})
    table, account = draw(experiment.model_copy(update={"workload": workload}))
    assert account.n_too_large == 0  # giants have 4,000 instances a task, others 4
    assert (np.diff(table.task_instance_start) == 3).all()
    # 4,000 core-s are 33.3 jobs of 120
    assert account.n_drawn == 34
    assert account.load == pytest.approx(34 * 120 / 5_000)


def test_jobs_are_drawn_without_replacement_inside_the_window(experiment: Experiment) -> None:
    table, _ = draw(experiment)
    seconds = table.job_arrival_us // 1_000_000  # one job a second in this trace
    assert len(np.unique(seconds)) == table.n_jobs
    assert (np.diff(table.job_arrival_us) >= 0).all()
    assert table.job_arrival_us.max() < 50_000_000


def test_dag_of_every_job_is_the_traces(experiment: Experiment) -> None:
    table, _ = draw(experiment)
    first = table.job_task_start[:-1]
    wanted = first[:, None] + np.array([0, 0, 1, 2])  # the diamond: 1 and 2 after 0, 3 after both
    assert table.task_parents.tolist() == wanted.ravel().tolist()
    assert np.diff(table.task_parent_start).tolist() == [0, 1, 1, 2] * table.n_jobs


def test_amounts_are_in_the_configurations_units(experiment: Experiment) -> None:
    table, _ = draw(experiment)
    assert table.request[0].tolist() == [1000, 3932]
    starts = offsets(np.full(table.n_tasks, 4))
    assert (table.task_instance_start == starts).all()
    assert table.use[:4, 0].mean() == pytest.approx(500)
    assert table.use[:4, 1].mean() == pytest.approx(786)
    assert table.work_us[:4].mean() == pytest.approx(10_000_000, abs=1)


def test_sla_is_measured_by_the_tasks_mean_whatever_is_known(experiment: Experiment) -> None:
    unknowing = experiment.model_copy(update={"duration_knowledge": "none"})
    for table, _ in (draw(experiment), draw(unknowing)):
        assert set(table.reference_s.tolist()) == {10.0}
        assert set(table.latest_wait_us.tolist()) == {7_500_000}
        assert set(table.latest_finish_us.tolist()) == {30_000_000}


def test_knowledge_changes_what_is_known_and_nothing_else() -> None:
    experiment = load_config(CONFIGS / "demo.yaml")
    tables = [
        columns(draw(experiment.model_copy(update={"duration_knowledge": kind}))[0])
        for kind in ("type", "task-mean", "none")
    ]
    known = {"known_mean_s", "known_sigma", "known_use", "task_class"}
    for other in tables[1:]:
        changed = {name for name in other if other[name] != tables[0][name]}
        assert "known_mean_s" in changed
        assert changed <= known


def test_task_mean_knowledge_is_the_reference() -> None:
    experiment = load_config(CONFIGS / "demo.yaml", ["duration_knowledge=task-mean"])
    table, _ = draw(experiment)
    assert (table.known_mean_s == table.reference_s).all()


def test_job_larger_than_any_machine_of_the_zone_is_left_out(experiment: Experiment) -> None:
    group = (
        experiment.zones[0]
        .machines[0]
        .model_copy(update={"capacity": {"cpu_milli": 999, "memory_mib": 393_216}, "count": 50})
    )
    zone = experiment.zones[0].model_copy(update={"machines": [group]})
    assert isinstance(experiment.workload, TraceWorkload)
    with pytest.raises(TraceError, match="50 larger than any machine"):
        draw_trace(experiment, experiment.workload, zone, "train", 0)


def test_window_with_too_few_jobs_says_so_with_numbers(experiment: Experiment) -> None:
    zone = experiment.zones[0].model_copy(update={"load": 5.0})
    assert isinstance(experiment.workload, TraceWorkload)
    with pytest.raises(
        TraceError, match=r"offers a load of 1\.440 by 45 of 50 jobs \(5 above .*expected 5\.0"
    ):
        draw_trace(experiment, experiment.workload, zone, "train", 0)


def test_background_use_leaves_less_to_fill(experiment: Experiment) -> None:
    busy = load_config(CONFIGS / "three-az.yaml").zones[0].background
    assert busy is not None
    busy = busy.model_copy(update={"mean": {"cpu_milli": 0.5}})
    zone = experiment.zones[0].model_copy(update={"background": busy})
    assert isinstance(experiment.workload, TraceWorkload)
    _, account = draw_trace(experiment, experiment.workload, zone, "train", 0)
    assert account.n_drawn == 13  # half of 25, the last one reaching .8


def test_a_longer_window_is_squeezed_into_the_horizon(experiment: Experiment) -> None:
    assert isinstance(experiment.workload, TraceWorkload)
    wide = experiment.workload.model_copy(update={"window_s": 100.0})
    table, account = draw_trace(experiment, wide, experiment.zones[0], "train", 0)
    assert account.n_window_jobs == 100
    assert table.job_arrival_us.max() < 50_000_000
    half_seconds = table.job_arrival_us // 500_000  # a job a second is now one every half second
    assert len(np.unique(half_seconds)) == table.n_jobs
    assert set(table.reference_s.tolist()) == {10.0}


def test_jobs_with_a_long_task_are_left_out_and_counted(
    experiment: Experiment, write_trace: Writer
) -> None:
    long = {f"duration_{name}_ms": 30_000 for name in ("mean", "p50", "p95", "max")}
    rows: Rows = []
    for job in range(200):
        rows += [{"job": job, "arrival_s": job, "n_instances": 16}]
        rows += [{"job": job, "arrival_s": job, "parents": [0]} | (long if job % 5 == 0 else {})]
    experiment = experiment.model_copy(
        update={
            "workload": experiment.workload.model_copy(
                update={"path": write_trace(rows), "max_duration_s": 29.9}
            )
        }
    )
    table, account = draw(experiment)
    assert (account.n_window_jobs, account.n_too_long, account.n_too_large) == (50, 10, 0)
    assert table.reference_s.max() == 10.0


def test_resources_are_matched_by_name_and_priority_is_the_traces(
    experiment: Experiment, write_trace: Writer
) -> None:
    gpu = {"use_mean:gpu_milli": 0.0, "use_max:gpu_milli": 0.0}
    rows: Rows = [
        {"job": job, "arrival_s": job, "n_instances": 16, "priority": job % 3}
        | {"request:gpu_milli": 500 * (job % 2)}
        | gpu
        for job in range(200)
    ]
    path = write_trace(rows)
    workload = experiment.workload.model_copy(update={"path": path})
    without = experiment.model_copy(update={"workload": workload})
    table, account = draw(without)
    assert account.n_unplaceable == 25  # the cluster has no GPU
    assert set(table.task_priority.tolist()) == {0, 1, 2}
    capacity = {"gpu_milli": 400_000, "cpu_milli": 100_000, "memory_mib": 393_216}
    data = without.model_dump() | {"resources": ["cpu_milli", "memory_mib", "gpu_milli"]}
    data["zones"][0]["machines"][0]["capacity"] = capacity
    table, account = draw(Experiment.model_validate(data))
    assert account.n_unplaceable == 0
    assert set(table.request[:, 2].tolist()) == {0, 500}
    assert (table.known_use[table.request[:, 2] == 0, 2] == 0).all()
