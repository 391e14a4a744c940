"""Text tables, a block of lines at a time: every physical line is handed out or counted.

The published traces are comma-separated text without quotes, most without a header, several
gigabytes large. Polars parses the blocks whose lines are all well-formed, which is nearly all of
them; the others go through `_sorted_lines`, slowly, line by line, to the same result.
"""

import csv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marl_sched.errors import TraceError, printable
from marl_sched.workload.raw.account import TableAccount
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, STOP, Rule
from marl_sched.workload.raw.unpack import CutShort, unpacked
from marl_sched.workload.table import Int

LINE_RULES = (
    Rule("blank-line", "a line without a character", (DROP_ROW,)),
    Rule("line-too-long", "a line of more than 1 MiB", (DROP_ROW,)),
    Rule("bad-encoding", "a line that is not UTF-8 or holds a NUL byte", (DROP_ROW,)),
    Rule("wrong-column-count", "a line with more or fewer values than columns", (DROP_ROW,)),
    Rule(
        "file-cut-short",
        "a compressed file whose end is missing or damaged; `keep` takes what came before",
        (STOP, KEEP),
        of="files",
    ),
)
"""Rules of every text format; they come first among the format's."""

_BLOCK = 16 << 20
_LONGEST_LINE = 1 << 20
_LONGEST_SHOWN = 300
_T = TypeVar("_T")


@dataclass(frozen=True)
class TextColumns:
    """How a text table is written.

    Attributes:
        names: Its columns, in the published order.
        required: Columns that a header must name; default: all.
        used: Columns that are wanted; default: all.
        separator: One character; a space stands for any run of spaces and tabs.
        comment: Lines that begin so are a header's comment: not rows, not counted.
        is_quoted: Whether values may be quoted ("a, b"); quoted line breaks are not supported.
        has_header: True: the first line names the columns, which may come in any order, unknown
            ones are ignored. False: there is none. None: it is one if it names half of them.
    """

    names: tuple[str, ...]
    required: tuple[str, ...] | None = None
    used: tuple[str, ...] | None = None
    separator: str = ","
    comment: str | None = None
    is_quoted: bool = False
    has_header: bool | None = None


