"""Converts a damaged trace, and checks what must hold whatever the damage is."""

import bz2
import io
import lzma
import re
import shutil
import sqlite3
import tarfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl
from mutation_files import Base

from marl_sched.config import Experiment, TraceWorkload, Zone, load_config
from marl_sched.config.yaml_text import parse_yaml
from marl_sched.errors import TraceError
from marl_sched.workload.raw.convert import Conversion, Converted, convert
from marl_sched.workload.traces.episodes import draw_trace
from marl_sched.workload.traces.knowledge import learn
from marl_sched.workload.traces.tasks import TaskTable, load_tasks
from marl_sched.workload.validation import check_table

CONFIG = Path(__file__).parents[1] / "configs" / "demo.yaml"
MACHINE = {
    "cpu_milli": 96_000,
    "memory_mib": 393_216,
    "gpu_milli": 8_000,
    "disk_mib": 4_194_304,
    "ssd_mib": 4_194_304,
    "network_mbps": 40_000,
}
LONGEST_MESSAGE = 2000
_TELLTALE = re.compile(
    r"site-packages|Traceback|internal|panicked|0x[0-9a-f]{6,}|\.(py|rs)\b|object at"
)
_UNPACKERS: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", lzma.LZMADecompressor),
)
Files = Mapping[str, bytes | None]


@dataclass(frozen=True)
class Outcome:
    """What became of a trace.

    Attributes:
        kind: `converted`, `episode-refused`, `refused`, or `bug`.
        detail: The message.
    """

    kind: str
    detail: str = ""


class Broken(Exception):
    """Something that must hold does not."""


def outcome_of(base: Base, files: Files, turned: tuple[str, ...], folder: Path) -> Outcome:
    """Write a trace into an empty folder, convert it, and check the result; empties the folder."""
    source, target = folder / "in", folder / "out"
    _write(source, files)
    target.mkdir()
    mapping = None
    if base.mapping is not None:
        mapping = folder / "mapping.yaml"
        mapping.write_text(base.mapping)
    wish = Conversion(base.format, (str(source),), target / "t.parquet", turned, mapping=mapping)
    try:
        return _outcome(wish, base, files)
    except KeyboardInterrupt:
        raise
    except Broken as problem:
        return Outcome("bug", str(problem))
    except BaseException as error:  # noqa: BLE001 - a panic of Polars is no Exception
        return Outcome("bug", f"{type(error).__name__}: {error}"[:500])
    finally:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _write(source: Path, files: Files) -> None:
    source.mkdir()
    for name, content in files.items():
        path = source / name
        path.parent.mkdir(exist_ok=True)
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)


def _outcome(wish: Conversion, base: Base, files: Files) -> Outcome:
    target = wish.out.parent
    try:
        converted = convert(wish)
    except TraceError as error:
        _check_message(str(error), wish)
        if left := [path.name for path in target.iterdir()]:
            raise Broken(f"refused, but left {left}") from None
        return Outcome("refused", str(error).replace(wish.sources[0], "IN"))
    converted.account.check()
    left = {path.name for path in target.iterdir()} - {path.name for path in converted.files}
    if left:
        raise Broken(f"left {sorted(left)}")
    _check_rows(converted, base, files)
    _check_zones(converted)
    if wish.out not in converted.files:
        return Outcome("converted", "machines only")
    try:
        tasks = _tasks(wish.out)
    except TraceError as error:
        raise Broken(f"the table written is refused: {error}") from None
    return _draw(wish.out, tasks)


def _check_message(message: str, wish: Conversion) -> None:
    names = (wish.sources[0], "t.parquet", "mapping.yaml")
    names += tuple(path.name for path in Path(wish.sources[0]).rglob("*"))
    if len(message.splitlines()) != 1 or not message.isprintable():
        raise Broken(f"message of several lines or with control signs: {message[:300]!r}")
    if len(message) > LONGEST_MESSAGE:
        raise Broken(f"message of {len(message)} characters: {message[:100]!r}")
    if _TELLTALE.search(message):
        raise Broken(f"message tells of the inside: {message[:300]}")
    if not any(name in message for name in names):
        raise Broken(f"message names no file: {message[:300]}")


def _check_rows(converted: Converted, base: Base, files: Files) -> None:
    """Compare the rows read of every table with those that are there, counted another way."""
    for table in converted.account.tables.values():
        if not table.files:
            continue
        low = high = 0
        for name, content in files.items():
            if Path(name).name in table.files and content is not None:
                least, most = _n_rows(base, table.name, name, content)
                low, high = low + least, high + most
        if not low <= table.rows_read <= high:
            raise Broken(f"{table.name}: {table.rows_read} rows read of {low} to {high}")


