"""Format `alibaba-v2020`: jobs, tasks, instances and machines of Alibaba's PAI (GPU trace of 2020).

Requests are per instance: cpu and GPUs in percent of one, memory in GB of 1024 MiB (the published
example, 29.296875, is 30,000 MiB). A job arrives when it is submitted; what it waited then is not
part of any duration, and is told in the account. The sensor, tag and metric tables are not read.

Only the machine table was at hand, and the headers of the others: those are tested on rows made by
hand after the documentation, not on the real tables.
"""

import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import RULE
from marl_sched.workload.raw.alibaba.alibaba_units import JOB_MISSING, task_code
from marl_sched.workload.raw.alibaba.alibaba_v2020_instances import (
    V2020_INSTANCE_RULES,
    load_instances,
)
from marl_sched.workload.raw.alibaba.alibaba_v2020_jobs import JOB_RULES, load_jobs, settle_jobs
from marl_sched.workload.raw.alibaba.alibaba_v2020_machines import (
    MACHINE_RULES,
    MIB_PER_GB,
    load_machines,
)
from marl_sched.workload.raw.assemble import AssembledTasks, TaskRows, assemble
from marl_sched.workload.raw.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.raw.gpu_machines import (
    MILLI_PER_GPU,
    MOST_GPUS,
    RESOURCES,
    gpu_zones,
    largest_machine,
)
from marl_sched.workload.raw.lines import LINE_RULES, TextColumns, read_text
from marl_sched.workload.raw.rules import DROP_JOB, DROP_ROW, JOB_INCOMPLETE, KEEP, Rule
from marl_sched.workload.raw.task_instances import (
    OWN_DURATION,
    TASK_RULES,
    USE_UNKNOWN,
)
from marl_sched.workload.raw.values import (
    LARGEST_AMOUNT,
    LONGEST_S,
    MOST_INSTANCES,
    is_bad,
    number,
)
from marl_sched.workload.traces.tasks import REQUEST, TraceInfo

LARGEST = {"cpu_milli": 96_000, "memory_mib": 524_288, "gpu_milli": 8_000}
"""Largest amounts of the published machines, where their table is not given."""
TASKS = TextColumns(
    (
        "job_name",
        "task_name",  # the role: ps, worker, evaluator, ...
        "inst_num",
        "status",  # Running, Terminated, Failed, Waiting
        "start_time",  # s
        "end_time",
        "plan_cpu",  # per instance, 100 = one core
        "plan_mem",  # per instance, GB
        "plan_gpu",  # per instance, 100 = one GPU
        "gpu_type",  # model that it was given
    )
)
_LIMITS = {
    "inst_num": (1.0, MOST_INSTANCES),
    "start_time": (0.0, LONGEST_S),
    "end_time": (0.0, LONGEST_S),
    "plan_cpu": (1e-3, LARGEST_AMOUNT / 1e3),
    "plan_mem": (0.0, LARGEST_AMOUNT / MIB_PER_GB),
    "plan_gpu": (0.0, MOST_GPUS * 100),
}
_FAULTY = (DROP_JOB, DROP_ROW)
_RULES = (
    *LINE_RULES,
    JOB_MISSING,
    Rule("task-failed", "a task of status Failed", (*_FAULTY, KEEP)),
    Rule("task-not-finished", "a task of another status than Terminated or Failed", _FAULTY),
    Rule("missing-value", "a task without name, status, number of instances or time", _FAULTY),
    Rule("request-missing", "a task without plan_cpu or plan_mem", _FAULTY),
    Rule("bad-value", "not a number, negative, too large, or no request or instance", _FAULTY),
    Rule("end-before-start", "a task that ends before it starts", _FAULTY),
    Rule("duplicate", "a second row of the same task", _FAULTY),
    Rule("duration-zero", "a task that ends in the second of its start", (KEEP, *_FAULTY)),
    Rule(
        "submission-unknown",
        "a task of a job that the job table does not tell of: it arrives with its first start",
        (KEEP, *_FAULTY),
    ),
    Rule(
        "start-before-submission",
        "a task that starts before its job's submission",
        (KEEP, *_FAULTY),
    ),
    Rule("gpu-request-missing", "a task without plan_gpu: it asks for no GPU", (KEEP, *_FAULTY)),
    Rule("gpu-type", "a task that was given a certain GPU model; it may run on any", (KEEP,)),
    Rule(
        "gpu-share",
        "a task that asks for parts of GPUs: they are packed as amounts, not on devices",
        (KEEP, *_FAULTY),
    ),
    Rule(
        "gang",
        "a task of several instances: most start all together or not at all; here each is placed "
        "by itself",
        (KEEP, *_FAULTY),
    ),
    Rule(
        "times-shifted",
        "all times are shifted by one constant: hour and weekday are right in UTC+8, dates are not",
        (KEEP,),
        of="files",
    ),
    *(rule for rule in TASK_RULES if rule is not OWN_DURATION),
    Rule(
        OWN_DURATION.name,
        "runs from its first start to its last end, which holds the waiting of its later "
        "instances: no instance of it is known",
        (KEEP, DROP_JOB),
    ),
    JOB_INCOMPLETE,
    *JOB_RULES,
    *V2020_INSTANCE_RULES,
    *MACHINE_RULES,
)


def _load(sources: Sources) -> Loaded:
    zones, reference = [], LARGEST
    if "pai_machine_spec" in sources.files:
        table = sources.account.table("pai_machine_spec")
        machines = load_machines(sources, table)
        zones, reference = gpu_zones(machines, table), largest_machine(machines, LARGEST)
    if "pai_task_table" in sources.files:
        return Loaded(_tasks(sources, reference), zones, RESOURCES)
    for name in ("pai_job_table", "pai_instance_table"):
        if name in sources.files:
            paths = ", ".join(str(path) for path in sources.files[name])
            raise TraceError(f"{paths}: says nothing without tasks, expected a pai_task_table too")
    return Loaded(zones=zones, resources=RESOURCES)


