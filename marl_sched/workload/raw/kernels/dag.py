"""Are the tasks of a job a DAG? One pass over all jobs.

Shapes: J jobs, T tasks (a job's are contiguous), P edges.
"""

import numpy as np
from numpy.typing import NDArray

from marl_sched.kernel_cache import inlined, kernel

Int = NDArray[np.int64]

DUPLICATE, PARENT_MISSING, CYCLE, INCOMPLETE, EARLY_CHILD, N_CODES = range(6)
"""Slots of `codes`: the number of the rule that a finding counts under."""
CHECKED, EARLY = range(2)
"""Slots of `totals`: edges with times at both ends, and those whose child starts too early."""
KEEP_EDGE, DROP_EDGE, DROP_JOB = range(3)
"""What is done about an edge whose child starts before its parent ends."""
_FEW = 32
"""Tasks of a job that are sorted without making an array."""


@kernel
def check_dags(  # noqa: C901, PLR0913  # one pass; a kernel takes arrays, not objects
    job_start: Int,
    key: Int,
    name: NDArray[np.uint32],
    name_start: Int,
    numbers: Int,
    begin_s: Int,
    finish_s: Int,
    codes: Int,
    early_action: int,
    rule: NDArray[np.uint8],
    parents: Int,
    n_parents: Int,
    job_edges: Int,
    totals: Int,
) -> None:
    """Find every task's parents within its job; give each task that must go the number of a rule.

    If any task of a job goes, all do. Parents are found by number; a task that goes for another
    reason is still there to be named.

    Args:
        job_start: (J + 1,) tasks of job j are job_start[j] : job_start[j + 1].
        key: (T,) the task's number in its job, >= 0; below 0 a task without a number, equal for
            equal names.
        name: (T,) code of the task's name.
        name_start: Parents of the name c are numbers[name_start[c] : name_start[c + 1]].
        numbers: Numbers of parents; one that is given twice is one edge, but counts twice.
        begin_s: (T,) start of the task, < 0 if unknown, or (0,).
        finish_s: (T,) its end, < 0 if unknown, or (0,).
        codes: (N_CODES,) numbers of the rules.
        early_action: KEEP_EDGE, DROP_EDGE or DROP_JOB.
        rule: (T,) on entry the rule that a task breaks by itself or 0, on return the final one.
        parents: (P,) written: positions within the job, one task after the other.
        n_parents: (T,) written: how many of them a task has.
        job_edges: (J + 1,) written: where each job's edges start in `parents`.
        totals: (2,) added to: CHECKED, EARLY.
    """
    n_edges = 0
    job_edges[0] = 0
    largest = 0
    for j in range(len(job_start) - 1):
        largest = max(largest, job_start[j + 1] - job_start[j])
    waiting = np.zeros(largest, np.int64)
    order = np.zeros(largest, np.int64)
    for j in range(len(job_start) - 1):
        first, last = job_start[j], job_start[j + 1]
        n = last - first
        edges_of_job = n_edges
        if n <= _FEW:
            _sort_few(key, first, n, order)
        else:
            order[:n] = np.argsort(key[first:last], kind="mergesort")
        is_broken, is_ascending, is_descending = False, True, True
        for i in range(1, n):
            row = first + order[i]
            if key[row] == key[first + order[i - 1]] and rule[row] == 0:
                rule[row] = codes[DUPLICATE]
        for row in range(first, last):
            n_parents[row] = 0
            for edge in range(name_start[name[row]], name_start[name[row] + 1]):
                position = _find(key, first, n, order, numbers[edge])
                if position < 0:
                    if rule[row] == 0:
                        rule[row] = codes[PARENT_MISSING]
                    continue
                keeps = True
                if len(begin_s) and begin_s[row] >= 0 and finish_s[first + position] >= 0:
                    totals[CHECKED] += 1
                    if begin_s[row] < finish_s[first + position]:
                        totals[EARLY] += 1
                        keeps = early_action != DROP_EDGE
                        if early_action == DROP_JOB and rule[row] == 0:
                            rule[row] = codes[EARLY_CHILD]
                for known in range(n_edges - n_parents[row], n_edges):
                    keeps = keeps and parents[known] != position  # a parent that is named twice
                if keeps:
                    parents[n_edges] = position
                    n_edges += 1
                    n_parents[row] += 1
                    is_ascending = is_ascending and numbers[edge] < key[row]
                    is_descending = is_descending and numbers[edge] > key[row]
            is_broken = is_broken or rule[row] != 0
        # Edges that all go from smaller to larger numbers, or all the other way, are no cycle.
        if not is_broken and not is_ascending and not is_descending:
            is_broken = _mark_cycles(
                parents[edges_of_job:n_edges],
                n_parents[first:last],
                waiting,
                codes[CYCLE],
                rule[first:last],
            )
        if is_broken:
            n_edges = edges_of_job
            for row in range(first, last):
                n_parents[row] = 0
                if rule[row] == 0:
                    rule[row] = codes[INCOMPLETE]
        job_edges[j + 1] = n_edges


@inlined
def _sort_few(key: Int, first: int, n: int, order: Int) -> None:
    """Write the rows 0 .. n - 1 of a job by ascending key; of equal keys, the first comes first."""
    for row in range(n):  # by insertion
        at = row
        while at > 0 and key[first + order[at - 1]] > key[first + row]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = row


@inlined
def _find(key: Int, first: int, n: int, order: Int, number: int) -> int:
    """Return the position in a job of n tasks of the first one with a number, or -1."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if key[first + order[middle]] < number:
            low = middle + 1
        else:
            high = middle
    if low < n and key[first + order[low]] == number:
        return int(order[low])
    return -1


@kernel
def _mark_cycles(  # noqa: C901  # plain loops, in one pass
    parents: Int, n_parents: Int, waiting: Int, code: int, rule: NDArray[np.uint8]
) -> bool:
    """Give the rule `code` to the tasks of one job that never become ready; return if any.

    Kahn 1962: take tasks whose parents are all taken, until there is none. Tasks left are on a
    cycle or behind one. `waiting` (>= n,) is scratch.
    """
    n = len(n_parents)
    child_start = np.zeros(n + 1, np.int64)
    for parent in parents:
        child_start[parent + 1] += 1
    for i in range(n):
        child_start[i + 1] += child_start[i]
    children = np.empty(len(parents), np.int64)
    filled = child_start[:-1].copy()
    ready = np.empty(n, np.int64)
    n_ready, edge = 0, 0
    for row in range(n):
        waiting[row] = n_parents[row]
        if n_parents[row] == 0:
            ready[n_ready] = row
            n_ready += 1
        for _ in range(n_parents[row]):
            children[filled[parents[edge]]] = row
            filled[parents[edge]] += 1
            edge += 1
    taken = 0
    while taken < n_ready:
        row = ready[taken]
        taken += 1
        for i in range(child_start[row], child_start[row + 1]):
            waiting[children[i]] -= 1
            if waiting[children[i]] == 0:
                ready[n_ready] = children[i]
                n_ready += 1
    if taken == n:
        return False
    for row in range(n):
        if waiting[row] > 0:
            rule[row] = code
    return True
