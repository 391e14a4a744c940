"""Format `google-2011`: the clusterdata-2011-2 trace of a Google cell of 12,500 machines, 29 days.

The tables are events. What Google calls a task, (job, index), is a program that is submitted,
scheduled and ends, maybe several times (google_executions.py). Here:

- a whole execution, from SCHEDULE to FINISH, is an instance. Executions that were evicted, failed,
  were killed or lost are not: how long they would have run is not in the trace, and what follows an
  eviction or a failure is a submission of its own. Each kind has a rule, `keep` counts the run as
  it was.
- the executions of one job that ask for the same and have one priority are a task: a job's tasks
  are mostly alike, and the trace has no dependencies between them.
- a job arrives with the first SUBMIT of an execution that counts (`submitted-late` counts the
  others). The clock is the trace's: it begins at 600 s; 0 stands for before.

Amounts are shares of the largest machine, which is not published. Our reading of it: the machines
have 1/4, 1/2 or 1 of its cpu and mostly 1/8, 1/4, 1/2, 3/4 or 1 of its memory, which in servers of
2011 would be 8, 16 and 32 hardware threads and 8 to 64 GiB; its disk we take for 4 TiB. Placement
depends on shares only, so that another reference (`--reference`) changes the units and little else.

State is kept for open executions only (some 100,000 at a time in this trace), for every task, and
for whole executions their duration, on disk beyond 3 million (instance_statistics.py).
"""

import numpy as np
import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import TableAccount
from marl_sched.workload.raw.assemble import AssembledTasks, assemble
from marl_sched.workload.raw.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.raw.google.google_executions import EXECUTION_RULES, Executions
from marl_sched.workload.raw.google.google_tasks import SHARES, GoogleTasks
from marl_sched.workload.raw.lines import LINE_RULES, TextColumns, read_text
from marl_sched.workload.raw.machines import ZoneMachines
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.values import LONGEST_S, is_bad, number
from marl_sched.workload.traces.tasks import TraceInfo

TASK_EVENTS = TextColumns(
    (
        "time",
        "missing_info",
        "job",
        "index",
        "machine",
        "event",
        "user",
        "scheduling_class",
        "priority",
        "cpu",
        "memory",
        "disk",
        "different_machines",
    ),
    has_header=False,
)
MACHINE_EVENTS = TextColumns(
    ("time", "machine", "event", "platform", "cpu", "memory"), has_header=False
)
AFTER_TRACE_US = 2**63 - 1
"""Time of what happened after the trace's end."""
_LIMITS = {"job": 2**62, "index": 2**31, "event": 8, "priority": 100}
_LARGEST_SHARE = 2.0**10
_REMOVE = 1

_RULES = (
    *LINE_RULES,
    Rule(
        "bad-value",
        "a time, job, index, event or priority that is missing or out of range; an amount that is "
        "no number or negative; a machine without cpu or memory or larger than the largest",
        (DROP_ROW,),
    ),
    Rule("after-trace", "at the time 2^63 - 1: after the end of the trace", (DROP_ROW,)),
    *EXECUTION_RULES,
    Rule("use-unknown", "task_usage is not read: real use is the request", (KEEP,), of="files"),
    Rule("missing-capacity", "a machine event without cpu or memory", (DROP_ROW,)),
    Rule(
        "machine-superseded",
        "a machine event before the machine's last one with a capacity",
        (DROP_ROW,),
    ),
    Rule(
        "machine-removed",
        "a machine whose last event removes it; kept, it is there all the time",
        (KEEP, DROP_ROW),
    ),
    Rule(
        "no-failure-domain",
        "no rack or zone is published: all machines are one zone",
        (KEEP,),
        of="files",
    ),
    Rule(
        "machine-disk-unknown",
        "no disk is published: every machine has the reference's",
        (KEEP,),
        of="files",
    ),
)


def _load(sources: Sources) -> Loaded:
    has_disk = sources.rules.action("disk-request") == KEEP
    resources = tuple(name for name in SHARES if has_disk or name != "disk_mib")
    reference = {name: sources.reference[name] for name in resources}
    loaded = Loaded(resources=resources)
    if "machine_events" in sources.files:
        loaded.zones = [_machines(sources, reference)]
    if "task_events" in sources.files:
        loaded.tasks = _tasks(sources, reference)
    return loaded


