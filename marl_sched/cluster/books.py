"""The books of a zone, counted anew from its instances: an invariant after every event."""

import numpy as np

from marl_sched.cluster.model import (
    RUNNING,
    WAITING,
    State,
)

USE_TOLERANCE = 1e-6


def book_errors(state: State) -> list[str]:
    """Return what does not add up, a line each; an empty list if everything does.

    Per replica, machine and resource: allocated + free = allocatable, use = background + use of
    what runs, running counts; per replica: the waiting instances and their requests.
    """
    errors: list[str] = []
    for e in range(len(state.zone)):
        rows = state.instance[e, : state.zone["n_instances"][e]]
        running = rows["status"] == RUNNING
        machines = rows["machine"][running]
        request = state.request[e, rows["task"]]
        allocated = np.zeros_like(state.free[e])
        np.add.at(allocated, machines, request[running])
        used = state.background[e].copy()
        np.add.at(used, machines, state.instance_use[e, : len(rows)][running])
        count = np.bincount(machines, minlength=len(allocated))
        waiting = rows["status"] == WAITING
        checks = {
            "allocated + free = allocatable": allocated + state.free[e] == state.allocatable[e],
            "use = background + use of what runs": np.isclose(
                used, state.use[e], rtol=USE_TOLERANCE, atol=1e-3
            ),
            "running instances of each machine": count == state.machine["running"][e],
            "number of waiting instances": waiting.sum() == state.zone["waiting"][e],
            "requests of waiting instances": request[waiting].sum(axis=0) == state.queue_request[e],
        }
        errors += [f"replica {e}: {name}" for name, holds in checks.items() if not np.all(holds)]
    return errors
