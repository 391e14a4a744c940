"""Converts raw tables that a test writes down, and checks what must hold for all of them."""

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import Account, TableAccount
from marl_sched.workload.raw.convert import Conversion, convert
from marl_sched.workload.traces.tasks import TaskTable, load_tasks

STRANGE = (
    *("", " ", "nan", "inf", "-inf", "-1", "0", "0.4", "1e300", "1e-320", "-0.0", "abc", "1_000"),
    *("99999999999999999999999", "0x10", "٣", "5.5", "\t7", '"', '"3"', "3;4", "Terminated"),
)
"""Values that a damaged table may hold."""


@dataclass(frozen=True)
class Outcome:
    """What a conversion wrote."""

    account: Account
    tasks: TaskTable | None
    zones: dict[str, list[dict[str, Any]]]

    @property
    def table(self) -> TaskTable:
        """The task table, which must be there."""
        assert self.tasks is not None
        return self.tasks

    def of(self, table: str) -> TableAccount:
        """The account of a table."""
        return self.account.tables[table]


def convert_tables(
    name: str,
    files: Mapping[str, str | bytes],
    *turned: str,
    reference: Mapping[str, int] | None = None,
    mapping: str | None = None,
) -> Outcome:
    """Write files into a folder of their own, and convert them with the format `name`."""
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            path = Path(folder) / file
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        where = None
        if mapping is not None:
            where = Path(folder) / "mapping.yaml"
            where.write_text(mapping)
        return convert_sources(name, [folder], *turned, reference=reference, mapping=where)


def convert_sources(
    name: str,
    sources: Iterable[str],
    *turned: str,
    reference: Mapping[str, int] | None = None,
    mapping: Path | None = None,
) -> Outcome:
    """Convert SOURCE arguments, and read back what was written."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.parquet"
        account = convert(Conversion(name, tuple(sources), out, turned, reference, mapping)).account
        account.check()
        zones = {}
        if "zones_file" in account.facts:
            blocks = yaml.safe_load((Path(folder) / account.facts["zones_file"]).read_text())
            zones = {block["name"]: block["machines"] for block in blocks["zones"]}
        return Outcome(account, load_tasks(str(out)) if out.exists() else None, zones)


def converted_or_refused(
    name: str, files: Mapping[str, str | bytes], *turned: str, mapping: str | None = None
) -> Outcome | None:
    """Convert damaged tables; if they are refused, check the message and return None."""
    message = ""
    try:
        return convert_tables(name, files, *turned, mapping=mapping)
    except TraceError as error:
        message = str(error)
    assert message
    assert "\n" not in message
    return None


def survives(name: str, files: Mapping[str, bytes], has_header: bool = False) -> None:
    """Check that damaged tables are converted or refused, and that all their lines are counted."""
    outcome = None
    try:
        outcome = convert_tables(name, files)
    except TraceError as error:
        message = str(error)
    if outcome is None:
        assert "\n" not in message
        return
    for file, content in files.items():
        table = next(t for t in outcome.account.tables.values() if file in t.files)
        n_lines = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
        assert table.rows_read == n_lines - has_header


@st.composite
def damaged(draw: st.DrawFn, text: str, first_row: int = 0) -> bytes:
    """Draw a table like a given one, with some strange values, and lines lost or repeated."""
    lines = [line.split(",") for line in text.splitlines()]
    rows = st.integers(first_row, len(lines) - 1)
    for _ in range(draw(st.integers(1, 6))):
        row = draw(rows)
        lines[row][draw(st.integers(0, len(lines[row]) - 1))] = draw(st.sampled_from(STRANGE))
    for _ in range(draw(st.integers(0, 2))):
        lines.insert(draw(rows), lines[draw(rows)])
    if draw(st.booleans()):
        lines[draw(rows)].append("1")
    return "\n".join(map(",".join, lines)).encode() + draw(st.sampled_from([b"", b"\n", b"\r\n"]))


@st.composite
def damaged_bytes(draw: st.DrawFn, text: str) -> bytes:
    """Draw a table like a given one with some bytes replaced, put in or cut off."""
    content = bytearray(text.encode())
    for _ in range(draw(st.integers(1, 8))):
        place = draw(st.integers(0, len(content)))
        content[place : place + draw(st.integers(0, 3))] = draw(
            st.one_of(st.binary(max_size=3), st.sampled_from([b"\n", b",", b"\r", b"\0", b"\xff"]))
        )
    end = draw(st.one_of(st.just(len(content)), st.integers(1, max(1, len(content)))))
    return bytes(content[:end])