def _tasks(sources: Sources, reference: dict[str, int]) -> AssembledTasks:
    table = sources.account.table("task_events")
    tasks = GoogleTasks(reference, sources.scratch)
    executions = Executions(table, tasks.add)
    for path in sources.files["task_events"]:
        for frame in read_text(path, TASK_EVENTS, table, sources.on_bytes):
            executions.add(_events(frame, table))
    executions.close()
    table.find("use-unknown", len(sources.files["task_events"]))
    # The rows of the table are events, and counted; those of the result are tasks.
    of_tasks = TableAccount("tasks", sources.rules)
    info = TraceInfo(format=FORMAT.name, resolution_us=1, reference=reference)
    if not table.rows_kept:
        raise TraceError(table.no_row_left())
    return assemble(tasks.rows(table), of_tasks, info)


def _events(frame: pl.DataFrame, table: TableAccount) -> pl.DataFrame:
    """Return the usable events, as `Executions.add` takes them."""
    col = pl.col
    shares = tuple(SHARES.values())
    values = frame.select(
        *(col(name).cast(pl.Int64, strict=False) for name in ("time", *_LIMITS)),
        *(number(name) for name in shares),
        is_number=~pl.any_horizontal(is_bad(name, 0, _LARGEST_SHARE) for name in shares),
        is_synthesized=col("missing_info").is_not_null(),
        is_apart=(col("different_machines") == "1").fill_null(value=False),
    )
    is_time = col("time").is_between(0, int(LONGEST_S * 1e6)) | (col("time") == AFTER_TRACE_US)
    is_good = pl.all_horizontal(
        "is_number",
        is_time.fill_null(value=False),
        *(col(name).is_between(0, most).fill_null(value=False) for name, most in _LIMITS.items()),
    )
    return table.sort_out(
        values, {"bad-value": ~is_good, "after-trace": col("time") == AFTER_TRACE_US}
    )


def _machines(sources: Sources, reference: dict[str, int]) -> ZoneMachines:
    """Return all machines that were ever there, each with its last capacity."""
    table = sources.account.table("machine_events")
    frames = [
        frame
        for path in sources.files["machine_events"]
        for frame in read_text(path, MACHINE_EVENTS, table, sources.on_bytes)
    ]
    col = pl.col
    schema = dict.fromkeys(MACHINE_EVENTS.names, pl.String)
    values = (pl.concat(frames) if frames else pl.DataFrame(schema=schema)).select(
        *(col(name).cast(pl.Int64, strict=False) for name in ("time", "machine", "event")),
        *(number(name) for name in ("cpu", "memory")),
        is_number=~pl.any_horizontal(is_bad(name, 0, 1) for name in ("cpu", "memory")),
        is_there=col("cpu").is_not_null() & col("memory").is_not_null(),
    )
    is_good = (
        col("is_number")
        & (col("time") >= 0)
        & (col("machine") >= 0)
        & col("event").is_between(0, 2)
        & (col("cpu") > 0).fill_null(value=True)
        & (col("memory") > 0).fill_null(value=True)
    ).fill_null(value=False)
    is_known = is_good & col("is_there")
    kept = table.sort_out(
        values.with_columns(last=pl.when(is_known).then("machine")).with_columns(
            is_last=col("last").is_last_distinct()
        ),
        {
            "bad-value": ~is_good,
            "missing-capacity": ~col("is_there"),
            "machine-superseded": is_known & ~col("is_last"),
            "machine-removed": is_known & col("is_last") & (col("event") == _REMOVE),
        },
    )
    table.rows_kept += len(kept)
    if not len(kept):
        raise TraceError(table.no_row_left())
    table.find("no-failure-domain", len(sources.files["machine_events"]))
    table.find("machine-disk-unknown", len(sources.files["machine_events"]))
    shares = kept.with_columns(disk=pl.lit(1.0))
    capacity = np.column_stack(
        [
            np.maximum(1, np.round(shares[SHARES[name]].to_numpy() * largest))
            for name, largest in reference.items()
        ]
    )
    return ZoneMachines("all", capacity.astype(np.int64))


FORMAT = Format(
    name="google-2011",
    title="Google clusterdata-2011-2, May 2011, 29 days; tried on 1,015 task events and 1,523 "
    "machine events of it only",
    tables=(
        TableSpec(
            "task_events",
            "something that happened to an instance",
            ("task_events/part-*.csv*", "task_events*.csv*"),
        ),
        TableSpec(
            "machine_events",
            "a machine comes, goes or changes",
            ("machine_events/part-*.csv*", "machine_events*.csv*"),
        ),
    ),
    rules=_RULES,
    load=_load,
    reference={"cpu_milli": 32_000, "memory_mib": 65_536, "disk_mib": 4_194_304},
)
