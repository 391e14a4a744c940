"""Format `spar-stats`: one hour of Alibaba's v2018 batch tasks with statistics of their instances.

One row a task, made of the two tables of `spar` (spar.py). Its numbers have three decimals.
"""

import polars as pl

from marl_sched.workload.raw.account import RULE
from marl_sched.workload.raw.alibaba.alibaba_units import (
    JOB_MISSING,
    MOST_PERCENT,
    NAME_MISSING,
    NAME_RULES,
    REFERENCE,
    RESOURCES,
    cpu_milli,
    memory_ppm,
    mib_per_ppm,
    name_tests,
    requests,
    with_names,
)
from marl_sched.workload.raw.alibaba.spar import (
    ARRIVAL_DIFFERS,
    MISSING_VALUE,
    arrival_differs,
)
from marl_sched.workload.raw.assemble import DAG_RULES, TaskRows, assemble
from marl_sched.workload.raw.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.raw.lines import LINE_RULES, TextColumns, read_text
from marl_sched.workload.raw.names import TaskNames
from marl_sched.workload.raw.rules import DROP_JOB, JOB_INCOMPLETE, Rule
from marl_sched.workload.raw.task_instances import USE_ABOVE_REQUEST
from marl_sched.workload.raw.values import (
    LONGEST_S,
    MOST_INSTANCES,
    number,
    whole,
)
from marl_sched.workload.traces.tasks import DURATIONS, TraceInfo

_DURATIONS = ("dur_mean", "dur_p50", "dur_p95", "dur_max")
_USE = {
    "use_mean:cpu_milli": "cpu_avg_mean",
    "use_max:cpu_milli": "cpu_avg_max",
    "use_mean:memory_mib": "mem_avg_mean",
    "use_max:memory_mib": "mem_avg_max",
}
COLUMNS = TextColumns(
    (
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
)
_LIMITS = {
    "arrive": (0.0, LONGEST_S),
    "plan_cpu": (0.0, MOST_PERCENT),
    "plan_mem": (0.0, MOST_PERCENT),
    "inst_num": (1.0, MOST_INSTANCES),
    **dict.fromkeys(_DURATIONS, (0.0, LONGEST_S)),
    **dict.fromkeys(_USE.values(), (0.0, MOST_PERCENT)),
}
_RULES = (
    *LINE_RULES,
    JOB_MISSING,
    NAME_MISSING,
    MISSING_VALUE,
    Rule(
        "bad-value",
        "negative, too large, no request or instance, or quantiles that do not ascend",
        (DROP_JOB,),
    ),
    ARRIVAL_DIFFERS,
    *NAME_RULES,
    USE_ABOVE_REQUEST,
    *DAG_RULES,
    JOB_INCOMPLETE,
)


def _load(sources: Sources) -> Loaded:
    table = sources.account.table("tasks")
    names = TaskNames()
    rows = TaskRows(RESOURCES, names)
    frames = [
        frame
        for path in sources.files["tasks"]
        for frame in read_text(path, COLUMNS, table, sources.on_bytes)
    ]
    if frames:  # an hour, in one piece: the first row of a job may be in another block
        frame = with_names(pl.concat(frames), "task", names, table)
        frame = table.sort_out(frame.with_columns(number(name) for name in _LIMITS), _tests())
        rows.add(frame.select(_canonical(sources.reference)))
    info = TraceInfo(format=FORMAT.name, reference=sources.reference)
    return Loaded(tasks=assemble(rows, table, info))


def _tests() -> dict[str, pl.Expr]:
    col = pl.col
    return {
        JOB_MISSING.name: col("job").is_null(),
        NAME_MISSING.name: col("task").is_null(),
        MISSING_VALUE.name: pl.any_horizontal(col(name).is_null() for name in _LIMITS),
        "bad-value": pl.any_horizontal(
            *(~col(name).is_between(low, high) for name, (low, high) in _LIMITS.items()),
            col("plan_cpu") <= 0,
            col("plan_mem") <= 0,
            col("inst_num") != col("inst_num").round(),
            col("dur_p50") > col("dur_p95"),
            col("dur_p95") > col("dur_max"),
            col("dur_mean") > col("dur_max"),
        ),
        ARRIVAL_DIFFERS.name: arrival_differs(),
        **name_tests(),
        USE_ABOVE_REQUEST.name: (col("cpu_avg_max") > col("plan_cpu"))
        | (col("mem_avg_max") > col("plan_mem")),
    }


def _canonical(reference: dict[str, int]) -> list[pl.Expr]:
    durations = dict(zip(DURATIONS, _DURATIONS, strict=True))
    numbers = {
        "arrival_us": whole(pl.col("arrive") * 1_000_000, pl.Int64),
        "n_instances": whole(pl.col("inst_num"), pl.UInt32),
        **{name: whole(pl.col(column) * 1000, pl.Int64) for name, column in durations.items()},
    }
    use = {
        name: cpu_milli(column)
        if name.endswith("cpu_milli")
        else memory_ppm(column) * mib_per_ppm(reference)
        for name, column in _USE.items()
    }
    return [
        pl.col("job", "name", "key", RULE),
        *(column.alias(name) for name, column in numbers.items()),
        *requests("plan_cpu", "plan_mem", reference),
        *(amount.fill_null(0).alias(name) for name, amount in use.items()),
    ]


FORMAT = Format(
    name="spar-stats",
    title="Alibaba cluster-trace-v2018, one hour: tasks with statistics of their instances",
    tables=(
        TableSpec(
            "tasks", "a task and its instances' statistics", ("tasks_with_instance_stats.csv*",)
        ),
    ),
    rules=_RULES,
    load=_load,
    reference=REFERENCE,
)
