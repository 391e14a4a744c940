"""The reader of text tables: every physical line is handed out or counted."""

import bz2
import gzip
import io
import lzma
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marl_sched.errors import TraceError
from marl_sched.workload.raw import lines, unpack
from marl_sched.workload.raw.account import Account, TableAccount
from marl_sched.workload.raw.lines import LINE_RULES, TextColumns, read_text
from marl_sched.workload.raw.rules import Rules

THREE = TextColumns(("a", "b", "c"))
Row = tuple[str | None, ...]


def table_of(*turned: str) -> TableAccount:
    return Account("lines", Rules.of("lines", LINE_RULES, turned)).table("lines")


def read(path: Path, columns: TextColumns = THREE, *turned: str) -> tuple[list[Row], TableAccount]:
    """Return the rows of a file and its account, which must add up."""
    table = table_of(*turned)
    rows = [row for frame in read_text(path, columns, table) for row in frame.rows()]
    assert table.rows_read == len(rows) + sum(table.dropped.values())
    return rows, table


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    """Return a writer of one file."""

    def write(content: bytes) -> Path:
        path = tmp_path / "table.csv"
        path.write_bytes(content)
        return path

    return write


def test_values_are_text_and_empty_ones_are_null(write: Callable[[bytes], Path]) -> None:
    rows, table = read(write(b"1,x y,\n,,2.50\n"))
    assert rows == [("1", "x y", None), (None, None, "2.50")]
    assert table.rows_read == 2


@pytest.mark.parametrize("content", [b"1,2,3", b"1,2,3\n", b"1,2,3\r\n", b"\xef\xbb\xbf1,2,3\n"])
def test_byte_order_mark_and_line_ends_do_not_matter(
    write: Callable[[bytes], Path], content: bytes
) -> None:
    assert read(write(content))[0] == [("1", "2", "3")]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"", "blank-line"),
        (b"  \t", "blank-line"),
        (b"1,2", "wrong-column-count"),
        (b"1,2,3,4", "wrong-column-count"),
        (b"1,2,3,", "wrong-column-count"),
        (b"1,\xff,3", "bad-encoding"),
        (b"1,\0,3", "bad-encoding"),
        (b"1,2," + b"x" * (1 << 20), "line-too-long"),
    ],
)
def test_bad_line_is_counted_and_the_others_stay(
    write: Callable[[bytes], Path], line: bytes, rule: str
) -> None:
    rows, table = read(write(b"1,2,3\n" + line + b"\n4,5,6\n"))
    assert rows == [("1", "2", "3"), ("4", "5", "6")]
    assert dict(table.dropped) == {rule: 1}
    assert table.rows_read == 3


def test_a_line_too_many_does_not_make_up_for_one_too_few(write: Callable[[bytes], Path]) -> None:
    rows, table = read(write(b"1,2,3,\n1,2\n4,5,6\n"))
    assert rows == [("4", "5", "6")]
    assert table.dropped["wrong-column-count"] == 2


def test_endless_line_is_one_line(write: Callable[[bytes], Path]) -> None:
    rows, table = read(write(b"1,2,3\n" + b"x" * (12 << 20) + b"\n4,5,6\n"))
    assert rows == [("1", "2", "3"), ("4", "5", "6")]
    assert dict(table.dropped) == {"line-too-long": 1}


def test_text_beyond_ascii_is_kept(write: Callable[[bytes], Path]) -> None:
    assert read(write("ä,日本,3\n".encode()))[0] == [("ä", "日本", "3")]


def test_header_gives_the_order_and_unknown_columns_are_ignored(
    write: Callable[[bytes], Path],
) -> None:
    rows, table = read(write(b"c,more,a,b\n3,x,1,2\n"))
    assert rows == [("1", "2", "3")]
    assert table.rows_read == 1


def test_header_must_name_the_columns(write: Callable[[bytes], Path]) -> None:
    with pytest.raises(TraceError, match=r"table\.csv: no column c in the header a, b, x"):
        read(write(b"a,b,x\n1,2,3\n"))
    with pytest.raises(TraceError, match="the header names the column a twice"):
        read(write(b"a,b,c,a\n1,2,3,4\n"))


def test_column_that_is_not_required_may_be_missing(write: Callable[[bytes], Path]) -> None:
    columns = TextColumns(("a", "b", "c"), required=("a", "b"))
    assert read(write(b"b,a\n2,1\n"), columns)[0] == [("1", "2", None)]


def test_only_used_columns_are_handed_out(write: Callable[[bytes], Path]) -> None:
    columns = TextColumns(("a", "b", "c"), used=("c", "a"))
    assert read(write(b"1,2,3\n"), columns)[0] == [("3", "1")]
    assert read(write(b"1,2,3\n\n"), columns)[0] == [("3", "1")]
    assert read(write(b"c,a\n3,1\n"), columns)[0] == [("3", "1")]


def test_comments_are_no_rows(write: Callable[[bytes], Path]) -> None:
    columns = TextColumns(("a", "b", "c"), separator=" ", comment=";")
    rows, table = read(write(b"; made by hand\n 1  2\t3\n;\n4 5 6\n"), columns)
    assert rows == [("1", "2", "3"), ("4", "5", "6")]
    assert table.rows_read == 2


