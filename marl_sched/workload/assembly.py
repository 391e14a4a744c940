"""Index arithmetic of ragged columns: segments of equal owner, one after the other."""

import numpy as np

from marl_sched.workload.table import Int


def offsets(counts: Int) -> Int:
    """Return (n + 1,) starts of segments of the given lengths (n,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def segment_rows(starts: Int, counts: Int) -> Int:
    """Return the rows of the segments start[i] : start[i] + count[i], one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    rows: Int = ranks(total) + np.repeat(starts - (ends - counts), counts)
    return rows


def ranks(n: int) -> Int:
    """Return 0 .. n - 1 as int64."""
    return np.arange(n, dtype=np.int64)


def positions(counts: Int) -> Int:
    """Return each row's position within its segment, for segments of the given lengths."""
    return ranks(int(counts.sum())) - np.repeat(offsets(counts)[:-1], counts)
