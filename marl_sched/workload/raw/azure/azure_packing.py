"""Format `azure-packing-2020`: Azure's VM requests of 14 days (AzureTracesForPacking2020.md).

The trace is one SQLite database. A VM is a job of one task and one instance; it arrives when it was
requested, and runs for its lifetime. Priority 0 is high, and becomes 1 here; low becomes 0.

A VM type's amounts are shares of a machine, and differ by machine type; how many machines of which
type there are is not published, nor what they have. All VMs are taken as they are on one machine
type: the one that most requested VMs can run on, by their number, then the first in the table. VMs
of types that it does not offer go (`other-machine`).

Resources are all five of the trace. The reference is our reading of such a machine: 96 hardware
threads, 512 GiB, a 40 Gbit/s network, and 4 TiB of disk and of SSD. Placement depends on shares
only; give machines these amounts, or multiples, in the configuration (or a `--reference`).
"""

import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import RULE
from marl_sched.workload.raw.assemble import TaskRows, assemble
from marl_sched.workload.raw.azure.azure_machine import (
    ANY_MACHINE,
    MACHINE_RULES,
    SHARES,
    choose_machine,
)
from marl_sched.workload.raw.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.sqlite_rows import Database
from marl_sched.workload.raw.values import LARGEST_AMOUNT, is_bad, number
from marl_sched.workload.traces.tasks import REQUEST, TraceInfo

VM_COLUMNS = ("vmTypeId", "priority", "starttime", "endtime")
CAP_DAYS = 90.0
"""Lifetimes are known up to this time."""
AT_START, AT_CAP, LEAVE_OUT = "at-start", "at-90-days", "leave-out"
_US_PER_DAY = 86_400e6
_LONGEST_DAYS = 36_525.0
_HIGH, _LOW = 0, 1

_RULES = (
    *MACHINE_RULES,
    Rule("missing-value", "a VM without a type, a priority or a start", (DROP_ROW,)),
    Rule(
        "bad-value",
        "a priority that is not 0 or 1, or a time that is no number or beyond a century",
        (DROP_ROW,),
    ),
    Rule("unknown-type", "of a VM type without a usable row in vmType", (DROP_ROW,)),
    Rule(
        "other-machine",
        "of a VM type that the chosen machine type does not offer; `any-machine`: its shares are "
        "those of the machine type, of those that offer it, that fits the most requested VMs",
        (DROP_ROW, ANY_MACHINE),
    ),
    Rule("missing-share", "a VM type without a share of hdd, ssd or nic: 0", (KEEP, DROP_ROW)),
    Rule("end-before-start", "ended before it was requested", (DROP_ROW,)),
    Rule(
        "before-trace",
        "requested before the trace; `at-start`: it arrives at 0 and has the rest of its lifetime",
        (DROP_ROW, AT_START),
    ),
    Rule(
        "no-end",
        "still alive after 90 days; `at-90-days`: it ends then",
        (DROP_ROW, AT_CAP),
    ),
    Rule("share-above-one", "asks for more than the whole machine", (DROP_ROW, KEEP)),
    Rule("lifetime-zero", "ended when it was requested", (KEEP, DROP_ROW)),
    Rule("cpu-zero", "asks for no cpu: a thousandth of a core", (KEEP, DROP_ROW)),
    Rule(
        "low-priority",
        "may have been evicted: its lifetime depends on where Azure placed what",
        (KEEP, DROP_ROW),
    ),
    Rule(
        "further-resources",
        "asks for hdd, ssd or nic; `leave-out`: they are no resources",
        (KEEP, LEAVE_OUT),
    ),
    Rule("use-unknown", "no real use is published: it is the request", (KEEP,)),
)


def _load(sources: Sources) -> Loaded:
    files = sources.files["database"]
    if len(files) > 1:
        raise TraceError(f"{files[0]} and {files[1]}: ids differ by file, expected one database")
    database = Database(files[0])
    rules = sources.rules
    names = list(SHARES) if rules.action("further-resources") == KEEP else list(SHARES)[:2]
    reference = {name: sources.reference[name] for name in names}
    types, known, machine = choose_machine(database, sources.account.table("vmType"))
    sources.account.facts["machine_type"] = machine
    types = types.with_columns(is_offered=True)
    known = known.with_columns(is_known=True)
    table = sources.account.table("vm")
    rows, n_rows = TaskRows(tuple(names)), 0
    for frame in database.rows("vm", VM_COLUMNS, table, sources.on_bytes):
        vms = _values(frame.with_row_index("job", n_rows)).join(
            known, on="vmTypeId", how="left", maintain_order="left"
        )
        vms = vms.join(types, on="vmTypeId", how="left", maintain_order="left")
        n_rows += len(frame)
        found = table.sort_out(vms, _tests())
        if len(found):
            rows.add(_canonical(found, reference))
    info = TraceInfo(format=FORMAT.name, resolution_us=1, reference=reference)
    return Loaded(tasks=assemble(rows, table, info))


