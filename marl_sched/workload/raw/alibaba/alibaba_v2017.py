"""Format `alibaba-v2017`: batch tasks and their instances of Alibaba's cluster-trace-v2017.

Requests are per instance: cpu in hundredths of a core (the documentation says cores, the data says
otherwise, and the maintainers confirmed it), memory as a share of the largest machine's. Tasks of a
job form a DAG that is not published: they start together, when the job arrives. A task's own time
then holds its wait for the tasks before it, so instances' times are used wherever they are given.
Containers and usage of machines are not read.
"""

import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import RULE, TableAccount
from marl_sched.workload.raw.alibaba.alibaba_units import JOB_MISSING, task_code
from marl_sched.workload.raw.alibaba.alibaba_v2017_machines import EVENT_RULES, load_zones
from marl_sched.workload.raw.assemble import AssembledTasks, TaskRows, assemble
from marl_sched.workload.raw.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.raw.instance_statistics import InstanceStatistics
from marl_sched.workload.raw.lines import LINE_RULES, TextColumns, read_text
from marl_sched.workload.raw.rules import DROP_JOB, DROP_ROW, JOB_INCOMPLETE, KEEP, Rule
from marl_sched.workload.raw.task_instances import (
    INSTANCE_RULES,
    OWN_DURATION,
    TASK_RULES,
    USE_UNKNOWN,
    TaskInstances,
)
from marl_sched.workload.raw.values import LONGEST_S, MOST_INSTANCES, is_bad, number
from marl_sched.workload.traces.tasks import REQUEST, TraceInfo

RESOURCES = ("cpu_milli", "memory_mib")
REFERENCE = {"cpu_milli": 64_000, "memory_mib": 193_165}
"""All machines have 64 cores. Amounts of memory are published as shares of the largest machine's.
All of them, machines' and requests', are multiples of 1/193165, and half of the requests are
512 k + 20 such units (1,044 is the most frequent): we read the unit as a MiB. The largest machine
then has 188.6 GiB, what is left of 192."""
TASKS = TextColumns(
    (
        "create_timestamp",  # s; 0 or less: before the trace
        "modify_timestamp",  # of the last state: the end of a task that is Terminated or Failed
        "job_id",
        "task_id",
        "instance_num",
        "status",
        "plan_cpu",  # per instance, 100 = one core
        "plan_mem",  # per instance, 1 = the largest machine's
    )
)
INSTANCES = TextColumns(
    (
        "start_timestamp",
        "end_timestamp",
        "job_id",
        "task_id",
        "machineID",
        "status",
        "seq_no",  # number of the try, from 1
        "total_seq_no",
        "real_cpu_max",  # cores
        "real_cpu_avg",
        "real_mem_max",  # 1 = the largest machine's
        "real_mem_avg",
    )
)
_TIMES = ("create_timestamp", "modify_timestamp")
_INSTANCE_TIMES = ("start_timestamp", "end_timestamp")
_LIMITS = {
    **dict.fromkeys(_TIMES, (-LONGEST_S, LONGEST_S)),
    "instance_num": (1.0, MOST_INSTANCES),
    "plan_cpu": (1e-3, 2.0**20),
    "plan_mem": (0.0, 1.0),
}
_USE = ("real_cpu_max", "real_cpu_avg", "real_mem_max", "real_mem_avg")
_MOST_CORES = 2.0**14
_INSTANCE_LIMITS = {
    **dict.fromkeys(_INSTANCE_TIMES, (-LONGEST_S, LONGEST_S)),
    **dict.fromkeys(_USE, (0.0, _MOST_CORES)),
}
_SHARES = 1_000_000_000
"""Instances' memory is summed in billionths of the largest machine's."""
_MILLI = {"hundredths": 10, "cores": 1000}
_FAULTY = (DROP_JOB, DROP_ROW)

