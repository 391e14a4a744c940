"""From whole executions of Google's 2011 trace to tasks: those of one job that are alike.

Shapes: E executions, T tasks.
"""

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from marl_sched.workload.raw.account import N_ROWS, TableAccount
from marl_sched.workload.raw.assemble import TaskRows
from marl_sched.workload.raw.google.google_executions import START_US
from marl_sched.workload.raw.instance_statistics import InstanceStatistics
from marl_sched.workload.raw.values import LARGEST_AMOUNT
from marl_sched.workload.traces.tasks import DURATIONS, REQUEST

SHARES = {"cpu_milli": "cpu", "memory_mib": "memory", "disk_mib": "disk"}
"""Resources by name, and the columns of their shares of the largest machine."""
_LATE_US = 60_000_000
_ENOUGH = 200_000
_MERGED = (
    pl.col("first_us").min(),
    pl.col("last_us").max(),
    pl.col(N_ROWS).sum(),
)


@dataclass
class GoogleTasks:
    """Collects executions block by block.

    Attributes:
        reference: The largest machine, by the resources of the task table.
        scratch: A folder for what does not fit in memory.
    """

    reference: dict[str, int]
    scratch: Path
    _statistics: InstanceStatistics = field(init=False)
    _blocks: list[pl.DataFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start without an execution."""
        self._statistics = InstanceStatistics(self.scratch)

    def add(self, executions: pl.DataFrame) -> None:
        """Take over executions (E,) that count, as `google_executions` hands them out."""
        if not len(executions):
            return
        col = pl.col
        kind = ("job", "priority", *(f"{REQUEST}{name}" for name in self.reference))
        begin = pl.max_horizontal("schedule_us", START_US)
        tasks = executions.with_columns(self._requests()).select(
            *kind,
            N_ROWS,
            first_us=pl.max_horizontal(col("submit_us").fill_null(begin), START_US),
            duration_ms=((col("end_us") - begin) / 1000).round().cast(pl.Int64),
            task=pl.struct(kind).hash(),  # two of a million are equal with a chance of 3e-8
        )
        nothing = pl.lit(None, pl.Int64)
        self._statistics.add(tasks.select("task", "duration_ms", cpu=nothing, memory=nothing))
        self._blocks.append(
            tasks.with_columns(last_us="first_us")
            .group_by("task", *kind, maintain_order=True)
            .agg(_MERGED)
        )
        if sum(map(len, self._blocks[1:])) > max(_ENOUGH, len(self._blocks[0])):
            self._blocks = [self._merged()]

    def rows(self, table: TableAccount) -> TaskRows:
        """Return the tasks (T,) with the statistics of their executions; forgets them.

        Args:
            table: Account of the events, where those of late executions are counted.
        """
        rows = TaskRows(tuple(self.reference))
        if not self._blocks:
            return rows
        tasks = self._merged()
        self._blocks = []
        is_late = pl.col("last_us") > pl.col("first_us").min().over("job") + _LATE_US
        table.find("submitted-late", int(tasks.filter(is_late)[N_ROWS].sum()))
        for part in self._statistics.parts():
            durations = zip(DURATIONS, part.duration_ms.T, strict=True)
            known = pl.DataFrame({"task": part.task, "n": part.n, **dict(durations)})
            found = known.join(tasks, on="task", how="inner", maintain_order="left")
            rows.add(
                found.select(
                    pl.col("job").cast(pl.UInt64),
                    pl.col("priority").cast(pl.Int32),
                    *DURATIONS,
                    *(f"{REQUEST}{name}" for name in self.reference),
                    arrival_us="first_us",
                    n_instances=pl.col("n").cast(pl.UInt32),
                )
            )
        return rows

    def _requests(self) -> list[pl.Expr]:
        """Return the amounts: rounded up, that what is packed never needs less than the share."""
        return [
            (pl.col(SHARES[name]).fill_null(0.0) * largest)
            .round(6)  # 0.1 * 30 is a little more than 3
            .ceil()
            .clip(1 if name == "cpu_milli" else 0, LARGEST_AMOUNT)
            .cast(pl.Int64)
            .alias(f"{REQUEST}{name}")
            for name, largest in self.reference.items()
        ]

    def _merged(self) -> pl.DataFrame:
        blocks = pl.concat(self._blocks)
        kind = [name for name in blocks.columns if name not in ("first_us", "last_us", N_ROWS)]
        return blocks.group_by(kind, maintain_order=True).agg(_MERGED)
