"""Is this a table the simulator can run? Says which row is not, with its value.

Tables that we draw are right by construction; this is for tables that come from outside.
"""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marl_sched.config import Experiment
from marl_sched.errors import TraceError
from marl_sched.workload.assembly import ranks
from marl_sched.workload.table import InstanceTable, Int
from marl_sched.workload.table_io import read_table

_STARTS = ("job_task_start", "task_instance_start", "task_parent_start")
_PER_RESOURCE = ("request", "known_use", "use")
_FLOATS = ("reference_s", "known_mean_s", "known_sigma", "known_use", "use")
_LEAST = {
    "job_arrival_us": 0,
    "request": 0,
    "known_sigma": 0,
    "known_use": 0,
    "latest_wait_us": 0,
    "latest_finish_us": 0,
    "use": 0,
}
_ABOVE = {"reference_s": 0, "known_mean_s": 0, "work_us": 0}


def load_table(path: str | Path, experiment: Experiment) -> InstanceTable:
    """Read an instance table and check that the machines of an experiment can run it.

    Raises:
        TraceError: The file, or a row of it, is not valid; names file, column, row and value.
    """
    table = read_table(path, experiment.resources)
    check_table(table, experiment, str(path))
    return table


def check_table(
    table: InstanceTable, experiment: Experiment, source: str = "instance table"
) -> None:
    """Check a table against its own rules and the machines of an experiment.

    Raises:
        TraceError: Wrong shapes, descending arrivals, negative times, parents of another job,
            cycles, or requests larger than any machine; names column, row and value.
    """
    for check in (_shape_problems, _value_problems, _parent_problems):
        for problem in check(table, experiment.n_resources):
            raise TraceError(f"{source}: {problem}")
    for problem in _request_problems(table, experiment):
        raise TraceError(f"{source}: {problem}")


def _shape_problems(table: InstanceTable, n_resources: int) -> Iterator[str]:
    lengths = {"job": table.n_jobs, "task": len(table.request), "work": len(table.work_us)}
    for field in fields(table):
        column: NDArray[np.generic] = getattr(table, field.name)
        kind = "f" if field.name in _FLOATS else "i"
        if column.dtype.kind != kind or column.dtype.itemsize != 8:
            yield f"{field.name} is {column.dtype}, expected {kind}8"
        n = len(column)
        if field.name in ("work_us", "use"):
            expected = lengths["work"]
        elif field.name == "job_arrival_us":
            expected = lengths["job"]
        elif field.name == "task_parents":
            expected = n
        else:
            owner = "job" if field.name == "job_task_start" else "task"
            expected = lengths[owner] + (field.name in _STARTS)
        shape = (expected, n_resources) if field.name in _PER_RESOURCE else (expected,)
        if column.shape != shape:
            yield f"{field.name} has the shape {column.shape}, expected {shape}"
    ends = (lengths["task"], lengths["work"], len(table.task_parents))
    for name, end in zip(_STARTS, ends, strict=True):
        starts: Int = getattr(table, name)
        least = 0 if name == "task_parent_start" else 1
        if starts[0] != 0 or starts[-1] != end:
            yield f"{name} runs from {starts[0]} to {starts[-1]}, expected 0 to {end}"
        for row in np.flatnonzero(np.diff(starts) < least):
            yield f"{name} row {row}: {np.diff(starts)[row]} items, expected at least {least}"


def _value_problems(table: InstanceTable, n_resources: int) -> Iterator[str]:
    del n_resources
    for bounds, text, strict in ((_LEAST, ">=", False), (_ABOVE, ">", True)):
        for name, bound in bounds.items():
            column = getattr(table, name)
            wrong = ~np.isfinite(column) | (column <= bound if strict else column < bound)
            for index in np.argwhere(wrong):
                yield f"{_cell(name, index)} = {column[tuple(index)]}, expected {text} {bound}"
    for row in np.flatnonzero(np.diff(table.job_arrival_us) < 0):
        yield (
            f"job_arrival_us row {row + 1} = {table.job_arrival_us[row + 1]}, expected at least "
            f"the row before, {table.job_arrival_us[row]}"
        )


def _parent_problems(table: InstanceTable, n_resources: int) -> Iterator[str]:
    del n_resources
    n_tasks, parents = table.n_tasks, table.task_parents
    job = np.repeat(ranks(table.n_jobs), np.diff(table.job_task_start))  # (T,)
    child = np.repeat(ranks(n_tasks), np.diff(table.task_parent_start))  # (P,)
    outside = (parents < 0) | (parents >= n_tasks)
    for row in np.flatnonzero(outside):
        yield f"task_parents row {row} = {parents[row]}, expected a task row below {n_tasks}"
    for row in np.flatnonzero(job[parents] != job[child]):
        yield (
            f"task_parents row {row}: task {child[row]} of job {job[child[row]]} has the parent "
            f"{parents[row]} of job {job[parents[row]]}, expected one of its own job"
        )
    for row in cyclic_tasks(n_tasks, child, parents):
        yield (
            f"task row {row} of job {job[row]} waits for itself by its parents "
            f"{parents[child == row].tolist()}, expected no cycle"
        )


def cyclic_tasks(n_tasks: int, child: Int, parent: Int) -> Int:
    """Return the tasks that never become ready: those on a cycle, or behind one.

    Args:
        n_tasks: T.
        child: (P,) task of each edge.
        parent: (P,) task it waits for.
    """
    is_open = np.ones(len(child), bool)
    while True:
        waits = np.bincount(child[is_open], minlength=n_tasks) > 0  # (T,)
        still_open = is_open & waits[parent]
        if still_open.sum() == is_open.sum():
            return np.flatnonzero(waits)
        is_open = still_open


def _request_problems(table: InstanceTable, experiment: Experiment) -> Iterator[str]:
    resources = experiment.resources
    machines = np.unique(
        [
            [group.capacity[r] - group.reserved.get(r, 0) for r in resources]
            for zone in experiment.zones
            for group in zone.machines
        ],
        axis=0,
    )  # (K, R)
    for row in np.flatnonzero(table.request[:, 0] == 0):
        yield f"request row {row}: {resources[0]} = 0, expected > 0"
    fits = np.any(np.all(table.request[:, None, :] <= machines[None], axis=2), axis=1)  # (T,)
    for row in np.flatnonzero(~fits):
        request = table.request[row].tolist()
        yield (
            f"request row {row} = {dict(zip(resources, request, strict=True))}, expected what one "
            f"machine of the cluster can hold: {machines.tolist()} ({', '.join(resources)})"
        )


def _cell(name: str, index: Int) -> str:
    row, *resource = index.tolist()
    return f"{name} row {row}" + (f" resource {resource[0]}" if resource else "")
