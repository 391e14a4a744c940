from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from marl_sched.config import Experiment, load_config
from marl_sched.errors import TraceError
from marl_sched.workload.episodes import draw_workload
from marl_sched.workload.table import InstanceTable
from marl_sched.workload.table_io import read_table, table_schema, write_table

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return load_config(CONFIGS / "base.yaml")


@pytest.fixture(scope="module")
def table(experiment: Experiment) -> InstanceTable:
    return draw_workload(experiment, experiment.zones[0], "train", 0)


@pytest.fixture
def path(tmp_path: Path, table: InstanceTable, experiment: Experiment) -> Path:
    path = tmp_path / "table.parquet"
    write_table(path, table, experiment.resources)
    return path


def assert_equal(one: InstanceTable, other: InstanceTable) -> None:
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert a.dtype == b.dtype, field.name
        assert np.array_equal(a, b), field.name


def test_table_comes_back_as_it_was(
    path: Path, table: InstanceTable, experiment: Experiment
) -> None:
    assert_equal(read_table(path, experiment.resources), table)


def test_one_row_an_instance(path: Path, table: InstanceTable, experiment: Experiment) -> None:
    frame = pl.read_parquet(path)
    assert len(frame) == table.n_instances
    assert dict(frame.schema) == table_schema(experiment.resources)


def test_empty_table_comes_back_empty(tmp_path: Path, experiment: Experiment) -> None:
    idle = experiment.zones[0].model_copy(update={"load": 1e-9})
    empty = draw_workload(experiment, idle, "train", 0)
    write_table(tmp_path / "empty.parquet", empty, experiment.resources)
    assert_equal(read_table(tmp_path / "empty.parquet", experiment.resources), empty)


def test_missing_file_is_named(tmp_path: Path, experiment: Experiment) -> None:
    with pytest.raises(TraceError, match=r"absent\.parquet: no such file"):
        read_table(tmp_path / "absent.parquet", experiment.resources)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_truncated_file_is_refused(path: Path, experiment: Experiment, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(TraceError, match=r"table\.parquet: not a whole Parquet file"):
        read_table(path, experiment.resources)


def test_other_columns_are_named(path: Path, experiment: Experiment) -> None:
    frame = pl.read_parquet(path).rename({"work_us": "work_s"})
    frame.write_parquet(path)
    with pytest.raises(TraceError, match=r"work_us \(Int64\).*unknown \['work_s'\]"):
        read_table(path, experiment.resources)


def test_other_resources_are_other_columns(path: Path) -> None:
    with pytest.raises(TraceError, match="request:gpu_milli"):
        read_table(path, ["cpu_milli", "memory_mib", "gpu_milli"])


def test_other_type_is_refused(path: Path, experiment: Experiment) -> None:
    pl.read_parquet(path).with_columns(pl.col("work_us").cast(pl.Float64)).write_parquet(path)
    with pytest.raises(TraceError, match="work_us"):
        read_table(path, experiment.resources)


def test_empty_value_is_named(path: Path, experiment: Experiment) -> None:
    frame = pl.read_parquet(path).with_row_index("i")
    frame = frame.with_columns(
        reference_s=pl.when(pl.col("i") == 4).then(None).otherwise(pl.col("reference_s"))
    ).drop("i")
    frame.write_parquet(path)
    with pytest.raises(TraceError, match="row 4: reference_s is empty"):
        read_table(path, experiment.resources)


@pytest.mark.parametrize("name", ["task", "job"])
def test_numbers_must_follow_the_rows(path: Path, experiment: Experiment, name: str) -> None:
    pl.read_parquet(path).with_columns(pl.col(name) + 1).write_parquet(path)
    with pytest.raises(TraceError, match=f"row 0: {name} = 1, expected {name}s numbered 0, 1, 2"):
        read_table(path, experiment.resources)


def test_rows_of_a_task_must_agree_on_their_job(
    path: Path, table: InstanceTable, experiment: Experiment
) -> None:
    row = int(np.flatnonzero(np.diff(table.task_instance_start) > 1)[0])
    second = int(table.task_instance_start[row]) + 1
    frame = pl.read_parquet(path).with_row_index("i")
    frame = frame.with_columns(job_arrival_us=pl.col("job_arrival_us") + (pl.col("i") == second))
    frame.drop("i").write_parquet(path)
    with pytest.raises(TraceError, match="rows of one task differ"):
        read_table(path, experiment.resources)


def test_rows_of_a_task_must_agree_on_its_request(
    path: Path, table: InstanceTable, experiment: Experiment
) -> None:
    task = int(np.flatnonzero(np.diff(table.task_instance_start) > 1)[0])
    second = int(table.task_instance_start[task]) + 1
    cpu = pl.col("request:cpu_milli")
    frame = pl.read_parquet(path).with_row_index("i").with_columns(cpu + (pl.col("i") == second))
    frame.drop("i").write_parquet(path)
    got = table.request[task, 0] + 1
    with pytest.raises(TraceError, match=f"request:cpu_milli: task {task} has {got}, expected"):
        read_table(path, experiment.resources)


def test_columns_in_another_order_are_refused(path: Path, experiment: Experiment) -> None:
    frame = pl.read_parquet(path)
    frame.select(reversed(frame.columns)).write_parquet(path)
    with pytest.raises(TraceError, match="columns in the order"):
        read_table(path, experiment.resources)


def test_folder_in_place_of_the_file_is_named(tmp_path: Path, experiment: Experiment) -> None:
    with pytest.raises(TraceError, match="not a file, expected a Parquet table"):
        read_table(tmp_path, experiment.resources)
