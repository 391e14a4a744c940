import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from marl_sched.workload.generation.calibration import Calibration, DagModel
from marl_sched.workload.generation.comparison import critical_paths
from marl_sched.workload.generation.dags import Dags, draw_dags
from marl_sched.workload.generation.fit_dags import fit_dags, job_shape
from marl_sched.workload.generation.jobs import draw_jobs
from marl_sched.workload.table import Float, Int

N_JOBS = 200_000


@pytest.fixture(scope="module")
def model() -> DagModel:
    return Calibration.load("alibaba-v2018").dag


@pytest.fixture(scope="module")
def dags(model: DagModel) -> Dags:
    return draw_dags(model, N_JOBS, np.random.default_rng(7))


def edges(dags: Dags) -> tuple[Int, Int, Int, Int]:
    """Return job, child and parent (P,) and the first task of each job (J,)."""
    start = np.cumsum(dags.n_tasks) - dags.n_tasks
    job = np.repeat(np.arange(len(dags.n_tasks)), dags.n_tasks)
    child = np.repeat(np.arange(len(dags.level)), dags.n_parents)
    return job[child], child, start[job[child]] + dags.parents, start


def distance(counts: Float, published: Float) -> float:
    """Total variation distance of two histograms."""
    return float(np.abs(counts / counts.sum() - published / published.sum()).sum() / 2.0)


def test_edges_go_to_later_levels_of_the_same_job(dags: Dags) -> None:
    job, child, parent, start = edges(dags)
    assert (parent >= start[job]).all()
    assert (parent < start[job] + dags.n_tasks[job]).all()
    assert (dags.level[parent] < dags.level[child]).all()  # so there is no cycle


def test_no_edge_is_drawn_twice(dags: Dags) -> None:
    _, child, parent, _ = edges(dags)
    assert len(np.unique(child * len(dags.level) + parent)) == len(child)


def test_every_level_has_a_task_and_all_but_the_last_a_child_in_the_next(dags: Dags) -> None:
    _, child, parent, _ = edges(dags)
    depth = np.repeat(dags.critical_path, dags.n_tasks)
    has_next = np.zeros(len(dags.level), bool)
    has_next[parent[dags.level[child] == dags.level[parent] + 1]] = True
    assert (has_next == (dags.level < depth)).all()


def test_the_longest_way_is_the_drawn_critical_path() -> None:
    calibration = Calibration.load("alibaba-v2018")
    table = draw_jobs(calibration, np.zeros(20_000, np.int64), np.random.default_rng(1))
    dags = draw_dags(calibration.dag, 20_000, np.random.default_rng(1))
    assert np.array_equal(critical_paths(table), dags.critical_path)


@pytest.mark.parametrize(
    ("n_tasks", "furthest"), [(2, 0.01), (3, 0.01), (4, 0.02), (5, 0.02), (8, 0.03), (12, 0.05)]
)
def test_critical_paths_by_number_of_tasks(
    model: DagModel, dags: Dags, n_tasks: int, furthest: float
) -> None:
    margin = model.critical_path[n_tasks - 2]
    published = np.zeros(n_tasks + 1)
    scores = np.random.default_rng(0).standard_normal(200_000)
    drawn, counts = np.unique(margin.at(scores), return_counts=True)
    published[drawn.astype(int)] = counts
    generated = np.bincount(dags.critical_path[dags.n_tasks == n_tasks], minlength=n_tasks + 1)
    assert distance(generated.astype(float), published) < furthest


@pytest.mark.parametrize(
    ("key", "row", "furthest"),
    [
        ("cpl", 2, 0.01),
        ("cpl", 3, 0.01),
        ("cpl", 5, 0.02),
        ("cpl", 8, 0.03),
        ("cpl", 15, 0.08),
        ("level", 2, 0.01),
        ("level", 3, 0.01),
        ("level", 5, 0.01),
        ("level", 8, 0.02),
        ("level", 10, 0.03),
    ],
)
def test_shapes_are_those_of_the_histogram_file(
    dags: Dags, public_traces: Path, key: str, row: int, furthest: float
) -> None:
    path = public_traces / "alibaba-v2018-spar-hour" / "histograms_v2018_full.json.gz"
    with gzip.open(path) as file:
        table = json.load(file)[key][str(row)]
    published = np.zeros(61)
    published[table["v"]] = table["c"]
    if key == "cpl":
        drawn = dags.critical_path[dags.n_tasks == row]
    else:
        drawn = dags.level[np.repeat(dags.critical_path, dags.n_tasks) == row]
    assert distance(np.bincount(drawn, minlength=61).astype(float), published) < furthest


def test_parents_are_as_in_the_hour(dags: Dags) -> None:
    has_edges = np.repeat(dags.critical_path, dags.n_tasks) > 1
    n_parents = np.minimum(dags.n_parents[has_edges], 4)
    shares = np.bincount(n_parents) / len(n_parents)
    # of the hour's jobs with an edge; the eight days' jobs, whose sizes are drawn, are smaller
    assert shares == pytest.approx([0.370, 0.490, 0.090, 0.029, 0.020], abs=0.05)


def test_two_of_five_jobs_have_no_edge(dags: Dags) -> None:
    # the eight days: 38.3% have one task, 0.8% several without an edge
    assert (dags.critical_path == 1).mean() == pytest.approx(0.391, abs=0.005)


def test_a_job_s_levels_count_from_its_end() -> None:
    shape = job_shape(["M1", "M2", "R3_1", "J4_3_2", "task_abc"])
    assert shape.parents == [[], [], [0], [2, 1], []]
    assert shape.level == [1, 2, 2, 3, 3]


def test_a_fit_keeps_the_histograms_it_is_given() -> None:
    histograms = {
        "task_num": {"v": [1.0, 4.0], "c": [1.0, 3.0]},
        "cpl": {"4": {"v": [1, 2, 3], "c": [0.0, 1.0, 3.0]}},
        "level": {
            "2": {"v": [1, 2], "c": [3.0, 1.0]},
            "3": {"v": [1, 2, 3], "c": [2.0, 1.0, 1.0]},
        },
    }
    jobs = [job_shape(["M1", "R2_1", "R3_1"])]
    model = fit_dags(
        histograms | {"cpl": {str(n): histograms["cpl"]["4"] for n in (2, 3, 4)}}, jobs
    )
    drawn = draw_dags(model, 20_000, np.random.default_rng(0))
    assert (drawn.n_tasks == 4).mean() == pytest.approx(0.75, abs=0.01)
    four = drawn.n_tasks == 4
    assert (drawn.critical_path[four] == 3).mean() == pytest.approx(0.75, abs=0.01)
    depth = np.repeat(drawn.critical_path, drawn.n_tasks)
    assert np.bincount(drawn.level[depth == 2], minlength=3)[1:] / (depth == 2).sum() == (
        pytest.approx([0.75, 0.25], abs=0.02)
    )
    assert np.bincount(drawn.level[depth == 3], minlength=4)[1:] / (depth == 3).sum() == (
        pytest.approx([0.5, 0.25, 0.25], abs=0.02)
    )
    assert model.n_children == ((0.0, 1.0, 0.0, 0.0, 0.0, 0.0),)
