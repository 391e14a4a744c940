"""Format `spar`: an hour of Alibaba's v2018 batch tasks, as the trace generator spar has it.

Two tables without headers. With the instances (all, or those of some jobs) a task runs for their
durations and uses what they used; without them for its own duration, queueing included.
Tian, Zheng, Wang: Characterizing and Synthesizing Task Dependencies of Data-Parallel Jobs in
Alibaba Cloud, SoCC 2019, doi 10.1145/3357223.3362710.
"""

import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import RULE
from marl_sched.workload.raw.alibaba.alibaba_units import (
    JOB_MISSING,
    MOST_PERCENT,
    NAME_MISSING,
    NAME_RULES,
    REFERENCE,
    RESOURCES,
    instance_columns,
    instance_scale,
    name_tests,
    requests,
    task_code,
    with_names,
)
from marl_sched.workload.raw.assemble import DAG_RULES, TaskRows, assemble
from marl_sched.workload.raw.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.raw.instance_statistics import InstanceStatistics
from marl_sched.workload.raw.lines import LINE_RULES, TextColumns, read_text
from marl_sched.workload.raw.names import TaskNames
from marl_sched.workload.raw.rules import DROP_JOB, DROP_ROW, JOB_INCOMPLETE, Rule
from marl_sched.workload.raw.task_instances import (
    INSTANCE_RULES,
    OWN_DURATION,
    TASK_RULES,
    USE_UNKNOWN,
    TaskInstances,
)
from marl_sched.workload.raw.values import (
    LONGEST_S,
    MOST_INSTANCES,
    is_outside,
    number,
    whole,
)
from marl_sched.workload.traces.tasks import TraceInfo

TASKS = TextColumns(
    (
        "arrive",  # s since the start of the hour, one value a job
        "job",
        "task",  # letter, own number, parents' numbers: R4_2 is task 4 after task 2
        "duration",  # s, queueing included
        "plan_cpu",  # requested, 100 = one core, per instance
        "plan_mem",  # requested, % of the largest machine, per instance
        "inst_num",
    ),
    has_header=False,
)
INSTANCES = TextColumns(
    (
        "arrive",
        "job",
        "task",
        "instance",
        "duration",  # s
        "cpu_avg",  # really used, 100 = one core
        "mem_avg",  # really used, % of the largest machine
    ),
    has_header=False,
)
_LIMITS = {
    "arrive": (0.0, LONGEST_S),
    "duration": (0.0, LONGEST_S),
    "plan_cpu": (0.0, MOST_PERCENT),
    "plan_mem": (0.0, MOST_PERCENT),
    "inst_num": (1.0, MOST_INSTANCES),
}
_INSTANCE_LIMITS = {
    "duration": (0.0, LONGEST_S),
    "cpu_avg": (0.0, MOST_PERCENT),
    "mem_avg": (0.0, MOST_PERCENT),
}
ARRIVAL_DIFFERS = Rule(
    "arrival-differs", "another arrival than the first row of its job", (DROP_JOB,)
)
BAD_VALUE = Rule("bad-value", "negative, too large, or no request or instance", (DROP_JOB,))
MISSING_VALUE = Rule("missing-value", "a value is empty or not a number", (DROP_JOB,))
_RULES = (
    *LINE_RULES,
    JOB_MISSING,
    NAME_MISSING,
    MISSING_VALUE,
    BAD_VALUE,
    ARRIVAL_DIFFERS,
    *NAME_RULES,
    *TASK_RULES,
    *DAG_RULES,
    JOB_INCOMPLETE,
    Rule("instance-name-missing", "an instance without a job's or a task's name", (DROP_ROW,)),
    Rule(
        "instance-bad-value",
        "an instance's duration or use is empty, not a number, negative or too large",
        (DROP_ROW,),
    ),
    *INSTANCE_RULES,
)


def arrival_differs() -> pl.Expr:
    """Return whether a row's `arrive` is not that of the first row of its `job`."""
    return pl.col("arrive") != pl.col("arrive").first().over("job")


def _load(sources: Sources) -> Loaded:
    if "tasks" not in sources.files:
        raise TraceError(f"{sources.files['instances'][0]}: table instances needs tasks too")
    table = sources.account.table("tasks")
    names = TaskNames()
    rows = TaskRows(RESOURCES, names)
    frames = [
        frame
        for path in sources.files["tasks"]
        for frame in read_text(path, TASKS, table, sources.on_bytes)
    ]
    has_instances = "instances" in sources.files
    if frames:  # an hour, in one piece: the first row of a job may be in another block
        frame = with_names(pl.concat(frames), "task", names, table)
        frame = frame.with_columns(number(name) for name in _LIMITS)
        frame = table.sort_out(frame, _tests(has_instances))
        rows.add(frame.select(_canonical(sources.reference)))
    instances = _instances(sources) if has_instances else None
    if instances is not None:
        instances.join(rows, table)
    tasks = assemble(rows, table, TraceInfo(format=FORMAT.name, reference=sources.reference))
    if instances is not None:
        instances.settle(tasks)
    return Loaded(tasks=tasks)


def _tests(has_instances: bool) -> dict[str, pl.Expr]:
    col = pl.col
    tests = {
        JOB_MISSING.name: col("job").is_null(),
        NAME_MISSING.name: col("task").is_null(),
        MISSING_VALUE.name: pl.any_horizontal(col(name).is_null() for name in _LIMITS),
        BAD_VALUE.name: pl.any_horizontal(
            *(~col(name).is_between(low, high) for name, (low, high) in _LIMITS.items()),
            col("plan_cpu") <= 0,
            col("plan_mem") <= 0,
            col("inst_num") != col("inst_num").round(),
        ),
        ARRIVAL_DIFFERS.name: arrival_differs(),
        **name_tests(),
    }
    if not has_instances:
        tests |= {OWN_DURATION.name: pl.lit(value=True), USE_UNKNOWN.name: pl.lit(value=True)}
    return tests


def _canonical(reference: dict[str, int]) -> list[pl.Expr]:
    return [
        pl.col("job", "name", "key", RULE),
        task_code("job", "task"),
        whole(pl.col("arrive") * 1_000_000, pl.Int64).alias("arrival_us"),
        whole(pl.col("duration") * 1000, pl.Int64).alias("duration_ms"),
        whole(pl.col("inst_num"), pl.UInt32).alias("n_instances"),
        *requests("plan_cpu", "plan_mem", reference),
    ]


def _instances(sources: Sources) -> TaskInstances:
    table = sources.account.table("instances")
    statistics = InstanceStatistics(sources.scratch)
    tests = {
        "instance-name-missing": pl.col("job").is_null() | pl.col("task").is_null(),
        "instance-bad-value": pl.any_horizontal(
            is_outside(name, *limits) for name, limits in _INSTANCE_LIMITS.items()
        ),
    }
    for path in sources.files["instances"]:
        for frame in read_text(path, INSTANCES, table, sources.on_bytes):
            usable = table.sort_out(frame.with_columns(number(n) for n in _INSTANCE_LIMITS), tests)
            statistics.add(usable.select(instance_columns("job", "task", pl.col("duration"))))
    return TaskInstances(statistics, table, instance_scale(sources.reference))


FORMAT = Format(
    name="spar",
    title="Alibaba cluster-trace-v2018, one hour of batch jobs as published with spar 0.0.7",
    tables=(
        TableSpec("tasks", "a task", ("sample_tasks*.csv*",)),
        TableSpec("instances", "an instance, with its real use", ("sample_instances*.csv*",)),
    ),
    rules=_RULES,
    load=_load,
    reference=REFERENCE,
)
