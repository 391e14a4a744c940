"""Damaged raw traces and Parquet files: converted or refused, never a traceback, every row counted.

`benchmarks/trace_mutations.py` damages thousands of rows and files of every format; here it runs a
few hundred of them, and what it (or a mean user) has found stands below.
"""

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from raw_traces import convert_sources, convert_tables

from marl_sched.cli import run
from marl_sched.errors import TraceError
from marl_sched.workload.parquet_pages import check_pages, whole_parquet
from marl_sched.workload.raw.columns.column_mapping import load_mapping
from marl_sched.workload.raw.formats import Format
from marl_sched.workload.raw.registry import FORMATS
from marl_sched.workload.raw.swf.swf_header import machines_of, read_header
from marl_sched.workload.table_io import read_frame
from marl_sched.workload.traces.tasks import TraceInfo, load_tasks

ROOT = Path(__file__).parents[3]
SPAR_TASKS = "0,j,M1,30,50.0,0.3,1\n"
SPAR_INSTANCES = "0,j,M1,i,30,50.0,0.3\n"
MAPPING = """
file: {kind: parquet}
times: {arrival: {column: at}, duration: {constant: 10}}
requests: {cpu_milli: {constant: 1000}, memory_mib: {constant: 1}}
"""
Capture = pytest.CaptureFixture[str]


def read_header_of(text: str) -> dict[str, int]:
    with tempfile.NamedTemporaryFile("w", suffix=".swf") as file:
        file.write(text)
        file.flush()
        return read_header(Path(file.name))


def message_of(call: Callable[[], object]) -> str:
    with pytest.raises(TraceError) as caught:
        call()
    message = str(caught.value)
    assert message.isprintable()
    return message


def test_hundreds_of_damaged_traces_are_converted_or_refused() -> None:
    benchmark = ROOT / "benchmarks" / "trace_mutations.py"
    command = [sys.executable, str(benchmark), "--jobs", "0", "--count", "16", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found.pop("bugs") == []
    counts = [figures.get("converted", 0) for figures in found.values()]
    assert len(counts) == 22  # rows and files of ten formats, one of them twice
    assert sum(counts) > 80


def test_header_is_shown_without_signs_that_a_terminal_obeys() -> None:
    name = "openb_pod_list_default.csv"
    text = b"na\x1b[2Jme,\x00,cpu_milli\r,\xe2\x80\xa8\n1,2,3,4\n"
    message = message_of(lambda: convert_tables("openb", {name: text}))
    assert "na\\x1b[2Jme" in message


def test_column_of_parquet_is_shown_without_signs_that_a_terminal_obeys() -> None:
    file = io.BytesIO()
    pl.DataFrame({"\x1b[2J\n": [1]}).write_parquet(file)
    files = {"my.parquet": file.getvalue()}
    message = message_of(lambda: convert_tables("columns", files, mapping=MAPPING))
    assert "\\x1b[2J\\n" in message


def test_instances_without_tasks_are_refused() -> None:
    message = message_of(lambda: convert_tables("spar", {"sample_instances_0.csv": SPAR_INSTANCES}))
    assert "sample_instances_0.csv: table instances needs tasks too" in message


@pytest.mark.parametrize("source", ["", " "])
def test_empty_source_is_not_the_current_folder(source: str) -> None:
    assert "an empty name" in message_of(lambda: convert_sources("spar", [source]))


def test_rule_is_turned_one_way_only() -> None:
    files = {"sample_tasks.csv": SPAR_TASKS}
    message = message_of(
        lambda: convert_tables("spar", files, "name-cut=keep", "name-cut=drop-job")
    )
    assert message == "--rule name-cut=drop-job: name-cut is turned to keep too"
    assert convert_tables("spar", files, "name-cut=keep", "name-cut=keep").table.n_jobs == 1


@pytest.mark.parametrize("amount", [0, -1, 2**26 + 1, 10**30])
def test_largest_machine_is_one_that_the_task_table_can_hold(amount: int) -> None:
    files = {"sample_tasks.csv": SPAR_TASKS}
    message = message_of(lambda: convert_tables("spar", files, reference={"memory_mib": amount}))
    assert f"memory_mib={amount}" in message


def relative(found: Format) -> bool:
    return bool(found.reference)


@pytest.mark.parametrize("name", [found.name for found in FORMATS.values() if relative(found)])
def test_published_machines_are_below_the_largest_reference(name: str) -> None:
    assert max(FORMATS[name].reference.values()) <= 2**26


def test_largest_request_of_the_largest_machine_can_be_read_back() -> None:
    row = f"0,j,M1,30,{2**20},{2**20},1\n"
    outcome = convert_tables("spar", {"sample_tasks.csv": row}, reference={"memory_mib": 2**26})
    assert outcome.table.request[0, 1] > 2**39


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (f"reference: {{cpu_milli: {10**30}}}", "reference.cpu_milli"),
        ("resolution_s: 1.0e+300", "resolution_s"),
    ],
)
def test_mapping_holds_no_number_beyond_the_task_table(tmp_path: Path, line: str, key: str) -> None:
    file = tmp_path / "mapping.yaml"
    file.write_text(MAPPING + line)
    assert f"mapping.yaml: {key} = " in message_of(lambda: load_mapping(file))


def test_mapping_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    assert "not a file" in message_of(lambda: load_mapping(pipe))


def test_header_of_a_log_names_no_more_machines_than_memory_holds() -> None:
    row = "1 100 5 60 4 45 1536 4 300 2048 1 3 1 7 0 -1 -1 -1\n"
    for n_machines, is_known in ((2**20, True), (2**20 + 1, False), (2**24, False)):
        header = read_header_of(f"; MaxNodes: {n_machines}\n{row}")
        assert (len(machines_of(header, 1)) == n_machines) is is_known


