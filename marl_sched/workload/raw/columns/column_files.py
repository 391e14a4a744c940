"""Any table as blocks of text columns: of a text file, or of a Parquet file."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars as pl

from marl_sched.errors import TraceError, printable
from marl_sched.workload.parquet_pages import check_pages, whole_parquet
from marl_sched.workload.raw.account import TableAccount
from marl_sched.workload.raw.columns.column_mapping import ListParents, Mapping, TextFile
from marl_sched.workload.raw.lines import TextColumns, read_text

_BLOCK = 500_000


def read_columns(
    path: Path, mapping: Mapping, table: TableAccount, on_bytes: Callable[[int], None]
) -> Iterator[pl.DataFrame]:
    """Yield the mapped columns of a file block by block, all String; an empty value is null.

    Raises:
        TraceError: The file cannot be read, is of another kind, or lacks a column.
    """
    columns = tuple(mapping.columns())
    if isinstance(mapping.file, TextFile):
        file = mapping.file
        layout = TextColumns(
            names=columns if file.header else tuple(file.names),
            separator=file.separator,
            comment=file.comment,
            is_quoted=file.quoted,
            has_header=file.header,
        )
        for frame in read_text(path, layout, table, on_bytes):
            yield frame.select(pl.col(columns).str.strip_chars().replace("", None))
        return
    parents = mapping.parents
    separator = parents.separator if isinstance(parents, ListParents) else ";"
    yield from _read_parquet(path, columns, separator, table)
    on_bytes(path.stat().st_size)


def _read_parquet(
    path: Path, columns: Sequence[str], separator: str, table: TableAccount
) -> Iterator[pl.DataFrame]:
    table.files.append(path.name)
    check_pages(path)
    with whole_parquet(path):
        source = pl.scan_parquet(path)
        schema = source.collect_schema()
        _check(path, columns, schema)
        n_rows = int(source.select(pl.len()).collect().item())
        texts = [_text(name, schema[name], separator) for name in columns]
    for first in range(0, n_rows, _BLOCK):
        with whole_parquet(path):
            frame = source.select(columns).slice(first, _BLOCK).select(texts).collect()
        table.rows_read += len(frame)
        yield frame


def _check(path: Path, columns: Sequence[str], schema: pl.Schema) -> None:
    if missing := [name for name in columns if name not in schema]:
        raise TraceError(
            f"{path}: no column {', '.join(missing)} among "
            f"{printable(', '.join(schema.names())[:300])}"
        )
    for name in columns:
        kind = schema[name]
        inner = kind.inner if isinstance(kind, pl.List) else kind
        if not (isinstance(inner, _PLAIN) or inner.is_numeric() or inner.is_decimal()):
            raise TraceError(
                f"{path}: the column {name} is {kind}, expected numbers, text, dates and times, or "
                "lists of text or numbers"
            )


_PLAIN = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Date, pl.Datetime, pl.Null)


def _text(name: str, kind: pl.DataType, separator: str) -> pl.Expr:
    column = pl.col(name)
    if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if isinstance(kind, pl.List):
        column = column.cast(pl.List(pl.String)).list.join(separator)
    return column.cast(pl.String).str.strip_chars().replace("", None).alias(name)
