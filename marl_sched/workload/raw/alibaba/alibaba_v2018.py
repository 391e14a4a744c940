"""Format `alibaba-v2018`: Alibaba's cluster-trace-v2018, as published.

4,034 machines over eight days; tables of comma-separated text without a header. What the tables
hold, and the traps in them, is told by the rules; the amounts are told in alibaba_units.py.

- batch_task gives the jobs. Starts follow from the DAG and the scheduler, never from the trace: in
  two of three edges the child started before its parent ended.
- batch_instance gives the durations: a task's own time is on average twice its longest instance's.
- machine_meta gives zones, one a failure domain; container_usage (or machine_usage) gives the use
  beside the jobs.
"""

from marl_sched.errors import TraceError
from marl_sched.workload.raw.alibaba import (
    batch_instances,
    batch_tasks,
    machine_tables,
    usage_tables,
)
from marl_sched.workload.raw.alibaba.alibaba_units import REFERENCE, RESOURCES
from marl_sched.workload.raw.assemble import DAG_RULES, AssembledTasks, assemble
from marl_sched.workload.raw.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.raw.lines import LINE_RULES
from marl_sched.workload.raw.names import TaskNames
from marl_sched.workload.raw.rules import JOB_INCOMPLETE
from marl_sched.workload.raw.task_instances import TASK_RULES
from marl_sched.workload.traces.tasks import TraceInfo


def _load(sources: Sources) -> Loaded:
    _check_tables(sources)
    loaded = Loaded(resources=RESOURCES)
    if batch_tasks.TABLE in sources.files:
        loaded.tasks = _tasks(sources)
    if machine_tables.MACHINES in sources.files:
        machines = machine_tables.read_machines(sources)
        background = {}
        if _usage_table(sources) is not None:
            background = usage_tables.read_background(sources, machines)
        loaded.zones = machine_tables.zones_of(machines, background)
    return loaded


def _tasks(sources: Sources) -> AssembledTasks:
    names = TaskNames()
    has_instances = batch_instances.TABLE in sources.files
    rows = batch_tasks.read_batch_tasks(sources, names, has_instances)
    table = sources.account.table(batch_tasks.TABLE)
    instances = batch_instances.read_batch_instances(sources) if has_instances else None
    if instances is not None:
        instances.join(rows, table)
    info = TraceInfo(format=FORMAT.name, reference=sources.reference)
    tasks = assemble(rows, table, info)
    if instances is not None:
        instances.settle(tasks)
    return tasks


def _usage_table(sources: Sources) -> str | None:
    """Return the table that background is taken from."""
    for name in (usage_tables.CONTAINER_USAGE, usage_tables.MACHINE_USAGE):
        if name in sources.files:
            return name
    return None


def _check_tables(sources: Sources) -> None:
    """Check that no table lacks one that it needs; say which are not read."""
    usage = _usage_table(sources)
    needed = {
        batch_instances.TABLE: (batch_tasks.TABLE,),
        usage_tables.MACHINE_USAGE: (machine_tables.MACHINES,),
        usage_tables.CONTAINER_USAGE: (machine_tables.MACHINES, machine_tables.CONTAINERS),
    }
    for name, others in needed.items():
        for other in others:
            if name in sources.files and other not in sources.files:
                raise TraceError(f"{sources.files[name][0]}: table {name} needs {other} too")
    unread = []
    if machine_tables.CONTAINERS in sources.files and usage != usage_tables.CONTAINER_USAGE:
        unread.append(f"{machine_tables.CONTAINERS} (of use only with container_usage)")
    if usage_tables.MACHINE_USAGE in sources.files and usage != usage_tables.MACHINE_USAGE:
        unread.append(f"{usage_tables.MACHINE_USAGE} (container_usage is preferred)")
    if unread:
        sources.account.facts["not_read"] = unread


def _table(name: str, what: str) -> TableSpec:
    return TableSpec(name, what, (f"{name}*.csv*", f"{name}*.tar*"))


FORMAT = Format(
    name="alibaba-v2018",
    title="Alibaba cluster-trace-v2018: eight days of batch jobs beside online services",
    tables=(
        TableSpec(
            batch_tasks.TABLE,
            "a task of a batch job",
            ("batch_task*.csv*", "batch_task*.tar*", "selected_DAGs.csv"),
        ),
        _table(batch_instances.TABLE, "an instance of a task"),
        _table(machine_tables.MACHINES, "an event of a machine"),
        _table(machine_tables.CONTAINERS, "an event of a container"),
        _table(usage_tables.MACHINE_USAGE, "a sample of a machine's use"),
        _table(usage_tables.CONTAINER_USAGE, "a sample of a container's use"),
    ),
    rules=(
        *LINE_RULES,
        *batch_tasks.RULES,
        *TASK_RULES,
        *DAG_RULES,
        JOB_INCOMPLETE,
        *batch_instances.RULES,
        *machine_tables.RULES,
        *usage_tables.RULES,
    ),
    load=_load,
    reference=REFERENCE,
)
