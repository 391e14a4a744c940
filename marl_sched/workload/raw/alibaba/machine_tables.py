"""Tables machine_meta and container_meta of Alibaba's cluster-trace-v2018: what runs where.

Both are lists of events, several rows a machine or container: the last one counts. Neither capacity
nor request ever changes.
"""

from dataclasses import dataclass

import polars as pl

from marl_sched.workload.raw.account import TableAccount
from marl_sched.workload.raw.alibaba.alibaba_units import RESOURCES
from marl_sched.workload.raw.formats import Sources
from marl_sched.workload.raw.lines import TextColumns, read_text
from marl_sched.workload.raw.machines import ZoneMachines
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.values import LONGEST_S, is_outside, number

MACHINES = "machine_meta"
CONTAINERS = "container_meta"
_MACHINE_COLUMNS = TextColumns(
    (
        "machine_id",
        "time_stamp",  # s since the start of the trace
        "failure_domain_1",  # a number, of 14 machines on average: not used
        "failure_domain_2",  # some text, of 200 machines on average: a zone
        "cpu_num",  # cores
        "mem_size",  # % of the largest machine
        "status",  # USING, seldom IMPORT_INSTALLING
    )
)
_CONTAINER_COLUMNS = TextColumns(
    (
        "container_id",
        "machine_id",
        "time_stamp",
        "app_du",  # containers of one of these belong to one application: not used
        "status",
        "cpu_request",  # 100 = one core
        "cpu_limit",
        "mem_size",  # % of the largest machine
    ),
    required=("container_id", "machine_id", "time_stamp", "cpu_request", "mem_size"),
)
_MACHINE_LIMITS = {
    "time_stamp": (0.0, LONGEST_S),
    "cpu_num": (0.001, 2.0**20),
    "mem_size": (0.001, 1000.0),
}
_CONTAINER_LIMITS = {
    "time_stamp": (0.0, LONGEST_S),
    "cpu_request": (0.0, 2.0**20),
    "mem_size": (0.0, 1000.0),
}
_DOMAIN = r"^[A-Za-z0-9_.-]{1,50}$"

RULES = (
    Rule("machine-missing", "an event of a machine or container without its name", (DROP_ROW,)),
    Rule(
        "machine-bad-value",
        "an event whose time or amounts are empty, not a number, negative or too large, or whose "
        "failure domain has signs other than letters, digits, `_`, `.` and `-`",
        (DROP_ROW,),
    ),
    Rule(
        "failure-domain-missing",
        "no failure_domain_2; other events of the machine have one",
        (DROP_ROW,),
    ),
    Rule(
        "machine-not-in-use",
        "a machine whose status is not USING, such as IMPORT_INSTALLING; it has a capacity",
        (KEEP, DROP_ROW),
    ),
    Rule("container-machine-unknown", "a container of a machine that is not there", (DROP_ROW,)),
    Rule("superseded-event", "a later event of the same machine or container", (DROP_ROW,)),
)


def read_machines(sources: Sources) -> pl.DataFrame:
    """Return a row a machine: `machine_id`, `zone` and the capacity by resource (Int64)."""
    table = sources.account.table(MACHINES)
    frame = _read(sources, MACHINES, _MACHINE_COLUMNS, tuple(_MACHINE_LIMITS))
    domain = pl.col("failure_domain_2")
    frame = table.sort_out(
        frame,
        {
            "machine-missing": pl.col("machine_id").is_null(),
            "machine-bad-value": _is_bad(_MACHINE_LIMITS) | ~domain.str.contains(_DOMAIN),
            "failure-domain-missing": domain.is_null(),
            "machine-not-in-use": (pl.col("status") != "USING").fill_null(value=True),
        },
    )
    memory_mib = pl.col("mem_size") * (sources.reference["memory_mib"] / 100)
    return _latest(frame, "machine_id", table).select(
        "machine_id",
        zone=pl.lit("domain_") + domain,
        cpu_milli=(pl.col("cpu_num") * 1000).round().cast(pl.Int64),
        memory_mib=pl.max_horizontal(memory_mib.round(), 1).cast(pl.Int64),
    )


