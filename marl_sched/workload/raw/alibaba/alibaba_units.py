"""What all forms of Alibaba's cluster-trace-v2018 share: units, task names, the largest machine."""

import polars as pl

from marl_sched.workload.raw.account import TableAccount
from marl_sched.workload.raw.names import TaskNames
from marl_sched.workload.raw.rules import DROP_JOB, DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.values import whole
from marl_sched.workload.traces.tasks import REQUEST

RESOURCES = ("cpu_milli", "memory_mib")
REFERENCE = {"cpu_milli": 96_000, "memory_mib": 393_216}
"""All machines have 96 cores. Their memory is published as 100 (%); the amount, 384 GiB, is what
machines of 96 cores have in Alibaba's trace of 2023."""
MILLI_PER_PERCENT = 10
"""Of cpu, where 100 is one core."""
PPM_PER_PERCENT = 10_000
MOST_PERCENT = 2.0**20
"""More than 10,000 cores, or 10,000 times the largest machine's memory, is damage."""
_PPM = 1_000_000
_UNITS_PER_MILLI = 1000

JOB_MISSING = Rule("job-missing", "no job name", (DROP_ROW,))
NAME_MISSING = Rule("name-missing", "no task name", (DROP_JOB,))
NAME_RULES = (
    Rule(
        "name-cut",
        "a task name of 50 characters, or one that ends in `_`: its last parents were cut off, or "
        "digits of one; `keep` takes what is left",
        (DROP_JOB, KEEP),
    ),
    Rule(
        "name-unknown",
        "neither letters, number and parents' numbers nor task_...; `keep` takes the task for one "
        "without parents",
        (DROP_JOB, KEEP),
    ),
)
"""Rules of task names, in the order they are asked."""


def name_tests() -> dict[str, pl.Expr]:
    """Return the tests of `NAME_RULES`, on the columns of `TaskNames.encode`."""
    return {"name-cut": pl.col("is_cut"), "name-unknown": ~pl.col("is_known")}


def with_names(
    frame: pl.DataFrame, column: str, names: TaskNames, table: TableAccount
) -> pl.DataFrame:
    """Return a frame with the columns of `TaskNames.encode` for its task names; count edges."""
    encoded = names.encode(frame[column])
    table.find(
        "parent-id-above-own", int(encoded["n_above"].sum()), int(encoded["n_parents"].sum())
    )
    return frame.hstack(encoded)


def cpu_milli(column: str, units: int = 1) -> pl.Expr:
    """Return an amount of cpu (100 is one core) in thousandths of a core, to 1 / units of one."""
    return (pl.col(column) * (MILLI_PER_PERCENT * units)).round()


def memory_ppm(column: str) -> pl.Expr:
    """Return a share of the largest machine (%) in millionths of it, whole ones."""
    return (pl.col(column) * PPM_PER_PERCENT).round()


def mib_per_ppm(reference: dict[str, int]) -> float:
    """Return the MiB that are a millionth of the largest machine's memory."""
    return reference["memory_mib"] / _PPM


def instance_columns(job: str, task: str, duration_s: pl.Expr) -> list[pl.Expr]:
    """Return the columns of `InstanceStatistics.add`, of rows that have cpu_avg and mem_avg.

    Use that is not known wholly is not known at all.

    Args:
        job: Column with the job's name.
        task: Column with the task's.
        duration_s: The instance's duration.
    """
    has_use = pl.col("cpu_avg").is_not_null() & pl.col("mem_avg").is_not_null()
    cpu = cpu_milli("cpu_avg", _UNITS_PER_MILLI)
    return [
        task_code(job, task),
        (duration_s * 1000).round().cast(pl.Int64).alias("duration_ms"),
        pl.when(has_use).then(cpu).cast(pl.Int64).alias("cpu"),
        pl.when(has_use).then(memory_ppm("mem_avg")).cast(pl.Int64).alias("memory"),
    ]


def instance_scale(reference: dict[str, int]) -> tuple[float, float]:
    """Return the thousandths of a core and the MiB in a unit of `instance_columns`."""
    return 1 / _UNITS_PER_MILLI, mib_per_ppm(reference)


def task_code(job: str, task: str) -> pl.Expr:
    """Return a code of a task by two names; two of 14 million have one with a probability of 1e-5.

    Args:
        job: Column with the job's name.
        task: Column with the task's.
    """
    return (pl.col(job).hash(1) ^ pl.col(task).hash(2)).alias("task")


def requests(cpu: str, memory: str, reference: dict[str, int]) -> list[pl.Expr]:
    """Return the request columns of the task table; at least 1 of each.

    Args:
        cpu: Column with cpu, 100 is one core.
        memory: Column with % of the largest machine's memory.
        reference: The largest machine.
    """
    memory_mib = (memory_ppm(memory) * mib_per_ppm(reference)).round()
    amounts = {"cpu_milli": cpu_milli(cpu), "memory_mib": memory_mib}
    return [  # A row that goes may hold anything, or nothing.
        pl.max_horizontal(whole(amount, pl.Int64), 1).alias(f"{REQUEST}{name}")
        for name, amount in amounts.items()
    ]
