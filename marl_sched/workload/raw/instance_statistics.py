"""Statistics of the instances of every task, of far more instances than memory holds.

Instances come in any order. Those of one task and one duration become one row, with their number
and the sum and maximum of their use, as soon as they are read; what is still too much goes to disk,
sorted by task, and comes back in parts. Nothing is estimated: durations and use are whole numbers
of a small unit, so that sums and quantiles are exact and do not depend on the order.

Shapes: T tasks, K pairs of task and duration.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from marl_sched.files import naming
from marl_sched.workload.table import Float, Int

_MOST_ROWS = 3_000_000
"""Pairs of task and duration that are held in memory."""
_ROW_GROUP = 1 << 14
_N_TASK_CODES = 1 << 64
_PAIR = ("task", "duration_ms")
_MERGED = (
    pl.col("n", "n_with_use", "cpu_sum", "memory_sum").sum(),
    pl.col("cpu_max", "memory_max").max(),
)


@dataclass(frozen=True)
class TaskStatistics:
    """Statistics of the tasks whose codes lie in one range.

    Attributes:
        codes: The range, [first, last].
        task: (T,) codes, ascending.
        n: (T,) instances.
        n_with_use: (T,) those whose use is known.
        duration_ms: (T, 4) mean, p50, p95 and maximum.
        cpu: (T, 2) mean and maximum over the instances of the use; 0 where it is not known.
        memory: (T, 2).
    """

    codes: tuple[int, int]
    task: np.ndarray
    n: Int
    n_with_use: Int
    duration_ms: Int
    cpu: Float
    memory: Float


@dataclass
class InstanceStatistics:
    """Collects instances block by block.

    Attributes:
        scratch: A folder for what does not fit in memory.
    """

    scratch: Path
    _blocks: list[pl.DataFrame] = field(default_factory=list)
    _files: list[Path] = field(default_factory=list)
    _n_on_disk: int = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Take over instances.

        Args:
            frame: `task` (UInt64) code of the task; `duration_ms`, `cpu`, `memory` (Int64), the
                last two in any unit, both null where use is not known.
        """
        if not len(frame):
            return
        pairs = frame.group_by(_PAIR).agg(
            n=pl.len().cast(pl.Int64),
            n_with_use=pl.col("cpu").count().cast(pl.Int64),
            cpu_sum=pl.col("cpu").sum(),
            cpu_max=pl.col("cpu").max().fill_null(0),
            memory_sum=pl.col("memory").sum(),
            memory_max=pl.col("memory").max().fill_null(0),
        )
        self._blocks.append(pairs)
        if sum(map(len, self._blocks)) > _MOST_ROWS:
            self._blocks = [_merged(self._blocks)]
            if len(self._blocks[0]) > _MOST_ROWS // 2:
                self._spill()

    def parts(self) -> Iterator[TaskStatistics]:
        """Yield the statistics of all tasks, by ascending codes; forgets them."""
        if not self._files:
            if self._blocks:
                merged, self._blocks = _merged(self._blocks), []
                yield _statistics((0, _N_TASK_CODES - 1), merged)
            return
        if self._blocks:
            self._blocks = [_merged(self._blocks)]
            self._spill()
        n_parts = 1 + self._n_on_disk // (_MOST_ROWS // 2)
        pairs = pl.scan_parquet(self._files)
        for part in range(n_parts):
            first, end = (_N_TASK_CODES * i // n_parts for i in (part, part + 1))
            low, high = pl.lit(first, pl.UInt64), pl.lit(end - 1, pl.UInt64)
            found = pairs.filter(pl.col("task").is_between(low, high)).collect()
            if len(found):
                yield _statistics((first, end - 1), _merged([found]))
        for path in self._files:
            path.unlink()
        self._files = []

    def _spill(self) -> None:
        """Write the one merged block to disk, such that a range of tasks is found quickly."""
        path = self.scratch / f"instances-{len(self._files)}.parquet"
        with naming(path):
            self._blocks[0].write_parquet(
                path, compression="lz4", statistics=True, row_group_size=_ROW_GROUP
            )
        self._n_on_disk += len(self._blocks[0])
        self._files.append(path)
        self._blocks = []


def _merged(blocks: list[pl.DataFrame]) -> pl.DataFrame:
    """Return one row a pair of task and duration, in their order."""
    return pl.concat(blocks).group_by(_PAIR).agg(_MERGED).sort(_PAIR)


def _statistics(codes: tuple[int, int], pairs: pl.DataFrame) -> TaskStatistics:
    """Return the statistics of tasks from all their pairs (K,), sorted."""
    task = pairs["task"].to_numpy()
    is_first = np.ones(len(task), bool)
    is_first[1:] = task[1:] != task[:-1]
    start = np.flatnonzero(is_first)  # (T,)
    columns = {name: pairs[name].to_numpy() for name in pairs.columns if name != "task"}

    def total(name: str) -> Int:
        return np.add.reduceat(columns[name], start)

    def largest(name: str) -> Int:
        return np.maximum.reduceat(columns[name], start)

    n, n_with_use = total("n"), total("n_with_use")
    duration = columns["duration_ms"]
    columns["work"] = columns["n"] * duration.astype(np.float64)
    last = np.append(start[1:], len(task)) - 1
    quantiles = [_percentile(duration, columns["n"], n, percent) for percent in (50, 95)]
    return TaskStatistics(
        codes=codes,
        task=task[start],
        n=n,
        n_with_use=n_with_use,
        duration_ms=np.column_stack(
            [
                np.round(total("work") / np.maximum(n, 1)).astype(np.int64),
                *quantiles,
                duration[last],
            ]
        ),
        cpu=np.column_stack([total("cpu_sum") / np.maximum(n_with_use, 1), largest("cpu_max")]),
        memory=np.column_stack(
            [total("memory_sum") / np.maximum(n_with_use, 1), largest("memory_max")]
        ),
    )


def _percentile(value: Int, count: Int, n: Int, percent: int) -> Int:
    """Return a percentile of every task (T,), as `numpy.percentile` has it, to the nearest unit.

    Between two values it is interpolated by their place: the least is at 0%, the largest at 100%.

    Args:
        value: (K,) ascending within a task.
        count: (K,) how often each comes.
        n: (T,) counts of a task together.
        percent: From 0 to 100.
    """
    ends = np.cumsum(count)
    first = np.cumsum(n) - n  # (T,) place of the task's least value among all
    place, hundredths = np.divmod((n - 1) * percent, 100)
    low = value[np.searchsorted(ends, first + place, side="right")]
    high = value[np.searchsorted(ends, first + np.minimum(place + 1, n - 1), side="right")]
    between: Int = ((high - low) * hundredths + 50) // 100
    return low + between
