"""Gives the rows of tasks the statistics of their instances.

Shapes: T tasks.
"""

from dataclasses import dataclass

import numpy as np

from marl_sched.workload.raw.account import RULE, TableAccount
from marl_sched.workload.raw.assemble import AssembledTasks, TaskRows
from marl_sched.workload.raw.instance_statistics import InstanceStatistics, TaskStatistics
from marl_sched.workload.raw.rules import DROP_JOB, DROP_ROW, KEEP, Rule
from marl_sched.workload.table import Float, Int
from marl_sched.workload.traces.tasks import DURATIONS, REQUEST, USES

OWN_DURATION = Rule(
    "duration-includes-queueing",
    "runs for the task's own time, from its start to its end, which holds the waiting of its "
    "instances (on average twice their time): no instance of it is known",
    (KEEP,),
)
USE_UNKNOWN = Rule(
    "use-unknown", "real use is not known; the request stands for it", (KEEP, DROP_JOB)
)
USE_ABOVE_REQUEST = Rule(
    "use-above-request",
    "an instance used more cpu or memory than it asked for, which the trace's cluster allowed",
    (KEEP, DROP_JOB),
)
TASK_RULES = (
    Rule(
        "instances-missing",
        "instances are given, but no usable one of this task; `keep` takes the task's own duration",
        (KEEP, DROP_JOB),
    ),
    Rule(
        "instances-differ",
        "more or fewer usable instances than the task says to have; what it says counts",
        (KEEP, DROP_JOB),
    ),
    OWN_DURATION,
    USE_UNKNOWN,
    USE_ABOVE_REQUEST,
)
"""Rules of tasks when instances are given, in the order they are asked."""
INSTANCE_RULES = (
    Rule("instance-task-unknown", "there is no task of its name in its job", (DROP_ROW,)),
    Rule("instance-task-dropped", "valid itself, but its task was dropped", (DROP_ROW,)),
)


@dataclass
class TaskInstances:
    """The instances of a trace and where they are counted.

    Attributes:
        statistics: What was collected.
        table: Account of the table of instances.
        scale: Thousandths of a core, and MiB, in a unit of the statistics' cpu and memory.
    """

    statistics: InstanceStatistics
    table: TableAccount
    scale: tuple[float, float]
    _n_found: int = 0

    def join(self, rows: TaskRows, table: TableAccount) -> None:
        """Replace every task's `duration_ms` by the statistics of its instances, and add their use.

        Args:
            rows: Tasks, with the column `task`.
            table: Their account.
        """
        columns = _Columns.of(rows)
        task = rows.pop("task")
        if columns is None or task is None:
            return
        order = np.argsort(task, kind="stable")
        ordered = task[order]
        for part in self.statistics.parts():
            first, last = (np.uint64(code) for code in part.codes)
            begin, end = np.searchsorted(ordered, first), np.searchsorted(ordered, last, "right")
            place = np.searchsorted(part.task, ordered[begin:end])
            place[place == len(part.task)] = 0
            is_known = part.task[place] == ordered[begin:end]
            target, source = order[begin:end][is_known], place[is_known]
            columns.take(part, target, source, self.scale)
            has_task = np.zeros(len(part.task), bool)
            has_task[source] = True
            self._n_found += int(part.n[has_task].sum())
            self.table.drop("instance-task-unknown", int(part.n[~has_task].sum()))
        columns.sort_out(table)
        columns.put_back(rows)

    def settle(self, tasks: AssembledTasks) -> None:
        """Count the instances: kept are those of the tasks that are in the output."""
        n_kept = int(tasks.columns["n_rows"].astype(np.int64).sum())
        self.table.rows_kept += n_kept
        self.table.drop("instance-task-dropped", self._n_found - n_kept)


@dataclass
class _Columns:
    """Columns of all tasks that instances decide about.

    Attributes:
        rule: (T,) rule that drops a task, or 0.
        n_instances: (T,) as the task says.
        n_rows: (T,) usable instances.
        n_with_use: (T,) those whose use is known.
        duration_ms: (4, T).
        request: (2, T) of cpu and memory.
        use: (2, 2, T) mean and maximum, of cpu and memory.
    """

    rule: np.ndarray
    n_instances: Int
    n_rows: Int
    n_with_use: Int
    duration_ms: Int
    request: Int
    use: Float

    @classmethod
    def of(cls, rows: TaskRows) -> "_Columns | None":
        """Take the columns out of the rows; None if there are no rows."""
        rule, own_ms, n_instances = (rows.pop(x) for x in (RULE, "duration_ms", "n_instances"))
        if rule is None or own_ms is None or n_instances is None:
            return None
        requests = [rows.pop(f"{REQUEST}{name}") for name in rows.resources]
        request = np.array(requests, np.int64)
        return cls(
            rule=rule,
            n_instances=n_instances.astype(np.int64),
            n_rows=np.zeros(len(rule), np.int64),
            n_with_use=np.zeros(len(rule), np.int64),
            duration_ms=np.tile(own_ms.astype(np.int64), (len(DURATIONS), 1)),
            request=request,
            use=np.tile(request.astype(np.float64), (len(USES), 1, 1)),
        )

    def take(
        self, part: TaskStatistics, target: Int, source: Int, scale: tuple[float, float]
    ) -> None:
        """Copy statistics of tasks `source` of a part to the tasks `target`."""
        self.n_rows[target] = part.n[source]
        self.n_with_use[target] = part.n_with_use[source]
        self.duration_ms[:, target] = part.duration_ms[source].T
        with_use = part.n_with_use[source] > 0
        target, source = target[with_use], source[with_use]
        for resource, amount in enumerate((part.cpu, part.memory)):
            self.use[:, resource, target] = amount[source].T * scale[resource]

    def sort_out(self, table: TableAccount) -> None:
        """Count the tasks by `TASK_RULES`, and mark those that go."""
        is_missing = self.n_rows == 0
        tests = {
            "instances-missing": is_missing,
            "instances-differ": ~is_missing & (self.n_rows != self.n_instances),
            OWN_DURATION.name: is_missing,
            USE_UNKNOWN.name: self.n_with_use == 0,
            USE_ABOVE_REQUEST.name: (self.use[1] > self.request).any(axis=0),
        }
        for name, is_found in tests.items():
            table.find(name, int(is_found.sum()))
            if table.rules.drops(name):
                self.rule[is_found & (self.rule == 0)] = table.rules.number(name)

    def put_back(self, rows: TaskRows) -> None:
        """Hand the columns over to the rows."""
        rows.put(RULE, self.rule)
        rows.put("n_instances", self.n_instances)
        rows.put("n_rows", self.n_rows)
        for name, duration in zip(DURATIONS, self.duration_ms, strict=True):
            rows.put(name, duration)
        for resource, name in enumerate(rows.resources):
            rows.put(f"{REQUEST}{name}", self.request[resource])
            for statistic, prefix in enumerate(USES):
                rows.put(f"{prefix}{name}", self.use[statistic, resource])
