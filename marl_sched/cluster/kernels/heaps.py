"""Binary heaps of rows: groups by queue order, running instances by finish, arrivals by time."""

import numpy as np
from numpy.typing import NDArray

from marl_sched.kernel_cache import kernel

BY_QUEUE, BY_TIME, BY_ARRIVAL = 0, 1, 2


@kernel
def before(instance: NDArray[np.void], task: NDArray[np.void], a: int, b: int, order: int) -> bool:
    """Return whether row a goes before row b.

    instance (N,), task (T,). BY_QUEUE: priority, ready time, sequence. BY_TIME: finish time,
    sequence. BY_ARRIVAL: time, zone it comes from, sequence.
    """
    if order == BY_QUEUE:
        first = task[instance[a].task].priority
        second = task[instance[b].task].priority
        if first != second:
            return first > second
        if instance[a].ready_us != instance[b].ready_us:
            return instance[a].ready_us < instance[b].ready_us
    elif instance[a].finish_us != instance[b].finish_us:
        return instance[a].finish_us < instance[b].finish_us
    elif order == BY_ARRIVAL and instance[a].via_zone != instance[b].via_zone:
        return instance[a].via_zone < instance[b].via_zone
    return instance[a].sequence < instance[b].sequence


@kernel
def push(
    heap: NDArray[np.int32],
    size: int,
    row: int,
    instance: NDArray[np.void],
    task: NDArray[np.void],
    order: int,
) -> None:
    """Add a row to a heap of `size` rows; the caller adds one to the size."""
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if not before(instance, task, row, heap[parent], order):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = row


@kernel
def pop(
    heap: NDArray[np.int32],
    size: int,
    instance: NDArray[np.void],
    task: NDArray[np.void],
    order: int,
) -> None:
    """Remove the first row of a heap of `size` rows; the caller takes one from the size."""
    last = heap[size - 1]
    size -= 1
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and before(instance, task, heap[child + 1], heap[child], order):
            child += 1
        if not before(instance, task, heap[child], last, order):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
