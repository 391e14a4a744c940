"""Table batch_task of Alibaba's cluster-trace-v2018: one row a task."""

import polars as pl

from marl_sched.workload.raw.account import RULE
from marl_sched.workload.raw.alibaba.alibaba_units import (
    JOB_MISSING,
    MOST_PERCENT,
    NAME_MISSING,
    NAME_RULES,
    RESOURCES,
    name_tests,
    requests,
    task_code,
    with_names,
)
from marl_sched.workload.raw.assemble import TaskRows
from marl_sched.workload.raw.formats import Sources
from marl_sched.workload.raw.lines import TextColumns, read_text
from marl_sched.workload.raw.names import TaskNames
from marl_sched.workload.raw.rules import DROP_JOB, KEEP, Rule
from marl_sched.workload.raw.task_instances import OWN_DURATION, USE_UNKNOWN
from marl_sched.workload.raw.values import (
    LONGEST_S,
    MOST_INSTANCES,
    whole,
    with_numbers,
)

TABLE = "batch_task"
COLUMNS = TextColumns(
    (
        "task_name",  # letter, own number, parents' numbers (R4_2 is task 4 after task 2), or task_
        "instance_num",  # written as a decimal number in some copies
        "job_name",
        "task_type",  # not documented, not used
        "status",
        "start_time",  # s since the start of the trace; 0: unknown
        "end_time",
        "plan_cpu",  # per instance, 100 = one core
        "plan_mem",  # per instance, % of the largest machine
    ),
    used=(
        "task_name",
        "instance_num",
        "job_name",
        "status",
        "start_time",
        "end_time",
        "plan_cpu",
        "plan_mem",
    ),
)
_LIMITS = {
    "instance_num": (1.0, MOST_INSTANCES),
    "plan_cpu": (0.0, MOST_PERCENT),
    "plan_mem": (0.0, MOST_PERCENT),
    "start_time": (0.0, LONGEST_S),
    "end_time": (0.0, LONGEST_S),
}
FINISHED = "Terminated"
"""The one status of a task, or instance, that came to its end."""

RULES = (
    JOB_MISSING,
    NAME_MISSING,
    Rule(
        "status-waiting",
        "never started: it has neither times nor instances, and its job no whole DAG",
        (DROP_JOB,),
    ),
    Rule(
        "status-running",
        "not finished when the trace was taken; `keep` takes its end_time, if any, for its end",
        (DROP_JOB, KEEP),
    ),
    Rule(
        "status-failed",
        "failed; `keep` takes the time until then for its duration",
        (DROP_JOB, KEEP),
    ),
    Rule(
        "status-unknown",
        "a status other than Terminated, Waiting, Running and Failed, such as Cancelled, or none",
        (DROP_JOB, KEEP),
    ),
    Rule("instance-num-missing", "no instance_num", (DROP_JOB,)),
    Rule("plan-missing", "no plan_cpu or no plan_mem", (DROP_JOB,)),
    Rule(
        "bad-value",
        "instance_num, plan_cpu, plan_mem or a time is not a number, negative or too large, or "
        "there is no instance or request",
        (DROP_JOB,),
    ),
    Rule("end-missing", "end_time is 0, which stands for unknown", (DROP_JOB,)),
    Rule("end-before-start", "end_time is before start_time", (DROP_JOB,)),
    Rule(
        "start-missing",
        "start_time is 0, which stands for unknown; `keep` takes it for the start of the trace",
        (DROP_JOB, KEEP),
    ),
    Rule("time-missing", "start_time or end_time is empty", (DROP_JOB,)),
    *NAME_RULES,
    Rule(
        "duration-zero",
        "starts and ends in the same second; runs for one second",
        (KEEP, DROP_JOB),
    ),
)
"""Rules of a row, in the order they are asked."""


def read_batch_tasks(sources: Sources, names: TaskNames, has_instances: bool) -> TaskRows:
    """Return the rows of all files of the table, with the rules they break."""
    table = sources.account.table(TABLE)
    rows = TaskRows(RESOURCES, names)
    tests = _tests(has_instances)
    columns = _canonical(sources.reference, has_instances)
    for path in sources.files[TABLE]:
        for block in read_text(path, COLUMNS, table, sources.on_bytes):
            frame = with_names(block, "task_name", names, table)
            frame = frame.with_columns(pl.col(x).is_null().alias(_empty(x)) for x in _LIMITS)
            frame = with_numbers(frame, tuple(_LIMITS))
            rows.add(table.sort_out(frame, tests).select(columns))
    return rows


def _empty(name: str) -> str:
    return f"{name} is empty"


def _tests(has_instances: bool) -> dict[str, pl.Expr]:
    col = pl.col
    is_empty = {name: col(_empty(name)) for name in _LIMITS}
    known = (FINISHED, "Waiting", "Running", "Failed")
    tests = {
        JOB_MISSING.name: col("job_name").is_null(),
        NAME_MISSING.name: col("task_name").is_null(),
        "status-waiting": col("status") == "Waiting",
        "status-running": col("status") == "Running",
        "status-failed": col("status") == "Failed",
        "status-unknown": ~col("status").is_in(known).fill_null(value=False),
        "instance-num-missing": is_empty["instance_num"],
        "plan-missing": is_empty["plan_cpu"] | is_empty["plan_mem"],
        "bad-value": pl.any_horizontal(
            *(
                ~col(name).is_between(low, high).fill_null(is_empty[name])
                for name, (low, high) in _LIMITS.items()
            ),
            col("plan_cpu") <= 0,
            col("plan_mem") <= 0,
            col("instance_num") != col("instance_num").round(),
        ),
        "end-missing": col("end_time") == 0,
        "end-before-start": col("end_time") < col("start_time"),
        "start-missing": col("start_time") == 0,
        "time-missing": is_empty["start_time"] | is_empty["end_time"],
        **name_tests(),
        "duration-zero": (col("end_time") == col("start_time")) & (col("end_time") > 0),
    }
    if not has_instances:
        has_duration = (col("end_time") > 0) & (col("end_time") >= col("start_time"))
        tests |= {OWN_DURATION.name: has_duration, USE_UNKNOWN.name: pl.lit(value=True)}
    return tests


def _canonical(reference: dict[str, int], has_instances: bool) -> list[pl.Expr]:
    start, end = pl.col("start_time"), pl.col("end_time")
    is_final = (pl.col("status") == FINISHED) & (start > 0) & (end > 0)
    return [
        pl.col("job_name").alias("job"),
        pl.col("name", "key", RULE),
        *([task_code("job_name", "task_name")] if has_instances else []),
        whole(start * 1_000_000, pl.Int64).alias("arrival_us"),
        whole((end - start) * 1000, pl.Int64).alias("duration_ms"),
        whole(pl.col("instance_num"), pl.UInt32).alias("n_instances"),
        *requests("plan_cpu", "plan_mem", reference),
        # Only the times of a task that came to its end say when its parents should have ended.
        *(
            whole(pl.when(is_final).then(time).otherwise(-1), pl.Int64).alias(name)
            for name, time in (("begin_s", start), ("finish_s", end))
        ),
    ]
