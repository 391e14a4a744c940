"""The figures of a trace, against slow and obvious computations."""

import math
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import machines, tiny, zone

from marl_sched.config import Experiment
from marl_sched.errors import ConfigError
from marl_sched.workload.figures.arrival_figures import (
    counts_per_window,
    describe_arrivals,
    index_of_dispersion,
    sums_per_window,
)
from marl_sched.workload.figures.cluster_load import PlaceLoad, cluster_load
from marl_sched.workload.figures.dag_shape import dag_shape, task_levels
from marl_sched.workload.figures.describe import (
    core_seconds,
    describe,
    instance_durations,
    top_share,
)
from marl_sched.workload.figures.samples import QUANTILES, Sample, rank_correlation
from marl_sched.workload.raw.write_tasks import write_tasks
from marl_sched.workload.traces.expansion import expand_durations
from marl_sched.workload.traces.tasks import TaskTable, load_tasks


@dataclass(frozen=True)
class Task:
    """A task whose instances all run for `mean_s`, or up to `max_s`."""

    parents: tuple[int, ...] = ()
    n: int = 1
    mean_s: float = 10.0
    max_s: float | None = None
    request: tuple[int, ...] = (1000, 2048)
    use: tuple[float, ...] = (500.0, 1024.0)


Job = tuple[float, list[Task]]
NAMES = ("cpu_milli", "memory_mib", "gpu_milli")


def make(*jobs: Job, tick_s: float = 1.0) -> TaskTable:
    """Return the task table of jobs (arrival in s, tasks), by arrival."""
    tasks = [task for _, job in jobs for task in job]
    n_resources = len(tasks[0].request)
    tops = [task.mean_s if task.max_s is None else task.max_s for task in tasks]
    return TaskTable(
        resources=NAMES[:n_resources],
        resolution_us=round(tick_s * 1e6),
        reference=np.array([96_000, 393_216, 0][:n_resources]),
        job_arrival_us=np.array([round(at_s * 1e6) for at_s, _ in jobs]),
        job_task_start=np.cumsum([0, *(len(job) for _, job in jobs)]),
        parent_start=np.cumsum([0, *(len(task.parents) for task in tasks)]),
        parents=np.array([parent for task in tasks for parent in task.parents], np.int64),
        priority=np.zeros(len(tasks), np.int64),
        n_instances=np.array([task.n for task in tasks]),
        request=np.array([task.request for task in tasks]),
        duration_s=np.array(
            [[task.mean_s, task.mean_s, top, top] for task, top in zip(tasks, tops, strict=True)]
        ),
        use=np.array([[[use, use] for use in task.use] for task in tasks]),
    )


DIAMOND = [Task(), Task((0,)), Task((0,)), Task((1, 2))]


@st.composite
def dags(draw: st.DrawFn) -> list[Task]:
    """Draw a job whose tasks come in any order, parents behind their children too."""
    n = draw(st.integers(1, 7))
    order = draw(st.permutations(range(n)))
    place = {task: row for row, task in enumerate(order)}
    parents: list[tuple[int, ...]] = [()] * n
    for task in range(1, n):
        above = draw(st.sets(st.integers(0, task - 1)))
        parents[place[task]] = tuple(place[parent] for parent in above)
    return [Task(rows) for rows in parents]


def slow_level(job: list[Task], task: int) -> int:
    return 1 + max((slow_level(job, parent) for parent in job[task].parents), default=0)


@given(st.lists(dags(), min_size=1, max_size=5))
@settings(deadline=None)
def test_levels_depths_and_widths_are_those_of_a_recursion(jobs: list[list[Task]]) -> None:
    tasks = make(*((float(at), job) for at, job in enumerate(jobs)))
    levels = [[slow_level(job, task) for task in range(len(job))] for job in jobs]
    shape = dag_shape(tasks)
    assert task_levels(tasks).tolist() == [level for job in levels for level in job]
    assert shape.depth.tolist() == [max(job) for job in levels]
    assert shape.width.tolist() == [max(job.count(level) for level in job) for job in levels]
    assert shape.n_edges.tolist() == [sum(len(task.parents) for task in job) for job in jobs]


@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 9)), min_size=1, max_size=20),
    st.sampled_from(list(QUANTILES.values())),
)
def test_quantiles_are_those_of_the_repeated_values(
    pairs: list[tuple[int, int]], share: float
) -> None:
    sample = Sample.of([value for value, _ in pairs], [weight for _, weight in pairs])
    repeated = sorted(value for value, weight in pairs for _ in range(weight))
    row = next(i for i in range(len(repeated)) if (i + 1) >= share * len(repeated) - 1e-9)
    assert sample.quantile(share) == repeated[row]
    assert sample.largest == repeated[-1]
    assert sample.mean == pytest.approx(sum(repeated) / len(repeated))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=15))