def read_containers(sources: Sources, machines: pl.DataFrame) -> pl.DataFrame:
    """Return a row a container: `container_id`, `machine_id`, and its share of the machine.

    The shares are `cpu_share` and `memory_share`, of what it asks for in the machine's capacity.
    """
    table = sources.account.table(CONTAINERS)
    frame = _read(sources, CONTAINERS, _CONTAINER_COLUMNS, tuple(_CONTAINER_LIMITS))
    frame = frame.join(machines, on="machine_id", how="left", maintain_order="left")
    is_missing = pl.col("container_id").is_null() | pl.col("machine_id").is_null()
    frame = table.sort_out(
        frame,
        {
            "machine-missing": is_missing,
            "machine-bad-value": _is_bad(_CONTAINER_LIMITS),
            "container-machine-unknown": pl.col("zone").is_null(),
        },
    )
    memory_mib = pl.col("mem_size") * (sources.reference["memory_mib"] / 100)
    return _latest(frame, "container_id", table).select(
        "container_id",
        "machine_id",
        cpu_share=pl.col("cpu_request") * 10 / pl.col("cpu_milli"),
        memory_share=memory_mib / pl.col("memory_mib"),
    )


@dataclass(frozen=True)
class Background:
    """The use beside the jobs on the machines of one zone, as shares of their capacity.

    Attributes:
        cpu: Mean.
        memory: Mean.
        amplitude: Of the day curve of cpu.
        sd: Of cpu around the day curve.
    """

    cpu: float
    memory: float
    amplitude: float
    sd: float

    def as_config(self) -> dict[str, object]:
        """Return the zone's `background` block."""
        cpu, memory, amplitude, sd = (
            round(min(max(share, 0.0), 1.0), 4)
            for share in (self.cpu, self.memory, self.amplitude, self.sd)
        )
        mean = dict(zip(RESOURCES, (cpu, memory), strict=True))
        return {"mean": mean, "amplitude": amplitude, "sd": sd}


def zones_of(machines: pl.DataFrame, background: dict[str, Background]) -> list[ZoneMachines]:
    """Return the machines as zones, sorted by name: domain_2 before domain_10."""
    by_name = {str(zone[0]): part for zone, part in machines.group_by("zone")}
    return [
        ZoneMachines(
            name,
            by_name[name].select(RESOURCES).to_numpy(),
            background[name].as_config() if name in background else {},
        )
        for name in sorted(by_name, key=lambda name: (len(name), name))
    ]


def _read(
    sources: Sources, name: str, columns: TextColumns, numbers: tuple[str, ...]
) -> pl.DataFrame:
    """Return all rows of a table; they are few."""
    table = sources.account.table(name)
    empty = pl.DataFrame(schema=dict.fromkeys(columns.names, pl.String))
    blocks = [
        block
        for path in sources.files[name]
        for block in read_text(path, columns, table, sources.on_bytes)
    ]
    return pl.concat([empty, *blocks]).with_columns(number(column) for column in numbers)


def _is_bad(limits: dict[str, tuple[float, float]]) -> pl.Expr:
    return pl.any_horizontal(is_outside(name, *limits[name]) for name in limits)


def _latest(frame: pl.DataFrame, key: str, table: TableAccount) -> pl.DataFrame:
    """Return the last event of each machine or container; of one time, the last in the file."""
    row = pl.int_range(pl.len())
    frame = frame.sort("time_stamp", maintain_order=True).with_columns(row=row)
    is_last = pl.col("row") == pl.col("row").last().over(key)
    latest = table.sort_out(frame, {"superseded-event": ~is_last})
    table.rows_kept += len(latest)
    return latest
