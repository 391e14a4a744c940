"""Loader of Alibaba's cluster-trace-v2018 batch tasks, with statistics of their instances.

Reads `tasks_with_instance_stats.csv.gz` (one row a task, header: `COLUMNS`), writes a task table.
Instances run for the instances' own durations, never for the task's, which holds its queueing.
A row that cannot be trusted is dropped under a named rule (`RULES`), and with it the rest of its
job, whose DAG would be false. Example:

    python -m marl_sched.workload.traces.alibaba_v2018 tasks_with_instance_stats.csv.gz out.parquet
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from marl_sched.errors import MarlSchedError, TraceError
from marl_sched.files import write_atomically
from marl_sched.workload.traces.tasks import TASK_SCHEMA
from marl_sched.workload.validation import cyclic_tasks

COLUMNS = (
    "arrive",  # s since the start of the hour, one value a job
    "job",
    "task",  # letter, own number, parents' numbers: R4_2 is task 4 after task 2
    "task_duration",  # s, queueing included: not used
    "plan_cpu",  # requested, 100 = one core, per instance
    "plan_mem",  # requested, % of the largest machine, per instance
    "inst_num",
    "dur_mean",  # s, of the instances
    "dur_p50",
    "dur_max",
    "cpu_avg_mean",  # really used, 100 = one core
    "cpu_avg_max",
    "mem_avg_mean",  # really used, % of the largest machine
    "mem_avg_max",
    "dur_p95",
)
RULES = {
    "missing_value": "a value is empty or not a number",
    "bad_value": "negative, no request or instance, or quantiles that do not ascend",
    "arrival_differs": "another arrival than the first task of its job",
    "name_cut": "a name of 50 characters or more, or one that ends in `_`: parents were cut off",
    "name_unknown": "neither letters, number, parents' numbers nor task_...",
    "duplicate": "a second task of the same name or number in its job",
    "parent_missing": "a parent that its job does not have",
    "cycle": "waits for itself, or for a task that does",
    "job_incomplete": "valid itself, but another task of its job was dropped",
}
_LONGEST_NAME = 50
_DAG_NAME = re.compile(r"[A-Za-z]+(\d+)((?:_\d+)*)")
_OWN_NUMBER = re.compile(r"[A-Za-z]+(\d+)")
_NUMBERS = [name for name in COLUMNS if name not in ("job", "task", "task_duration")]


@dataclass(frozen=True)
class LoaderAccount:
    """Rows read = rows kept + rows dropped, by rule."""

    n_rows: int
    n_kept: int
    n_jobs: int
    n_instances: int
    dropped: dict[str, int]


def load_hour(path: str | Path) -> tuple[pl.DataFrame, LoaderAccount]:
    """Read the tasks of the hour into a task table (`TASK_SCHEMA`), jobs in order of arrival.

    Raises:
        TraceError: The file is missing, truncated, has other columns, or no row is usable.
    """
    rows = _read(Path(path))
    rows = rows.with_columns(rule=_value_rules())
    parents, rules = _check_jobs(rows)
    rows = rows.with_columns(
        rule=pl.Series(rules, dtype=pl.String),
        parents=pl.Series(parents, dtype=pl.List(pl.UInt16)),
    )
    kept = rows.filter(pl.col("rule").is_null())
    if not len(kept):
        raise TraceError(f"{path}: none of {len(rows)} rows is usable")
    counts = dict(rows["rule"].drop_nulls().value_counts().iter_rows())
    account = LoaderAccount(
        n_rows=len(rows),
        n_kept=len(kept),
        n_jobs=kept["job"].n_unique(),
        n_instances=int(kept["inst_num"].sum()),
        dropped={rule: counts.get(rule, 0) for rule in RULES},
    )
    return _to_task_table(kept), account


def parse_task_name(name: str) -> tuple[int | None, list[int]] | None:
    """Return a task's own number and its parents' numbers; None if the name has no known form.

    `task_...` is a task on its own: no number, no parents. The letters carry no meaning.
    """
    if name.startswith("task_"):
        return None, []
    match = _DAG_NAME.fullmatch(name)
    if match is None:
        return None
    return int(match[1]), [int(number) for number in match[2].split("_")[1:]]


def _read(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise TraceError(f"{path}: no such file, expected a CSV (or .csv.gz) of tasks")
    try:
        rows = pl.read_csv(path, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise TraceError(f"{path}: not a whole CSV file: {reason}") from None
    if tuple(rows.columns) != COLUMNS:
        raise TraceError(f"{path}: columns {rows.columns}, expected {list(COLUMNS)}")
    # Values that are no numbers become empty and are counted as such.
    rows = rows.with_columns(pl.col(_NUMBERS).cast(pl.Float64, strict=False))
    # (arrival of the job, its first row, own row): jobs stay whole and in order of arrival.
    return (
        rows.with_row_index("row")
        .with_columns(
            first=pl.col("row").min().over("job"), start=pl.col("arrive").first().over("job")
        )
        .sort("start", "first", "row", nulls_last=True)
    )


def _value_rules() -> pl.Expr:
    """Return the rule that a row breaks by its own values, or null."""
    col = pl.col
    is_missing = pl.any_horizontal(
        *(col(name).is_null() | ~col(name).is_finite() for name in _NUMBERS),
        col("job").is_null(),
        col("task").is_null(),
    )
    is_bad = pl.any_horizontal(
        *(col(name) < 0 for name in _NUMBERS),
        col("plan_cpu") <= 0,
        col("plan_mem") <= 0,
        col("inst_num") < 1,
        col("inst_num") != col("inst_num").round(),
        col("dur_p50") > col("dur_p95"),
        col("dur_p95") > col("dur_max"),
        col("dur_mean") > col("dur_max"),
    )
    return (
        pl.when(is_missing)
        .then(pl.lit("missing_value"))
        .when(is_bad)
        .then(pl.lit("bad_value"))
        .when(col("arrive") != col("start"))
        .then(pl.lit("arrival_differs"))
        .otherwise(None)
    )


def _check_jobs(rows: pl.DataFrame) -> tuple[list[list[int]], list[str | None]]:
    """Return every row's parents, as positions in its job, and the rule it is dropped by."""
    names = rows["task"].fill_null("").to_list()
    rules: list[str | None] = rows["rule"].to_list()
    parents: list[list[int]] = []
    lengths = rows.select(pl.col("job").rle())["job"].struct.field("len").to_list()
    start = 0
    for length in lengths:
        end = start + length
        job_parents, rules[start:end] = _check_dag(names[start:end], rules[start:end])
        parents += job_parents
        start = end
    return parents, rules


