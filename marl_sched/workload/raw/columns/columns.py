"""Format `columns`: any table, text or Parquet, by a mapping of its columns (column_mapping.py).

A row is a task, or an instance of one (column_instances.py). Whatever is wrong with a row has a
rule; a row that goes takes its job along by default, since the job's DAG would be false.
"""

import numpy as np
import polars as pl

from marl_sched.workload.raw.assemble import DAG_RULES, TaskRows, assemble
from marl_sched.workload.raw.columns.column_files import read_columns
from marl_sched.workload.raw.columns.column_instances import INSTANCE_RULES, InstanceRows
from marl_sched.workload.raw.columns.column_mapping import load_mapping
from marl_sched.workload.raw.columns.column_values import VALUE_RULES, ColumnValues
from marl_sched.workload.raw.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.raw.lines import LINE_RULES
from marl_sched.workload.raw.rules import JOB_INCOMPLETE
from marl_sched.workload.traces.tasks import REQUEST, TraceInfo

_RULES = (*LINE_RULES, *VALUE_RULES, *DAG_RULES, *INSTANCE_RULES, JOB_INCOMPLETE)


def _load(sources: Sources) -> Loaded:
    assert sources.mapping is not None  # a format that needs one is not loaded without
    mapping = load_mapping(sources.mapping)
    table = sources.account.table("table")
    values = ColumnValues(mapping, table)
    rows = TaskRows(mapping.resources, values.names)
    instances = InstanceRows(mapping.resources, sources.scratch)
    for path in sources.files["table"]:
        for frame in read_columns(path, mapping, table, sources.on_bytes):
            found = values.canonical(frame)
            if mapping.row == "instance":
                instances.add(found)
            elif len(found):
                requests = [f"{REQUEST}{name}" for name in mapping.resources]
                duration_ms = (pl.col("duration_us") / 1000).round()
                rows.add(
                    found.with_columns(
                        pl.col(requests).cast(pl.Int64), duration_ms=duration_ms.cast(pl.Int64)
                    )
                )
    if mapping.row == "instance":
        instances.rows(rows, table)
    sources.account.facts["mapping"] = mapping.model_dump(mode="json", exclude_defaults=True)
    info = TraceInfo(
        format=FORMAT.name,
        resolution_us=max(1, round(mapping.resolution_s * 1e6)),
        reference=mapping.reference,
    )
    tasks = assemble(rows, table, info)
    if mapping.times.origin == "first":
        arrival_us = tasks.columns["arrival_us"].astype(np.int64)
        tasks.columns["arrival_us"] = arrival_us - arrival_us.min()
    return Loaded(tasks=tasks)


FORMAT = Format(
    name="columns",
    title="Any table of tasks or instances, text or Parquet, by a mapping of its columns "
    "(--mapping FILE); docs/examples/columns.yaml is one",
    tables=(
        TableSpec(
            "table",
            "a task, or an instance of one",
            ("*.csv", "*.csv.*", "*.tsv", "*.tsv.*", "*.txt", "*.txt.*", "*.parquet"),
        ),
    ),
    rules=_RULES,
    load=_load,
    needs_mapping=True,
)
