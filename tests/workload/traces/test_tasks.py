from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from marl_sched.errors import TraceError
from marl_sched.workload.traces.tasks import load_tasks, task_path

Writer = Callable[[list[dict[str, Any]]], str]
TWO_JOBS: list[dict[str, Any]] = [
    {"job": 0, "arrival_s": 3},
    {"job": 1, "arrival_s": 5},
    {"job": 1, "arrival_s": 5, "parents": [0]},
]


def test_table_is_read_in_columns(write_trace: Writer) -> None:
    table = load_tasks(write_trace(TWO_JOBS))
    assert table.resources == ("cpu_milli", "memory_mib")
    assert table.reference.tolist() == [96_000, 393_216]
    assert table.job_arrival_us.tolist() == [3_000_000, 5_000_000]
    assert table.job_task_start.tolist() == [0, 1, 3]
    assert table.parent_start.tolist() == [0, 0, 0, 1]
    assert table.parents.tolist() == [0]
    assert table.duration_s[0].tolist() == [10.0, 9.0, 15.0, 20.0]
    assert table.request[0].tolist() == [1000, 3932]
    assert table.use[0].tolist() == [[500.0, 900.0], [786.0, 1573.0]]


def test_durations_below_the_traces_resolution_are_one_second(write_trace: Writer) -> None:
    zero = {f"duration_{name}_ms": 0 for name in ("mean", "p50", "p95", "max")}
    table = load_tasks(write_trace([TWO_JOBS[0] | zero]))
    assert table.duration_s[0].tolist() == [1.0, 1.0, 1.0, 1.0]


def test_cached_table_cannot_be_changed(write_trace: Writer) -> None:
    path = write_trace(TWO_JOBS)
    table = load_tasks(path)
    assert load_tasks(path) is table
    with pytest.raises(ValueError, match="read-only"):
        table.n_instances[0] = 7


@pytest.mark.parametrize(
    ("row", "change", "message"),
    [
        (0, {"job": 1}, "row 0: job = 1, expected jobs numbered 0, 1, 2"),
        (2, {"job": 0}, "row 2: job = 0, expected jobs numbered 0, 1, 2"),
        (0, {"arrival_s": 9}, "row 1: arrival_us = 5000000, expected at least the row before's"),
        (2, {"arrival_s": 6}, "row 2: arrival_us = 6000000, expected its job's 5000000"),
        (1, {"n_instances": 0}, "row 1: n_instances = 0, expected a number from 1 to"),
        (1, {"request:cpu_milli": 0}, "row 1: request:cpu_milli = 0, expected a number from 1 to"),
        (1, {"request:memory_mib": -1}, "row 1: request:memory_mib = -1, expected a number from 0"),
        (1, {"use_max:cpu_milli": float("nan")}, "row 1: use_max:cpu_milli = nan, expected a"),
        (0, {"arrival_s": -1}, "row 0: arrival_us = -1000000, expected"),
        (1, {"duration_p50_ms": 15_001}, "row 1: duration_p50_ms = 15001 is above duration_p95"),
        (1, {"duration_mean_ms": 20_001}, "row 1: duration_mean_ms = 20001 is above duration_max"),
        (2, {"parents": [2]}, "row 2: parent 2, expected a position below the job's 2 tasks"),
        (2, {"parents": [1]}, r"row 2: waits for itself by its parents \[1\]"),
        (1, {"parents": [1]}, r"row 1: waits for itself by its parents \[1\]"),
    ],
)
def test_wrong_row_is_named(
    write_trace: Writer, row: int, change: dict[str, Any], message: str
) -> None:
    rows = [dict(item) for item in TWO_JOBS]
    rows[row] |= change
    with pytest.raises(TraceError, match=rf"trace\.parquet: {message}"):
        load_tasks(write_trace(rows))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.parquet: no such file"):
        load_tasks(str(tmp_path / "none.parquet"))


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    sample = task_path("package:alibaba-v2018-hour").read_bytes()
    path = tmp_path / "half.parquet"
    path.write_bytes(sample[: len(sample) // 2])
    with pytest.raises(TraceError, match=r"half\.parquet: not a whole Parquet file"):
        load_tasks(str(path))


def test_other_columns_are_named(write_trace: Writer) -> None:
    path = write_trace(TWO_JOBS)
    kept = pl.read_parquet_metadata(path)["marl_sched"]
    pl.read_parquet(path).drop("priority").write_parquet(path, metadata={"marl_sched": kept})
    with pytest.raises(TraceError, match=r"no priority \(Int32\)"):
        load_tasks(path)


def test_a_parquet_file_of_another_kind_is_refused(write_trace: Writer) -> None:
    path = write_trace(TWO_JOBS)
    pl.read_parquet(path).write_parquet(path)
    with pytest.raises(TraceError, match="not a task table, or one of an older version"):
        load_tasks(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "metadata format: Field required"),
        ('{"version": 3, "format": "x", "reference": {}}', "version 3 of the task table"),
        ('{"format": "x", "reference": {}, "resolution_us": 0}', "metadata resolution_us"),
        ("[", "metadata : Invalid JSON"),
    ],
)
def test_metadata_that_is_not_ours_is_named(write_trace: Writer, text: str, message: str) -> None:
    path = write_trace(TWO_JOBS)
    pl.read_parquet(path).write_parquet(path, metadata={"marl_sched": text})
    with pytest.raises(TraceError, match=message):
        load_tasks(path)


def test_table_without_rows_is_refused(write_trace: Writer) -> None:
    with pytest.raises(TraceError, match="no tasks, expected at least one row"):
        load_tasks(write_trace([]))


def test_unknown_sample_lists_those_that_ship() -> None:
    with pytest.raises(TraceError, match=r"package:nothing: .*package:alibaba-v2018-hour"):
        load_tasks("package:nothing")


def test_shipped_sample_holds_the_whole_hour() -> None:
    table = load_tasks("package:alibaba-v2018-hour")
    assert (table.n_jobs, table.n_tasks) == (16_742, 67_228)
    assert table.job_arrival_us[[0, -1]].tolist() == [0, 3_600_000_000]
    cpu_milli = table.request[:, 0]
    cores = (table.n_instances * table.duration_s[:, 0] * cpu_milli).sum() / 1000 / 3600
    # measured on all instances of the hour: 49,954 cores on average
    assert cores == pytest.approx(49_954, rel=0.02)
    assert np.diff(table.parent_start).max() > 2


def test_empty_parent_is_named(write_trace: Writer) -> None:
    path = write_trace(TWO_JOBS)
    frame = pl.read_parquet(path)
    parents = frame["parents"].to_list()
    parents[1] = [None]
    kept = {"marl_sched": pl.read_parquet_metadata(path)["marl_sched"]}
    column = pl.Series("parents", parents, frame.schema["parents"])
    frame.with_columns(column).write_parquet(path, metadata=kept)
    with pytest.raises(TraceError, match="row 1: parents is empty"):
        load_tasks(path)