def _check_dag(
    names: Sequence[str], rules: Sequence[str | None]
) -> tuple[list[list[int]], list[str | None]]:
    """Read one job's DAG from its names; if any row is dropped, all are."""
    found = list(rules)
    numbers: list[list[int]] = [[] for _ in names]
    position: dict[int, int] = {}
    for row, name in enumerate(names):
        parsed = parse_task_name(name)
        if found[row] is None:
            found[row] = _name_rule(name, parsed is not None)
        own = _OWN_NUMBER.match(name)
        if found[row] is None and (name in names[:row] or (own and int(own[1]) in position)):
            found[row] = "duplicate"
        if own:  # a dropped task is not a missing one
            position.setdefault(int(own[1]), row)
        numbers[row] = parsed[1] if parsed else []
    for row in range(len(names)):
        if found[row] is None and any(number not in position for number in numbers[row]):
            found[row] = "parent_missing"
    if any(found):
        return [[] for _ in names], [rule or "job_incomplete" for rule in found]
    parents = [[position[number] for number in row] for row in numbers]
    edges = [(child, parent) for child, row in enumerate(parents) for parent in row]
    child, parent = np.array(edges, np.int64).reshape(-1, 2).T
    cyclic = set(cyclic_tasks(len(names), child, parent).tolist())
    if cyclic:
        return [[] for _ in names], [
            "cycle" if row in cyclic else "job_incomplete" for row in range(len(names))
        ]
    return parents, found


def _name_rule(name: str, is_known: bool) -> str | None:
    if not name.startswith("task_") and (len(name) >= _LONGEST_NAME or name.endswith("_")):
        return "name_cut"
    return None if is_known else "name_unknown"


def _to_task_table(rows: pl.DataFrame) -> pl.DataFrame:
    col = pl.col
    columns = {
        "job": col("job").rle_id(),
        "arrival_s": col("arrive"),
        "parents": col("parents"),
        "n_instances": col("inst_num"),
        "cpu_milli": col("plan_cpu") * 10,
        "memory_ppm": col("plan_mem") * 10_000,
        "duration_mean_ms": col("dur_mean") * 1000,
        "duration_p50_ms": col("dur_p50") * 1000,
        "duration_p95_ms": col("dur_p95") * 1000,
        "duration_max_ms": col("dur_max") * 1000,
        "cpu_used_mean_milli": col("cpu_avg_mean") * 10,
        "cpu_used_max_milli": col("cpu_avg_max") * 10,
        "memory_used_mean_ppm": col("mem_avg_mean") * 10_000,
        "memory_used_max_ppm": col("mem_avg_max") * 10_000,
    }
    return rows.select(
        (expression if name in ("job", "parents") else expression.round())
        .cast(TASK_SCHEMA[name])
        .alias(name)
        for name, expression in columns.items()
    )


def main(arguments: Sequence[str]) -> int:
    """Convert SRC to DST and say what was dropped."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m marl_sched.workload.traces.alibaba_v2018 SRC DST\n")
        return 2
    source, target = arguments
    try:
        table, account = load_hour(source)
    except MarlSchedError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    write_atomically(
        Path(target),
        lambda file: table.write_parquet(
            file, compression="zstd", compression_level=22, statistics=False
        ),
    )
    dropped = ", ".join(f"{rule} {count}" for rule, count in account.dropped.items())
    sys.stderr.write(
        f"{account.n_rows} rows read, {account.n_kept} kept ({account.n_jobs} jobs, "
        f"{account.n_instances} instances); dropped: {dropped}\n{target}: "
        f"{Path(target).stat().st_size} bytes\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