_RULES = (
    *LINE_RULES,
    JOB_MISSING,
    Rule(
        "missing-value", "a task without an id, a number of instances, a status or a time", _FAULTY
    ),
    Rule("task-failed", "a task whose last state is Failed", (*_FAULTY, KEEP)),
    Rule(
        "task-not-finished",
        "a task whose last state is none of Terminated and Failed: it has no end",
        _FAULTY,
    ),
    Rule("request-missing", "a task without plan_cpu or plan_mem", _FAULTY),
    Rule(
        "bad-value",
        "not a number, negative, too large, no request or instance, or more memory than a machine",
        _FAULTY,
    ),
    Rule("before-trace", "a time of 0 or less: before the trace", _FAULTY),
    Rule("end-before-start", "a task that ends before it was created", _FAULTY),
    Rule("duplicate", "a second row of the same task; there is one, of its last state", _FAULTY),
    Rule("duration-zero", "a task that ends in the second of its creation", (KEEP, *_FAULTY)),
    Rule(
        "dag-not-published", "a task of several in its job, whose order is not published", (KEEP,)
    ),
    Rule(
        "plan-cpu-unit",
        "plan_cpu counts hundredths of a core, though the documentation says cores",
        ("hundredths", "cores"),
        of="files",
    ),
    *(rule for rule in TASK_RULES if rule is not OWN_DURATION),
    Rule(
        OWN_DURATION.name,
        "runs from its creation to its end, which holds its wait for machines and for the tasks "
        "before it: no instance of it is known",
        (KEEP, DROP_JOB),
    ),
    JOB_INCOMPLETE,
    Rule("instance-id-missing", "an instance without a job's or a task's id", (DROP_ROW,)),
    Rule("instance-not-terminated", "an instance in another state than Terminated", (DROP_ROW,)),
    Rule("instance-time-missing", "an instance without a start or an end", (DROP_ROW,)),
    Rule("instance-bad-value", "not a number, too large, or a negative use", (DROP_ROW,)),
    Rule("instance-before-trace", "a time of 0 or less: before the trace", (DROP_ROW,)),
    Rule("instance-end-before-start", "an instance that ends before it starts", (DROP_ROW,)),
    Rule(
        "instance-max-below-average",
        "a maximum of cpu or memory below its average; only the average is used",
        (KEEP, DROP_ROW),
    ),
    Rule(
        "instance-retried", "a second or later try; kept, it counts as one more", (KEEP, DROP_ROW)
    ),
    Rule("instance-use-missing", "an instance without real use of cpu or memory", (KEEP, DROP_ROW)),
    *INSTANCE_RULES,
    *EVENT_RULES,
)


def _load(sources: Sources) -> Loaded:
    zones = load_zones(sources) if "server_event" in sources.files else []
    if "batch_task" in sources.files:
        return Loaded(tasks=_tasks(sources), zones=zones, resources=RESOURCES)
    if "batch_instance" in sources.files:
        paths = ", ".join(str(path) for path in sources.files["batch_instance"])
        raise TraceError(f"{paths}: instances need their tasks, expected a batch_task too")
    return Loaded(zones=zones, resources=RESOURCES)


def _tasks(sources: Sources) -> AssembledTasks:
    table = sources.account.table("batch_task")
    rows = TaskRows(RESOURCES)
    has_instances = "batch_instance" in sources.files
    frames = []
    for path in sources.files["batch_task"]:
        frames += list(read_text(path, TASKS, table, sources.on_bytes))
        table.find("plan-cpu-unit")
    if frames:  # some 80,000 rows, in one piece: a second row of a task may be in another block
        frame = pl.concat(frames).rename({"job_id": "job", "task_id": "task"})
        frame = frame.with_columns(number(name).alias(f"{name}_") for name in _LIMITS)
        rows.add(_canonical(table.sort_out(frame, _tests(has_instances)), sources))
    instances = _instances(sources) if has_instances else None
    if instances is not None:
        instances.join(rows, table)
    tasks = assemble(rows, table, TraceInfo(format=FORMAT.name, reference=sources.reference))
    if instances is not None:
        instances.settle(tasks)
    return tasks


def _tests(has_instances: bool) -> dict[str, pl.Expr]:
    """Return the tests in the rules' order; a number ends in `_`, and is null if it is none."""
    col = pl.col
    created, ended = (col(f"{name}_") for name in _TIMES)
    status = col("status")
    tests = {
        JOB_MISSING.name: col("job").is_null(),
        "missing-value": pl.any_horizontal(
            col(name).is_null() for name in ("task", "instance_num", "status", *_TIMES)
        ),
        "task-failed": status == "Failed",
        "task-not-finished": ~status.is_in(["Terminated", "Failed"]),
        "request-missing": col("plan_cpu").is_null() | col("plan_mem").is_null(),
        "bad-value": pl.any_horizontal(
            *(is_bad(name, *ends) for name, ends in _LIMITS.items()),
            col("instance_num_") != col("instance_num_").round(),
        ),
        "before-trace": (created <= 0) | (ended <= 0),
        "end-before-start": ended < created,
        "duplicate": ~pl.struct("job", "task").is_first_distinct(),
        "duration-zero": ended == created,
        "dag-not-published": pl.len().over("job") > 1,
    }
    if not has_instances:
        tests |= {OWN_DURATION.name: pl.lit(value=True), USE_UNKNOWN.name: pl.lit(value=True)}
    return tests


