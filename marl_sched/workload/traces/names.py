"""Task names that hold a DAG, as Alibaba's v2018 has them: `R4_2` is task 4, which waits for 2."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from marl_sched.workload.assembly import offsets
from marl_sched.workload.table import Int

INDEPENDENT = "task_"
"""Names of tasks on their own begin so; what follows is no number."""
LONGEST_NAME = 50
"""The trace cut longer names off there."""
_DAG_NAME = re.compile(r"[A-Za-z]+(\d{1,9})((?:_\d{1,9})*)(_?)")


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


@dataclass
class TaskNames:
    """Every DAG name of a trace once: millions of tasks share some thousands of names.

    A name's code is its place here; 0 is the name of all tasks on their own.
    """

    codes: dict[str, int] = field(default_factory=dict)
    names: list[TaskName] = field(default_factory=lambda: [TaskName(None, ())])

    def encode(self, column: pl.Series) -> pl.DataFrame:
        """Return of each name: `name` (uint32 code), `key`, `is_known`, `is_cut`,
        `n_parents`, `n_above`.

        `key` (int64) is the task's number, or below 0 a hash of the name of a task on its own;
        `n_above` counts parents whose number is above the task's.
        """
        frame = pl.DataFrame({"text": column})
        is_dag = pl.col("text").is_not_null() & ~pl.col("text").str.starts_with(INDEPENDENT)
        found = frame.filter(is_dag)["text"].unique(maintain_order=True)
        for text in found:
            if text not in self.codes:
                self.codes[text] = len(self.names)
                self.names.append(parse_task_name(text))
        facts = pl.DataFrame(
            list(self._facts(found)),
            schema={
                "text": pl.String,
                "name": pl.UInt32,
                "key": pl.Int64,
                "is_known": pl.Boolean,
                "is_cut": pl.Boolean,
                "n_parents": pl.UInt32,
                "n_above": pl.UInt32,
            },
            orient="row",
        )
        on_its_own = -1 - (pl.col("text").hash() // 2).cast(pl.Int64)
        return (
            frame.join(facts, on="text", how="left", maintain_order="left")
            .with_columns(
                pl.col("name").fill_null(0),
                pl.col("key").fill_null(on_its_own),
                pl.col("is_known").fill_null(value=True),
                pl.col("is_cut").fill_null(value=False),
                pl.col("n_parents", "n_above").fill_null(0),
            )
            .drop("text")
        )

    def _facts(self, found: pl.Series) -> Iterator[tuple[object, ...]]:
        for text in found:
            code = self.codes[text]
            name = self.names[code]
            number = name.number
            n_above = 0 if number is None else sum(parent > number for parent in name.parents)
            is_known = number is not None
            yield text, code, number, is_known, name.is_cut, len(name.parents), n_above

    def parents(self) -> tuple[Int, Int]:
        """Return (start, numbers): parents of the name c are numbers[start[c] : start[c + 1]]."""
        return ragged([name.parents for name in self.names])


def ragged(rows: Sequence[Sequence[int]]) -> tuple[Int, Int]:
    """Return (start, values) of rows of unequal length."""
    counts = np.array([len(row) for row in rows], np.int64)
    flat = np.array([value for row in rows for value in row], np.int64)
    return offsets(counts), flat
