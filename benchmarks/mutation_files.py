"""Traces as tables of texts, and how they are written: as text, as SQLite or as Parquet."""

import io
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import polars as pl

Row = list[str]


@dataclass(frozen=True)
class Table:
    """A table of a trace.

    Attributes:
        file: Path within the trace's folder; two tables of one database have the same.
        columns: Its columns.
        rows: Its rows.
        separator: Between values.
        header: Whether the columns stand in the first line.
        preamble: Lines before all others.
        times: Columns of times.
        names: Columns of names, among them those that hold a DAG.
    """

    file: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    separator: str = ","
    header: bool = False
    preamble: str = ""
    times: tuple[int, ...] = ()
    names: tuple[int, ...] = ()


@dataclass(frozen=True)
class Base:
    """A valid trace.

    Attributes:
        name: As on the command line of `trace_mutations.py`.
        tables: Its tables.
        mapping: The column mapping.
    """

    name: str
    tables: tuple[Table, ...]
    mapping: str | None = None

    @property
    def format(self) -> str:
        """Name of the format."""
        return self.name.removesuffix("-parquet")


def rendered(base: Base, tables: Sequence[Table]) -> dict[str, bytes]:
    """Return the files of a trace by their names."""
    if base.name == "azure-packing-2020":
        return {tables[0].file: _database(tables)}
    if base.name == "columns-parquet":
        return {table.file: _parquet(table) for table in tables}
    return {table.file: _text(table) for table in tables}


def _text(table: Table) -> bytes:
    lines = [*([list(table.columns)] if table.header else []), *table.rows]
    text = table.preamble + "".join(table.separator.join(line) + "\n" for line in lines)
    return text.encode("utf-8", "surrogateescape")


def _cells(table: Table) -> list[Row]:
    """Return rows of as many cells as there are columns."""
    n = len(table.columns)
    return [[*row[:n], *[""] * (n - len(row))] for row in table.rows]


def _database(tables: Sequence[Table]) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        for number, name in enumerate(("vm", "vmType")):
            table = tables[number]
            columns = ", ".join(_sql_name(column) for column in _names(table))
            connection.execute(f"CREATE TABLE {name} ({columns})")
            places = ", ".join("?" * len(table.columns))
            values = [[_sqlite_value(cell) for cell in row] for row in _cells(table)]
            connection.executemany(f"INSERT INTO {name} VALUES ({places})", values)
        connection.commit()
        return connection.serialize()


def _sql_name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _names(table: Table) -> list[str]:
    """Return names of columns that a database or a Parquet file may have: each once."""
    names: list[str] = []
    for place, column in enumerate(table.columns):
        name = column.encode("utf-8", "replace").decode().replace("\0", "0")
        is_taken = not name or name.lower() in (known.lower() for known in names)
        names.append(f"{name}_{place}" if is_taken else name)
    return names


def _sqlite_value(cell: str) -> int | float | str | bytes | None:
    for kind in (int, float):
        try:
            value = kind(cell)
        except ValueError:
            continue
        return value if kind is float or abs(value) < 2**63 else cell
    return cell.encode("utf-8", "surrogateescape") if not cell.isprintable() else cell or None


def _parquet(table: Table) -> bytes:
    columns = zip(_names(table), zip(*_cells(table), strict=True), strict=True)
    file = io.BytesIO()
    pl.DataFrame([_series(name, cells) for name, cells in columns]).write_parquet(file)
    return file.getvalue()


def _series(name: str, cells: Sequence[str]) -> pl.Series:
    """Return a column of numbers, of lists or of texts, whatever all of its cells are."""
    cells = [cell.encode("utf-8", "replace").decode() for cell in cells]
    if name == "after" and not any("\0" in cell for cell in cells):
        return pl.Series(name, [cell.split(";") if cell else [] for cell in cells])
    for kind in (int, float):
        try:
            return pl.Series(name, [kind(cell) if cell else None for cell in cells])
        except (ValueError, OverflowError, TypeError):
            continue
    return pl.Series(name, [cell or None for cell in cells], pl.String)
