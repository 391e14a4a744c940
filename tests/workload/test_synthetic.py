from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from tiny import asking, with_gpus_on_some

from marl_sched.config import (
    Experiment,
    ModulatedPoisson,
    SyntheticWorkload,
    Waves,
    Zone,
    load_config,
)
from marl_sched.config.streams import named_stream
from marl_sched.workload.assembly import positions
from marl_sched.workload.episodes import draw_workload
from marl_sched.workload.synthetic import draw_synthetic, modulated_arrivals
from marl_sched.workload.table import InstanceTable
from marl_sched.workload.validation import check_table

CONFIGS = Path(__file__).parents[2] / "configs"
SYNTHETIC = ("base", "sparse", "dense", "three-az")


def columns(table: InstanceTable) -> dict[str, bytes]:
    return {field.name: getattr(table, field.name).tobytes() for field in fields(table)}


def synthetic(experiment: Experiment) -> SyntheticWorkload:
    assert isinstance(experiment.workload, SyntheticWorkload)
    return experiment.workload


@pytest.fixture(scope="module")
def base() -> Experiment:
    return load_config(CONFIGS / "base.yaml")


@pytest.fixture(scope="module")
def three_az() -> Experiment:
    return load_config(CONFIGS / "three-az.yaml")


@pytest.mark.parametrize("name", SYNTHETIC)
def test_drawn_tables_pass_their_own_check(name: str) -> None:
    experiment = load_config(CONFIGS / f"{name}.yaml")
    for zone in experiment.zones:
        check_table(draw_workload(experiment, zone, "train", 3), experiment)


def test_equal_arguments_give_equal_bytes(base: Experiment) -> None:
    zone = base.zones[1]
    first = columns(draw_workload(base, zone, "test", 7))
    assert first == columns(draw_workload(base, zone, "test", 7))


@pytest.mark.parametrize(
    ("split", "episode", "zone"), [("tune", 7, 1), ("test", 8, 1), ("test", 7, 2)]
)
def test_other_split_episode_or_zone_gives_other_work(
    base: Experiment, split: str, episode: int, zone: int
) -> None:
    one = draw_workload(base, base.zones[1], "test", 7)
    other = draw_workload(base, base.zones[zone], split, episode)
    assert one.work_us[:20].tolist() != other.work_us[:20].tolist()


def test_adding_a_zone_leaves_the_other_tables_unchanged(base: Experiment) -> None:
    huge = Zone(
        name="newcomer",
        machines=[
            base.zones[0]
            .machines[0]
            .model_copy(update={"capacity": {"cpu_milli": 512_000, "memory_mib": 2_097_152}})
        ],
    )
    larger = base.model_copy(update={"zones": [huge, *base.zones]})
    for zone in base.zones:
        alone = draw_workload(base, zone, "train", 0)
        assert columns(alone) == columns(draw_workload(larger, zone, "train", 0))


