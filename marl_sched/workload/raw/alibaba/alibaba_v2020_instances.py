"""The instance table of Alibaba's PAI: how long instances ran. Their use is in the sensor table."""

import polars as pl

from marl_sched.workload.raw.alibaba.alibaba_units import task_code
from marl_sched.workload.raw.formats import Sources
from marl_sched.workload.raw.instance_statistics import InstanceStatistics
from marl_sched.workload.raw.lines import TextColumns, read_text
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.task_instances import INSTANCE_RULES, TaskInstances
from marl_sched.workload.raw.values import LONGEST_S, is_bad, number

INSTANCES = TextColumns(
    (
        "job_name",
        "task_name",
        "inst_name",
        "worker_name",
        "inst_id",
        "status",
        "start_time",  # s
        "end_time",
        "machine",
    )
)
V2020_INSTANCE_RULES = (
    Rule("instance-name-missing", "an instance without a job's or a task's name", (DROP_ROW,)),
    Rule(
        "instance-not-terminated", "an instance of another status than Terminated", (DROP_ROW, KEEP)
    ),
    Rule("instance-time-missing", "an instance without a start or an end", (DROP_ROW,)),
    Rule("instance-bad-value", "a time that is no number, negative or too large", (DROP_ROW,)),
    Rule("instance-end-before-start", "an instance that ends before it starts", (DROP_ROW,)),
    *INSTANCE_RULES,
)


def load_instances(sources: Sources) -> TaskInstances:
    """Return the statistics of the instances that can be used."""
    table = sources.account.table("pai_instance_table")
    statistics = InstanceStatistics(sources.scratch)
    col = pl.col
    tests = {
        "instance-name-missing": col("job_name").is_null() | col("task_name").is_null(),
        "instance-not-terminated": col("status").ne_missing("Terminated"),
        "instance-time-missing": col("start_time").is_null() | col("end_time").is_null(),
        "instance-bad-value": pl.any_horizontal(
            is_bad(name, 0.0, LONGEST_S) for name in ("start_time", "end_time")
        ),
        "instance-end-before-start": number("end_time") < number("start_time"),
    }
    ran_ms = (number("end_time") - number("start_time")) * 1e3
    for path in sources.files["pai_instance_table"]:
        for frame in read_text(path, INSTANCES, table, sources.on_bytes):
            statistics.add(
                table.sort_out(frame, tests).select(
                    task_code("job_name", "task_name"),
                    ran_ms.round().cast(pl.Int64).alias("duration_ms"),
                    cpu=pl.lit(None, pl.Int64),
                    memory=pl.lit(None, pl.Int64),
                )
            )
    return TaskInstances(statistics, table, (1.0, 1.0))