def test_quoted_values_may_hold_separators(write: Callable[[bytes], Path]) -> None:
    columns = TextColumns(("a", "b", "c"), is_quoted=True)
    assert read(write(b'1,"2, 3",4\n5,6,7\n'), columns)[0] == [("1", "2, 3", "4"), ("5", "6", "7")]


def tar_of(content: bytes, mode: str) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as archive:
        folder = tarfile.TarInfo("trace")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        member = tarfile.TarInfo("trace/table.csv")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


@pytest.mark.parametrize(
    "pack",
    [
        gzip.compress,
        bz2.compress,
        lzma.compress,
        lambda content: gzip.compress(content[:5]) + gzip.compress(content[5:]),
        lambda content: bz2.compress(content[:5]) + bz2.compress(content[5:]),
        lambda content: gzip.compress(content) + b"\0" * 512,
        lambda content: tar_of(content, "w"),
        lambda content: tar_of(content, "w:gz"),
        lambda content: tar_of(content, "w:xz"),
    ],
    ids=["gz", "bz2", "xz", "two gz", "two bz2", "padded gz", "tar", "tar.gz", "tar.xz"],
)
def test_packed_file_is_read_whatever_its_name(
    write: Callable[[bytes], Path], pack: Callable[[bytes], bytes]
) -> None:
    assert read(write(pack(b"1,2,3\n4,5,6\n")))[0] == [("1", "2", "3"), ("4", "5", "6")]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x28\xb5\x2f\xfd123", "zstd-compressed"),
        (b"PK\x03\x04123", "a zip archive"),
        ("1,2,3\n".encode("utf-16"), "UTF-16 text"),
        (gzip.compress("1,2,3\n".encode("utf-16"), mtime=0), "UTF-16 text"),
        (b"PAR1123", "a Parquet file"),
        (b"SQLite format 3\0", "an SQLite database"),
    ],
)
def test_other_kinds_of_files_are_refused_by_name(
    write: Callable[[bytes], Path], content: bytes, kind: str
) -> None:
    with pytest.raises(TraceError, match=rf"table\.csv: is {kind}, expected UTF-8 text"):
        read(write(content))


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv: no such file"):
        read(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="not a file"):
        read(tmp_path)


def test_archive_without_a_file_is_refused(write: Callable[[bytes], Path]) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        folder = tarfile.TarInfo("trace")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    with pytest.raises(TraceError, match="the archive holds no file"):
        read(write(target.getvalue()))


def long_table() -> bytes:
    return b"".join(b"%d,%d,%d\n" % (i, i * i, i % 7) for i in range(20_000))


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda content: bz2.compress(content, 1), lzma.compress]
)
def test_file_that_is_cut_short_stops_or_gives_what_came_before(
    write: Callable[[bytes], Path], pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(long_table())
    path = write(packed[: len(packed) * 2 // 3])
    with pytest.raises(TraceError, match=r"--rule file-cut-short=keep takes the rows before that"):
        read(path)
    rows, table = read(path, THREE, "file-cut-short=keep")
    whole = [tuple(line.split(",")) for line in long_table().decode().splitlines()]
    assert table.found["file-cut-short"] == 1
    n_whole = table.rows_read - 1  # the last line may be cut
    assert n_whole > 0
    assert rows[:n_whole] == whole[:n_whole]


def test_damaged_file_is_cut_short_too(write: Callable[[bytes], Path]) -> None:
    packed = bytearray(gzip.compress(long_table()))
    middle = len(packed) // 2
    packed[middle : middle + 64] = b"\xff" * 64
    with pytest.raises(TraceError, match=r"table\.csv: damaged"):
        read(write(bytes(packed)))


def test_bytes_of_the_disk_are_told(write: Callable[[bytes], Path]) -> None:
    path = write(gzip.compress(long_table()))
    told: list[int] = []
    for _ in read_text(path, THREE, table_of(), told.append):
        pass
    assert sum(told) == path.stat().st_size


BYTES = st.lists(
    st.sampled_from(
        [b"1", b"x", b",", b",", b"\n", b"\r\n", b"\r", b" ", b"\0", b"\xff", b"\xc3\xa4"]
    )
).map(b"".join)


@given(content=BYTES, size=st.integers(1, 9))
@settings(max_examples=300, deadline=None)
def test_rows_do_not_depend_on_where_blocks_end(content: bytes, size: int) -> None:
    whole, table = read_bytes(content, 1 << 20)
    parts, other = read_bytes(content, size)
    assert parts == whole
    assert other.dropped == table.dropped


@given(content=BYTES)
@settings(max_examples=300, deadline=None)
def test_fast_path_is_the_slow_path(content: bytes) -> None:
    fast, table = read_bytes(content, 1 << 20)
    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        context.setattr(lines, "_is_plain", lambda block, columns: False)
        slow, other = read_bytes(content, 1 << 20)
    assert fast == slow
    assert table.dropped == other.dropped
    n_lines = content.count(b"\n") + (content != b"" and not content.endswith(b"\n"))
    assert table.rows_read == n_lines


def read_bytes(content: bytes, size: int) -> tuple[list[Row], TableAccount]:
    """Read a table in blocks of some bytes."""
    patch = pytest.MonkeyPatch()
    with tempfile.TemporaryDirectory() as folder, patch.context() as context:
        context.setattr(unpack, "CHUNK", size)
        path = Path(folder) / "table.csv"
        path.write_bytes(content)
        return read(path, TextColumns(("a", "b", "c"), has_header=False))