def _canonical(tasks: pl.DataFrame, sources: Sources) -> pl.DataFrame:
    """Return rows of `TaskRows`; a row that goes with its job may hold anything, or nothing."""
    created, ended = (pl.col(f"{name}_") for name in _TIMES)
    milli = _MILLI[sources.rules.action("plan-cpu-unit")]
    amounts = {
        "arrival_us": created * 1e6,
        "duration_ms": (ended - created) * 1e3,
        "n_instances": pl.col("instance_num_"),
        f"{REQUEST}cpu_milli": pl.max_horizontal((pl.col("plan_cpu_") * milli).round(), 1.0),
        f"{REQUEST}memory_mib": pl.col("plan_mem_") * sources.reference["memory_mib"],
    }
    return tasks.select(
        "job",
        RULE,
        task_code("job", "task"),
        *(
            amount.round().cast(pl.Int64, strict=False).fill_null(0).alias(name)
            for name, amount in amounts.items()
        ),
    )


def _instances(sources: Sources) -> TaskInstances:
    table = sources.account.table("batch_instance")
    statistics = InstanceStatistics(sources.scratch)
    for path in sources.files["batch_instance"]:
        for frame in read_text(path, INSTANCES, table, sources.on_bytes):
            statistics.add(_usable(frame, table))
    return TaskInstances(statistics, table, (1.0, sources.reference["memory_mib"] / _SHARES))


def _usable(frame: pl.DataFrame, table: TableAccount) -> pl.DataFrame:
    """Return the rows of a block that stay, in the columns of `InstanceStatistics.add`."""
    col = pl.col
    frame = frame.rename({"job_id": "job", "task_id": "task"}).with_columns(
        number(name).alias(f"{name}_") for name in (*_INSTANCE_LIMITS, "seq_no")
    )
    start, end = (col(f"{name}_") for name in _INSTANCE_TIMES)
    has_use = col("real_cpu_avg").is_not_null() & col("real_mem_avg").is_not_null()
    tests = {
        "instance-id-missing": col("job").is_null() | col("task").is_null(),
        "instance-not-terminated": col("status").ne_missing("Terminated"),
        "instance-time-missing": pl.any_horizontal(col(name).is_null() for name in _INSTANCE_TIMES),
        "instance-bad-value": pl.any_horizontal(
            is_bad(name, *ends) for name, ends in _INSTANCE_LIMITS.items()
        ),
        "instance-before-trace": (start <= 0) | (end <= 0),
        "instance-end-before-start": end < start,
        "instance-max-below-average": (col("real_cpu_max_") < col("real_cpu_avg_"))
        | (col("real_mem_max_") < col("real_mem_avg_")),
        "instance-retried": col("seq_no_") > 1,
        "instance-use-missing": ~has_use,
    }
    use = {
        "cpu": col("real_cpu_avg_") * _MILLI["cores"],
        "memory": col("real_mem_avg_") * _SHARES,
    }
    return table.sort_out(frame, tests).select(
        task_code("job", "task"),
        ((end - start) * 1e3).round().cast(pl.Int64).alias("duration_ms"),
        *(
            pl.when(has_use).then(amount.round().cast(pl.Int64)).alias(name)
            for name, amount in use.items()
        ),
    )


FORMAT = Format(
    name="alibaba-v2017",
    title="Alibaba cluster-trace-v2017: batch tasks and instances of 1,313 machines, 17 hours; "
    "tasks and machines were at hand in public copies, instances are tested on rows made by hand",
    tables=(
        TableSpec("batch_task", "a task", ("batch_task.csv*", "batch_task*.tar.gz")),
        TableSpec(
            "batch_instance",
            "a try of an instance",
            ("batch_instance.csv*", "batch_instance*.tar.gz"),
        ),
        TableSpec(
            "server_event", "an event of a machine", ("server_event.csv*", "server_event*.tar.gz")
        ),
    ),
    rules=_RULES,
    load=_load,
    reference=REFERENCE,
)
