"""Rows of a mapped table that are instances: those of one job and task become a task.

Shapes: N rows, T tasks.
"""

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from marl_sched.workload.raw.account import N_ROWS, RULE, TableAccount
from marl_sched.workload.raw.assemble import TaskRows
from marl_sched.workload.raw.instance_statistics import InstanceStatistics
from marl_sched.workload.raw.rules import KEEP, Rule
from marl_sched.workload.traces.tasks import DURATIONS, REQUEST, USES

INSTANCE_RULES = (
    Rule(
        "request-differs",
        "an instance of a task whose instances ask for different amounts: the largest counts",
        (KEEP,),
    ),
    Rule(
        "parents-differ",
        "an instance of a task whose instances name different parents: the first ones count",
        (KEEP,),
    ),
)
_ENOUGH = 200_000
_KEY = ("job", "key", RULE)


@dataclass
class InstanceRows:
    """Collects instances block by block.

    Attributes:
        resources: The resources of the table.
        scratch: A folder for what does not fit in memory.
    """

    resources: tuple[str, ...]
    scratch: Path
    _statistics: InstanceStatistics = field(init=False)
    _blocks: list[pl.DataFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start without an instance."""
        self._statistics = InstanceStatistics(self.scratch)

    def add(self, rows: pl.DataFrame) -> None:
        """Take over rows (N,), as `ColumnValues.canonical` returns them."""
        if not len(rows):
            return
        nothing = pl.lit(None, pl.Int64)
        rows = rows.with_columns(task=pl.struct(_KEY).hash())
        self._statistics.add(
            rows.select(
                "task",
                duration_ms=(pl.col("duration_us") / 1000).round().cast(pl.Int64),
                cpu=nothing,
                memory=nothing,
            )
        )
        low = {f"low:{name}": pl.col(f"{REQUEST}{name}") for name in self.resources}
        rows = rows.with_columns(
            **low, **{N_ROWS: pl.lit(1, pl.Int64)}, low_parents=pl.col("parents_id")
        )
        self._blocks.append(self._merged([rows]))
        if sum(map(len, self._blocks[1:])) > max(_ENOUGH, len(self._blocks[0])):
            self._blocks = [self._merged(self._blocks)]

    def rows(self, rows: TaskRows, table: TableAccount) -> None:
        """Hand the tasks (T,) over, with the statistics of their instances; forgets them."""
        if not self._blocks:
            return
        tasks = self._merged(self._blocks)
        self._blocks = []
        differs = pl.any_horizontal(
            pl.col(f"low:{name}") != pl.col(f"{REQUEST}{name}") for name in self.resources
        )
        table.find("request-differs", int(tasks.filter(differs)[N_ROWS].sum()))
        has_others = pl.col("low_parents") != pl.col("parents_id")
        table.find("parents-differ", int(tasks.filter(has_others)[N_ROWS].sum()))
        # Instances that go stand beside those of their task that are whole, under no name of their
        # own, unless they are all there is.
        is_first = pl.col("key").cum_count().over("job", "key") == 1
        tasks = tasks.sort(RULE, maintain_order=True).with_columns(
            key=pl.when(is_first).then("key").otherwise(-(2**62) - pl.int_range(pl.len()))
        )
        for part in self._statistics.parts():
            durations = zip(DURATIONS, part.duration_ms.T, strict=True)
            known = pl.DataFrame({"task": part.task, **dict(durations)})
            found = tasks.join(known, on="task", how="inner", maintain_order="left")
            rows.add(
                found.drop("task").with_columns(
                    pl.col([f"{REQUEST}{name}" for name in self.resources]).cast(pl.Int64),
                    pl.col([f"{USES[0]}{name}" for name in self.resources]) / pl.col(N_ROWS),
                    n_instances=pl.col(N_ROWS).cast(pl.UInt32),
                )
            )

    def _merged(self, blocks: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a task; use_mean is a sum until the end."""
        col = pl.col
        frame = pl.concat(blocks)
        columns = [
            col("name").first(),
            col("arrival_us", "low_parents").min(),
            col("priority", "parents_id").max(),
            col(N_ROWS).sum(),
        ]
        if "begin_s" in frame.columns:
            columns += [col("begin_s").min(), col("finish_s").max()]
        for name in self.resources:
            columns += [
                col(f"{REQUEST}{name}", f"{USES[1]}{name}").max(),
                col(f"low:{name}").min(),
                col(f"{USES[0]}{name}").sum(),
            ]
        return frame.group_by("task", *_KEY, maintain_order=True).agg(columns)
