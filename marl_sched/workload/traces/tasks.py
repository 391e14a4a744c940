"""The task table: a trace as one row a task, the common form that every trace loader writes.

Shapes: J jobs, T tasks, P edges of the DAGs. docs/workload.md lists the file's columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.assembly import offsets, positions, ranks
from marl_sched.workload.table import Float, Int
from marl_sched.workload.table_io import read_frame
from marl_sched.workload.validation import cyclic_tasks

PACKAGE = "package:"
MEAN, P50, P95, MAX = range(4)
_DURATIONS = ("duration_mean_ms", "duration_p50_ms", "duration_p95_ms", "duration_max_ms")
_SHORTEST_S = 1.0
"""Traces give whole seconds: 0 stands for less than one, and is taken for one."""

TASK_SCHEMA: dict[str, pl.DataType] = {
    "job": pl.UInt32(),
    "arrival_s": pl.UInt32(),
    "parents": pl.List(pl.UInt16),
    "n_instances": pl.UInt32(),
    "cpu_milli": pl.UInt32(),
    "memory_ppm": pl.UInt32(),
    "duration_mean_ms": pl.UInt32(),
    "duration_p50_ms": pl.UInt32(),
    "duration_p95_ms": pl.UInt32(),
    "duration_max_ms": pl.UInt32(),
    "cpu_used_mean_milli": pl.UInt32(),
    "cpu_used_max_milli": pl.UInt32(),
    "memory_used_mean_ppm": pl.UInt32(),
    "memory_used_max_ppm": pl.UInt32(),
}


@dataclass(frozen=True)
class TaskTable:
    """A trace's tasks, in the order of the jobs' arrivals. The arrays are read-only: it is cached.

    Attributes:
        job_arrival_s: (J,) seconds since the start of the trace, ascending.
        job_task_start: (J + 1,) tasks of job j are job_task_start[j] : job_task_start[j + 1].
        parent_start: (T + 1,) parents of task t are parents[start[t] : start[t + 1]].
        parents: (P,) position of each parent within the job.
        n_instances: (T,).
        cpu_milli: (T,) request of an instance.
        memory_ppm: (T,) request of an instance, millionths of the trace's largest machine.
        duration_s: (T, 4) mean, p50, p95 and maximum over the task's instances, >= 1 s.
        cpu_used_milli: (T, 2) mean and maximum over the instances of the mean real use.
        memory_used_ppm: (T, 2) likewise.
    """

    job_arrival_s: Int
    job_task_start: Int
    parent_start: Int
    parents: Int
    n_instances: Int
    cpu_milli: Int
    memory_ppm: Int
    duration_s: Float
    cpu_used_milli: Float
    memory_used_ppm: Float


def task_path(path: str) -> Path:
    """Return the file of a configured path; `package:NAME` is a sample that ships with us.

    Raises:
        TraceError: There is no such sample.
    """
    if not path.startswith(PACKAGE):
        return Path(path)
    folder = Path(str(files("marl_sched"))) / "data"
    sample = folder / f"{path.removeprefix(PACKAGE)}.parquet"
    if not sample.is_file():
        known = sorted(PACKAGE + file.stem for file in folder.glob("*.parquet"))
        raise TraceError(f"{path}: no such sample, expected one of {known}")
    return sample


@lru_cache(maxsize=4)
def load_tasks(path: str) -> TaskTable:
    """Read and check a task table; the same object for the same path.

    Raises:
        TraceError: The file is missing, truncated or has other columns, or a row is not valid;
            names file, row and value.
    """
    file = task_path(path)
    frame = read_frame(file, TASK_SCHEMA)
    if not len(frame):
        raise TraceError(f"{file}: no tasks, expected at least one row")
    for problem in _problems(frame):
        raise TraceError(f"{file}: {problem}")
    columns = {name: _integers(frame, name) for name in frame.columns if name != "parents"}
    _, first = np.unique(columns["job"], return_index=True)
    duration_ms = np.column_stack([columns[name] for name in _DURATIONS])
    table = TaskTable(
        job_arrival_s=columns["arrival_s"][first],
        job_task_start=np.append(first, len(frame)).astype(np.int64),
        parent_start=offsets(_parent_counts(frame)),
        parents=_flat_parents(frame),
        n_instances=columns["n_instances"],
        cpu_milli=columns["cpu_milli"],
        memory_ppm=columns["memory_ppm"],
        duration_s=np.maximum(duration_ms / 1000.0, _SHORTEST_S),
        cpu_used_milli=np.column_stack(
            [columns["cpu_used_mean_milli"], columns["cpu_used_max_milli"]]
        ).astype(float),
        memory_used_ppm=np.column_stack(
            [columns["memory_used_mean_ppm"], columns["memory_used_max_ppm"]]
        ).astype(float),
    )
    for field in fields(table):
        getattr(table, field.name).setflags(write=False)
    return table


def _integers(frame: pl.DataFrame, name: str) -> Int:
    return frame[name].to_numpy().astype(np.int64)


def _parent_counts(frame: pl.DataFrame) -> Int:
    return frame["parents"].list.len().to_numpy().astype(np.int64)


def _flat_parents(frame: pl.DataFrame) -> Int:
    return frame["parents"].explode().drop_nulls().to_numpy().astype(np.int64)


def _problems(frame: pl.DataFrame) -> Iterator[str]:
    job, arrival = _integers(frame, "job"), _integers(frame, "arrival_s")
    steps = np.diff(job, prepend=-1)
    for row in np.flatnonzero((steps < 0) | (steps > 1)):
        yield f"row {row}: job = {job[row]}, expected jobs numbered 0, 1, 2, ... in order"
    drops = np.diff(arrival, prepend=0) * (np.diff(job, prepend=0) > 0) < 0
    for row in np.flatnonzero(drops):
        yield f"row {row}: arrival_s = {arrival[row]}, expected at least the row before's"
    for row in np.flatnonzero((np.diff(job) == 0) & (np.diff(arrival) != 0)):
        yield f"row {row + 1}: arrival_s = {arrival[row + 1]}, expected its job's {arrival[row]}"
    for name in ("n_instances", "cpu_milli"):
        for row in np.flatnonzero(_integers(frame, name) == 0):
            yield f"row {row}: {name} = 0, expected an integer > 0"
    for small, large in (_DURATIONS[1:3], _DURATIONS[2:4], _DURATIONS[::3]):
        for row in np.flatnonzero(_integers(frame, small) > _integers(frame, large)):
            yield f"row {row}: {small} = {frame[small][int(row)]} is above {large}"
    yield from _parent_problems(frame, job)


def _parent_problems(frame: pl.DataFrame, job: Int) -> Iterator[str]:
    n_tasks = np.bincount(job)  # (J,)
    parents, child = _flat_parents(frame), np.repeat(ranks(len(job)), _parent_counts(frame))
    for edge in np.flatnonzero(parents >= n_tasks[job[child]]):
        yield (
            f"row {child[edge]}: parent {parents[edge]}, expected a position below the job's "
            f"{n_tasks[job[child[edge]]]} tasks"
        )
    first_task = ranks(len(job)) - positions(n_tasks)  # (T,) row of the job's first task
    for row in cyclic_tasks(len(job), child, first_task[child] + parents):
        yield f"row {row}: waits for itself by its parents {frame['parents'][int(row)].to_list()}"
