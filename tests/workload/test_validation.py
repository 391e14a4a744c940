from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marl_sched.config import Experiment, load_config
from marl_sched.errors import TraceError
from marl_sched.workload.table import InstanceTable
from marl_sched.workload.table_io import write_table
from marl_sched.workload.validation import check_table, cyclic_tasks, load_table

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return load_config(CONFIGS / "base.yaml")


@pytest.fixture
def table() -> InstanceTable:
    """Two jobs: one task of two instances; three tasks in sequence, of one instance each."""
    return InstanceTable(
        job_arrival_us=np.array([0, 5]),
        job_task_start=np.array([0, 1, 4]),
        task_instance_start=np.array([0, 2, 3, 4, 5]),
        task_parent_start=np.array([0, 0, 0, 1, 2]),
        task_parents=np.array([1, 2]),
        task_priority=np.zeros(4, np.int64),
        task_class=np.zeros(4, np.int64),
        request=np.full((4, 2), 1000),
        reference_s=np.ones(4),
        known_mean_s=np.ones(4),
        known_sigma=np.zeros(4),
        known_use=np.ones((4, 2)),
        latest_wait_us=np.full(4, 10),
        latest_finish_us=np.full(4, 10),
        work_us=np.full(5, 7),
        use=np.ones((5, 2)),
    )


def changed(column: Any, index: Any, value: float) -> Any:
    copy = column.copy()
    copy[index] = value
    return copy


def test_a_whole_table_passes(table: InstanceTable, experiment: Experiment) -> None:
    assert check_table(table, experiment) is None


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("job_arrival_us", 0, -1, r"job_arrival_us row 0 = -1, expected >= 0"),
        ("job_arrival_us", 0, 9, r"job_arrival_us row 1 = 5, expected at least the row before, 9"),
        ("work_us", 3, -4, r"work_us row 3 = -4, expected > 0"),
        ("work_us", 3, 0, r"work_us row 3 = 0, expected > 0"),
        ("reference_s", 2, np.nan, r"reference_s row 2 = nan"),
        ("known_mean_s", 2, np.inf, r"known_mean_s row 2 = inf"),
        ("latest_wait_us", 1, -5, r"latest_wait_us row 1 = -5"),
        ("use", (4, 1), -0.5, r"use row 4 resource 1 = -0.5, expected >= 0"),
        ("request", (3, 0), 64_001, r"request row 3 = \{'cpu_milli': 64001, .*64000"),
        ("request", (1, 0), 0, r"request row 1: cpu_milli = 0, expected > 0"),
        ("task_parents", 0, 0, r"task 2 of job 1 has the parent 0 of job 0"),
        ("task_parents", 0, 4, r"task_parents row 0 = 4, expected a task row below 4"),
        ("task_parents", 0, 3, r"task row 2 of job 1 waits for itself by its parents \[3\]"),
        ("task_parents", 0, 2, r"task row 2 of job 1 waits for itself"),
        ("job_task_start", 2, 3, r"job_task_start runs from 0 to 3, expected 0 to 4"),
        ("task_instance_start", 1, 3, r"task_instance_start row 1: 0 items, expected at least 1"),
    ],
)
def test_a_wrong_value_is_named_with_its_row(
    table: InstanceTable,
    experiment: Experiment,
    name: str,
    index: Any,
    value: float,
    message: str,
) -> None:
    wrong = replace(table, **{name: changed(getattr(table, name), index, value)})
    with pytest.raises(TraceError, match=rf"^day\.parquet: .*{message}"):
        check_table(wrong, experiment, "day.parquet")


def test_a_request_that_fits_no_single_machine_is_refused(
    table: InstanceTable, experiment: Experiment
) -> None:
    # 48 cores and 64 GiB fit the 64-core machine; 64 cores and 129 GiB fit none
    fitting = replace(table, request=np.tile([48_000, 65_536], (4, 1)))
    check_table(fitting, experiment)
    with pytest.raises(TraceError, match="request row 0"):
        check_table(replace(table, request=np.tile([64_000, 132_096], (4, 1))), experiment)


def test_no_memory_may_be_requested(table: InstanceTable, experiment: Experiment) -> None:
    check_table(replace(table, request=np.tile([48_000, 0], (4, 1))), experiment)


@pytest.mark.parametrize("name", ["reference_s", "known_use", "use", "task_parent_start"])
def test_a_column_of_another_length_is_refused(
    table: InstanceTable, experiment: Experiment, name: str
) -> None:
    with pytest.raises(TraceError, match=f"{name} has the shape"):
        check_table(replace(table, **{name: getattr(table, name)[:-1]}), experiment)


def test_a_column_of_another_type_is_refused(table: InstanceTable, experiment: Experiment) -> None:
    with pytest.raises(TraceError, match="work_us is float64, expected i8"):
        check_table(replace(table, work_us=table.work_us.astype(float)), experiment)


def test_cycles_are_found_with_what_waits_behind_them() -> None:
    # 0 <- 1 <- 2, 3 <-> 4 <- 5
    child, parent = np.array([1, 2, 3, 4, 5]), np.array([0, 1, 4, 3, 4])
    assert cyclic_tasks(6, child, parent).tolist() == [3, 4, 5]


def test_a_diamond_is_no_cycle() -> None:
    child, parent = np.array([1, 2, 3, 3]), np.array([0, 0, 1, 2])
    assert cyclic_tasks(4, child, parent).tolist() == []


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("work_us", 0, -1, "work_us row 0 = -1, expected > 0"),
        ("job_arrival_us", 0, -4, "job_arrival_us row 0 = -4, expected >= 0"),
        ("request", 1, 10**9, "request row 1 = .*expected what one machine"),
        ("task_parents", 0, 2, "task row 2 of job 1 waits for itself"),
    ],
)
def test_file_from_outside_is_checked_as_it_is_read(
    tmp_path: Path,
    table: InstanceTable,
    experiment: Experiment,
    name: str,
    index: Any,
    value: int,
    message: str,
) -> None:
    wrong = replace(table, **{name: changed(getattr(table, name), index, value)})
    write_table(tmp_path / "day.parquet", wrong, experiment.resources)
    with pytest.raises(TraceError, match=rf"day\.parquet: {message}"):
        load_table(tmp_path / "day.parquet", experiment)


def test_whole_file_from_outside_is_read(
    tmp_path: Path, table: InstanceTable, experiment: Experiment
) -> None:
    write_table(tmp_path / "day.parquet", table, experiment.resources)
    assert load_table(tmp_path / "day.parquet", experiment).n_tasks == table.n_tasks