def read_text(
    path: Path,
    columns: TextColumns,
    table: TableAccount,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Iterator[pl.DataFrame]:
    """Yield the rows of a file as blocks with the columns `columns.used`, all String.

    An empty value is null. Rows are counted in `table.rows_read`, bad lines under `LINE_RULES`.

    Raises:
        TraceError: No such file, not text, a header that lacks a column, or a compressed file that
            is cut short (unless the rule `file-cut-short` is turned to `keep`).
    """
    table.files.append(path.name)
    yield from _ahead(_frames(path, columns, table, on_bytes))


def _frames(
    path: Path, columns: TextColumns, table: TableAccount, on_bytes: Callable[[int], None]
) -> Iterator[pl.DataFrame]:
    layout: _Layout | None = None
    for block in _blocks(path, columns, table, on_bytes):
        rest = block
        if layout is None:
            layout, rest = _layout(path, columns, block)
        if rest:
            frame = _parse(rest, layout, table)
            if len(frame):
                yield frame


@dataclass(frozen=True)
class _Layout:
    """The columns as they stand in this file."""

    names: tuple[str, ...]
    wanted: tuple[str, ...]
    columns: TextColumns


def _blocks(
    path: Path, columns: TextColumns, table: TableAccount, on_bytes: Callable[[int], None]
) -> Iterator[bytes]:
    """Yield blocks of whole lines that end in a line feed, without carriage returns or comments."""
    rest, is_start, is_skipping = b"", True, False
    try:
        for chunk in unpacked(path, on_bytes):
            content = rest + chunk
            if is_start:
                content, is_start = content.removeprefix(b"\xef\xbb\xbf"), False
            if is_skipping:  # inside a line that was given up
                _, found, content = content.partition(b"\n")
                is_skipping = not found
            end = content.rfind(b"\n") + 1
            rest = content[end:]
            if end:
                yield from _whole(content[:end], columns)
            if len(rest) > _LONGEST_LINE:
                table.rows_read += 1
                table.drop("line-too-long")
                rest, is_skipping = b"", True
    except CutShort as reason:
        if table.rules.action("file-cut-short") == STOP:
            raise TraceError(
                f"{path}: {reason}; --rule file-cut-short=keep takes the rows before that"
            ) from None
        table.find("file-cut-short")
    if rest:
        yield from _whole(rest + b"\n", columns)


def _whole(block: bytes, columns: TextColumns) -> Iterator[bytes]:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if columns.comment is not None and columns.comment.encode() in block:
        mark = columns.comment.encode()
        lines = block.removesuffix(b"\n").split(b"\n")
        block = b"".join(line + b"\n" for line in lines if not line.lstrip().startswith(mark))
    if block:
        yield block


def _layout(path: Path, columns: TextColumns, block: bytes) -> tuple[_Layout, bytes]:
    """Find out whether the first line is a header, and return the rest of the block."""
    line, _, rest = block.partition(b"\n")
    values = _split(line.decode("utf-8", "replace"), columns)
    values = [value.strip().strip('"') for value in values]
    wanted = columns.names if columns.used is None else columns.used
    known = sum(value in columns.names for value in values)
    has_header = columns.has_header
    if has_header is None:
        has_header = known * 2 >= len(columns.names)
    if not has_header:
        return _Layout(columns.names, wanted, columns), block
    required = wanted if columns.required is None else columns.required
    if missing := [name for name in required if name not in values]:
        raise TraceError(
            f"{path}: no column {', '.join(missing)} in the header "
            f"{printable(', '.join(values)[:_LONGEST_SHOWN])}"
        )
    for name in columns.names:
        if values.count(name) > 1:
            raise TraceError(f"{path}: the header names the column {name} twice")
    names = tuple(name if name in columns.names else f"_{i}" for i, name in enumerate(values))
    return _Layout(names, wanted, columns), rest


def _parse(block: bytes, layout: _Layout, table: TableAccount) -> pl.DataFrame:
    """Return a block's good rows; count all of them."""
    content = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(content == ord("\n"))
    table.rows_read += len(ends)
    if _is_plain(block, layout.columns) and _is_regular(content, ends, layout):
        frame = _parse_plain(block, layout)
        if frame is not None and len(frame) == len(ends):
            return _select(frame, layout)
    rows = [values for values in _sorted_lines(block, layout, table) if values is not None]
    columns = zip(*rows, strict=True) if rows else ([] for _ in layout.names)
    return _select(
        pl.DataFrame(
            [
                pl.Series(name, column, dtype=pl.String)
                for name, column in zip(layout.names, columns, strict=True)
            ]
        ),
        layout,
    )


def _is_plain(block: bytes, columns: TextColumns) -> bool:
    """Return whether a block is text without anything but values, separators and line feeds."""
    if columns.separator == " " or b"\0" in block or b"\r" in block:
        return False
    if columns.is_quoted and b'"' in block:
        return False
    try:
        return block.isascii() or block.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


def _is_regular(content: NDArray[np.uint8], ends: Int, layout: _Layout) -> bool:
    """Return whether every line of a block has as many values as there are columns.

    Args:
        content: The block.
        ends: (n,) where its lines end.
        layout: The columns.
    """
    n_separators = len(layout.names) - 1
    separators = np.flatnonzero(content == ord(layout.columns.separator))
    if n_separators == 0 or len(separators) != len(ends) * n_separators:
        return False
    of_line = separators.reshape(-1, n_separators)  # (n, ...) if all lines have the same number
    is_within = (of_line[1:, 0] > ends[:-1]).all() and (of_line[:, -1] < ends).all()
    return bool(is_within and np.diff(ends, prepend=-1).max(initial=0) <= _LONGEST_LINE)


def _parse_plain(block: bytes, layout: _Layout) -> pl.DataFrame | None:
    try:
        return pl.read_csv(
            block,
            has_header=False,
            schema=dict.fromkeys(layout.names, pl.String),
            columns=[i for i, name in enumerate(layout.names) if name in layout.wanted],
            separator=layout.columns.separator,
            quote_char=None,
        )
    except pl.exceptions.PolarsError:
        return None


def _select(frame: pl.DataFrame, layout: _Layout) -> pl.DataFrame:
    return frame.select(
        pl.col(name) if name in layout.names else pl.lit(None, pl.String).alias(name)
        for name in layout.wanted
    )


def _sorted_lines(
    block: bytes, layout: _Layout, table: TableAccount
) -> Iterator[list[str | None] | None]:
    """Yield each line's values, or None for one that is counted as bad."""
    for line in block.removesuffix(b"\n").split(b"\n"):
        fault, values = _fault(line, layout)
        if fault is not None:
            table.drop(fault)
            yield None
        else:
            yield [value or None for value in values]


def _fault(line: bytes, layout: _Layout) -> tuple[str | None, list[str]]:
    if not line.strip():
        return "blank-line", []
    if len(line) > _LONGEST_LINE:
        return "line-too-long", []
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return "bad-encoding", []
    if "\0" in text:
        return "bad-encoding", []
    values = _split(text, layout.columns)
    return ("wrong-column-count" if len(values) != len(layout.names) else None), values


def _split(text: str, columns: TextColumns) -> list[str]:
    if columns.separator == " ":
        return text.split()
    if columns.is_quoted and '"' in text:
        try:
            return next(csv.reader([text], delimiter=columns.separator), [])
        except csv.Error:
            return []
    return text.split(columns.separator)


def _ahead(items: Iterator[_T]) -> Iterator[_T]:
    """Yield the items of an iterator that works one item ahead in a thread of its own."""
    done = object()
    with ThreadPoolExecutor(1, "unpack") as pool:
        future = pool.submit(next, items, done)
        while (item := future.result()) is not done:
            future = pool.submit(next, items, done)
            yield item  # type: ignore[misc]
