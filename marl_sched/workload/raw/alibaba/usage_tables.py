"""Tables machine_usage and container_usage of Alibaba's cluster-trace-v2018: use beside the jobs.

container_usage holds online services only, and is what a zone's `background` means. machine_usage
holds all use of a machine, batch jobs included, and memory that is a cache: an upper bound, taken
where the other table is not given. Every machine has a day curve of its own (day_curves.py), which
is the sum of its containers'; a zone has the mean of its machines' curves, and the noise of a
machine about its own.
"""

import numpy as np
import polars as pl

from marl_sched.workload.raw.account import TableAccount
from marl_sched.workload.raw.alibaba.machine_tables import Background, read_containers
from marl_sched.workload.raw.day_curves import DayCurves, FittedCurves
from marl_sched.workload.raw.formats import Sources
from marl_sched.workload.raw.lines import TextColumns, read_text
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.values import LONGEST_S, with_numbers

MACHINE_USAGE = "machine_usage"
CONTAINER_USAGE = "container_usage"
_MACHINE_COLUMNS = TextColumns(
    (
        "machine_id",
        "time_stamp",  # s since the start of the trace
        "cpu_util_percent",
        "mem_util_percent",
        "mem_gps",  # memory bandwidth, 0 to 100
        "mkpi",  # cache misses in a thousand instructions
        "net_in",  # 0 to 100
        "net_out",
        "disk_io_percent",  # 0 to 100; -1 or 101: invalid
    )
)
_CONTAINER_COLUMNS = TextColumns(
    (
        "container_id",
        "machine_id",
        "time_stamp",
        "cpu_util_percent",  # of the container's cpu_request
        "mem_util_percent",  # of the container's mem_size
        "cpi",
        "mem_gps",
        "mpki",
        "net_in",
        "net_out",
        "disk_io_percent",
    )
)
_USED = ("time_stamp", "cpu_util_percent", "mem_util_percent")
_MOST_PERCENT = {MACHINE_USAGE: 100.0, CONTAINER_USAGE: 10_000.0}

RULES = (
    Rule("usage-missing", "a sample without time, cpu or memory", (DROP_ROW,)),
    Rule(
        "usage-bad-value",
        "a sample whose time, cpu or memory is not a number, negative, or above 100% (above 100 "
        "times a container's request)",
        (DROP_ROW,),
    ),
    Rule("usage-of-unknown", "a sample of a machine or container that is not there", (DROP_ROW,)),
    Rule("usage-disk-io-invalid", "disk_io_percent is -1 or 101: invalid; it is not used", (KEEP,)),
    Rule(
        "usage-memory-traffic-missing",
        "mem_gps or the cache misses are empty; they are not used",
        (KEEP,),
    ),
    Rule(
        "background-is-all-use",
        "background is fitted to machine_usage, which holds the batch jobs' own use: give "
        "container_usage for that of online services alone",
        (KEEP,),
        of="files",
    ),
)


def read_background(sources: Sources, machines: pl.DataFrame) -> dict[str, Background]:
    """Return the background use of every zone of which a machine has samples.

    Args:
        sources: With one of the usage tables; container_usage is preferred and needs
            container_meta.
        machines: A row a machine: `machine_id`, `zone` and the capacity.
    """
    if CONTAINER_USAGE in sources.files:
        containers = read_containers(sources, machines)
        parts = containers.join(machines, on="machine_id", how="left", maintain_order="left")
        curves = _read(sources, CONTAINER_USAGE, parts["container_id"])
    else:
        parts = machines.with_columns(cpu_share=1.0, memory_share=1.0)
        curves = _read(sources, MACHINE_USAGE, parts["machine_id"])
        sources.account.table(MACHINE_USAGE).find("background-is-all-use")
    return {} if curves is None else _by_zone(parts, curves)


def _read(sources: Sources, name: str, ids: pl.Series) -> FittedCurves | None:
    """Return the curves of the machines or containers `ids`; a series is numbered by its row."""
    is_containers = name == CONTAINER_USAGE
    columns = _CONTAINER_COLUMNS if is_containers else _MACHINE_COLUMNS
    table = sources.account.table(name)
    known = pl.DataFrame({ids.name: ids, "series": np.arange(len(ids))})
    curves = DayCurves()
    tests = _tests(name, "mpki" if is_containers else "mkpi")
    for path in sources.files[name]:
        for block in read_text(path, columns, table, sources.on_bytes):
            curves.add(_usable(block.join(known, on=ids.name, how="left"), tests, table))
    return curves.fit()


def _usable(block: pl.DataFrame, tests: dict[str, pl.Expr], table: TableAccount) -> pl.DataFrame:
    is_empty = pl.any_horizontal(pl.col(name).is_null() for name in _USED)
    frame = with_numbers(block.with_columns(is_empty=is_empty), (*_USED, "disk_io_percent"))
    usable = table.sort_out(frame, tests)
    table.rows_kept += len(usable)
    return usable.select(
        "series",
        time_s=pl.col("time_stamp"),
        cpu=pl.col("cpu_util_percent") / 100,
        memory=pl.col("mem_util_percent") / 100,
    )


def _tests(name: str, misses: str) -> dict[str, pl.Expr]:
    col = pl.col
    most = _MOST_PERCENT[name]
    is_good = (
        col("time_stamp").is_between(0.0, LONGEST_S)
        & col("cpu_util_percent").is_between(0.0, most)
        & col("mem_util_percent").is_between(0.0, most)
    )
    return {
        "usage-missing": col("is_empty"),
        "usage-bad-value": ~is_good.fill_null(value=False) & ~col("is_empty"),
        "usage-of-unknown": col("series").is_null(),
        "usage-disk-io-invalid": col("disk_io_percent").is_in((-1.0, 101.0)),
        "usage-memory-traffic-missing": col("mem_gps").is_null() | col(misses).is_null(),
    }


def _by_zone(parts: pl.DataFrame, curves: FittedCurves) -> dict[str, Background]:
    """Add the curves of a machine's containers, then take the mean over a zone's machines."""
    weight = pl.Series(
        curves.span if "container_id" in parts.columns else np.ones(len(curves.span))
    )
    seen = parts[curves.series].with_columns(
        *(
            pl.Series(name, curves.coefficients[:, i]) * weight * pl.col("cpu_share")
            for i, name in enumerate(("mean", "a", "b"))
        ),
        variance=pl.Series(curves.variance) * weight * pl.col("cpu_share") ** 2,
        memory=pl.Series(curves.memory) * weight * pl.col("memory_share"),
    )
    sums = ("mean", "a", "b", "variance", "memory")
    machines = seen.group_by("zone", "machine_id").agg(pl.col(sums).sum())
    zones = machines.group_by("zone").agg(pl.col(sums).mean())
    return {
        row["zone"]: Background(
            cpu=row["mean"],
            memory=row["memory"],
            amplitude=float(np.hypot(row["a"], row["b"])),
            sd=float(np.sqrt(row["variance"])),
        )
        for row in zones.iter_rows(named=True)
    }