def _n_rows(base: Base, table: str, name: str, content: bytes) -> tuple[int, int]:
    """Return how many rows of a table a file has, at least and at most."""
    if base.name == "azure-packing-2020":
        n_rows = _n_sqlite_rows(content, table)
        return n_rows, n_rows
    if base.name == "columns-parquet":
        n_rows = len(pl.read_parquet(io.BytesIO(content)))
        return n_rows, n_rows
    text, is_whole = _unpacked(content)
    text = text.removeprefix(b"\xef\xbb\xbf")
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if base.name == "swf":
        lines = [line for line in lines if not line.lstrip().startswith(b";")]
    [columns] = [found.columns for found in base.tables if found.file == name]
    n_headers = int(bool(lines) and _is_header(base, lines[0], columns))
    n_rows = len(lines) - n_headers
    long_first = bool(lines) and len(lines[0]) > 1 << 20
    return (n_rows - long_first if is_whole else 0), n_rows + long_first


def _is_header(base: Base, line: bytes, columns: tuple[str, ...]) -> bool:
    if base.name in ("spar", "google-2011", "swf"):
        return False
    if base.name in ("openb", "columns"):
        return True
    values = [value.strip().strip('"') for value in line.decode("utf-8", "replace").split(",")]
    return sum(value in columns for value in values) * 2 >= len(columns)


def _n_sqlite_rows(content: bytes, table: str) -> int:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(content)
        connection.text_factory = bytes
        return sum(1 for _ in connection.execute(f'SELECT 1 FROM "{table}" NOT INDEXED'))


def _unpacked(content: bytes) -> tuple[bytes, bool]:
    """Return the text of a packed file, and whether all of it could be read."""
    content, is_whole = _bytewise(content)
    if content[257:262] == b"ustar":
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                member = next(member for member in archive if member.isfile())
                file = archive.extractfile(member)
                content = b"" if file is None else file.read()
                is_whole &= len(content) == member.size
        except (tarfile.TarError, OSError, EOFError, StopIteration):
            is_whole = False
    return content, is_whole


def _bytewise(content: bytes) -> tuple[bytes, bool]:
    """Unpack a packed file byte by byte, and say whether it is whole."""
    make = next((make for magic, make in _UNPACKERS if content.startswith(magic)), None)
    if make is None:
        return content, True
    parts, unpacker = [], make()
    for place in range(len(content)):
        byte = content[place : place + 1]
        if unpacker.eof:
            if byte == b"\0":
                continue
            unpacker = make()
        try:
            parts.append(unpacker.decompress(byte))
        except (OSError, EOFError, zlib.error, lzma.LZMAError):
            return b"".join(parts), False
    return b"".join(parts), unpacker.eof


def _check_zones(converted: Converted) -> None:
    for path in converted.files:
        if path.name.endswith(".zones.yaml"):
            blocks = parse_yaml(path.read_text())
            for block in blocks["zones"]:
                Zone.model_validate(block)


def _tasks(path: Path) -> TaskTable:
    load_tasks.cache_clear()
    learn.cache_clear()
    return load_tasks(str(path))


@lru_cache
def _experiment(resources: tuple[str, ...]) -> Experiment:
    capacity = ", ".join(f"{name}: {MACHINE[name]}" for name in resources)
    return load_config(
        CONFIG,
        [
            f"resources=[{', '.join(resources)}]",
            f"zones=[{{name: only, machines: [{{count: 4, capacity: {{{capacity}}}}}]}}]",
            "workload.load=0.3",
            "workload.load_tolerance=1.0",
            "workload.max_job_share=1.0",
            "episode.horizon_s=100.0",
        ],
    )


def _draw(path: Path, tasks: TaskTable) -> Outcome:
    """Draw an episode around the middle of the trace's arrivals, and check it."""
    experiment = _experiment(tasks.resources)
    assert isinstance(experiment.workload, TraceWorkload)
    middle_s = float(tasks.job_arrival_us[tasks.n_jobs // 2] / 1e6)
    bounds = [max(0.0, middle_s - 60.0), middle_s + 60.0]
    update = {"path": str(path), "train_arrivals_s": bounds, "test_arrivals_s": bounds}
    workload = experiment.workload.model_copy(update=update)
    try:
        table, _ = draw_trace(experiment, workload, experiment.zones[0], "train", 0)
    except TraceError as error:
        return Outcome("episode-refused", str(error).replace(str(path), "OUT"))
    check_table(table, experiment)
    return Outcome("converted", "" if table.n_jobs else "no job in the episode")
