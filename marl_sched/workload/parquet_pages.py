"""Checks the sizes that a Parquet file gives of its parts, before Polars believes them.

Polars (2.1) takes a page's number of values as it stands: one damaged byte makes it negative, the
memory for it 2^61 bytes, and the process is ended then and there, with no exception to catch. Other
sizes that are wrong end in a panic, which is an exception, but writes to stderr itself. Here the
footer and all page headers are read (never the pages: some 20 us each), as the format's
specification and Thrift's compact protocol have them.

What is damaged within a page is left to Polars. A file that was made to harm can still hold more
values than memory has room for: this is no sandbox.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from marl_sched.errors import TraceError, printable

_MAGIC = b"PAR1"
_FOOTER = 8
"""Bytes at the end: the length of the metadata, and the magic."""
_DEEPEST = 16
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
_LONGEST_VARINT = 10
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_HEADERS = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}
"""Field of the page header that holds the kind's own header; its field 1 is `num_values`."""
_REPEATED = 2

Struct = dict[int, Any]


class _Damaged(Exception):
    """Something that no Parquet file says."""


def check_pages(path: Path) -> None:
    """Check that the sizes in a Parquet file's footer and page headers can be.

    Raises:
        TraceError: One cannot, or the file cannot be opened. Whatever else is wrong, Polars finds.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size < _FOOTER + len(_MAGIC):
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if content[-len(_MAGIC) :] == _MAGIC:
                    _check_file(content, size)
    except _Damaged as problem:
        raise TraceError(f"{path}: not a whole Parquet file: {problem}") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None


@contextmanager
def whole_parquet(path: Path) -> Iterator[None]:
    """Turn what Polars finds wrong with a Parquet file into an error of ours.

    Raises:
        TraceError: The file cannot be read.
    """
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = printable(" ".join(str(error).split()))[:200]
        raise TraceError(f"{path}: not a whole Parquet file: {reason}") from None


def _check_file(content: mmap.mmap, size: int) -> None:
    length = int.from_bytes(content[-_FOOTER : -len(_MAGIC)], "little")
    start = size - _FOOTER - length
    if start < len(_MAGIC):
        raise _Damaged(f"metadata of {length} bytes in {size}")
    metadata = _Reader(content[start : size - _FOOTER]).struct()
    n_rows, flat = _number(metadata, 3, "rows"), _flat_columns(metadata)
    total = 0
    for group in _structs(metadata, 4):
        n_group_rows = _number(group, 3, "rows of a row group")
        total += n_group_rows
        for chunk in _structs(group, 1):
            column = chunk.get(3)
            if chunk.get(1) is None and isinstance(column, dict):
                is_flat = column.get(3) in flat
                _check_column(content, start, column, n_group_rows if is_flat else None)
    if total != n_rows:
        raise _Damaged(f"{n_rows} rows, but {total} in its row groups")


def _flat_columns(metadata: Struct) -> list[list[bytes]]:
    """Return the paths of the columns that have one value a row."""
    elements = [e for e in _structs(metadata, 2) if not e.get(5)]
    return [[e.get(4, b"")] for e in elements if e.get(3) != _REPEATED]


def _check_column(content: mmap.mmap, limit: int, column: Struct, n_rows: int | None) -> None:
    """Check one column of a row group.

    Args:
        content: The file.
        limit: Where the metadata begins.
        column: Its ColumnMetaData.
        n_rows: How many values it must have; None: any number.
    """
    n_values = _number(column, 5, "values of a column")
    if n_rows is not None and n_values != n_rows:
        raise _Damaged(f"{n_values} values of a column in {n_rows} rows")
    length = _number(column, 7, "bytes of a column")
    start = _number(column, 11 if column.get(11) else 9, "bytes before a column")
    if start + length > limit:
        raise _Damaged(f"a column at {start} of {length} bytes, expected its end before {limit}")
    found = sum(_pages(content, start, start + length, n_values))
    if found != n_values:
        raise _Damaged(f"{n_values} values of a column, but {found} in its pages")


def _pages(content: mmap.mmap, start: int, end: int, n_values: int) -> Iterator[int]:
    """Yield the number of values of every data page."""
    place, n_left = start, n_values
    while place < end and n_left > 0:
        reader = _Reader(content, place, end)
        page = reader.struct()
        n_bytes = _number(page, 3, "bytes of a page")
        _number(page, 2, "unpacked bytes of a page")
        place = reader.place + n_bytes
        if place > end:
            raise _Damaged(f"a page of {n_bytes} bytes, expected its end before {end}")
        kind = page.get(1)
        header = page.get(_HEADERS.get(kind, -1)) if isinstance(kind, int) else None
        if not isinstance(header, dict):
            continue  # an index, or what later versions have
        count = _number(header, 1, "values of a page")
        if kind == _DICTIONARY_PAGE:
            continue
        if kind == _DATA_PAGE_V2:
            levels = sum(_number(header, field, "bytes of levels") for field in (5, 6))
            if levels > n_bytes:
                raise _Damaged(f"levels of {levels} bytes in a page of {n_bytes}")
        if count > n_left:
            raise _Damaged(f"a page of {count} values, expected at most {n_left}")
        n_left -= count
        yield count


def _number(struct: Struct, field: int, what: str) -> int:
    value = struct.get(field)
    if not isinstance(value, int) or value < 0:
        raise _Damaged(f"number of {what} = {value if isinstance(value, int) else None}")
    return value


def _structs(struct: Struct, field: int) -> list[Struct]:
    found = struct.get(field, [])
    return [x for x in found if isinstance(x, dict)] if isinstance(found, list) else []


class _Reader:
    """Reads Thrift's compact protocol; a struct becomes a dict by the numbers of its fields."""

    def __init__(self, content: bytes | mmap.mmap, place: int = 0, end: int | None = None) -> None:
        self.place = place
        self._content = content
        self._end = len(content) if end is None else end

    def struct(self, depth: int = 0) -> Struct:
        """Read one struct."""
        if depth > _DEEPEST:
            raise _Damaged("metadata within metadata without end")
        fields: Struct = {}
        number = 0
        while (head := self._byte()) != _STOP:
            step = head >> 4
            number = number + step if step else self._integer()
            kind = head & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self._integer()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            return self._list(depth + 1)
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind in (_TRUE, _FALSE, _BYTE):  # in a list
            return self._byte()
        raise _Damaged(f"metadata of an unknown kind {kind}")

    def _list(self, depth: int) -> list[Any]:
        if depth > _DEEPEST:
            raise _Damaged("metadata within metadata without end")
        head = self._byte()
        n_items = head >> 4 if head >> 4 != 15 else self._varint()
        if n_items > self._end - self.place:
            raise _Damaged(f"a list of {n_items} parts, more than there are bytes")
        return [self._value(head & 15, depth) for _ in range(n_items)]

    def _byte(self) -> int:
        if self.place >= self._end:
            raise _Damaged("its metadata ends early")
        self.place += 1
        return self._content[self.place - 1]

    def _bytes(self, length: int) -> bytes:
        start, self.place = self.place, self.place + length
        if self.place > self._end:
            raise _Damaged("its metadata ends early")
        return self._content[start : self.place]

    def _varint(self) -> int:
        value = 0
        for position in range(_LONGEST_VARINT):
            part = self._byte()
            value |= (part & 127) << (7 * position)
            if part < 128:
                return value
        raise _Damaged("a number without end")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
