"""Format `openb`: the pods and nodes of Alibaba's GPU cluster of 2023 (cluster-trace-gpu-v2023).

Each pod is a job of one task of one instance. It arrives when it was created, asks for
num_gpu x gpu_milli, and runs from its scheduling to its deletion. All amounts are absolute.

The record begins at about 9.94e6 s. Pods that were created before are in it only if they still
lived (none was deleted before 9.96e6 s): 27 in 114 days, whose lifetimes are those of survivors, a
median of 50 days where that of all is 10 minutes. They go by default (`before-record`).
"""

from pathlib import Path

import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import RULE, TableAccount
from marl_sched.workload.raw.assemble import AssembledTasks, TaskRows, assemble
from marl_sched.workload.raw.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.raw.gpu_machines import (
    MILLI_PER_GPU,
    MOST_GPUS,
    NO_FAILURE_DOMAIN,
    RESOURCES,
    gpu_zones,
    largest_machine,
)
from marl_sched.workload.raw.lines import LINE_RULES, TextColumns, read_text
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.values import LARGEST_AMOUNT, LONGEST_S, is_bad, number
from marl_sched.workload.traces.tasks import REQUEST, TraceInfo

RECORD_START_S = 9_940_000
LARGEST = {"cpu_milli": 128_000, "memory_mib": 1_048_576, "gpu_milli": 8_000}
"""Largest amounts of the published nodes, where the node list is not given."""
PRIORITIES = {"Guaranteed": 2, "LS": 2, "Burstable": 1, "BE": 0}
"""By quality of service, in the order in which Kubernetes spares pods under pressure. LS (latency
sensitive) and BE (best effort) are Alibaba's names, LS stands with Guaranteed."""
_PHASES = ("Running", "Succeeded", "Failed", "Pending")

_POD_LIMITS = {
    "cpu_milli": (0.0, LARGEST_AMOUNT),
    "memory_mib": (0.0, LARGEST_AMOUNT),
    "num_gpu": (0.0, MOST_GPUS),
    "gpu_milli": (0.0, float(MILLI_PER_GPU)),
    "creation_time": (0.0, LONGEST_S),
    "deletion_time": (0.0, LONGEST_S),
    "scheduled_time": (0.0, LONGEST_S),
}
_NODE_LIMITS = {
    "cpu_milli": (1.0, LARGEST_AMOUNT),
    "memory_mib": (1.0, LARGEST_AMOUNT),
    "gpu": (0.0, MOST_GPUS),
}
POD_COLUMNS = TextColumns(
    ("name", *_POD_LIMITS, "gpu_spec", "qos", "pod_phase"),
    required=("name", *_POD_LIMITS, "qos", "pod_phase"),
    has_header=True,
)
NODE_COLUMNS = TextColumns(("sn", *_NODE_LIMITS, "model"), has_header=True)

