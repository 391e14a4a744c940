"""The task table: a trace as one row a task, the common form that every trace loader writes.

Shapes: J jobs, T tasks, P edges of the DAGs, R resources. docs/traces.md lists the file's columns.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from marl_sched.errors import TraceError
from marl_sched.workload.assembly import offsets, positions, ranks
from marl_sched.workload.parquet_pages import check_pages, whole_parquet
from marl_sched.workload.table import Float, Int
from marl_sched.workload.table_io import read_frame
from marl_sched.workload.validation import cyclic_tasks

PACKAGE = "package:"
MEAN, P50, P95, MAX = range(4)
USE_MEAN, USE_MAX = range(2)
DURATIONS = ("duration_mean_ms", "duration_p50_ms", "duration_p95_ms", "duration_max_ms")
REQUEST, USES = "request:", ("use_mean:", "use_max:")
METADATA_KEY = "marl_sched"
LONGEST_MS = 2**53
"""Durations above are refused: they are no measurement, and lose precision as float64."""
_SHORTEST_S = 1.0
"""Traces give whole seconds: 0 stands for less than one, and is taken for one."""
_MAX_AMOUNT = 2**40


class TraceInfo(BaseModel):
    """What a task table's file says of itself, in its Parquet metadata."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = 2
    """Version of this form."""
    format: str
    """Format of the raw files, or the generator's profile."""
    resolution_us: Annotated[int, Field(gt=0, le=_MAX_AMOUNT)] = 1_000_000
    """Arrivals are multiples of it; jobs of one tick are spread over it when they are drawn."""
    reference: dict[str, Annotated[int, Field(gt=0, le=_MAX_AMOUNT)]]
    """The trace's largest machine; requests are grouped into classes by their share of it."""


@dataclass(frozen=True)
class TaskTable:
    """A trace's tasks, in the order of the jobs' arrivals. The arrays are read-only: it is cached.

    Attributes:
        resources: Names of the R resources, cpu and memory first.
        resolution_us: Arrivals are multiples of it.
        reference: (R,) the trace's largest machine; 0 where it is not known.
        job_arrival_us: (J,) since the start of the trace, ascending.
        job_task_start: (J + 1,) tasks of job j are job_task_start[j] : job_task_start[j + 1].
        parent_start: (T + 1,) parents of task t are parents[start[t] : start[t + 1]].
        parents: (P,) position of each parent within the job.
        priority: (T,) larger goes first.
        n_instances: (T,).
        request: (T, R) request of an instance.
        duration_s: (T, 4) mean, p50, p95 and maximum over the task's instances, >= 1 s.
        use: (T, R, 2) mean and maximum over the instances of the mean real use.
    """

    resources: tuple[str, ...]
    resolution_us: int
    reference: Int
    job_arrival_us: Int
    job_task_start: Int
    parent_start: Int
    parents: Int
    priority: Int
    n_instances: Int
    request: Int
    duration_s: Float
    use: Float

    @property
    def n_jobs(self) -> int:
        """J."""
        return len(self.job_arrival_us)

    @property
    def n_tasks(self) -> int:
        """T."""
        return len(self.n_instances)

    def freeze(self) -> "TaskTable":
        """Make the arrays read-only, and return the table."""
        for field in fields(self):
            column = getattr(self, field.name)
            if isinstance(column, np.ndarray):
                column.setflags(write=False)
        return self


