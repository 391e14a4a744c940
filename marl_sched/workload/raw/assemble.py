"""From rows in any order, one a task, to the task table; jobs whose DAG would be false go.

A loader hands its rows over block by block (`TaskRows.add`), in columns named as here:

    job             UInt64 or String; rows of equal job are one job
    arrival_us      Int64; a job arrives with its first task
    n_instances     UInt32
    request:RES     integer
    duration_ms     integer, or the four of `tasks.DURATIONS` where instances are known
    use_mean:RES, use_max:RES   optional; the request where they are not known
    priority        optional Int32
    task            optional UInt64: code of the task, to find its instances by
    name, key       where names hold a DAG (names.py): code of the name, number of the task
    begin_s, finish_s   optional: the task's own times, to compare with its parents' (-1: unknown)
    N_ROWS          optional Int64: rows of the table that a row here stands for; else one
    RULE            UInt8: the rule that drops the row with its job (`TableAccount.sort_out`)

Only compact columns stay in memory, some 80 bytes a task. Shapes: J jobs, T tasks.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

from marl_sched.errors import TraceError
from marl_sched.files import naming
from marl_sched.workload.assembly import offsets
from marl_sched.workload.raw.account import N_ROWS, RULE, TableAccount, drop_whole_jobs
from marl_sched.workload.raw.job_groups import Jobs, grouped, segments, sorted_by
from marl_sched.workload.raw.kernels import dag
from marl_sched.workload.raw.rules import DROP_JOB, JOB_INCOMPLETE, Rule
from marl_sched.workload.table import Int
from marl_sched.workload.traces.tasks import DURATIONS, REQUEST, USES, TraceInfo, metadata
from marl_sched.workload.traces.tasks import task_schema as schema_of

DAG_RULES = (
    Rule("parent-id-above-own", "a parent whose number is above the task's", ("keep",), of="edges"),
    Rule("duplicate", "a second task of the same name or number in its job", (DROP_JOB,)),
    Rule("parent-missing", "a parent that its job does not have", (DROP_JOB,)),
    Rule(
        "child-before-parent",
        "a task that starts before its parent ends",
        ("keep-dag", "drop-edge", DROP_JOB),
        of="edges",
    ),
    Rule("cycle", "waits for itself, or for a task that does", (DROP_JOB,)),
)
"""Rules that `assemble` counts, for formats whose names hold a DAG."""

_CHUNK = 500_000
_Number = TypeVar("_Number", bound=np.generic)
_EARLY = {"keep-dag": dag.KEEP_EDGE, "drop-edge": dag.DROP_EDGE, DROP_JOB: dag.DROP_JOB}


class ParentNumbers(Protocol):
    """What `name` codes mean; names.TaskNames is one."""

    def parents(self) -> tuple[Int, Int]:
        """Return (start, numbers): parents of the name c are numbers[start[c] : start[c + 1]]."""


@dataclass
class TaskRows:
    """Rows of a trace, collected block by block.

    Attributes:
        resources: The resources of the table, cpu and memory first.
        names: What holds the trace's DAG, if it has one.
    """

    resources: Sequence[str]
    names: ParentNumbers | None = None
    _parts: dict[str, list[NDArray[np.generic]]] = field(default_factory=dict)

    def add(self, frame: pl.DataFrame) -> None:
        """Take over the columns of a block that are known here."""
        columns = self._columns()
        if frame["job"].dtype == pl.String:
            # Two of millions of names have one 64-bit hash with a probability of about 1e-6.
            frame = frame.with_columns(pl.col("job").hash())
        for name in frame.columns:
            if name in columns:
                column = frame[name]
                if column.dtype.is_integer() and name != "job":
                    column = column.shrink_dtype()  # most values are small, and there are many
                self._parts.setdefault(name, []).append(column.to_numpy())

    def _columns(self) -> set[str]:
        plain = {"job", "arrival_us", "n_instances", "priority", "duration_ms", *DURATIONS, RULE}
        plain |= {N_ROWS}
        plain |= {"name", "key", "task", "begin_s", "finish_s"}
        prefixes = (REQUEST, *USES)
        return plain | {f"{prefix}{name}" for prefix in prefixes for name in self.resources}

    def pop(self, name: str, kind: type[np.generic] | None = None) -> NDArray[Any] | None:
        """Return a column of all blocks, and forget it; None if no block has it."""
        parts = self._parts.pop(name, None)
        return None if parts is None else np.concatenate(parts, dtype=kind)

    def put(self, name: str, column: NDArray[np.generic]) -> None:
        """Add a column of all rows, or replace it; the output keeps it in its order."""
        self._parts[name] = [column]

    def rest(self) -> Iterator[str]:
        """Yield the names of the columns that have not been popped."""
        yield from list(self._parts)


@dataclass(frozen=True)
class AssembledTasks:
    """A task table that has not been written yet.

    Attributes:
        info: What the file says of itself.
        resources: Its resources.
        columns: Columns in the order of the table, (T,) each.
        parents: Positions within the job of all parents.
        n_parents: (T,).
        n_jobs: J.
    """

    info: TraceInfo
    resources: tuple[str, ...]
    columns: dict[str, NDArray[np.generic]]
    parents: Int
    n_parents: Int
    n_jobs: int

    @property
    def n_tasks(self) -> int:
        """T."""
        return len(self.n_parents)

    @property
    def n_instances(self) -> int:
        """All instances of all tasks."""
        return int(self.columns["n_instances"].astype(np.int64).sum())

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Yield the table in pieces, in the columns of `task_schema`."""
        start = offsets(self.n_parents)
        for first in range(0, max(1, self.n_tasks), _CHUNK):
            rows = slice(first, first + _CHUNK)
            counts = self.n_parents[rows]
            flat = self.parents[start[first] : start[min(first + _CHUNK, self.n_tasks)]]
            yield self._chunk(rows, _lists(counts, flat))

    def frame(self) -> pl.DataFrame:
        """Return the whole table."""
        return pl.concat(self.chunks())

    def _chunk(self, rows: slice, parents: pl.Series) -> pl.DataFrame:
        columns = {name: column[rows] for name, column in self.columns.items()}
        for name in DURATIONS:
            columns.setdefault(name, columns.get("duration_ms", np.zeros(0)))
        for use in USES:
            for resource in self.resources:
                columns.setdefault(f"{use}{resource}", columns[f"{REQUEST}{resource}"])
        columns.setdefault("priority", np.zeros(len(columns["job"]), np.int32))
        return pl.DataFrame(
            [
                parents.cast(kind)
                if name == "parents"
                else pl.Series(name, columns[name]).cast(kind)
                for name, kind in schema_of(self.resources).items()
            ]
        )

    def write(self, path: Path) -> None:
        """Write the table as Parquet, in one step and in pieces.

        Raises:
            OSError: It cannot be written; names the file.
        """
        source = register_io_source(
            lambda *_: self.chunks(), schema=schema_of(self.resources), is_pure=True
        )
        temporary = path.with_name(f"{path.name}.tmp")
        with naming(path):
            try:
                source.sink_parquet(
                    temporary,
                    compression="zstd",
                    statistics=False,
                    metadata=metadata(self.info),
                )
                temporary.replace(path)
            except (pl.exceptions.PolarsError, OSError) as error:
                raise _system_error(error) from None
            finally:
                temporary.unlink(missing_ok=True)