_RULES = (
    *LINE_RULES,
    Rule(
        "never-scheduled",
        "no scheduled_time: it was never placed, and ran for no time",
        (DROP_ROW,),
    ),
    Rule("missing-value", "a value is empty that every pod or node has", (DROP_ROW,)),
    Rule(
        "bad-value",
        "not a number, negative, too large, or a node without cpu or memory",
        (DROP_ROW,),
    ),
    Rule("duplicate", "a second row of the same name", (DROP_ROW,)),
    Rule("deletion-before-scheduling", "deleted before it was scheduled", (DROP_ROW,)),
    Rule(
        "scheduling-before-creation",
        "scheduled before it was created; kept, its duration is right and its arrival late",
        (DROP_ROW, KEEP),
    ),
    Rule(
        "gpu-amount-unclear",
        "a share of none or of several GPUs, or GPUs without an amount of each",
        (DROP_ROW,),
    ),
    Rule(
        "before-record",
        f"created before {RECORD_START_S} s, when the record begins: only those that outlived the "
        "start are in it",
        (DROP_ROW, KEEP),
    ),
    Rule("cpu-zero", "asks for no cpu; kept, it asks for a thousandth of a core", (DROP_ROW, KEEP)),
    Rule("memory-zero", "asks for no memory", (KEEP, DROP_ROW)),
    Rule("lifetime-zero", "deleted in the second of its creation or scheduling", (KEEP, DROP_ROW)),
    Rule(
        "cut-off-at-end",
        "deleted in the last second of the list: it ran on when the record ended",
        (KEEP, DROP_ROW),
    ),
    Rule(
        "phase-running",
        "in phase Running although it was deleted; what that means was asked and not answered",
        (KEEP, DROP_ROW),
    ),
    Rule(
        "phase-failed",
        "in phase Failed: it held its machine from scheduling to deletion like any other",
        (KEEP, DROP_ROW),
    ),
    Rule("phase-unknown", "in none of the four published phases", (KEEP, DROP_ROW)),
    Rule("qos-unknown", "of an unknown quality of service: the lowest priority", (KEEP, DROP_ROW)),
    Rule(
        "gpu-type-constraint",
        "allows only some GPU models; kept, it may run on any",
        (KEEP, DROP_ROW),
    ),
    Rule(
        "gpu-share",
        "asks for a part of one GPU: parts are packed as amounts, not on devices",
        (KEEP, DROP_ROW),
    ),
    Rule("use-unknown", "no real use is published: it is the request", (KEEP,)),
    NO_FAILURE_DOMAIN,
)


def _load(sources: Sources) -> Loaded:
    nodes = zones = None
    if path := _only(sources, "nodes"):
        table = sources.account.table("nodes")
        nodes = _nodes(path, sources, table)
        zones = gpu_zones(nodes, table)
    tasks = None
    if path := _only(sources, "pods"):
        reference = LARGEST if nodes is None else largest_machine(nodes, LARGEST)
        tasks = _pods(path, sources, reference)
    return Loaded(tasks=tasks, zones=zones or [], resources=RESOURCES)


def _only(sources: Sources, table: str) -> Path | None:
    """Return the one file of a table: the published lists are samples of one another."""
    files = sources.files.get(table, [])
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        raise TraceError(
            f"{files[0].parent}: {len(files)} lists of {table} ({names}), of which one is a sample "
            f"of the other: name the one to read, {table}={files[0].name}"
        )
    return files[0] if files else None


def _nodes(path: Path, sources: Sources, table: TableAccount) -> pl.DataFrame:
    """Return the machines as `gpu_zones` takes them."""
    frame = _read(path, NODE_COLUMNS, sources, table)
    tests = {
        "missing-value": pl.any_horizontal(
            pl.col(name).is_null() for name in ("sn", *_NODE_LIMITS)
        ),
        "bad-value": pl.any_horizontal(is_bad(name, *ends) for name, ends in _NODE_LIMITS.items()),
        "duplicate": ~pl.col("sn").is_first_distinct(),
    }
    kept = table.sort_out(frame, tests).select(
        "model", *(number(name).round().cast(pl.Int64) for name in _NODE_LIMITS)
    )
    if not len(kept):
        raise TraceError(f"{path}: none of {table.rows_read} rows is usable")
    return kept.with_columns(gpu_milli=pl.col("gpu") * MILLI_PER_GPU)


def _pods(path: Path, sources: Sources, reference: dict[str, int]) -> AssembledTasks:
    table = sources.account.table("pods")
    frame = _read(path, POD_COLUMNS, sources, table)
    values = frame.with_columns(number(name).alias(f"{name}_") for name in _POD_LIMITS)
    kept = table.sort_out(values, _pod_tests())
    rows = TaskRows(RESOURCES)
    if len(kept):
        rows.add(_canonical(kept))
        waited = kept["scheduled_time_"] - kept["creation_time_"]
        sources.account.facts["wait_s"] = {
            f"p{share}": waited.quantile(share / 100, "nearest") for share in (50, 90, 99)
        }
    return assemble(rows, table, TraceInfo(format=FORMAT.name, reference=reference))


