"""Rows of a trace by their jobs.

Shapes: J jobs, T rows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marl_sched.workload.assembly import offsets
from marl_sched.workload.raw.kernels.segments import fill_segments
from marl_sched.workload.table import Int


@dataclass(frozen=True)
class Jobs:
    """Rows grouped by job; jobs are in the order of their first rows, rows of a job in theirs.

    Attributes:
        order: (T,) rows in that order; None: they stand so already.
        start: (J + 1,) where the jobs start.
    """

    order: Int | None
    start: Int

    def take(self, column: NDArray[Any] | None) -> NDArray[Any] | None:
        """Return a column (T,) in the order of the jobs."""
        return column if column is None or self.order is None else column[self.order]


def grouped(job: NDArray[np.generic]) -> Jobs:
    """Group rows by their jobs (T,). Traces have most jobs in one piece: pieces are sorted only."""
    start = np.append(0, np.flatnonzero(job[1:] != job[:-1]) + 1)  # of the pieces
    ids = np.sort(job[start])
    if (ids[1:] != ids[:-1]).all():
        return Jobs(None, np.append(start, len(job)))
    by_job = np.argsort(job[start], kind="stable")
    is_first = np.append(True, ids[1:] != ids[:-1])
    first_piece = np.empty(len(start), np.int64)  # of each piece's job
    first_piece[by_job] = by_job[is_first][np.cumsum(is_first) - 1]
    pieces = np.argsort(first_piece, kind="stable")
    counts = np.diff(start, append=len(job))[pieces]
    is_new_job = np.diff(first_piece[pieces], prepend=-1) != 0
    job_start = offsets(counts)[:-1][is_new_job]
    return Jobs(segments(start[pieces], counts), np.append(job_start, len(job)))


def sorted_by(items: Int, key: Int) -> Int:
    """Return items (n,) by ascending keys, in their order where keys are equal."""
    frame = pl.DataFrame({"item": items, "key": key})
    return frame.sort("key", maintain_order=True)["item"].to_numpy()


def segments(starts: Int, counts: Int) -> Int:
    """Return the rows of the segments start[i] : start[i] + count[i], one after the other."""
    rows = np.empty(int(counts.sum()), np.int64)
    fill_segments(starts, counts, rows)
    return rows
