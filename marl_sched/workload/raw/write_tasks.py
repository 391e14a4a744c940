"""A task table in memory becomes a file: what the generator draws is kept like a trace."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marl_sched.workload.assembly import ranks
from marl_sched.workload.raw.assemble import AssembledTasks
from marl_sched.workload.traces.tasks import (
    DURATIONS,
    REQUEST,
    USES,
    TaskTable,
    TraceInfo,
)

_MILLISECONDS = 1000.0


def write_tasks(path: Path, tasks: TaskTable, origin: str) -> None:
    """Write a task table as Parquet, in one step; `load_tasks` gives it back, durations in ms.

    Args:
        path: The file to create or replace.
        tasks: The table.
        origin: Format or profile that it comes from, for its metadata.

    Raises:
        OSError: It cannot be written; names the file.
    """
    n_tasks = np.diff(tasks.job_task_start)
    durations_ms = np.round(tasks.duration_s * _MILLISECONDS).astype(np.int64)  # (T, 4)
    columns: dict[str, NDArray[np.generic]] = {
        "job": np.repeat(ranks(tasks.n_jobs), n_tasks).astype(np.uint32),
        "arrival_us": np.repeat(tasks.job_arrival_us, n_tasks),
        "priority": tasks.priority,
        "n_instances": tasks.n_instances,
    }
    columns |= {name: durations_ms[:, i] for i, name in enumerate(DURATIONS)}
    for column, name in enumerate(tasks.resources):
        columns[f"{REQUEST}{name}"] = tasks.request[:, column]
        columns |= {f"{use}{name}": tasks.use[:, column, i] for i, use in enumerate(USES)}
    known = zip(tasks.resources, tasks.reference.tolist(), strict=True)
    info = TraceInfo(
        format=origin,
        resolution_us=tasks.resolution_us,
        reference={name: amount for name, amount in known if amount > 0},
    )
    AssembledTasks(
        info=info,
        resources=tasks.resources,
        columns=columns,
        parents=tasks.parents,
        n_parents=np.diff(tasks.parent_start),
        n_jobs=tasks.n_jobs,
    ).write(path)