def test_bursts_scatter_counts_beyond_poisson(base: Experiment) -> None:
    arrivals = synthetic(base).streams[0].arrivals
    assert isinstance(arrivals, ModulatedPoisson)
    generator = named_stream(1, "bursts")
    times = modulated_arrivals(arrivals, 2.0, 200_000.0, generator)
    counts = np.bincount((times // 60).astype(int))
    assert counts.var() / counts.mean() > 10
    assert len(times) / 200_000 == pytest.approx(2.0, rel=0.05)


def test_burst_factor_of_one_is_plain_poisson() -> None:
    arrivals = ModulatedPoisson(kind="modulated-poisson", burst_factor=1.0)
    times = modulated_arrivals(arrivals, 2.0, 200_000.0, named_stream(1, "plain"))
    counts = np.bincount((times // 60).astype(int))
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.15)


def test_bursts_take_a_sixth_of_the_time_at_three_and_a_half_times_the_rate() -> None:
    arrivals = ModulatedPoisson(kind="modulated-poisson")
    times = modulated_arrivals(arrivals, 10.0, 400_000.0, named_stream(1, "phases"))
    counts = np.bincount((times // 5).astype(int)) / 5
    calm_rate = 10.0 / (5 / 6 + 3.5 / 6)
    is_burst = counts > calm_rate * 2.2  # halfway between calm and burst
    assert is_burst.mean() == pytest.approx(1 / 6, abs=0.03)
    assert counts[is_burst].mean() / counts[~is_burst].mean() == pytest.approx(3.5, rel=0.1)


def test_tasks_of_a_job_wait_for_the_one_before(base: Experiment) -> None:
    table = draw_workload(base, base.zones[0], "train", 0)
    n_tasks = np.diff(table.job_task_start)
    assert set(n_tasks.tolist()) == {1, 2, 3}
    children = np.repeat(np.arange(table.n_tasks), np.diff(table.task_parent_start))
    assert (table.task_parents == children - 1).all()
    assert (children == np.flatnonzero(positions(n_tasks) > 0)).all()


def test_types_follow_the_zones_mix(base: Experiment) -> None:
    zone = base.zones[0]
    assert zone.mix is not None
    kinds = np.concatenate([draw_workload(base, zone, "train", e).task_class for e in range(30)])
    shares = np.bincount(kinds, minlength=8) / len(kinds)
    wanted = [zone.mix[t.name] for t in synthetic(base).task_types]
    assert shares == pytest.approx(wanted, abs=0.01)


def test_requests_stay_within_their_jitter(base: Experiment) -> None:
    table = draw_workload(base, base.zones[0], "train", 0)
    types = synthetic(base).task_types
    nominal = np.array([[t.request[r] for r in base.resources] for t in types])[table.task_class]
    ratio = table.request / nominal
    assert ratio.min() >= 0.74
    assert ratio.max() <= 1.26
    # one factor a task: cpu and memory move together
    assert np.abs(ratio[:, 0] - ratio[:, 1]).max() < 0.01


def test_mean_work_and_use_are_the_types(base: Experiment) -> None:
    types = synthetic(base).task_types
    tables = [draw_workload(base, base.zones[0], "train", e) for e in range(40)]
    task = [np.repeat(np.arange(t.n_tasks), np.diff(t.task_instance_start)) for t in tables]
    kind = np.concatenate([t.task_class[k] for t, k in zip(tables, task, strict=True)])
    work_s = np.concatenate([t.work_us for t in tables]) / 1e6
    memory = np.concatenate(
        [t.use[:, 1] / t.request[k, 1] for t, k in zip(tables, task, strict=True)]
    )
    for index, task_type in enumerate(types):
        rows = kind == index
        assert work_s[rows].mean() == pytest.approx(task_type.mean_s, rel=0.08)
        assert memory[rows].mean() == pytest.approx(task_type.use["memory_mib"].mean, rel=0.03)
        assert np.log(work_s[rows]).std() == pytest.approx(task_type.sigma, rel=0.08)


def test_instances_of_a_task_are_geometric_with_a_cap(base: Experiment) -> None:
    counts = np.concatenate(
        [
            np.diff(t.task_instance_start)[t.task_class == 0]
            for t in (draw_workload(base, base.zones[0], "train", e) for e in range(30))
        ]
    )
    assert counts.max() == 16
    assert counts.mean() == pytest.approx(6 * (1 - (5 / 6) ** 16), rel=0.03)


def test_sla_follows_the_types_mean(base: Experiment) -> None:
    table = draw_workload(base, base.zones[2], "train", 0)
    slack = np.array([t.finish_slack for t in synthetic(base).task_types])[table.task_class]
    assert table.latest_wait_us == pytest.approx((5 + 0.25 * table.reference_s) * 1e6, abs=1)
    assert table.latest_finish_us == pytest.approx(slack * table.reference_s * 1e6, abs=1)


def with_knowledge(experiment: Experiment, kind: str) -> InstanceTable:
    changed = experiment.model_copy(update={"duration_knowledge": kind})
    return draw_workload(changed, changed.zones[0], "train", 0)


def test_type_knowledge_is_the_types_statistics(base: Experiment) -> None:
    table = with_knowledge(base, "type")
    sigma = np.array([t.sigma for t in synthetic(base).task_types])[table.task_class]
    assert (table.known_mean_s == table.reference_s).all()
    assert (table.known_sigma == sigma).all()


def test_task_mean_knowledge_is_the_drawn_mean(base: Experiment) -> None:
    table = with_knowledge(base, "task-mean")
    starts = table.task_instance_start
    for task in (0, 5, table.n_tasks - 1):
        drawn = table.work_us[starts[task] : starts[task + 1]] / 1e6
        assert table.known_mean_s[task] == pytest.approx(drawn.mean(), rel=1e-6)


def test_no_knowledge_is_one_wide_guess(base: Experiment) -> None:
    table = with_knowledge(base, "none")
    assert len(np.unique(table.known_mean_s)) == 1
    task = np.repeat(np.arange(table.n_tasks), np.diff(table.task_instance_start))
    assert table.known_mean_s[0] == pytest.approx(table.reference_s[task].mean(), rel=0.15)
    assert table.known_sigma[0] > 0.9  # the widest type's


def test_knowledge_changes_nothing_else(base: Experiment) -> None:
    known = {"known_mean_s", "known_sigma"}
    first, *others = (columns(with_knowledge(base, k)) for k in ("type", "task-mean", "none"))
    for other in others:
        changed = {n for n in first if first[n] != other[n]}
        assert "known_mean_s" in changed
        assert changed <= known


def test_waves_come_at_every_period_within_their_sizes(three_az: Experiment) -> None:
    wave = synthetic(three_az).streams[0]
    assert isinstance(wave.arrivals, Waves)
    short = 0
    for episode in range(10):
        table = draw_workload(three_az, three_az.zones[0], "train", episode)
        job = np.repeat(table.job_arrival_us, np.diff(table.job_task_start)) / 1e6
        times = job[table.task_class == short]
        assert ((times % 900) <= 60).all()
        sizes = np.bincount((times // 900).astype(int), minlength=2)
        assert len(sizes) == 2
        assert ((sizes >= 34) & (sizes <= 166)).all()


def test_a_wave_of_chains_has_the_exact_number_of_tasks(three_az: Experiment) -> None:
    workload = synthetic(three_az)
    chains = workload.streams[0].model_copy(
        update={
            "arrivals": Waves(kind="waves", min_tasks=50, max_tasks=50),
            "stage_probabilities": [0.2, 0.3, 0.5],
        }
    )
    alone = workload.model_copy(update={"streams": [chains]})
    table = draw_synthetic(three_az, alone, three_az.zones[0], "train", 0)
    assert table.n_tasks == 100  # two waves
    assert table.n_jobs < 70


def test_jitter_never_makes_a_task_too_large_for_its_zone(base: Experiment) -> None:
    group = base.zones[0].machines[0]  # 16 cores, 32 GiB: `big` fits exactly
    zone = base.zones[0].model_copy(update={"machines": [group], "mix": {"big": 1.0}})
    table = draw_workload(base, zone, "train", 0)
    assert table.request.max(axis=0).tolist() == [16_000, 32_768]
    assert table.request.min() < 16_000


def test_a_type_that_fits_another_zone_only_keeps_its_request(base: Experiment) -> None:
    small = base.zones[0].machines[2]  # 8 cores
    zone = base.zones[0].model_copy(update={"machines": [small], "mix": {"big": 1.0}})
    table = draw_workload(base, zone, "train", 0)
    assert table.request[:, 0].max() == 16_000
    assert table.request[:, 0].min() < 13_000


@pytest.mark.parametrize("jitter", [0.0, 0.9])
def test_what_is_not_requested_is_neither_drawn_nor_used(jitter: float) -> None:
    types = asking({"gpu": 0, "memory_mib": 0}, {"gpu": 1})
    experiment = with_gpus_on_some(workload={"task_types": types})
    workload = synthetic(experiment).model_copy(update={"request_jitter": jitter})
    for zone in experiment.zones:
        table = draw_synthetic(experiment, workload, zone, "train", 0)
        check_table(table, experiment)
        kind = table.task_class
        assert set(kind.tolist()) == {0, 1}
        assert not table.request[kind == 0, 1:].any()
        assert not table.known_use[kind == 0, 1:].any()
        assert table.request[kind == 1].min() >= 1
        task = np.repeat(np.arange(table.n_tasks), np.diff(table.task_instance_start))
        assert ((table.use > 0) == (table.request > 0)[task]).all()


def test_a_use_left_out_changes_no_other_draw() -> None:
    left_out = with_gpus_on_some()
    given = asking({"gpu": 0, "memory_mib": 0}, {"gpu": 1})
    given[0]["use"] |= {"memory_mib": {"mean": 0.5, "sd": 0.3}, "gpu": {"mean": 0.5, "sd": 0.3}}
    told = with_gpus_on_some(workload={"task_types": given})
    drawn = [draw_workload(one, one.zones[0], "train", 0) for one in (left_out, told)]
    assert columns(drawn[0]) == columns(drawn[1])


def test_no_arrivals_give_an_empty_table(base: Experiment) -> None:
    zone = base.zones[0].model_copy(update={"load": 1e-9})
    table = draw_workload(base, zone, "train", 0)
    assert (table.n_jobs, table.n_tasks, table.n_instances) == (0, 0, 0)
    check_table(table, base)
