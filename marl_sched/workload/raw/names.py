"""Task names that hold a DAG, as Alibaba's v2018 has them: `R4_2` is task 4, which waits for 2."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from marl_sched.workload.assembly import offsets
from marl_sched.workload.table import Int

INDEPENDENT = "task_"
"""Names of tasks on their own begin so; what follows is no number."""
LONGEST_NAME = 50
"""The trace cut longer names off there."""
_DAG_NAME = re.compile(r"[A-Za-z]+(\d{1,9})((?:_\d{1,9})*)(_?)", re.ASCII)


@dataclass(frozen=True)
class TaskName:
    """What a name says.

    Attributes:
        number: The task's number in its job; None if the name has no known form, or is on its own.
        parents: Numbers of its parents, as often as it gives them.
        is_cut: A name of 50 characters or more, or one that ends in `_`: parents were cut off, or
            a digit of the last one.
    """

    number: int | None
    parents: tuple[int, ...]
    is_cut: bool = False


def parse_task_name(name: str) -> TaskName:
    """Read a name; the letters carry no meaning."""
    if name.startswith(INDEPENDENT):
        return TaskName(None, ())
    match = _DAG_NAME.fullmatch(name)
    if match is None:
        return TaskName(None, (), is_cut=len(name) >= LONGEST_NAME)
    parents = tuple(int(number) for number in match[2].split("_")[1:])
    return TaskName(int(match[1]), parents, len(name) >= LONGEST_NAME or match[3] == "_")


FACTS = {
    "text": pl.String(),
    "name": pl.UInt32(),
    "key": pl.Int64(),
    "is_known": pl.Boolean(),
    "is_cut": pl.Boolean(),
    "n_parents": pl.UInt32(),
    "n_above": pl.UInt32(),
}
"""What a name says, by column."""


@dataclass
class TaskNames:
    """Every DAG name of a trace once: millions of tasks share some thousands of names.

    A name's code is its place here; 0 is the name of all tasks on their own.
    """

    names: list[TaskName] = field(default_factory=lambda: [TaskName(None, ())])
    _known: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FACTS))

    def encode(self, column: pl.Series) -> pl.DataFrame:
        """Return what each name says, in the columns of `FACTS` but `text`.

        `name` is its code; `key` is the task's number, or below 0 a hash of the name of a task on
        its own; `n_above` counts parents whose number is above the task's.
        """
        frame = pl.DataFrame({"text": column})
        said = self._look_up(frame)
        is_new = pl.col("name").is_null() & ~pl.col("text").str.starts_with(INDEPENDENT)
        new = said.filter(is_new)["text"].unique(maintain_order=True)
        if len(new):
            facts = pl.DataFrame([self._learn(text) for text in new], schema=FACTS, orient="row")
            self._known = pl.concat([self._known, facts])
            said = self._look_up(frame)
        on_its_own = -1 - (pl.col("text").hash() // 2).cast(pl.Int64)
        return said.select(
            pl.col("name").fill_null(0),
            pl.col("key").fill_null(on_its_own),
            pl.col("is_known").fill_null(value=True),
            pl.col("is_cut").fill_null(value=False),
            pl.col("n_parents", "n_above").fill_null(0),
        )

    def _look_up(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.join(self._known, on="text", how="left", maintain_order="left")

    def _learn(self, text: str) -> tuple[object, ...]:
        """Give a new name its code, and return its row of facts."""
        name = parse_task_name(text)
        code = len(self.names)
        self.names.append(name)
        n_above = 0
        if name.number is not None:
            n_above = sum(parent > name.number for parent in name.parents)
        is_known = name.number is not None
        return text, code, name.number, is_known, name.is_cut, len(name.parents), n_above

    def parents(self) -> tuple[Int, Int]:
        """Return (start, numbers): parents of the name c are numbers[start[c] : start[c + 1]]."""
        return ragged([name.parents for name in self.names])


def ragged(rows: Sequence[Sequence[int]]) -> tuple[Int, Int]:
    """Return (start, values) of rows of unequal length."""
    counts = np.array([len(row) for row in rows], np.int64)
    flat = np.array([value for row in rows for value in row], np.int64)
    return offsets(counts), flat
