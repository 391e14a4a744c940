"""Binary heaps that carry their keys: what is compared lies together in memory."""

from typing import Any

from numpy.typing import NDArray

from marl_sched.kernel_cache import inlined


@inlined
def goes_before(first: int, second: int, third: int, entry: Any) -> bool:
    """Return whether a key goes before an entry's."""
    if first != entry.first:
        return first < entry.first
    if second != entry.second:
        return second < entry.second
    return third < entry.third


@inlined
def push(heap: NDArray[Any], size: int, key: tuple[int, int, int], row: int) -> None:
    """Add a row under its key to a heap (N,) of `size` entries; the caller adds one to the size."""
    first, second, third = key
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if not goes_before(first, second, third, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at].first = first
    heap[at].second = second
    heap[at].third = third
    heap[at].row = row


@inlined
def pop(heap: NDArray[Any], size: int) -> None:
    """Remove the first entry of a heap of `size` entries; the caller takes one from the size."""
    size -= 1
    first, second, third = heap[size].first, heap[size].second, heap[size].third
    row = heap[size].row
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and goes_before(
            heap[child + 1].first, heap[child + 1].second, heap[child + 1].third, heap[child]
        ):
            child += 1
        if goes_before(first, second, third, heap[child]):
            break
        heap[at] = heap[child]
        at = child
    heap[at].first = first
    heap[at].second = second
    heap[at].third = third
    heap[at].row = row


@inlined
def sort_rows(rows: NDArray[Any]) -> None:
    """Sort a few rows (N,) in place; numpy's sort makes arrays of its own."""
    for end in range(1, len(rows)):
        row = rows[end]
        at = end
        while at > 0 and rows[at - 1] > row:
            rows[at] = rows[at - 1]
            at -= 1
        rows[at] = row
