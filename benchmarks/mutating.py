"""Damage: to rows of a table, and to the bytes of files. Everything follows from one generator."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace

from mutation_files import Row, Table

STRANGE = (
    *("", " ", "-1", "0", "-0.0", "0.4", "5.5", "1e308", "-1e308", "1e300", "1e-320", "9" * 400),
    *("nan", "NaN", "inf", "-inf", "infinity", "0x10", "1_000", "½", "٣", "1,5", "1e3", "+7", ".5"),
    *(
        "\0",
        "7\0",
        '"',
        '"3"',
        '"a,b"',
        "'",
        ";",
        "3;4",
        "|",
        "\t7",
        "7 ",
        "\r",
        "\x1b[31m",
        "\x85",
    ),
    *("2147483647", "2147483648", "4294967295", "4294967296", "8589934592", "8589934593"),
    *("1099511627776", "1099511627777", "9007199254740993", "9223372036854775807"),
    *("9223372036854775808", "18446744073709551616", "16777216", "1048576", "1000000000"),
    *("true", "null", "None", "NULL", "N/A", "-", "_", "task_", "M", "M1_", "R1_1", "R2_3", "R3_2"),
    *("M1_2_3_4_5", "R999999999_1", "M1234567890", "J1_1_1", "R2_1_1", "MergeTask", "x" * 50),
    *(
        "R2" + "_1" * 24,
        "Terminated",
        "Failed",
        "Running",
        "Waiting",
        "Cancelled",
        "done",
        "\udcff",
    ),
    *(
        "2026-02-30T25:00:00Z",
        "9999-12-31T23:59:59+14:00",
        "0001-01-01",
        "=1+1",
        "../../x",
        "\ufeff",
    ),
)
"""What a damaged cell may hold. A surrogate stands for a byte that is not UTF-8."""
_SHIFTS = (-1e12, -1e6, -100, -1, 1, 100, 1e5, 1e6, 3e9, 1e12)
_SEPARATORS = (";", "\t", "|", " ", ", ", ",,", ":")
_BYTES = (
    b"\n",
    b",",
    b"\r",
    b"\r\n",
    b"\0",
    b"\xff",
    b'"',
    b" ",
    b"\xef\xbb\xbf",
    b"\xe2\x82",
    b";",
)
Mutate = Callable[[random.Random, list[Row], Table], None]


def _value(draws: random.Random, rows: list[Row], table: Table) -> None:
    row = draws.choice(rows)
    if row:
        row[draws.randrange(len(row))] = draws.choice(STRANGE)


def _column(draws: random.Random, rows: list[Row], table: Table) -> None:
    place, value = draws.randrange(len(table.columns)), draws.choice(STRANGE)
    for row in rows:
        if place < len(row):
            row[place] = value


def _lost(draws: random.Random, rows: list[Row], table: Table) -> None:
    row = draws.choice(rows)
    if row:
        del row[draws.randrange(len(row))]


def _lost_end(draws: random.Random, rows: list[Row], table: Table) -> None:
    row = draws.choice(rows)
    del row[draws.randint(0, len(row)) :]


def _more(draws: random.Random, rows: list[Row], table: Table) -> None:
    row = draws.choice(rows)
    row.insert(draws.randint(0, len(row)), draws.choice([*row, ""]))


def _swapped(draws: random.Random, rows: list[Row], table: Table) -> None:
    row = draws.choice(rows)
    if row:
        a, b = draws.randrange(len(row)), draws.randrange(len(row))
        row[a], row[b] = row[b], row[a]


def _twice(draws: random.Random, rows: list[Row], table: Table) -> None:
    rows.insert(draws.randint(0, len(rows)), list(draws.choice(rows)))


def _gone(draws: random.Random, rows: list[Row], table: Table) -> None:
    if len(rows) > 1:
        del rows[draws.randrange(len(rows))]


def _shuffled(draws: random.Random, rows: list[Row], table: Table) -> None:
    draws.shuffle(rows)


def _shifted(draws: random.Random, rows: list[Row], table: Table) -> None:
    """Move a time of one row, or of all."""
    place, shift = draws.choice(table.times or (0,)), draws.choice(_SHIFTS)
    for row in rows if draws.random() < 0.2 else [draws.choice(rows)]:
        try:
            row[place] = f"{float(row[place]) + shift:.15g}"
        except (IndexError, ValueError):
            continue


def _renamed(draws: random.Random, rows: list[Row], table: Table) -> None:
    """Give a row a name of another: duplicates, foreign parents, parents that are oneself."""
    row, other = draws.choice(rows), draws.choice(rows)
    places = [p for p in table.names if p < min(len(row), len(other))]
    if places:
        source, target = draws.choice(places), draws.choice(places)
        row[target] = (row if draws.random() < 0.3 else other)[source]


def _cycle(draws: random.Random, rows: list[Row], table: Table) -> None:
    """Let tasks of a job wait for one another, by names or by a list."""
    length = draws.randint(1, 3)
    first = draws.randrange(len(rows))
    for i, row in enumerate(rows[first : first + length]):
        for place in table.names:
            if place < len(row) and row[place][:1] in "MRJ":
                row[place] = f"R{1 + i}_{1 + (i + 1) % length}"


def _cut(draws: random.Random, rows: list[Row], table: Table) -> None:
    """Cut a name short, or make it as long as those that the trace cut."""
    row = draws.choice(rows)
    places = [p for p in table.names if p < len(row)]
    if places:
        place = draws.choice(places)
        name = row[place]
        longer = (name + "_1" * 30)[: draws.randint(48, 52)]
        row[place] = draws.choice([name[: draws.randint(0, len(name))], f"{name}_", longer])


def _rejoined(draws: random.Random, rows: list[Row], table: Table) -> None:
    place = draws.randrange(len(rows))
    rows[place] = [draws.choice(_SEPARATORS).join(rows[place])]


ROW_DAMAGES: tuple[Mutate, ...] = (
    *(_value,) * 8,
    *(_column, _lost, _lost_end, _more, _swapped, _twice, _gone, _shuffled),
    *(_shifted, _shifted, _renamed, _renamed, _cycle, _cut, _rejoined),
)


def damage_rows(draws: random.Random, tables: Sequence[Table], n_rows: int) -> list[Table]:
    """Return tables with some rows damaged, each drawn anew."""
    rows = [[list(row) for row in table.rows] for table in tables]
    for _ in range(n_rows):
        place = draws.randrange(len(tables))
        draws.choice(ROW_DAMAGES)(draws, rows[place], tables[place])
    return [replace(t, rows=tuple(changed)) for t, changed in zip(tables, rows, strict=True)]


def damage_header(draws: random.Random, table: Table) -> Table:
    """Return a table whose header is missing, there though it should not be, twice, or changed."""
    names = list(table.columns)
    draws.shuffle(names)
    order = [table.columns.index(name) for name in names]
    kind = draws.randrange(5)
    if kind == 0:
        return replace(table, header=not table.header)
    if kind == 1:
        return replace(table, header=True, rows=(list(table.columns), *table.rows))
    if kind == 2:
        rows = tuple([row[i] for i in order] for row in table.rows if len(row) == len(order))
        return replace(table, header=True, columns=tuple(names), rows=rows)
    changed = list(table.columns)
    changed[draws.randrange(len(changed))] = draws.choice([*table.columns, *STRANGE])
    return replace(table, header=True, columns=tuple(changed))


def _bytes(draws: random.Random, content: bytes) -> bytes:
    """Flip, put in or take out 1 to 64 bytes."""
    changed = bytearray(content)
    for _ in range(draws.choice((1, 1, 2, 4, 16, 64))):
        place = draws.randint(0, len(changed))
        kind = draws.randrange(4)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << draws.randrange(8)
        elif kind == 1 and place < len(changed):
            changed[place] = draws.randrange(256)
        elif kind == 2:
            changed[place:place] = draws.choice([*_BYTES, draws.randbytes(draws.randint(1, 3))])
        else:
            del changed[place : place + draws.randint(1, 3)]
    return bytes(changed)


def _cut_short(draws: random.Random, content: bytes) -> bytes:
    return content[: draws.randint(0, max(0, len(content) - 1))]


def _long_line(draws: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    lines.insert(draws.randint(0, len(lines)), draws.choice([b"a", b"1,", b"\0"]) * (2 << 20))
    return b"\n".join(lines)


def _packed(draws: random.Random, content: bytes) -> bytes:
    if draws.random() < 0.3:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=draws.choice((0, 1, 2))) as tar:
            for _ in range(draws.choice((0, 1, 1, 1, 2))):
                member = tarfile.TarInfo("x.csv")
                member.size = len(content)
                member.type = draws.choice([tarfile.REGTYPE] * 4 + [tarfile.DIRTYPE])
                tar.addfile(member, io.BytesIO(content))
        content = archive.getvalue()
    pack = draws.choice((lambda c: gzip.compress(c, 1), bz2.compress, lzma.compress))
    cut = draws.choice((0, 0, len(content) // 2))
    return pack(content[:cut]) + pack(content[cut:]) if cut else pack(content)


def _encoded(draws: random.Random, content: bytes) -> bytes:
    text = content.decode("utf-8", "replace")
    kind = draws.randrange(7)
    if kind == 0:
        return text.encode("utf-16")
    if kind == 1:
        return text.encode("utf-16-le")
    if kind == 2:
        return text.replace("a", "ä").replace("e", "é").encode("latin-1", "replace")
    marks = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xef\xbb\xbf\xef\xbb\xbf", b"PK\x03\x04")
    return draws.choice(marks) + content


def _ends(draws: random.Random, content: bytes) -> bytes:
    end = draws.choice((b"\r\n", b"\r\n", b"\r", b"\n\n", b"\n\r", b"\x0b", b"\xe2\x80\xa8"))
    return content.replace(b"\n", end)


def _nothing(draws: random.Random, content: bytes) -> bytes:
    return draws.choice((b"", b"\n", b"\0", b" ", b"\xff", b"\n" * 100, b"\0" * 5000, b"\r"))


def _twofold(draws: random.Random, content: bytes) -> bytes:
    return content + draws.choice((content, draws.randbytes(40), b"\n\n\n", b"\0" * 600, b"x"))


DAMAGES = (_bytes, _bytes, _bytes, _cut_short, _packed, _packed, _encoded, _ends)


def damage_file(draws: random.Random, content: bytes) -> bytes | None:
    """Return a damaged file, maybe damaged more than once; None: a folder of that name."""
    chance = draws.random()
    if chance < 0.01:
        return None
    if chance < 0.02:
        return _long_line(draws, content)
    if chance < 0.04:
        return _nothing(draws, content)
    if chance < 0.06:
        return _twofold(draws, content)
    for _ in range(draws.choice((1, 1, 1, 2, 3))):
        content = draws.choice(DAMAGES)(draws, content)
    return content