def _read(path: Path, columns: TextColumns, sources: Sources, table: TableAccount) -> pl.DataFrame:
    frames = list(read_text(path, columns, table, sources.on_bytes))
    return (
        pl.concat(frames)
        if frames
        else pl.DataFrame(schema=dict.fromkeys(columns.names, pl.String))
    )


def _pod_tests() -> dict[str, pl.Expr]:
    """Return the tests in the rules' order; a number ends in `_`, and is null if it is none."""
    col = pl.col
    created, deleted, scheduled = (
        col(f"{event}_time_") for event in ("creation", "deletion", "scheduled")
    )
    is_running = col("pod_phase") == "Running"
    given = (
        "name",
        *(name for name in _POD_LIMITS if name != "scheduled_time"),
        "qos",
        "pod_phase",
    )
    return {
        "never-scheduled": col("scheduled_time").is_null(),
        "missing-value": pl.any_horizontal(col(name).is_null() for name in given),
        "bad-value": pl.any_horizontal(is_bad(name, *ends) for name, ends in _POD_LIMITS.items()),
        "duplicate": ~col("name").is_first_distinct(),
        "deletion-before-scheduling": deleted < scheduled,
        "scheduling-before-creation": scheduled < created,
        "gpu-amount-unclear": ((col("num_gpu_") > 0) != (col("gpu_milli_") > 0))
        | ((col("num_gpu_") > 1) & (col("gpu_milli_") != MILLI_PER_GPU)),
        "before-record": created < RECORD_START_S,
        "cpu-zero": col("cpu_milli_") == 0,
        "memory-zero": col("memory_mib_") == 0,
        "lifetime-zero": (deleted == created) | (deleted == scheduled),
        "cut-off-at-end": is_running & (deleted == deleted.max()),
        "phase-running": is_running,
        "phase-failed": col("pod_phase") == "Failed",
        "phase-unknown": ~col("pod_phase").is_in(_PHASES),
        "qos-unknown": ~col("qos").is_in(list(PRIORITIES)),
        "gpu-type-constraint": col("gpu_spec").is_not_null() & (col("num_gpu_") > 0),
        "gpu-share": (col("num_gpu_") == 1) & (col("gpu_milli_") < MILLI_PER_GPU),
        "use-unknown": pl.lit(value=True),
    }


def _canonical(pods: pl.DataFrame) -> pl.DataFrame:
    """Return the pods that stay as rows of `TaskRows`."""
    duration_s = pl.col("deletion_time_") - pl.col("scheduled_time_")
    amounts = {
        "arrival_us": pl.col("creation_time_") * 1e6,
        "duration_ms": duration_s * 1e3,
        f"{REQUEST}cpu_milli": pl.max_horizontal(pl.col("cpu_milli_"), 1.0),
        f"{REQUEST}memory_mib": pl.col("memory_mib_"),
        f"{REQUEST}gpu_milli": pl.col("num_gpu_") * pl.col("gpu_milli_"),
    }
    return pods.select(
        pl.int_range(pl.len(), dtype=pl.UInt64).alias("job"),
        pl.lit(1, pl.UInt32).alias("n_instances"),
        pl.col("qos")
        .replace_strict(PRIORITIES, default=0, return_dtype=pl.Int32)
        .alias("priority"),
        *(amount.round().cast(pl.Int64).alias(name) for name, amount in amounts.items()),
        RULE,
    )


FORMAT = Format(
    name="openb",
    title="Alibaba cluster-trace-gpu-v2023 (OpenB): pods and nodes of a GPU cluster, 34 days; the "
    "default pod list and all nodes were at hand",
    tables=(
        TableSpec("pods", "a pod", ("openb_pod_list*.csv",)),
        TableSpec("nodes", "a machine", ("openb_node_list*.csv",)),
    ),
    rules=_RULES,
    load=_load,
)
