import gzip
import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from marl_sched.errors import ConfigError
from marl_sched.workload.generation.calibration import Calibration
from marl_sched.workload.generation.comparison import correlations, samples, stragglers
from marl_sched.workload.generation.fit_hour import QUANTITIES, histogram
from marl_sched.workload.generation.jobs import GeneratorOptions, draw_jobs, generate
from marl_sched.workload.generation.margins import weighted_quantiles
from marl_sched.workload.traces.tasks import MAX, MEAN, P50, P95, TaskTable

if TYPE_CHECKING:
    from conftest import Drawn

SHARES = (0.5, 0.9, 0.99)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return Calibration.load("alibaba-v2018")


def is_near(generated: float, published: float, step: float) -> bool:
    """Within 10%, or the same when measured in the published steps."""
    return abs(generated - published) <= max(0.1 * published, 0.5 * step)


@pytest.mark.parametrize("name", list(QUANTITIES))
def test_quantiles_are_those_of_the_published_figures(alibaba: "Drawn", name: str) -> None:
    published = alibaba.calibration.published[name]
    wanted = [published.quantiles[published.shares.index(share)] for share in SHARES]
    generated = alibaba.found[name].quantiles(np.array(SHARES)).tolist()
    wrong = [
        (share, a, b)
        for share, a, b in zip(SHARES, generated, wanted, strict=True)
        if not is_near(a, b, published.step)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", list(QUANTITIES))
def test_quantiles_are_those_of_the_histogram_file(
    alibaba: "Drawn", public_traces: Path, name: str
) -> None:
    path = public_traces / "alibaba-v2018-spar-hour" / "histograms_v2018_full.json.gz"
    with gzip.open(path) as file:
        found = histogram(json.load(file), name)
    quantity = QUANTITIES[name]
    wanted = weighted_quantiles(found.values, found.counts, np.array(SHARES)) * quantity.factor
    generated = alibaba.found[name].quantiles(np.array(SHARES))
    step = quantity.step * quantity.factor
    wrong = [
        pair
        for pair in zip(generated.tolist(), wanted.tolist(), strict=True)
        if not is_near(*pair, step)
    ]
    assert wrong == []


def test_sizes_requests_durations_and_use_are_correlated_as_in_the_hour(alibaba: "Drawn") -> None:
    generated = correlations(alibaba.table)
    wrong = {
        pair: (generated[pair], wanted)
        for pair, wanted in alibaba.calibration.correlations.items()
        if abs(generated[pair] - wanted) > 0.1
    }
    assert wrong == {}
    assert alibaba.calibration.correlations["memory_mib ~ cpu_milli"] > 0.5


def test_stragglers_are_as_in_the_hour(alibaba: "Drawn") -> None:
    wanted = alibaba.calibration.stragglers
    generated = stragglers(alibaba.table, tuple(map(float, wanted)))
    assert generated == pytest.approx(list(wanted.values()), rel=0.1)


def test_large_tasks_hold_nine_tenths_of_the_instances(alibaba: "Drawn") -> None:
    n = alibaba.table.n_instances
    assert n[n >= 100].sum() / n.sum() == pytest.approx(0.89, abs=0.03)
    assert n.mean() == pytest.approx(43.06, rel=0.05)


def test_the_mean_load_is_that_of_the_published_means(alibaba: "Drawn") -> None:
    found, published_mean_s, published_mean_use = alibaba.found, 35.45, 644.0
    for name, mean in (("duration_s", published_mean_s), ("use:cpu_milli", published_mean_use)):
        sample = found[name]
        assert np.average(sample.values, weights=sample.weights) == pytest.approx(mean, rel=0.1)


def test_expanding_all_instances_gives_what_a_part_of_them_does(calibration: Calibration) -> None:
    table = draw_jobs(calibration, np.zeros(3000, np.int64), np.random.default_rng(3))
    part = samples(table, np.random.default_rng(0), most_instances=24)
    whole = samples(table, np.random.default_rng(0), most_instances=2**31)
    shares = np.array(SHARES)
    for name in ("duration_s", "use:cpu_milli", "use:memory_mib"):
        expected = whole[name].quantiles(shares)
        assert part[name].quantiles(shares) == pytest.approx(expected, rel=0.12), name


def test_tasks_of_a_job_are_alike(alibaba: "Drawn") -> None:
    table = alibaba.table
    n_tasks = np.diff(table.job_task_start)
    first = table.job_task_start[:-1][n_tasks > 1]
    cpu, size = table.request[:, 0], np.log(table.n_instances)
    assert (cpu[first] == cpu[first + 1]).mean() > 0.85  # 0.51 if they were independent
    assert 0.1 < np.corrcoef(size[first], size[first + 1])[0, 1] < 0.4


def test_statistics_of_every_task_are_in_order(alibaba: "Drawn") -> None:
    duration = alibaba.table.duration_s
    assert (duration >= 1.0).all()
    assert (duration[:, P50] <= duration[:, P95]).all()
    assert (duration[:, P95] <= duration[:, MAX]).all()
    assert (duration[:, MEAN] <= duration[:, MAX]).all()
    single = alibaba.table.n_instances == 1
    assert (duration[single] == duration[single, :1]).all()
    use = alibaba.table.use
    assert ((use[:, :, 0] > 0) & (use[:, :, 0] <= use[:, :, 1])).all()
    assert (alibaba.table.request > 0).all()


def same(a: TaskTable, b: TaskTable) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(TaskTable))


def test_equal_seeds_give_equal_tables(calibration: Calibration) -> None:
    tables = [generate(calibration, 200, np.random.default_rng(seed)) for seed in (5, 5, 6)]
    assert same(tables[0], tables[1])
    assert not same(tables[0], tables[2])


def test_an_hour_without_jobs_is_an_empty_table(calibration: Calibration) -> None:
    options = GeneratorOptions(rate_per_s=1e-12)
    table = generate(calibration, 3600, np.random.default_rng(0), options)
    assert (table.n_jobs, table.n_tasks, len(table.parents)) == (0, 0, 0)
    assert table.request.shape == (0, 2)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (GeneratorOptions(mode="wild"), "mode = wild, expected one of"),
        (GeneratorOptions(rate_per_s=0.0), "rate_per_s = 0.0, expected a number > 0"),
        (GeneratorOptions(rate_per_s=float("nan")), "rate_per_s = nan"),
    ],
)
def test_a_bad_option_is_named(
    calibration: Calibration, options: GeneratorOptions, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        generate(calibration, 60, np.random.default_rng(0), options)


def test_a_horizon_below_a_second_is_refused(calibration: Calibration) -> None:
    with pytest.raises(ConfigError, match="horizon_s = 0"):
        generate(calibration, 0, np.random.default_rng(0))
