"""The VM types of Azure's packing trace, and the one machine type that they are taken on."""

import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import TableAccount
from marl_sched.workload.raw.rules import DROP_ROW, Rule
from marl_sched.workload.raw.sqlite_rows import Database
from marl_sched.workload.raw.values import is_bad, number

SHARES = {
    "cpu_milli": "core",
    "memory_mib": "memory",
    "disk_mib": "hdd",
    "ssd_mib": "ssd",
    "network_mbps": "nic",
}
"""Resources by name, and the columns of their shares of the machine."""
VM_TYPE_COLUMNS = ("vmTypeId", "machineId", *SHARES.values())
LARGEST_SHARE = 2.0**10
ANY_MACHINE = "any-machine"
MACHINE_RULES = (
    Rule(
        "type-bad-value",
        "a VM type's row without an id, or with a share that is no number or negative, or without "
        "one of cpu or memory",
        (DROP_ROW,),
    ),
    Rule("type-duplicate", "a second row of a VM type on a machine type", (DROP_ROW,)),
    Rule(
        "type-of-other-machine",
        "a VM type's row on another machine type than the one chosen",
        (DROP_ROW,),
    ),
)


def choose_machine(
    database: Database, table: TableAccount
) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """Choose a machine type.

    Args:
        database: The trace.
        table: Account of the table vmType.

    Returns:
        The VM types that count, with `vmTypeId` (String), the shares (Float64, null where not
        known) and `is_elsewhere` (Boolean); all known VM types, `vmTypeId`; and the machine type.

    Raises:
        TraceError: No row of the table is usable.
    """
    col = pl.col
    shares = tuple(SHARES.values())
    blocks = list(database.rows("vmType", VM_TYPE_COLUMNS, table))
    rows = pl.concat(blocks) if blocks else _none()
    counts = database.counts("vm", "vmTypeId")
    is_bad_row = pl.any_horizontal(
        col("vmTypeId").is_null(),
        col("machineId").is_null(),
        *(is_bad(name, 0, LARGEST_SHARE) for name in shares),
        *(col(name).is_null() for name in ("core", "memory")),
    )
    rows = rows.with_columns(
        is_bad=is_bad_row,
        place=pl.int_range(pl.len()),
    ).join(
        pl.DataFrame(
            list(counts.items()), schema={"vmTypeId": pl.String, "n_vms": pl.Int64}, orient="row"
        ),
        on="vmTypeId",
        how="left",
        maintain_order="left",
    )
    good = rows.filter(~col("is_bad")).unique(
        ["vmTypeId", "machineId"], keep="first", maintain_order=True
    )
    good = good.with_columns(number(name) for name in shares)
    fits = pl.all_horizontal(col(name).fill_null(0.0) <= 1 for name in shares)
    ranked = (
        good.group_by("machineId", maintain_order=True)
        .agg(n=col("n_vms").filter(fits).sum())
        .sort("n", descending=True, maintain_order=True)
        .with_row_index("rank")
    )
    if not len(ranked):
        table.dropped["type-bad-value"] = len(rows)
        raise TraceError(f"vmType in {table.no_row_left()}")
    chosen = str(ranked["machineId"][0])
    best = (
        good.join(ranked, on="machineId", maintain_order="left")
        .sort("rank", maintain_order=True)
        .unique("vmTypeId", keep="first", maintain_order=True)
        .with_columns(is_elsewhere=col("machineId") != chosen)
    )
    if table.rules.action("other-machine") != ANY_MACHINE:
        used = best.filter(~col("is_elsewhere"))
    else:
        used = best
    kept = table.sort_out(
        rows.with_columns(
            is_first=col("place").is_in(good["place"].implode()),
            is_used=col("place").is_in(used["place"].implode()),
        ),
        {
            "type-bad-value": col("is_bad"),
            "type-duplicate": ~col("is_bad") & ~col("is_first"),
            "type-of-other-machine": col("is_first") & ~col("is_used"),
        },
    )
    table.rows_kept += len(kept)
    return (
        used.select("vmTypeId", *shares, "is_elsewhere"),
        good.select("vmTypeId").unique(),
        chosen,
    )


def _none() -> pl.DataFrame:
    return pl.DataFrame(schema=dict.fromkeys(VM_TYPE_COLUMNS, pl.String))
