"""Parents of tasks as lists of names in a column."""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from marl_sched.workload.assembly import offsets
from marl_sched.workload.table import Int


def name_key(column: str) -> pl.Expr:
    """Return the keys (Int64, >= 0) of names; two names have the same by a chance of 1e-19."""
    return (pl.col(column).hash() // 2).cast(pl.Int64)


@dataclass
class ListedParents:
    """Every different list once a block; a list's code is its place here, 0 the empty one.

    Attributes:
        separator: What stands between the names.
    """

    separator: str
    _counts: list[Int] = field(default_factory=lambda: [np.zeros(1, np.int64)])
    _numbers: list[Int] = field(default_factory=list)
    _n_codes: int = 1

    def encode(self, column: pl.Series) -> pl.Series:
        """Return the code (UInt32) of every list in a column of texts."""
        lists = pl.DataFrame({"text": column}).unique(maintain_order=True).drop_nulls()
        lists = lists.with_columns(code=pl.int_range(pl.len()) + self._n_codes)
        names = (
            lists.select("code", name=pl.col("text").str.split(self.separator))
            .explode("name")
            .select("code", name=pl.col("name").str.strip_chars())
            .filter(pl.col("name") != "")
            .unique(maintain_order=True)
            .select(pl.col("code") - self._n_codes, key=name_key("name"))
        )
        self._counts.append(np.bincount(names["code"].to_numpy(), minlength=len(lists)))
        self._numbers.append(names["key"].to_numpy())
        self._n_codes += len(lists)
        found = pl.DataFrame({"text": column}).join(
            lists, on="text", how="left", maintain_order="left"
        )
        return found["code"].fill_null(0).cast(pl.UInt32).alias("name")

    def parents(self) -> tuple[Int, Int]:
        """Return (start, numbers): parents of the list c are numbers[start[c] : start[c + 1]]."""
        none = np.zeros(0, np.int64)
        return offsets(np.concatenate(self._counts)), np.concatenate([none, *self._numbers])
