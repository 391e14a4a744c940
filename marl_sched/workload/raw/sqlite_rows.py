"""Rows of an SQLite database, a block at a time, as text: like those of a text table."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from marl_sched.errors import TraceError, printable
from marl_sched.workload.raw.account import TableAccount

_MAGIC = b"SQLite format 3\0"
_BLOCK = 200_000


@dataclass(frozen=True)
class Database:
    """A database that is only read, and must be there.

    Attributes:
        path: The file.
    """

    path: Path

    def rows(
        self,
        name: str,
        columns: Sequence[str],
        table: TableAccount,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows of a table as blocks of these columns, all String; NULL is null.

        Rows are counted in `table.rows_read`.

        Raises:
            TraceError: The file is no SQLite database, is damaged, or lacks the table or a column.
        """
        table.files.append(self.path.name)
        wanted = ", ".join(f'CAST("{column}" AS TEXT)' for column in columns)
        n_bytes = self.path.stat().st_size
        for block in self._blocks(f'SELECT {wanted} FROM "{name}"', name, columns):
            table.rows_read += len(block)
            yield pl.DataFrame(block, schema=dict.fromkeys(columns, pl.String), orient="row")
        on_bytes(n_bytes)

    def counts(self, name: str, column: str) -> dict[str, int]:
        """Return how often each value of a column comes.

        Raises:
            TraceError: As `rows`.
        """
        value = f'CAST("{column}" AS TEXT)'
        query = f'SELECT {value}, COUNT(*) FROM "{name}" GROUP BY 1'
        blocks = self._blocks(query, name, [column])
        return {text: int(count) for block in blocks for text, count in block}

    def _blocks(
        self, query: str, name: str, columns: Sequence[str]
    ) -> Iterator[list[tuple[str, ...]]]:
        with self.path.open("rb") as file:
            magic = file.read(len(_MAGIC))
        if magic != _MAGIC:
            kind = ", but a zip archive" if magic.startswith(b"PK\x03\x04") else ""
            raise TraceError(f"{self.path}: no SQLite database{kind}")
        try:
            with closing(self._connect()) as connection:
                self._check(connection, name, columns)
                cursor = connection.execute(query)
                while block := cursor.fetchmany(_BLOCK):
                    yield block
        except (sqlite3.Error, UnicodeError, OverflowError, MemoryError) as error:
            reason = printable(" ".join(str(error).split())[:200])
            raise TraceError(f"{self.path}: not a whole SQLite database: {reason}") from None

    def _connect(self) -> sqlite3.Connection:
        # immutable: no lock and no journal beside a file that may lie in a read-only folder.
        connection = sqlite3.connect(f"{self.path.resolve().as_uri()}?immutable=1", uri=True)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        return connection

    def _check(self, connection: sqlite3.Connection, name: str, columns: Sequence[str]) -> None:
        found = [row[1].lower() for row in connection.execute(f'PRAGMA table_info("{name}")')]
        if not found:
            raise TraceError(f"{self.path}: no table {name}")
        if missing := [column for column in columns if column.lower() not in found]:
            raise TraceError(
                f"{self.path}: the table {name} has no column {', '.join(missing)}, only "
                f"{printable(', '.join(found)[:300])}"
            )