def test_rank_correlation_is_pearsons_of_average_ranks(pairs: list[tuple[int, int]]) -> None:
    columns = list(zip(*pairs, strict=True))
    ranks = [
        [sum(b < a for b in column) + (sum(b == a for b in column) + 1) / 2 for a in column]
        for column in columns
    ]
    expected = None
    if all(len(set(column)) > 1 for column in columns):
        expected = pytest.approx(np.corrcoef(ranks[0], ranks[1])[0, 1], abs=1e-9)
    assert rank_correlation(columns[0], columns[1]) == expected


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.sampled_from([1, 3, 10]))
def test_dispersion_is_the_variance_over_the_mean_of_whole_windows(
    seconds: list[int], window_s: int
) -> None:
    seconds = sorted(seconds)
    first, span = seconds[0], seconds[-1] - seconds[0] + 1
    counts = [
        sum(start <= second - first < start + window_s for second in seconds)
        for start in range(0, span - window_s + 1, window_s)
    ]
    tasks = make(*((float(second), [Task()]) for second in seconds))
    assert counts_per_window(tasks, window_s).tolist() == counts
    arrivals = describe_arrivals(tasks)
    assert arrivals.span_s == span
    assert arrivals.rate_per_s == len(seconds) / span
    assert (window_s in arrivals.dispersion) == (len(counts) >= 10 and window_s in (1, 10))
    if sum(counts):
        mean = sum(counts) / len(counts)
        variance = sum((count - mean) ** 2 for count in counts) / len(counts)
        assert index_of_dispersion(tasks, window_s) == pytest.approx(variance / mean)


def test_dispersion_of_regular_arrivals_is_0_and_of_poisson_arrivals_about_1() -> None:
    regular = make(*((float(second), [Task()]) for second in range(3001)))
    assert describe_arrivals(regular).dispersion == {1: 0.0, 10: 0.0, 60: 0.0, 300: 0.0}
    at_s = np.cumsum(np.random.default_rng(3).exponential(0.25, 20_000))
    poisson = make(*((float(second), [Task()]) for second in at_s), tick_s=1e-6)
    dispersion = describe_arrivals(poisson).dispersion
    assert dispersion[1] == pytest.approx(1.0, abs=0.1)
    assert dispersion[10] == pytest.approx(1.0, abs=0.2)


def test_windows_without_enough_span_or_below_the_clock_are_left_out_with_a_reason() -> None:
    tasks = make((0.0, [Task()]), (595.0, [Task()]), tick_s=5.0)
    arrivals = describe_arrivals(tasks)
    assert list(arrivals.dispersion) == [10, 60]
    assert arrivals.left_out == {
        1: "the trace's clock ticks every 5 s",
        300: "2 whole windows, 10 are needed",
    }


def test_gaps_of_arrivals() -> None:
    tasks = make(*((at_s, [Task()]) for at_s in (5.0, 5.0, 6.0, 9.0)))
    arrivals = describe_arrivals(tasks)
    assert arrivals.gap_s is not None
    assert arrivals.gap_s.mean == pytest.approx(4 / 3)
    assert arrivals.gap_s.quantile(0.5) == 1.0
    assert arrivals.gap_cv == pytest.approx(np.std([0, 1, 3]) / (4 / 3))
    assert arrivals.span_s == 5.0


def test_single_job_has_no_gap_and_jobs_of_one_tick_have_no_variation() -> None:
    alone = describe(make((7.0, [Task()])))
    assert alone.arrivals.gap_s is None
    assert "gap between jobs" not in alone.samples
    assert (alone.first_arrival_s, alone.arrivals.span_s) == (7.0, 1.0)
    together = describe_arrivals(make((0.0, [Task()]), (0.0, [Task()])))
    assert together.gap_cv is None


def test_counts_and_samples_of_a_hand_made_table() -> None:
    large = Task(n=3, mean_s=20.0, max_s=50.0, request=(4000, 0), use=(6000.0, 0.0))
    found = describe(make((0.0, DIAMOND), (2.0, [large])))
    assert (found.n_jobs, found.n_tasks, found.n_instances, found.n_edges) == (2, 5, 7, 4)
    assert found.dag_job_share == 0.5
    means = {name: sample.mean for name, sample in found.samples.items()}
    del means["instance duration"]  # below, on its own
    assert means == {
        "tasks a job": 2.5,
        "instances a task": 1.4,
        "task mean duration": 12.0,
        "request cpu_milli": 1600.0,
        "request memory_mib": 1638.4,
        "use / request cpu_milli": pytest.approx((4 * 0.5 + 3 * 1.5) / 7),
        "use / request memory_mib": 0.5,  # of those that ask for it
        "core-seconds a job": pytest.approx((40 + 240) / 2),
        "longest / mean instance": pytest.approx((4 + 2.5) / 5),
        "gap between jobs": 2.0,
        "depth of a job": 2.0,
        "width of a job": 1.5,
        "parents a task": 0.8,
    }
    assert found.is_use_known


