"""Machines of Alibaba's cluster-trace-v2017, out of their events.

All machines are added before the trace. Some then have errors, after which they take no new work;
no event tells when one comes back, so by default an error takes no machine away.
"""

import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import TableAccount
from marl_sched.workload.raw.formats import Sources
from marl_sched.workload.raw.lines import TextColumns, read_text
from marl_sched.workload.raw.machines import ZoneMachines
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.values import LONGEST_S, is_bad, number

EVENTS = TextColumns(
    (
        "timestamp",  # s
        "machineID",
        "event_type",  # add, softerror, harderror
        "event_detail",
        "capacity_cpu",  # cores
        "capacity_memory",  # 1 = the largest machine's
        "capacity_disk",
    )
)
_ERRORS = ("softerror", "harderror")
_MOST_CORES = 2.0**14
EVENT_RULES = (
    Rule("event-missing-value", "an event without a time, a machine or a type", (DROP_ROW,)),
    Rule("event-type-unknown", "neither add, softerror nor harderror", (DROP_ROW,)),
    Rule("event-bad-value", "a time or a capacity that is no number, or too large", (DROP_ROW,)),
    Rule("machine-without-capacity", "a machine added without cpu or memory", (DROP_ROW,)),
    Rule("event-superseded", "a machine was added again later: the last one counts", (DROP_ROW,)),
    Rule(
        "machine-error",
        "a machine with an error, after which it takes no new work for a time that is not told",
        ("keep-machine", "drop-machine"),
    ),
    Rule("error-without-machine", "an error of a machine that was not added", (DROP_ROW,)),
    Rule(
        "no-failure-domain",
        "a machine, whose failure domain the trace does not tell: all are one zone",
        (KEEP,),
    ),
)


def load_zones(sources: Sources) -> list[ZoneMachines]:
    """Return the machines as the one zone `all`.

    Raises:
        TraceError: There is none.
    """
    table = sources.account.table("server_event")
    paths = sources.files["server_event"]
    frames = [frame for path in paths for frame in read_text(path, EVENTS, table, sources.on_bytes)]
    machines = _machines(pl.concat(frames), table) if frames else pl.DataFrame()
    if not len(machines):
        names = ", ".join(str(path) for path in paths)
        raise TraceError(f"{names}: none of {table.rows_read} rows is a machine")
    table.find("no-failure-domain", len(machines))
    capacity = machines.select(
        (pl.col("capacity_cpu_") * 1000).round().cast(pl.Int64),
        pl.max_horizontal(
            (pl.col("capacity_memory_") * sources.reference["memory_mib"]).round(), 1.0
        ).cast(pl.Int64),
    )
    return [ZoneMachines("all", capacity.to_numpy())]


def _machines(events: pl.DataFrame, table: TableAccount) -> pl.DataFrame:
    """Return the last addition of every machine, in the order of the file."""
    col = pl.col
    limits = {
        "timestamp": (-LONGEST_S, LONGEST_S),
        "capacity_cpu": (0.0, _MOST_CORES),
        "capacity_memory": (0.0, 1.0),
    }
    events = events.with_columns(number(name).alias(f"{name}_") for name in limits)
    is_error = col("event_type").is_in(_ERRORS)
    is_add = col("event_type") == "add"
    required = ("timestamp", "machineID", "event_type")
    events = table.sort_out(
        events,
        {
            "event-missing-value": pl.any_horizontal(col(name).is_null() for name in required),
            "event-type-unknown": ~(is_add | is_error),
            "event-bad-value": pl.any_horizontal(is_bad(x, *ends) for x, ends in limits.items()),
            "machine-without-capacity": is_add
            & ~((col("capacity_cpu_") * 1000 >= 1) & (col("capacity_memory_") > 0)).fill_null(
                value=False
            ),
        },
    )
    latest = col("timestamp_").rank("ordinal").over("machineID", "event_type")
    events = table.sort_out(
        events,
        {"event-superseded": is_add & (latest < latest.max().over("machineID", "event_type"))},
    )
    has_machine = col("machineID").is_in(events.filter(is_add)["machineID"].implode())
    events = table.sort_out(events, {"error-without-machine": is_error & ~has_machine})
    table.find("machine-error", len(events.filter(is_error)))
    if table.rules.action("machine-error") == "drop-machine":
        with_error = events.filter(is_error)["machineID"].implode()
        n_events = len(events)
        events = events.filter(~col("machineID").is_in(with_error))
        table.dropped["machine-error"] += n_events - len(events)
    table.rows_kept += len(events)
    return events.filter(is_add)