def _system_error(error: Exception) -> Exception:
    """Return the system's error that Polars tells of in words: a full disk, no permission."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return error if number is None else OSError(int(number[1]), os.strerror(int(number[1])))


def assemble(rows: TaskRows, table: TableAccount, info: TraceInfo) -> AssembledTasks:
    """Group the rows into jobs in the order of their arrival, and settle the account.

    Raises:
        TraceError: No row is left.
    """
    job = rows.pop("job")
    if job is None or not len(job):
        raise TraceError(table.no_row_left())
    jobs = grouped(job)
    rule = _column(rows, jobs, RULE, np.uint8)
    before = rule.copy()
    parents, n_parents, job_edges = _check(rows, jobs, rule, table)
    n_rows = _column(rows, jobs, N_ROWS, np.int64, default=1)
    if rows.names is not None:
        for name in ("duplicate", "parent-missing", "cycle"):
            is_new = (rule == table.rules.number(name)) & (before == 0)
            table.find(name, int(n_rows[is_new].sum()))
    table.settle(rule, n_rows)
    starts = jobs.start[:-1]
    job_arrival_us = np.minimum.reduceat(_column(rows, jobs, "arrival_us", np.int64), starts)
    kept_jobs = np.flatnonzero(rule[starts] == 0)  # of a kept job all rows are kept
    if not len(kept_jobs):
        raise TraceError(table.no_row_left())
    kept_jobs = sorted_by(kept_jobs, job_arrival_us[kept_jobs])
    counts = np.diff(jobs.start)[kept_jobs]
    chosen = segments(starts[kept_jobs], counts)  # rows by job, in the final order
    edges = segments(job_edges[kept_jobs], np.diff(job_edges)[kept_jobs])
    columns: dict[str, NDArray[np.generic]] = {
        "job": np.repeat(np.arange(len(kept_jobs), dtype=np.uint32), counts),
        "arrival_us": np.repeat(job_arrival_us[kept_jobs], counts),
    }
    source = chosen if jobs.order is None else jobs.order[chosen]
    for name in rows.rest():
        column = rows.pop(name)
        if column is not None and name not in ("name", "key", "begin_s", "finish_s"):
            columns[name] = column[source]
    return AssembledTasks(
        info, tuple(rows.resources), columns, parents[edges], n_parents[chosen], len(kept_jobs)
    )


def _column(
    rows: TaskRows, jobs: Jobs, name: str, kind: type[_Number], default: int = 0
) -> NDArray[_Number]:
    """Take a column out of the rows, in the order of the jobs (T,)."""
    column = jobs.take(rows.pop(name, kind))
    return np.full(jobs.start[-1], default, kind) if column is None else column


def _check(
    rows: TaskRows, jobs: Jobs, rule: NDArray[np.uint8], table: TableAccount
) -> tuple[Int, Int, Int]:
    """Settle the rule (T,) of every row, in place, and find the edges.

    Returns:
        parents (P,), how many of them each task has (T,), and where a job's start (J + 1,).
    """
    rules = table.rules
    incomplete = rules.number(JOB_INCOMPLETE.name) if JOB_INCOMPLETE.name in rules else 0
    if rows.names is None:
        if incomplete:
            number = np.repeat(np.arange(len(jobs.start) - 1), np.diff(jobs.start))
            rule[:] = drop_whole_jobs(rule, number, incomplete)
        none = np.zeros(0, np.int64)
        return none, np.zeros(len(rule), np.int64), np.zeros(len(jobs.start), np.int64)
    start, numbers = rows.names.parents()
    name = _column(rows, jobs, "name", np.uint32)
    has_times = "begin_s" in list(rows.rest())
    parents = np.empty(int(np.diff(start)[name].sum()), np.int64)
    n_parents, totals = np.zeros(len(rule), np.int64), np.zeros(2, np.int64)
    codes = np.zeros(dag.N_CODES, np.int64)
    codes[dag.DUPLICATE] = rules.number("duplicate")
    codes[dag.PARENT_MISSING] = rules.number("parent-missing")
    codes[dag.CYCLE] = rules.number("cycle")
    codes[dag.EARLY_CHILD] = rules.number("child-before-parent")
    codes[dag.INCOMPLETE] = incomplete
    none = np.zeros(0, np.int64)
    job_edges = np.zeros(len(jobs.start), np.int64)
    dag.check_dags(
        jobs.start,
        _column(rows, jobs, "key", np.int64),
        name,
        start,
        numbers,
        _column(rows, jobs, "begin_s", np.int64) if has_times else none,
        _column(rows, jobs, "finish_s", np.int64) if has_times else none,
        codes,
        _EARLY[rules.action("child-before-parent")],
        rule,
        parents,
        n_parents,
        job_edges,
        totals,
    )
    table.find("child-before-parent", int(totals[dag.EARLY]), int(totals[dag.CHECKED]))
    return parents, n_parents, job_edges


def _lists(counts: Int, flat: Int) -> pl.Series:
    """Return a Series of lists of the given lengths (T,) out of flat values."""
    rows = pl.Series("row", np.arange(len(counts))).set_sorted()
    owner = pl.Series("row", np.repeat(rows.to_numpy(), counts)).set_sorted()
    grouped = (
        pl.DataFrame([owner, pl.Series("parents", flat.astype(np.uint32))])
        .group_by("row", maintain_order=True)
        .agg("parents")
    )
    full = pl.DataFrame([rows]).join(grouped, on="row", how="left", maintain_order="left")
    return full["parents"].fill_null(pl.Series([[]], dtype=pl.List(pl.UInt32)))