def task_schema(resources: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the columns of a task table's file and their types, in order."""
    schema: dict[str, pl.DataType] = {
        "job": pl.UInt32(),
        "arrival_us": pl.Int64(),
        "parents": pl.List(pl.UInt32),
        "priority": pl.Int32(),
        "n_instances": pl.UInt32(),
    }
    schema |= dict.fromkeys(DURATIONS, pl.Int64())
    schema |= {f"{REQUEST}{resource}": pl.Int64() for resource in resources}
    for use in USES:
        schema |= {f"{use}{resource}": pl.Float64() for resource in resources}
    return schema


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
    info, resources = read_info(file)
    frame = read_frame(file, task_schema(resources))
    if not len(frame):
        raise TraceError(f"{file}: no tasks, expected at least one row")
    for problem in _problems(frame, resources):
        raise TraceError(f"{file}: {problem}")
    _, first = np.unique(frame["job"].to_numpy(), return_index=True)

    def amounts(prefix: str) -> np.ndarray:
        return np.column_stack([frame[f"{prefix}{name}"].to_numpy() for name in resources])

    return TaskTable(
        resources=resources,
        resolution_us=info.resolution_us,
        reference=np.array([info.reference.get(name, 0) for name in resources], np.int64),
        job_arrival_us=frame["arrival_us"].to_numpy()[first],
        job_task_start=np.append(first, len(frame)).astype(np.int64),
        parent_start=offsets(_parent_counts(frame)),
        parents=_flat_parents(frame),
        priority=_integers(frame, "priority"),
        n_instances=_integers(frame, "n_instances"),
        request=amounts(REQUEST),
        duration_s=np.maximum(
            np.column_stack([frame[name].to_numpy() for name in DURATIONS]) / 1000.0, _SHORTEST_S
        ),
        use=np.stack([amounts(use) for use in USES], axis=2),
    ).freeze()


def read_info(file: Path) -> tuple[TraceInfo, tuple[str, ...]]:
    """Return what a task table says of itself, and its resources in the order of the columns.

    Raises:
        TraceError: It is missing, not Parquet, or no task table of this version.
    """
    if not file.is_file():
        problem = "not a file" if file.exists() else "no such file"
        raise TraceError(f"{file}: {problem}, expected a task table")
    check_pages(file)
    with whole_parquet(file):
        text = pl.read_parquet_metadata(file).get(METADATA_KEY)
        names = pl.read_parquet_schema(file)
    if text is None:
        raise TraceError(
            f"{file}: not a task table, or one of an older version: convert the trace again with "
            "`marl-sched trace convert`"
        )
    try:
        info = TraceInfo.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise TraceError(f"{file}: metadata {where}: {first['msg']}") from None
    if info.version != 2:
        raise TraceError(f"{file}: version {info.version} of the task table, expected 2")
    resources = tuple(n.removeprefix(REQUEST) for n in names if n.startswith(REQUEST))
    if len(resources) < 2:
        raise TraceError(f"{file}: requests of {resources}, expected cpu and memory at least")
    return info, resources


def metadata(info: TraceInfo) -> dict[str, str]:
    """Return the Parquet metadata that `read_info` reads."""
    return {METADATA_KEY: json.dumps(info.model_dump(), sort_keys=True)}


def _integers(frame: pl.DataFrame, name: str) -> Int:
    return frame[name].to_numpy().astype(np.int64)


def _parent_counts(frame: pl.DataFrame) -> Int:
    return frame["parents"].list.len().to_numpy().astype(np.int64)


def _flat_parents(frame: pl.DataFrame) -> Int:
    return frame["parents"].explode().drop_nulls().to_numpy().astype(np.int64)


def _problems(frame: pl.DataFrame, resources: Sequence[str]) -> Iterator[str]:
    job, arrival = _integers(frame, "job"), _integers(frame, "arrival_us")
    steps = np.diff(job, prepend=-1)
    for row in np.flatnonzero((steps < 0) | (steps > 1)):
        yield f"row {row}: job = {job[row]}, expected jobs numbered 0, 1, 2, ... in order"
    drops = np.diff(arrival, prepend=0) * (np.diff(job, prepend=0) > 0) < 0
    for row in np.flatnonzero(drops):
        yield f"row {row}: arrival_us = {arrival[row]}, expected at least the row before's"
    for row in np.flatnonzero((np.diff(job) == 0) & (np.diff(arrival) != 0)):
        yield f"row {row + 1}: arrival_us = {arrival[row + 1]}, expected its job's {arrival[row]}"
    yield from _range_problems(frame, resources)
    for small, large in (DURATIONS[1:3], DURATIONS[2:4], DURATIONS[::3]):
        for row in np.flatnonzero(_integers(frame, small) > _integers(frame, large)):
            yield f"row {row}: {small} = {frame[small][int(row)]} is above {large}"
    yield from _parent_problems(frame, job)


def _range_problems(frame: pl.DataFrame, resources: Sequence[str]) -> Iterator[str]:
    ranges: dict[str, tuple[float, float]] = {"arrival_us": (0, 2**62), "n_instances": (1, 2**32)}
    ranges |= dict.fromkeys(DURATIONS, (0, LONGEST_MS))
    for number, resource in enumerate(resources):
        ranges[f"{REQUEST}{resource}"] = (0 if number else 1, _MAX_AMOUNT)
        ranges |= {f"{use}{resource}": (0, _MAX_AMOUNT) for use in USES}
    for name, (low, high) in ranges.items():
        column = frame[name].to_numpy()
        for row in np.flatnonzero(~((column >= low) & (column <= high))):
            yield f"row {row}: {name} = {column[row]}, expected a number from {low} to {high}"


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