def _values(frame: pl.DataFrame) -> pl.DataFrame:
    col = pl.col
    return frame.select(
        "vmTypeId",
        pl.col("job").cast(pl.UInt64),
        is_missing=pl.any_horizontal(
            col(name).is_null() for name in ("vmTypeId", "priority", "starttime")
        ),
        is_bad=pl.any_horizontal(
            is_bad("priority", _HIGH, _LOW),
            number("priority") % 1 != 0,
            is_bad("starttime", -_LONGEST_DAYS, _LONGEST_DAYS),
            is_bad("endtime", -_LONGEST_DAYS, _LONGEST_DAYS),
        ),
        priority=number("priority"),
        start=number("starttime"),
        has_end=col("endtime").is_not_null(),
        end=number("endtime"),
    )


def _tests() -> dict[str, pl.Expr]:
    """Return the tests of a VM in the rules' order."""
    col = pl.col
    shares = tuple(SHARES.values())
    is_offered = col("is_offered").fill_null(value=False)
    is_known = col("is_known").fill_null(value=False)
    is_elsewhere = col("is_elsewhere").fill_null(value=True)
    begin = pl.max_horizontal("start", 0.0)
    return {
        "missing-value": col("is_missing"),
        "bad-value": col("is_bad"),
        "unknown-type": ~is_known & col("vmTypeId").is_not_null(),
        "other-machine": is_known & (~is_offered | is_elsewhere),
        "missing-share": is_offered & pl.any_horizontal(col(name).is_null() for name in shares[2:]),
        "end-before-start": pl.when(col("end").is_not_null()).then(
            (col("end") < col("start")) | ((col("end") <= 0) & (col("start") < 0))
        ),
        "before-trace": col("start") < 0,
        "no-end": ~col("has_end"),
        "share-above-one": pl.any_horizontal(col(name) > 1 for name in shares),
        "lifetime-zero": col("end") == begin,
        "cpu-zero": col("core") == 0,
        "low-priority": col("priority") == _LOW,
        "further-resources": pl.any_horizontal(col(name) > 0 for name in shares[2:]),
        "use-unknown": pl.lit(value=True),
    }


def _canonical(vms: pl.DataFrame, reference: dict[str, int]) -> pl.DataFrame:
    """Return VMs that count as `TaskRows.add` takes them; every one is a job."""
    col = pl.col
    begin = pl.max_horizontal("start", 0.0)
    end = pl.max_horizontal(col("end").fill_null(CAP_DAYS), begin)
    return vms.select(
        RULE,
        "job",
        arrival_us=(begin * _US_PER_DAY).round().cast(pl.Int64),
        n_instances=pl.lit(1, pl.UInt32),
        priority=(_LOW - col("priority")).cast(pl.Int32),
        duration_ms=((end - begin) * _US_PER_DAY / 1000).round().cast(pl.Int64),
        **{
            f"{REQUEST}{name}": (col(SHARES[name]).fill_null(0.0) * largest)
            .round(6)  # 0.1 * 30 is a little more than 3
            .ceil()
            .clip(1 if name == "cpu_milli" else 0, LARGEST_AMOUNT)
            .cast(pl.Int64)
            for name, largest in reference.items()
        },
    )


FORMAT = Format(
    name="azure-packing-2020",
    title="Azure Trace for Packing 2020 (packing_trace_zone_a_v1.sqlite), 14 days; written against "
    "its published schema, never run on the trace itself",
    tables=(
        TableSpec(
            "database",
            "a VM request (table vm) or a VM type on a machine type (table vmType)",
            ("*.sqlite", "*.sqlite3", "*.db"),
        ),
    ),
    rules=_RULES,
    load=_load,
    reference={
        "cpu_milli": 96_000,
        "memory_mib": 524_288,
        "disk_mib": 4_194_304,
        "ssd_mib": 4_194_304,
        "network_mbps": 40_000,
    },
)
