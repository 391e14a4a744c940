"""Table batch_instance of Alibaba's cluster-trace-v2018: one row an instance, in any order."""

import polars as pl

from marl_sched.workload.raw.alibaba.alibaba_units import (
    MOST_PERCENT,
    instance_columns,
    instance_scale,
)
from marl_sched.workload.raw.alibaba.batch_tasks import FINISHED
from marl_sched.workload.raw.formats import Sources
from marl_sched.workload.raw.instance_statistics import InstanceStatistics
from marl_sched.workload.raw.lines import TextColumns, read_text
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.task_instances import INSTANCE_RULES, TaskInstances
from marl_sched.workload.raw.values import LONGEST_S, with_numbers

TABLE = "batch_instance"
COLUMNS = TextColumns(
    (
        "instance_name",
        "task_name",
        "job_name",
        "task_type",
        "status",
        "start_time",  # s since the start of the trace; 0: unknown
        "end_time",
        "machine_id",
        "seq_no",  # number of the attempt
        "total_seq_no",  # attempts in all
        "cpu_avg",  # really used, 100 = one core
        "cpu_max",
        "mem_avg",  # really used, % of the largest machine
        "mem_max",
    ),
    required=("task_name", "job_name", "status", "start_time", "end_time", "cpu_avg", "mem_avg"),
    used=(
        "task_name",
        "job_name",
        "status",
        "start_time",
        "end_time",
        "seq_no",
        "total_seq_no",
        "cpu_avg",
        "mem_avg",
    ),
)
_LIMITS = {
    "start_time": (0.0, LONGEST_S),
    "end_time": (0.0, LONGEST_S),
    "cpu_avg": (0.0, MOST_PERCENT),
    "mem_avg": (0.0, MOST_PERCENT),
}
_NUMBERS = (*_LIMITS, "seq_no", "total_seq_no")

RULES = (
    Rule("instance-name-missing", "an instance without a job's or a task's name", (DROP_ROW,)),
    Rule(
        "instance-unfinished",
        "an instance whose status is not Terminated: how long it takes is not known",
        (DROP_ROW, KEEP),
    ),
    Rule(
        "instance-retried",
        "an attempt before the last (seq_no below total_seq_no): the last one did the work",
        (DROP_ROW, KEEP),
    ),
    Rule(
        "instance-bad-value",
        "an instance's time or use is not a number, negative or too large",
        (DROP_ROW,),
    ),
    Rule(
        "instance-time-missing",
        "an instance whose start_time or end_time is empty or 0, which stands for unknown",
        (DROP_ROW,),
    ),
    Rule("instance-end-before-start", "an instance that ends before it starts", (DROP_ROW,)),
    Rule(
        "instance-use-missing",
        "an instance without cpu_avg or mem_avg: its duration counts, its use does not",
        (KEEP, DROP_ROW),
    ),
    *INSTANCE_RULES,
)
"""Rules of an instance, in the order they are asked."""


def read_batch_instances(sources: Sources) -> TaskInstances:
    """Return the statistics of all usable instances, by task."""
    table = sources.account.table(TABLE)
    statistics = InstanceStatistics(sources.scratch)
    tests = _tests()
    duration_s = pl.col("end_time") - pl.col("start_time")
    columns = instance_columns("job_name", "task_name", duration_s)
    for path in sources.files[TABLE]:
        for block in read_text(path, COLUMNS, table, sources.on_bytes):
            frame = block.with_columns(pl.col(x).is_null().alias(_empty(x)) for x in _LIMITS)
            frame = with_numbers(frame, _NUMBERS)
            statistics.add(table.sort_out(frame, tests).select(columns))
    return TaskInstances(statistics, table, instance_scale(sources.reference))


def _empty(name: str) -> str:
    return f"{name} is empty"


def _tests() -> dict[str, pl.Expr]:
    col = pl.col
    is_empty = {name: col(_empty(name)) for name in _LIMITS}
    start, end = col("start_time"), col("end_time")
    return {
        "instance-name-missing": col("job_name").is_null() | col("task_name").is_null(),
        "instance-unfinished": (col("status") != FINISHED).fill_null(value=True),
        "instance-retried": col("seq_no") < col("total_seq_no"),
        "instance-bad-value": pl.any_horizontal(
            ~col(name).is_between(low, high).fill_null(is_empty[name])
            for name, (low, high) in _LIMITS.items()
        ),
        "instance-time-missing": is_empty["start_time"]
        | is_empty["end_time"]
        | (start == 0)
        | (end == 0),
        "instance-end-before-start": (end < start) & (end > 0),
        "instance-use-missing": is_empty["cpu_avg"] | is_empty["mem_avg"],
    }
