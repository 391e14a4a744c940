"""The account of a conversion: every row that was read is kept, or dropped under one rule.

`found` counts whatever a rule applies to, also where the rule keeps it and where another rule came
first; `dropped` counts a row once, under the first rule it breaks, so that for every table

    rows_read == rows_kept + sum(dropped.values())
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marl_sched.files import write_atomically
from marl_sched.workload.raw.rules import DROP_JOB, DROP_ROW, JOB_INCOMPLETE, Rules
from marl_sched.workload.table import Int

RULE = "_rule"
"""Column (uint8) of the number of the rule that drops a row with its job; 0: none."""
N_ROWS = "_n_rows"
"""Optional column (Int64) of how many rows of the table a row stands for; without it, one."""


@dataclass
class TableAccount:
    """Where the rows of one table went.

    Attributes:
        name: The table's published name.
        rules: The format's rules.
        files: What it was read from, by file name.
        rows_read: Physical rows but for a header.
        rows_kept: Rows that are in the output, or in a statistic of it.
        found: Rows, edges or files by the name of the rule they fall under.
        dropped: Rows by the name of the rule they are dropped under.
        examined: Edges that were looked at, by the name of a rule that finds some of them.
    """

    name: str
    rules: Rules
    files: list[str] = field(default_factory=list)
    rows_read: int = 0
    rows_kept: int = 0
    found: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    examined: Counter[str] = field(default_factory=Counter)

    def find(self, rule: str, count: int = 1, examined: int = 0) -> None:
        """Count what falls under a rule that drops no row here, and out of how many edges."""
        self.found[rule] += count
        self.examined[rule] += examined

    def drop(self, rule: str, count: int = 1) -> None:
        """Count rows that are found under a rule and dropped."""
        self.found[rule] += count
        self.dropped[rule] += count

    def sort_out(self, frame: pl.DataFrame, tests: dict[str, pl.Expr]) -> pl.DataFrame:
        """Count rows by rule, take out those of `drop-row`, mark those of `drop-job`.

        Args:
            frame: Rows.
            tests: For each rule whether a row falls under it (null: no), in the order they are
                asked.

        Returns:
            The rows that stay, with the column `RULE`: the rule that drops the row's job, or 0. A
            row of a rule `keep` has 0.
        """
        weight = _weight(frame)
        flags = frame.select(
            test.fill_null(value=False).alias(rule) for rule, test in tests.items()
        )
        first = np.zeros(len(frame), np.uint8)
        is_gone = np.zeros(len(frame), bool)
        for rule in tests:
            hit = flags[rule].to_numpy()
            if not hit.any():
                continue
            self.found[rule] += int(weight[hit].sum())
            if not self.rules.drops(rule):
                continue
            fresh = hit & (first == 0)
            first[fresh] = self.rules.number(rule)
            if self.rules.action(rule) == DROP_ROW and fresh.any():
                is_gone |= fresh
                self.dropped[rule] += int(weight[fresh].sum())
        marked = frame.with_columns(pl.Series(RULE, first, dtype=pl.UInt8))
        return marked.filter(pl.Series(~is_gone)) if is_gone.any() else marked

    def settle(self, rule_numbers: NDArray[np.uint8], n_rows: Int | None = None) -> None:
        """Count the rest of the rows: kept where 0, else dropped under the rule of that number.

        Args:
            rule_numbers: (T,) rule of each task, or 0.
            n_rows: (T,) rows of this table that each stands for; None: one.
        """
        counts = np.bincount(rule_numbers, n_rows)
        self.rows_kept += int(counts[0]) if len(counts) else 0
        for number in np.flatnonzero(counts[1:]) + 1:
            name = self.rules.name(int(number))
            self.dropped[name] += int(counts[number])
            if name == JOB_INCOMPLETE.name:
                self.found[name] += int(counts[number])

    def no_row_left(self) -> str:
        """Return what to say when no row is usable: how many there were, and why they went."""
        why = "".join(f"; {count} under {rule}" for rule, count in self.dropped.most_common(3))
        return f"{', '.join(self.files[:3])}: none of {self.rows_read} rows is usable{why}"

    def as_json(self) -> dict[str, Any]:
        """Return the table's part of the account file."""
        return {
            "table": self.name,
            "files": self.files,
            "rows_read": self.rows_read,
            "rows_kept": self.rows_kept,
            "rows_dropped": sum(self.dropped.values()),
            "rules": {
                name: {
                    "action": self.rules.action(name),
                    "of": rule.of,
                    "found": self.found[name],
                    "dropped": self.dropped[name],
                }
                | ({"examined": self.examined[name]} if self.examined[name] else {})
                for name, rule in self.rules
                if self.found[name] or self.dropped[name]
            },
        }


def _weight(frame: pl.DataFrame) -> Int:
    if N_ROWS in frame.columns:
        return frame[N_ROWS].to_numpy().astype(np.int64)
    return np.ones(len(frame), np.int64)


@dataclass
class Account:
    """What a conversion read and where it went.

    Attributes:
        format: Name of the format.
        rules: Its rules.
        tables: By the tables' published names.
        facts: What the output holds (jobs, tasks, instances, machines), and the reference machine.
    """

    format: str
    rules: Rules
    tables: dict[str, TableAccount] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def table(self, name: str) -> TableAccount:
        """Return the account of a table, a new one if there is none yet."""
        return self.tables.setdefault(name, TableAccount(name, self.rules))

    def check(self) -> None:
        """Check that no row went missing: rows read are rows kept and rows dropped."""
        for table in self.tables.values():
            dropped = sum(table.dropped.values())
            assert table.rows_read == table.rows_kept + dropped, (
                f"{table.name}: {table.rows_read} rows read, {table.rows_kept} kept, {dropped} "
                "dropped"
            )

    def as_json(self) -> dict[str, Any]:
        """Return the account as it is written beside the output."""
        return {
            "version": 1,
            "format": self.format,
            "output": self.facts,
            "tables": [table.as_json() for table in self.tables.values()],
            "rules": {
                name: {"what": rule.what, "action": self.rules.action(name)}
                for name, rule in self.rules
            },
        }

    def write(self, path: Path) -> None:
        """Write the account as JSON, in one step."""
        text = json.dumps(self.as_json(), indent=1) + "\n"
        write_atomically(path, lambda file: file.write(text.encode()))


def account_path(output: Path) -> Path:
    """Return where the account of an output is written: NAME.account.json beside it."""
    return output.with_name(f"{output.stem}.account.json")


def drop_whole_jobs(
    rule_numbers: NDArray[np.uint8], job: Int, incomplete: int
) -> NDArray[np.uint8]:
    """Return the rule of every row (T,) when a dropped row takes the rest of its job along.

    Args:
        rule_numbers: (T,) rule that drops each row, or 0.
        job: (T,) number of its job.
        incomplete: Number of the rule for the rest.
    """
    is_broken = np.bincount(job, rule_numbers > 0) > 0  # (J,)
    return np.where((rule_numbers == 0) & is_broken[job], np.uint8(incomplete), rule_numbers)


__all__ = ["DROP_JOB", "DROP_ROW", "RULE", "Account", "TableAccount", "account_path"]
