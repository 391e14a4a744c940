"""Format `columns`: any table, text or Parquet, by a mapping of its columns (column_mapping.py).

A row is a task, or an instance of one (column_instances.py). Whatever is wrong with a row has a
rule; a row that goes takes its job along by default, since the job's DAG would be false.
"""

from marl_sched.workload.traces.account import RULE, TableAccount
from marl_sched.workload.traces.assemble import DAG_RULES, TaskRows, assemble
from marl_sched.workload.traces.column_files import read_columns
from marl_sched.workload.traces.column_instances import InstanceRows
from marl_sched.workload.traces.column_mapping import Mapping, load_mapping
from marl_sched.workload.traces.column_values import VALUE_RULES, ColumnValues
from marl_sched.workload.traces.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.traces.lines import LINE_RULES
from marl_sched.workload.traces.rules import JOB_INCOMPLETE
from marl_sched.workload.traces.tasks import TraceInfo

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
                rows.add(_tasks(found, mapping))
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
