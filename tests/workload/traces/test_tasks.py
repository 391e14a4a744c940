from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from marl_sched.errors import TraceError
from marl_sched.workload.traces.tasks import TASK_SCHEMA, load_tasks, task_path

Writer = Callable[[list[dict[str, Any]]], str]
TWO_JOBS: list[dict[str, Any]] = [
    {"job": 0, "arrival_s": 3},
    {"job": 1, "arrival_s": 5},
    {"job": 1, "arrival_s": 5, "parents": [0]},
]


def test_table_is_read_in_columns(write_trace: Writer) -> None:
    table = load_tasks(write_trace(TWO_JOBS))
    assert table.job_arrival_s.tolist() == [3, 5]
    assert table.job_task_start.tolist() == [0, 1, 3]
    assert table.parent_start.tolist() == [0, 0, 0, 1]
    assert table.parents.tolist() == [0]
    assert table.duration_s[0].tolist() == [10.0, 9.0, 15.0, 20.0]
    assert table.cpu_used_milli[0].tolist() == [500.0, 900.0]


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
        (0, {"arrival_s": 9}, "row 1: arrival_s = 5, expected at least the row before's"),
        (2, {"arrival_s": 6}, "row 2: arrival_s = 6, expected its job's 5"),
        (1, {"n_instances": 0}, "row 1: n_instances = 0, expected an integer > 0"),
        (1, {"cpu_milli": 0}, "row 1: cpu_milli = 0, expected an integer > 0"),
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
    pl.read_parquet(path).drop("cpu_milli").write_parquet(path)
    with pytest.raises(TraceError, match=r"cpu_milli \(UInt32\)"):
        load_tasks(path)


def test_table_without_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    pl.DataFrame(schema=TASK_SCHEMA).write_parquet(path)
    with pytest.raises(TraceError, match="no tasks, expected at least one row"):
        load_tasks(str(path))


def test_unknown_sample_lists_those_that_ship() -> None:
    with pytest.raises(TraceError, match=r"package:nothing: .*package:alibaba-v2018-hour"):
        load_tasks("package:nothing")


def test_shipped_sample_holds_the_whole_hour() -> None:
    table = load_tasks("package:alibaba-v2018-hour")
    assert len(table.job_arrival_s) == 16_742
    assert len(table.n_instances) == 67_228
    assert (table.job_arrival_s[0], table.job_arrival_s[-1]) == (0, 3600)
    cores = (table.n_instances * table.duration_s[:, 0] * table.cpu_milli).sum() / 1000 / 3600
    # measured on all instances of the hour: 49,954 cores on average
    assert cores == pytest.approx(49_954, rel=0.02)
    assert np.diff(table.parent_start).max() > 2


def test_empty_parent_is_named(write_trace: Writer) -> None:
    path = write_trace(TWO_JOBS)
    frame = pl.read_parquet(path)
    parents = frame["parents"].to_list()
    parents[1] = [None]
    frame.with_columns(pl.Series("parents", parents, frame.schema["parents"])).write_parquet(path)
    with pytest.raises(TraceError, match="row 1: parents is empty"):
        load_tasks(path)