def _tasks(sources: Sources, reference: dict[str, int]) -> AssembledTasks:
    table = sources.account.table("pai_task_table")
    jobs = load_jobs(sources)
    rows = TaskRows(RESOURCES)
    has_instances = "pai_instance_table" in sources.files
    blocks = []
    for path in sources.files["pai_task_table"]:
        table.find("times-shifted")
        blocks += [_compact(b) for b in read_text(path, TASKS, table, sources.on_bytes)]
    if blocks:  # 1.2 million rows, in one piece: a second row of a task may be in another block
        frame = pl.concat(blocks).join(jobs, on="job", how="left", maintain_order="left")
        settle_jobs(jobs, frame["job"], sources)
        frame = table.sort_out(frame, _tests(has_instances))
        sources.account.facts |= _waiting(frame)
        rows.add(_canonical(frame))
    instances = load_instances(sources) if has_instances else None
    if instances is not None:
        instances.join(rows, table)
    tasks = assemble(rows, table, TraceInfo(format=FORMAT.name, reference=reference))
    if instances is not None:
        instances.settle(tasks)
    return tasks


def _compact(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a block with numbers (null if they are none) and flags in place of texts."""
    col = pl.col
    return frame.select(
        "status",
        *(number(name) for name in _LIMITS),
        col("job_name").hash(1).alias("job"),
        task_code("job_name", "task_name"),
        col("job_name").is_null().alias("is_nameless"),
        col("gpu_type").is_not_null().alias("has_gpu_type"),
        pl.any_horizontal(
            col(name).is_null()
            for name in ("task_name", "inst_num", "status", "start_time", "end_time")
        ).alias("is_missing"),
        (col("plan_cpu").is_null() | col("plan_mem").is_null()).alias("has_no_request"),
        pl.any_horizontal(is_bad(name, *ends) for name, ends in _LIMITS.items()).alias("is_bad"),
    )


def _tests(has_instances: bool) -> dict[str, pl.Expr]:
    """Return the tests in the rules' order, on the columns of `_compact` and `submitted`."""
    col = pl.col
    start, end, gpu = col("start_time"), col("end_time"), col("plan_gpu")
    tests = {
        JOB_MISSING.name: col("is_nameless"),
        "task-failed": col("status") == "Failed",
        "task-not-finished": ~col("status").is_in(["Terminated", "Failed"]),
        "missing-value": col("is_missing"),
        "request-missing": col("has_no_request"),
        "bad-value": col("is_bad") | (col("inst_num") != col("inst_num").round()),
        "end-before-start": end < start,
        "duplicate": ~col("task").is_first_distinct(),
        "duration-zero": end == start,
        "submission-unknown": col("submitted").is_null(),
        "start-before-submission": start < col("submitted"),
        "gpu-request-missing": gpu.is_null(),
        "gpu-type": col("has_gpu_type"),
        "gpu-share": gpu % 100 > 0,
        "gang": col("inst_num") > 1,
    }
    if not has_instances:
        tests |= {OWN_DURATION.name: pl.lit(value=True), USE_UNKNOWN.name: pl.lit(value=True)}
    return tests


def _waiting(tasks: pl.DataFrame) -> dict[str, object]:
    """Return quantiles of what jobs waited: from submission to their first task's start."""
    waited = (
        tasks.filter(pl.col(RULE) == 0)
        .group_by("job")
        .agg((pl.col("start_time").min() - pl.col("submitted").first()).alias("waited"))
        .drop_nulls()["waited"]
    )
    shares = (50, 90, 99) if len(waited) else ()
    return {"wait_s": {f"p{share}": waited.quantile(share / 100, "nearest") for share in shares}}


def _canonical(tasks: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `TaskRows`; a row that goes with its job may hold anything, or nothing."""
    col = pl.col
    amounts = {
        "arrival_us": pl.coalesce("submitted", "start_time") * 1e6,
        "duration_ms": (col("end_time") - col("start_time")) * 1e3,
        "n_instances": col("inst_num"),
        f"{REQUEST}cpu_milli": pl.max_horizontal((col("plan_cpu") * 10).round(), 1.0),
        f"{REQUEST}memory_mib": col("plan_mem") * MIB_PER_GB,
        f"{REQUEST}gpu_milli": col("plan_gpu") * (MILLI_PER_GPU / 100),
    }
    return tasks.select(
        "job",
        "task",
        RULE,
        *(
            amount.round().cast(pl.Int64, strict=False).fill_null(0).alias(name)
            for name, amount in amounts.items()
        ),
    )


FORMAT = Format(
    name="alibaba-v2020",
    title="Alibaba cluster-trace-gpu-v2020 (PAI): jobs of a GPU cluster, two months; only its "
    "machine table was at hand, the others' loaders are tested on rows made by hand",
    tables=(
        TableSpec("pai_job_table", "a job", ("pai_job_table.csv*", "pai_job_table*.tar.gz")),
        TableSpec("pai_task_table", "a task", ("pai_task_table.csv*", "pai_task_table*.tar.gz")),
        TableSpec(
            "pai_instance_table",
            "an instance",
            ("pai_instance_table.csv*", "pai_instance_table*.tar.gz"),
        ),
        TableSpec(
            "pai_machine_spec", "a machine", ("pai_machine_spec.csv*", "pai_machine_spec*.tar.gz")
        ),
    ),
    rules=_RULES,
    load=_load,
)