def test_use_that_is_the_request_throughout_is_unknown() -> None:
    same = Task(request=(1000, 2048), use=(1000.0, 2048.0))
    assert not describe(make((0.0, [same]))).is_use_known
    assert describe(make((0.0, [same, Task()]))).is_use_known


def test_resource_that_no_task_asks_for_has_no_use() -> None:
    found = describe(make((0.0, [Task(request=(1000, 2048, 0), use=(1.0, 1.0, 0.0))])))
    assert "use / request gpu_milli" not in found.samples
    assert found.samples["request gpu_milli"].largest == 0.0


def test_core_seconds_and_the_share_of_the_largest_jobs() -> None:
    jobs = [(0.0, [Task(n=job, mean_s=2.0), Task(mean_s=3.0)]) for job in range(1, 31)]
    work = [2.0 * job + 3.0 for job in range(1, 31)]
    tasks = make(*jobs)
    assert core_seconds(tasks).tolist() == work
    assert top_share(core_seconds(tasks), 0.1) == pytest.approx(sum(work[-3:]) / sum(work))
    assert describe(tasks).top_jobs["1%"] == pytest.approx(work[-1] / sum(work))


@given(
    st.lists(
        st.tuples(st.integers(1, 150), st.integers(1, 90), st.integers(0, 300)),
        min_size=1,
        max_size=12,
    )
)
@settings(deadline=None)
def test_instance_durations_are_those_an_episode_draws(tasks: list[tuple[int, int, int]]) -> None:
    table = make((0.0, [Task(n=n, mean_s=float(s), max_s=float(s + more)) for n, s, more in tasks]))
    drawn = expand_durations(table.duration_s, table.n_instances, np.random.default_rng(9))
    drawn = np.sort(np.round(drawn, 3))
    sample = instance_durations(table)
    assert sample.mean == pytest.approx(drawn.mean(), abs=1e-3)
    assert sample.largest == pytest.approx(drawn[-1], abs=1e-9)
    for share in QUANTILES.values():
        row = math.ceil(share * len(drawn) - 1e-9) - 1
        assert sample.quantile(share) == pytest.approx(drawn[row], abs=1e-9)


def test_giant_tasks_count_with_all_their_instances() -> None:
    tasks = make((0.0, [Task(n=999_000, mean_s=50.0, max_s=100.0), Task(n=1000, mean_s=1.0)]))
    sample = instance_durations(tasks)
    assert sample.mean == pytest.approx((999_000 * 50.0 + 1000 * 1.0) / 1_000_000)
    assert sample.largest == pytest.approx(100.0, rel=0.05)


def check_place(
    place: PlaceLoad, tasks: TaskTable, experiment: Experiment, zones: list[int]
) -> None:
    """Compute the load on some zones instance by instance."""
    cpu = memory = used_cpu = installed_cpu = 0.0
    for number in zones:
        groups = experiment.zones[number].machines
        speeds = [group.speed for group in groups for _ in range(group.count)]
        speed = sum(speeds) / len(speeds)
        background = experiment.zones[number].background
        share = 0.0 if background is None else background.mean["cpu_milli"]
        for group in groups:
            for _ in range(group.count):
                free = group.capacity["cpu_milli"] - group.reserved.get("cpu_milli", 0)
                cpu += free * speed
                memory += group.capacity["memory_mib"] * speed
                installed_cpu += free
                used_cpu += group.capacity["cpu_milli"] * share
    span = describe_arrivals(tasks).span_s
    seconds = tasks.n_instances * tasks.duration_s[:, 0]
    work = [float((seconds * tasks.request[:, column]).sum()) for column in (0, 1)]
    assert place.mean == pytest.approx(
        [work[0] / cpu / span + used_cpu / installed_cpu, work[1] / memory / span]
    )


