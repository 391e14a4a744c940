"""What one replica of a zone looks like at this moment, for those who watch.

Shapes: M machines, P peer zones, R resources.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marl_sched.cluster.model import ABSENT, OFFLOADED, State
from marl_sched.config import MICROSECONDS


@dataclass(frozen=True)
class Snapshot:
    """One replica of a zone; nothing in it changes when the simulation goes on.

    Attributes:
        simulated_s: Time since the episode's start.
        n_waiting: Instances that are ready and not placed.
        n_running: Instances on machines.
        utilization: (M, R) real use over capacity, in [0, 1]; 0 where there is no capacity and for
            a machine that is absent.
        allocation: (M, R) allocated over allocatable, the same.
        offloads: (P,) instances sent to each peer since the episode's start.
    """

    simulated_s: float
    n_waiting: int
    n_running: int
    utilization: NDArray[np.float64]
    allocation: NDArray[np.float64]
    offloads: NDArray[np.int64]


def take_snapshot(state: State, replica: int) -> Snapshot:
    """Copy what is to be seen of a replica; the state stays as it is."""
    zone, machine = state.zone[replica], state.machine[replica]
    is_there = (machine["status"] != ABSENT)[:, None]  # (M, 1)
    allocatable = state.allocatable[replica]
    allocated = (allocatable - state.free[replica]) / np.maximum(allocatable, 1)
    instances = state.instance[replica, : zone["n_instances"]]
    sent_to = instances["peer"][instances["status"] == OFFLOADED]
    return Snapshot(
        simulated_s=float(zone["now_us"]) / MICROSECONDS,
        n_waiting=int(zone["waiting"]),
        n_running=int(machine["running"].sum()),
        utilization=np.clip(state.use[replica] * state.per_unit * is_there, 0.0, 1.0),
        allocation=np.clip(allocated * is_there, 0.0, 1.0),
        offloads=np.bincount(sent_to, minlength=len(state.peer_zone)),
    )


def head_request(state: State, replica: int) -> NDArray[np.int64]:
    """Return (R,) what the instance asks for that a replica has to decide on."""
    head = state.group[replica, state.active[replica, 0]["row"]]["head"]
    request: NDArray[np.int64] = state.request[replica, state.instance[replica, head]["task"]]
    return request.copy()