@pytest.mark.parametrize(
    "changed", [{"reference": {"cpu_milli": 10**30}}, {"resolution_us": 10**30}]
)
def test_metadata_with_numbers_beyond_64_bits_is_refused(
    trace: str, changed: dict[str, object]
) -> None:
    frame = pl.read_parquet(trace)
    known = TraceInfo(format="x", reference={"cpu_milli": 1}).model_dump()
    frame.write_parquet(trace, metadata={"marl_sched": json.dumps(known | changed)})
    assert f"metadata {next(iter(changed))}" in message_of(lambda: load_tasks(trace))


def test_parquet_page_of_a_negative_number_of_values_is_refused(trace: str) -> None:
    # Polars would ask for 2^61 bytes, and the process would be gone.
    path = Path(trace)
    content = path.read_bytes()
    value = re.compile(re.escape(b"\x15\xc0\x0c"))  # 800, in zigzag: field 1 of a page's header
    places = [match.start() + 1 for match in value.finditer(content)]
    assert len(places) > 10  # one a column at least
    for place in places:
        path.write_bytes(content[:place] + b"\xc1" + content[place + 1 :])
        for read in (lambda: load_tasks(trace), lambda: read_frame(path, {})):
            assert " of a page = -801" in message_of(read)
    load_tasks.cache_clear()


def test_parquet_page_of_a_negative_number_of_values_is_refused_by_columns() -> None:
    file = io.BytesIO()
    pl.DataFrame({"at": list(range(100))}).write_parquet(file, compression="uncompressed")
    content = file.getvalue()
    place = content.index(b"\x15\xc8\x01")  # 100, in zigzag, as the page's number of values
    damaged = content[: place + 1] + b"\xc7" + content[place + 2 :]
    files = {"my.parquet": damaged}
    message = message_of(lambda: convert_tables("columns", files, mapping=MAPPING))
    assert "not a whole Parquet file: number of values of a page = -100" in message
    assert convert_tables("columns", {"my.parquet": content}, mapping=MAPPING).table.n_jobs == 100


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "zstd", "lz4"])
@pytest.mark.parametrize("n_rows", [0, 1, 5000])
def test_whole_parquet_files_pass(tmp_path: Path, compression: str, n_rows: int) -> None:
    path = tmp_path / "whole.parquet"
    rows = range(n_rows)
    frame = pl.DataFrame(
        {
            "number": [None if i % 3 else i for i in rows],
            "text": [f"text {i % 7}" for i in rows],
            "list": [[i] * (i % 4) for i in rows],
            "struct": [{"a": i, "b": [{"c": str(i)}]} for i in rows],
            "nothing": [None for _ in rows],
        },
        schema_overrides={"list": pl.List(pl.Int64), "nothing": pl.Null},
    )
    frame.write_parquet(path, compression=compression, row_group_size=700, data_page_size=512)
    check_pages(path)
    assert len(pl.read_parquet(path)) == n_rows


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PAR1" + b"\xff" * 4 + b"PAR1", "metadata of 4294967295 bytes"),
        (b"PAR1\x19\xfc" + b"\xff" * 4 + b"\x0f\x07\x00\x00\x00PAR1", "a list of"),
        (b"PAR1" + b"\x1c" * 40 + b"\x28\x00\x00\x00PAR1", "without end"),
        (b"PAR1\x15" + b"\xff" * 20 + b"\x15\x00\x00\x00PAR1", "a number without end"),
        (b"PAR1\x1e\x00\x02\x00\x00\x00PAR1", "unknown kind 14"),
        (b"PAR1\x15\x02\x02\x00\x00\x00PAR1", "ends early"),
        (b"PAR1\x15\x02\x00\x03\x00\x00\x00PAR1", "number of rows = None"),
    ],
)
def test_impossible_metadata_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    assert problem in message_of(lambda: check_pages(path))


def test_panic_of_polars_is_an_error_of_ours(tmp_path: Path) -> None:
    def panic() -> None:
        with whole_parquet(tmp_path):
            raise pl.exceptions.PanicException("called `unwrap()`\n on an \x1b[31m`Err` value")

    assert message_of(panic).endswith("called `unwrap()` on an \\x1b[31m`Err` value")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--reference", "cpu_milli=1", "--reference", "cpu_milli=2"],
        ["--reference", "cpu_milli=٣"],
        ["--reference", "cpu_milli=" + "9" * 5000],
        ["--reference", ""],
    ],
)
def test_bad_reference_is_one_line(tmp_path: Path, capsys: Capture, arguments: list[str]) -> None:
    out = ["--out", str(tmp_path / "x.parquet")]
    assert run(["trace", "convert", "spar", str(tmp_path), *out, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "--reference" in error
    assert error.count("\n") == 1


def test_references_given_one_by_one_all_count(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "sample_tasks.csv").write_text(SPAR_TASKS)
    out = tmp_path / "x.parquet"
    given = ["--reference", "cpu_milli=7", "--reference", "memory_mib=900"]
    assert run(["trace", "convert", "spar", str(tmp_path), "--out", str(out), *given]) == 0
    assert load_tasks(str(out)).reference.tolist() == [7, 900]
    capsys.readouterr()


@pytest.mark.parametrize("hours", ["1e300", "8785"])
def test_generated_trace_is_a_year_at_most(tmp_path: Path, capsys: Capture, hours: str) -> None:
    out = ["--out", str(tmp_path / "x.parquet"), "--jobs-per-s", "1e-300"]
    assert run(["trace", "generate", "openb", "--hours", hours, *out]) == 2
    assert "expected at most 8784, a year" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