def test_load_on_zones_and_cluster_is_requested_work_over_capacity() -> None:
    slow = machines(2, speed=0.5, reserved={"cpu_milli": 400})
    background = {"mean": {"cpu_milli": 0.25}}
    experiment = tiny(
        zone("a", slow, machines(cpu=16_000)), zone("b", machines(3), background=background)
    )
    jobs = [(7.0 * job, [Task(n=1 + job % 4), Task((0,), mean_s=3.0 + job)]) for job in range(101)]
    tasks = make(*jobs)
    load = cluster_load(tasks, experiment)
    assert [place.name for place in load.zones] == ["a", "b"]
    check_place(load.zones[0], tasks, experiment, [0])
    check_place(load.zones[1], tasks, experiment, [1])
    check_place(load.cluster, tasks, experiment, [0, 1])
    assert load.cluster.windows.shape == (2, 2)  # 701 s
    for first, window in pairwise([0.0, 300.0, 600.0]):
        part = make(*(job for job in jobs if first <= job[0] < window))
        share = cluster_load(part, experiment).zones[0].mean * describe_arrivals(part).span_s / 300
        assert load.zones[0].windows[int(first // 300)] == pytest.approx(share)
    assert load.cluster.largest(0) == pytest.approx(load.cluster.windows[:, 0].max())


def test_tasks_that_no_machine_holds_are_counted_by_zone() -> None:
    experiment = tiny(zone("a", machines(cpu=2000)), zone("b", machines(cpu=4000)))
    tasks = make((0.0, [Task(request=(cpu, 1)) for cpu in (1000, 2000, 3000, 5000)]))
    load = cluster_load(tasks, experiment)
    assert [place.too_large for place in (*load.zones, load.cluster)] == [0.5, 0.25, 0.25]
    assert load.cluster.largest(0) is None  # a second, no window of 300 s


def test_zone_without_a_resource_has_no_load_of_it_and_adds_no_capacity() -> None:
    experiment = tiny(
        zone("a", machines(gpu=2000)),
        zone("b", machines(gpu=0)),
        has_gpus=True,
    )
    experiment = Experiment.model_validate(
        _renamed(experiment.model_dump(), "gpu", "gpu_milli"), strict=False
    )
    asking = Task(mean_s=10.0, request=(1000, 1024, 500), use=(1.0, 1.0, 1.0))
    load = cluster_load(make((0.0, [asking]), (9.0, [asking])), experiment)
    assert [place.mean[2] for place in load.zones] == [pytest.approx(0.5), 0.0]
    assert load.cluster.mean[2] == pytest.approx(0.5)
    assert [place.too_large for place in load.zones] == [0.0, 1.0]
    assert load.zones[1].binding == 0


def _renamed(value: object, old: str, new: str) -> object:
    if isinstance(value, dict):
        return {new if key == old else key: _renamed(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, old, new) for item in value]
    return new if value == old else value


def test_resource_that_the_configuration_lacks_is_refused_where_it_is_asked_for() -> None:
    idle = Task(request=(1000, 1024, 0), use=(1.0, 1.0, 0.0))
    assert cluster_load(make((0.0, [idle])), tiny()).cluster.too_large == 0.0
    asking = Task(request=(1000, 1024, 500), use=(1.0, 1.0, 1.0))
    with pytest.raises(ConfigError, match=r"expected gpu_milli among them: 50.0% of the trace's"):
        cluster_load(make((0.0, [idle, asking])), tiny())


def test_sums_per_window_leave_out_the_part_window() -> None:
    tasks = make(*((at_s, [Task()]) for at_s in (10.0, 12.0, 13.0, 15.0)))
    assert sums_per_window(tasks, 2.0, np.array([[1.0], [2.0], [4.0], [8.0]])).tolist() == [
        [1.0],
        [6.0],
        [8.0],
    ]
    assert sums_per_window(tasks, 4.0, np.ones((4, 2))).tolist() == [[3.0, 3.0]]


def test_shipped_hour_has_the_figures_of_the_published_one() -> None:
    found = describe(load_tasks("package:alibaba-v2018-hour"))
    arrivals = found.arrivals
    assert arrivals.rate_per_s == pytest.approx(4.65, abs=0.005)
    expected = {1: 4.4, 10: 21.6, 60: 74.0, 300: 112.0}
    assert arrivals.dispersion == pytest.approx(expected, rel=0.01)
    assert found.dag_job_share == pytest.approx(0.709, abs=0.0005)
    assert found.samples["depth of a job"].largest == 20
    assert found.samples["width of a job"].quantile(0.99) in (8, 9)
    assert found.top_jobs == pytest.approx({"1%": 0.74, "10%": 0.97}, abs=0.01)
    assert found.correlations["cpu ~ memory"] == pytest.approx(0.55, abs=0.01)
    assert found.correlations["memory ~ instances"] == pytest.approx(0.38, abs=0.01)


def test_written_table_is_read_back(tmp_path: Path) -> None:
    tasks = make((0.0, DIAMOND), (1.5, [Task(n=7, mean_s=1.25, max_s=3.0)]), tick_s=0.5)
    path = tmp_path / "tasks.parquet"
    write_tasks(path, tasks, "hand-made")
    found = load_tasks(str(path))
    for field in fields(TaskTable):
        assert np.array_equal(getattr(found, field.name), getattr(tasks, field.name)), field.name
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tasks.parquet"]
