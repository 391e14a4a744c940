"""Instance tables as Parquet: one row an instance, job and task columns repeated.

docs/workload.md lists the columns. Resources are columns of their own: `request:cpu_milli`,
`known_use:cpu_milli`, `use:cpu_milli`, in the resource's unit.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.assembly import offsets, ranks
from marl_sched.workload.parquet_pages import check_pages, whole_parquet
from marl_sched.workload.table import InstanceTable, Int

_TASK_COLUMNS = {
    "task_priority": pl.Int64,
    "task_class": pl.Int64,
    "reference_s": pl.Float64,
    "known_mean_s": pl.Float64,
    "known_sigma": pl.Float64,
    "latest_wait_us": pl.Int64,
    "latest_finish_us": pl.Int64,
}
_TASK_PER_RESOURCE = {"request": pl.Int64, "known_use": pl.Float64}


def table_schema(resources: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the columns of the file and their types, in order."""
    schema = {
        "job": pl.Int64(),
        "job_arrival_us": pl.Int64(),
        "task": pl.Int64(),
        "task_parents": pl.List(pl.Int64),
    }
    schema |= {name: dtype() for name, dtype in _TASK_COLUMNS.items()}
    for name, dtype in _TASK_PER_RESOURCE.items():
        schema |= {f"{name}:{resource}": dtype() for resource in resources}
    schema["work_us"] = pl.Int64()
    return schema | {f"use:{resource}": pl.Float64() for resource in resources}


def write_table(path: str | Path, table: InstanceTable, resources: Sequence[str]) -> None:
    """Write a table; `read_table` gives it back as it was."""
    job = np.repeat(ranks(table.n_jobs), np.diff(table.job_task_start))  # (T,)
    task = np.repeat(ranks(table.n_tasks), np.diff(table.task_instance_start))  # (N,)
    starts = table.task_parent_start
    parents = [table.task_parents[a:b].tolist() for a, b in pairwise(starts)]
    columns: dict[str, object] = {
        "job": job[task],
        "job_arrival_us": table.job_arrival_us[job][task],
        "task": task,
        "task_parents": pl.Series(parents, dtype=pl.List(pl.Int64)).gather(task),
    }
    columns |= {name: getattr(table, name)[task] for name in _TASK_COLUMNS}
    for name in _TASK_PER_RESOURCE:
        column = getattr(table, name)
        columns |= {f"{name}:{r}": column[task, i] for i, r in enumerate(resources)}
    columns["work_us"] = table.work_us
    columns |= {f"use:{r}": table.use[:, i] for i, r in enumerate(resources)}
    frame = pl.DataFrame(columns, schema=table_schema(resources))
    frame.write_parquet(path, compression="zstd")


def read_table(path: str | Path, resources: Sequence[str]) -> InstanceTable:
    """Read a table.

    This function checks the file, not its values: `load_table` does both.

    Raises:
        TraceError: The file is missing, truncated, has other columns, or its jobs or tasks are not
            numbered 0, 1, 2, ... in the order of the rows.
    """
    frame = read_frame(Path(path), table_schema(resources))
    task_of_row = frame["task"].to_numpy()
    _check_numbering(path, "task", task_of_row)
    _, first = np.unique(task_of_row, return_index=True)
    tasks = frame[first]  # (T, ...)
    job_of_task = tasks["job"].to_numpy()
    _check_numbering(path, "job", job_of_task)
    own = [name for name in frame.columns if name == "work_us" or name.startswith("use:")]
    _check_repeated(path, "task", frame.drop(own), task_of_row, first)
    _, first_task = np.unique(job_of_task, return_index=True)
    _check_repeated(path, "job", tasks.select("job_arrival_us"), job_of_task, first_task)
    parents = tasks["task_parents"]

    def amounts(name: str, rows: pl.DataFrame) -> np.ndarray:
        return np.column_stack([rows[f"{name}:{resource}"].to_numpy() for resource in resources])

    return InstanceTable(
        job_arrival_us=tasks["job_arrival_us"].to_numpy()[first_task],
        job_task_start=np.append(first_task, len(tasks)).astype(np.int64),
        task_instance_start=np.append(first, len(frame)).astype(np.int64),
        task_parent_start=offsets(parents.list.len().to_numpy().astype(np.int64)),
        task_parents=parents.explode().drop_nulls().to_numpy().astype(np.int64),
        request=amounts("request", tasks),
        known_use=amounts("known_use", tasks),
        work_us=frame["work_us"].to_numpy(),
        use=amounts("use", frame),
        **{name: tasks[name].to_numpy() for name in _TASK_COLUMNS},
    )


def read_frame(path: Path, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Read a Parquet file that must have exactly these columns and types, without nulls.

    Raises:
        TraceError: It is missing, not Parquet, truncated, or has other columns.
    """
    if not path.is_file():
        problem = "not a file" if path.exists() else "no such file"
        raise TraceError(f"{path}: {problem}, expected a Parquet table")
    check_pages(path)
    with whole_parquet(path):
        frame = pl.read_parquet(path)
    if list(frame.schema.items()) != list(schema.items()):
        problem = _column_problem(dict(frame.schema), schema)
        raise TraceError(f"{path}: other columns than expected: {problem}")
    for name, kind in schema.items():
        is_empty = frame[name].is_null()
        if isinstance(kind, pl.List) and not is_empty.any():
            is_empty = frame[name].list.eval(pl.element().is_null()).list.any()
        if is_empty.any():
            row = is_empty.arg_true()[0]
            raise TraceError(f"{path}: row {row}: {name} is empty, expected a value")
    return frame


def _column_problem(found: dict[str, pl.DataType], schema: dict[str, pl.DataType]) -> str:
    """Say how a file's columns differ from the expected ones."""
    parts = [f"no {name} ({kind})" for name, kind in schema.items() if name not in found]
    parts += [
        f"{name} ({kind}) is {found[name]}"
        for name, kind in schema.items()
        if name in found and found[name] != kind
    ]
    if unknown := [name for name in found if name not in schema]:
        parts.append(f"unknown {unknown}")
    return ", ".join(parts) or f"columns in the order {list(found)}, expected {list(schema)}"


def _check_repeated(
    path: str | Path, owner: str, frame: pl.DataFrame, number: Int, first: Int
) -> None:
    """Check that all rows of one owner, by its number (N,), are like its first row."""
    for name in frame.columns:
        column = frame[name]
        differs = column.ne_missing(column[first][number])
        if differs.any():
            row = differs.arg_true()[0]
            got, expected = column[[row, first[number[row]]]].to_list()
            raise TraceError(
                f"{path}: rows of one {owner} differ in {name}: {owner} {number[row]} has {got!r}, "
                f"expected {expected!r} as in its first row"
            )


def _check_numbering(path: str | Path, name: str, numbers: Int) -> None:
    steps = np.diff(numbers, prepend=-1)
    wrong = np.flatnonzero((steps < 0) | (steps > 1) | ((ranks(len(steps)) == 0) & (steps != 1)))
    if len(wrong):
        row = wrong[0]
        raise TraceError(
            f"{path}: row {row}: {name} = {numbers[row]}, expected {name}s numbered 0, 1, 2, ... "
            "in the order of the rows"
        )
