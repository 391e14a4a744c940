"""`marl-sched trace`: what it prints and writes, and that a failure leaves nothing behind."""

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from tiny import machines, tiny, zone

from marl_sched.cli import run
from marl_sched.commands.trace import trace
from marl_sched.commands.trace_convert import _Megabytes
from marl_sched.config import dump_config
from marl_sched.workload.raw.account import Account
from marl_sched.workload.raw.registry import FORMATS
from marl_sched.workload.traces.source import GeneratedTrace
from marl_sched.workload.traces.tasks import (
    TraceInfo,
    load_tasks,
    metadata,
    read_info,
    task_schema,
)

Capture = pytest.CaptureFixture[str]
HOUR = "package:alibaba-v2018-hour"
HEADER = (
    "arrive,job,task,task_duration,plan_cpu,plan_mem,inst_num,dur_mean,dur_p50,dur_max,"
    "cpu_avg_mean,cpu_avg_max,mem_avg_mean,mem_avg_max,dur_p95\n"
)
STATISTICS = "9,100,0.5,2,4,4,5,60,70,0.1,0.2,5\n"
ROWS = (
    f"0,j_1,M1,{STATISTICS}"
    f"0,j_1,R2_1,{STATISTICS}"
    f"3,j_2,task_abc,{STATISTICS}"
    f"4,j_3,M1,{STATISTICS}"
    f"4,j_3,R2_7,{STATISTICS}"  # the parent 7 is missing: the job goes
    "\n"
)
SOURCE = "tasks_with_instance_stats.csv"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a small raw trace in `raw`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / SOURCE).write_text(HEADER + ROWS)
    return tmp_path


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def write_gpu_task(path: Path) -> None:
    """Write a table of one task that asks for half a gpu."""
    resources = ("cpu_milli", "memory_mib", "gpu_milli")
    numbers: dict[str, object] = dict.fromkeys(task_schema(resources), 500)
    row = {**numbers, "job": 0, "arrival_us": 0, "parents": [], "n_instances": 1}
    info = TraceInfo(format="hand-made", reference={"cpu_milli": 1000})
    pl.DataFrame([row], schema=task_schema(resources)).write_parquet(path, metadata=metadata(info))


def convert(*options: str) -> int:
    return run(["trace", "convert", "spar-stats", "raw", "--out", "x.parquet", *options])


def refused(arguments: list[str], exit_code: int, capsys: Capture) -> str:
    """Return the one line that a command must end with, without a word on stdout."""
    assert run(arguments) == exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    return err


@pytest.mark.parametrize("name", ["convert", "formats", "info", "generate"])
def test_help_of_every_command_opens_with_examples(name: str, capsys: Capture) -> None:
    assert run(["trace", name, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["", "Examples:"]
    assert lines[3].startswith(f"    marl-sched trace {name}")


def test_command_alone_lists_its_commands(capsys: Capture) -> None:
    assert run(["trace"]) == 0
    out = capsys.readouterr().out
    for command in trace.registered_commands:
        assert f"\n  {command.name} " in out
        assert f" {command.short_help}\n" in out


def test_defaults_pass_their_own_parsers() -> None:
    command = typer.main.get_command(trace)
    assert isinstance(command, typer.core.TyperGroup)
    arguments = {
        "convert": ["spar", ".", "--out", "a.parquet"],
        "formats": [],
        "info": ["a.parquet"],
        "generate": ["openb", "--out", "a.parquet"],
    }
    for name, child in command.commands.items():
        context = child.make_context(name, arguments[name])
        assert context.params.get("out") in (Path("a.parquet"), None)


def test_convert_says_where_every_row_went(folder: Path, capsys: Capture) -> None:
    assert convert() == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == f"tasks ({SOURCE}): 6 rows read, 3 kept, 3 dropped"
    cells = {line.split()[0]: line.split()[1:5] for line in lines[2:6]}
    assert cells == {
        "blank-line": ["drop-row", "1", "rows", "1"],
        "parent-id-above-own": ["keep", "1", "edges", "0"],
        "parent-missing": ["drop-job", "1", "rows", "1"],
        "job-incomplete": ["drop-row", "1", "rows", "1"],
    }
    assert "a parent that its job does not have" in out
    assert "tasks: 2 jobs, 3 tasks, 6 instances, 1 edges\n" in out
    assert out.endswith("wrote x.parquet, x.account.json\nnext: marl-sched trace info x.parquet\n")
    assert err == ""
    assert names(folder) == ["raw", "x.account.json", "x.parquet"]
    assert load_tasks(str(folder / "x.parquet")).n_tasks == 3


def test_rule_and_reference_reach_the_conversion(folder: Path) -> None:
    reference = "cpu_milli=64000,memory_mib=1000000"
    assert convert("--rule", "file-cut-short=keep", "--reference", reference) == 0
    info, _ = read_info(folder / "x.parquet")
    assert info.reference == {"cpu_milli": 64_000, "memory_mib": 1_000_000}
    account = json.loads((folder / "x.account.json").read_text())
    assert account["rules"]["file-cut-short"]["action"] == "keep"
    assert load_tasks(str(folder / "x.parquet")).request[0, 1] == 5000  # 0.5%


def test_output_that_exists_is_refused_unless_forced(folder: Path, capsys: Capture) -> None:
    stale = folder / "x.zones.yaml"
    stale.write_text("zones of another trace")
    arguments = ["trace", "convert", "spar-stats", "raw", "--out", "x.parquet"]
    line = refused(arguments, 1, capsys)
    assert line == "error: x.zones.yaml: exists already; --force replaces it\n"
    assert names(folder) == ["raw", "x.zones.yaml"]
    assert convert("--force") == 0
    capsys.readouterr()
    assert names(folder) == ["raw", "x.account.json", "x.parquet"]
    before = (folder / "x.parquet").read_bytes()
    assert "x.parquet: exists already" in refused(arguments, 1, capsys)
    assert convert("--force") == 0
    assert (folder / "x.parquet").read_bytes() == before


def test_file_cut_short_stops_or_is_warned_of(folder: Path, capsys: Capture) -> None:
    rows = "".join(f"{job},j_{job},M1,{STATISTICS}" for job in range(5000))
    packed = gzip.compress((HEADER + rows).encode())
    (folder / "raw" / SOURCE).unlink()
    (folder / "raw" / f"{SOURCE}.gz").write_bytes(packed[: len(packed) // 2])
    arguments = ["trace", "convert", "spar-stats", "raw", "--out", "x.parquet"]
    line = refused(arguments, 1, capsys)
    assert "--rule file-cut-short=keep takes the rows before that" in line
    assert names(folder) == ["raw"]
    assert convert("--rule", "file-cut-short=keep") == 0
    out, err = capsys.readouterr()
    assert err == (
        f"warning: tasks: 1 of {SOURCE}.gz is cut short or damaged; only the rows before that "
        "were read\n"
    )
    assert 0 < load_tasks(str(folder / "x.parquet")).n_jobs < 5000
    assert "x.parquet" in out


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["spa", "raw", "--out", "x.parquet"], 1, "no format 'spa', expected one of"),
        (["spar-stats", "nowhere", "--out", "x.parquet"], 1, "nowhere: no such file"),
        (["spar-stats", "empty", "--out", "x.parquet"], 1, "empty: holds no table, expected"),
        (["spar-stats", "jobs=raw", "--out", "x.parquet"], 1, "spar-stats has no table 'jobs'"),
        (["spar-stats", "tasks=raw", "--out", "x.parquet"], 1, "raw: not a file"),
        (["spar-stats", "noise.bin", "--out", "x.parquet"], 1, "noise.bin"),
        (
            ["spar-stats", "raw", "--out", "x.csv"],
            2,
            "x.csv, expected a name that ends in .parquet",
        ),
        (["spar-stats", "raw", "--out", ""], 2, "an empty name"),
        (["spar-stats", "raw", "--out", "no/x.parquet"], 1, "no/x.parquet: there is no folder no"),
        (["spar-stats", "raw", "--out", "noise.bin/x.parquet"], 1, "there is no folder noise.bin"),
        (["spar-stats", "raw", "--out", "dir.parquet"], 1, "dir.parquet: is a folder, expected"),
        (["spar-stats", "raw"], 2, "Missing option '--out'"),
        (["spar-stats", "--out", "x.parquet"], 2, "Missing argument 'SOURCE...'"),
        (["spar-stats", "raw", "--out", "x.parquet", "--rule", "cycle"], 1, "expected RULE=ACTION"),
        (["spar-stats", "raw", "--out", "x.parquet", "--rule", "cycel=keep"], 1, "mean cycle?"),
        (["spar-stats", "raw", "--out", "x.parquet", "--rule", "cycle=keep"], 1, "allows drop-job"),
        (
            ["spar-stats", "raw", "--out", "x.parquet", "--reference", "gpu_milli=1000"],
            1,
            "spar-stats has relative amounts of cpu_milli, memory_mib only",
        ),
        (
            ["spar-stats", "raw", "--out", "x.parquet", "--reference", "cpu_milli=-1"],
            2,
            "'cpu_milli=-1', expected RESOURCE=AMOUNT",
        ),
        (
            ["spar-stats", "raw", "--out", "x.parquet", "--reference", "cpu_milli=1,cpu_milli=2"],
            2,
            "with every resource once",
        ),
        (
            ["spar-stats", "raw", "--out", "x.parquet", "--mapping", "m.yaml"],
            1,
            "spar-stats takes no --mapping",
        ),
    ],
)
def test_convert_refuses_in_one_line_and_leaves_nothing(
    folder: Path, arguments: list[str], exit_code: int, message: str, capsys: Capture
) -> None:
    (folder / "empty").mkdir()
    (folder / "dir.parquet").mkdir()
    (folder / "noise.bin").write_bytes(b"\x00\xff\x17" * 50)
    before = names(folder)
    assert message in refused(["trace", "convert", *arguments], exit_code, capsys)
    assert names(folder) == before


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    "arguments", [["convert", "spar-stats", "raw"], ["generate", "alibaba-v2018"]]
)
def test_folder_that_takes_no_files_is_one_line(
    folder: Path, arguments: list[str], capsys: Capture
) -> None:
    assert run(["trace", *arguments, "--out", "/proc/x.parquet"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("error: /proc/x.parquet")


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(OSError(28, "No space left on device"), 1), (KeyboardInterrupt(), 130)],
)
def test_failure_while_writing_leaves_what_was_there(
    folder: Path,
    error: BaseException,
    exit_code: int,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_account: Account, _path: Path) -> None:
        raise error

    monkeypatch.setattr(Account, "write", fail)
    assert convert() == exit_code
    assert names(folder) == ["raw"]
    (folder / "x.parquet").write_text("the old one")
    assert convert("--force") == exit_code
    assert capsys.readouterr().err.count("\n") == 2
    assert names(folder) == ["raw", "x.parquet"]
    assert (folder / "x.parquet").read_text() == "the old one"


def test_interrupt_while_reading_leaves_nothing(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_progress: _Megabytes, _n_bytes: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_Megabytes, "count", interrupt)
    assert convert() == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    assert names(folder) == ["raw"]


def test_formats_are_listed_with_their_tables(capsys: Capture) -> None:
    assert run(["trace", "formats"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0]: line for line in lines[1:-1]}
    assert list(listed) == list(FORMATS)
    for name, found in FORMATS.items():
        assert found.title in listed[name]
        assert ", ".join(table.name for table in found.tables) in listed[name]


@pytest.mark.parametrize("name", FORMATS)
def test_format_shows_all_its_tables_rules_and_actions(name: str, capsys: Capture) -> None:
    assert run(["trace", "formats", name]) == 0
    out = capsys.readouterr().out
    found = FORMATS[name]
    rules = {line.split()[0]: line for line in out.splitlines() if line}
    for rule in found.rules:
        assert f" {', '.join(rule.actions)} " in rules[rule.name]
        assert rule.what in rules[rule.name]
    for table in found.tables:
        assert " ".join(table.patterns) in rules[table.name]
    assert all(f"{resource}={n}" in out for resource, n in found.reference.items())
    assert ("takes no --reference" in out) == (not found.reference)


def test_unknown_format_is_refused(capsys: Capture) -> None:
    line = refused(["trace", "formats", "nope"], 1, capsys)
    assert "no format 'nope', expected one of alibaba-v2018" in line


def test_info_prints_the_figures_of_a_table(folder: Path, capsys: Capture) -> None:
    assert convert() == 0
    capsys.readouterr()
    assert run(["trace", "info", "x.parquet"]) == 0
    out, err = capsys.readouterr()
    lines = {line[:24].strip(): line[24:].split() for line in out.splitlines()}
    assert out.startswith(
        "x.parquet (spar-stats): 2 jobs, 3 tasks, 6 instances, 1 edges over 4 s from second 0 on\n"
    )
    assert lines["tasks a job"] == ["1.5", "1", "1", "1", "2", "2", "2", "2", "2", "2"]
    assert lines["task mean duration"][:2] == ["s", "4"]
    assert lines["gap between jobs"] == ["s", *["3"] * 10]
    assert "jobs with an edge: 50.0%\n" in out
    assert "none at 300 s (0 whole windows, 10 are needed)" in out
    assert err == ""


def test_info_as_json_is_one_object_with_the_same_figures(folder: Path, capsys: Capture) -> None:
    config = folder / "tiny.yaml"
    config.write_text(dump_config(tiny(zone("a", machines(2)), zone("b"))))
    options = ["--config", "tiny.yaml", "--set", "zones[0].machines[0].count=5", "--json"]
    assert run(["trace", "info", HOUR, *options, "--out", "plots"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["table"], found["version"], found["n_jobs"]) == (HOUR, 2, 16742)
    assert found["arrivals"]["dispersion"]["10"] == pytest.approx(21.6, abs=0.05)
    assert found["distributions"]["tasks a job"]["p99.9"] == 43.0
    loads = {name: place["mean"]["cpu_milli"] for name, place in found["load"]["zones"].items()}
    assert loads["b"] == pytest.approx(5.0 * loads["a"])
    whole = found["load"]["cluster"]["mean"]["cpu_milli"]
    assert whole == pytest.approx(loads["b"] / 6.0)
    files = [f"trace-{name}.png" for name in ("arrivals", "dags", "distributions", "load")]
    assert names(folder / "plots") == files
    for name in files:
        assert (folder / "plots" / name).read_bytes().startswith(b"\x89PNG")
        assert f"plots/{name}" in err


def test_info_prints_the_load_on_a_cluster(folder: Path, capsys: Capture) -> None:
    (folder / "tiny.yaml").write_text(dump_config(tiny(zone("a"), zone("b", machines(cpu=2000)))))
    assert run(["trace", "info", HOUR, "--config", "tiny.yaml"]) == 0
    out = capsys.readouterr().out
    cells = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert cells["cluster"][1] == cells["a"][1] == "cpu_milli"
    assert cells["cluster"][-1] == cells["a"][-1] == "0.06%"  # 39 of 67,228
    assert float(cells["b"][-1].rstrip("%")) > float(cells["a"][-1].rstrip("%"))
    assert not (folder / "plots").exists()


def test_trace_of_one_job_is_described_and_drawn(folder: Path, capsys: Capture) -> None:
    write_gpu_task(folder / "one.parquet")
    (folder / "gpus.yaml").write_text(
        dump_config(tiny(has_gpus=True)).replace("gpu:", "gpu_milli:")
    )
    options = ["--config", "gpus.yaml", "--set", "resources=[cpu_milli,memory_mib,gpu_milli]"]
    assert run(["trace", "info", "one.parquet", *options, "--out", "plots"]) == 0
    out = capsys.readouterr().out
    assert "one.parquet (hand-made): 1 jobs, 1 tasks, 1 instances, 0 edges over 1 s" in out
    cluster = next(line.split() for line in out.splitlines() if line.startswith("cluster"))
    assert cluster == ["cluster", "gpu_milli", "0.125", "-", "0.06104", "-", "125", "-", "100.00%"]
    assert len(names(folder / "plots")) == 4


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["nowhere.parquet"], 1, "nowhere.parquet: no such file, expected a task table"),
        (["raw"], 1, "raw: not a file, expected a task table"),
        (["package:nope"], 1, "package:nope: no such sample, expected one of"),
        ([""], 2, "an empty name"),
        (["noise.parquet"], 1, "noise.parquet: not a whole Parquet file"),
        (["other.parquet"], 1, "other.parquet: not a task table, or one of an older version"),
        (["future.parquet"], 1, "future.parquet: version 3 of the task table, expected 2"),
        ([HOUR, "--config", "nowhere.yaml"], 2, "nowhere.yaml: cannot be read"),
        ([HOUR, "--set", "seed=1"], 2, "--set needs --config CONFIG"),
        ([HOUR, "--config", "tiny.yaml", "--set", "seed=x"], 2, "--set seed=x: seed = x"),
        (["gpus.parquet", "--config", "tiny.yaml"], 2, "tiny.yaml: resources = ["),
        ([HOUR, "--out", "noise.parquet"], 1, "noise.parquet: File exists"),
        ([HOUR, "--out", "noise.parquet/in"], 1, "noise.parquet/in: Not a directory"),
    ],
)
def test_info_refuses_in_one_line_and_leaves_nothing(
    folder: Path, arguments: list[str], exit_code: int, message: str, capsys: Capture
) -> None:
    (folder / "tiny.yaml").write_text(dump_config(tiny()))
    (folder / "noise.parquet").write_bytes(b"PAR1 but no more")
    frame = pl.DataFrame({"job": [1]})
    frame.write_parquet(folder / "other.parquet")
    text = '{"version": 3, "format": "x", "reference": {}}'
    frame.write_parquet(folder / "future.parquet", metadata={"marl_sched": text})
    write_gpu_task(folder / "gpus.parquet")
    before = names(folder)
    line = refused(["trace", "info", *arguments], exit_code, capsys)
    assert message in line
    assert names(folder) == before


def test_equal_seeds_generate_equal_tables(folder: Path, capsys: Capture) -> None:
    generate = ["trace", "generate", "alibaba-v2018", "--hours", "0.05"]
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        assert run([*generate, "--seed", seed, "--out", f"{name}.parquet"]) == 0
    out, err = capsys.readouterr()
    a, b, c = ((folder / f"{name}.parquet").read_bytes() for name in "abc")
    assert a == b
    assert a != c
    tasks = load_tasks(str(folder / "a.parquet"))
    assert f"wrote a.parquet: {tasks.n_jobs:,} jobs, {tasks.n_tasks:,} tasks" in out
    assert "next: marl-sched trace info a.parquet\n" in out
    assert err.startswith("generating 180 s of alibaba-v2018 ...\n")
    assert read_info(folder / "a.parquet")[0].format == "generated:alibaba-v2018"
    same = GeneratedTrace("alibaba-v2018", 180.0, None, 1.0, 7).tasks()  # as in a configuration
    assert np.array_equal(tasks.job_arrival_us, same.job_arrival_us)
    assert np.allclose(tasks.duration_s, same.duration_s, rtol=0.0, atol=0.0005001)


def test_rate_and_mode_change_how_much_arrives(folder: Path) -> None:
    generate = ["trace", "generate", "alibaba-v2018", "--out"]
    jobs = {}
    for name, *options in (
        ("own",),
        ("rate", "--jobs-per-s", "1"),
        ("sparse", "--mode", "sparse"),
        ("dense", "--mode", "dense"),
        ("day", "--day-swing", "9"),
    ):
        assert run([*generate, f"{name}.parquet", *options]) == 0
        jobs[name] = load_tasks(str(folder / f"{name}.parquet")).n_jobs
    assert jobs["rate"] == pytest.approx(3600, rel=0.35)
    assert jobs["sparse"] < jobs["own"] < jobs["dense"]
    assert jobs["day"] < 0.5 * jobs["own"]  # the first hour of the day is its quietest


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["google"], 2, "no profile 'google', expected one of alibaba-v2018, openb"),
        (["openb", "--hours", "0"], 2, "--hours 0.0, expected at least a second"),
        (["openb", "--hours", "-1"], 2, "--hours -1.0, expected at least a second"),
        (["openb", "--hours", "nan"], 2, "--hours nan, expected at least a second"),
        (["alibaba-v2018", "--hours", "1e6"], 2, "jobs, expected at most 5,000,000"),
        (["openb", "--hours", "inf"], 2, "expected at most 5,000,000"),
        (["openb", "--jobs-per-s", "-2"], 2, "--jobs-per-s -2.0, expected a number > 0"),
        (["openb", "--jobs-per-s", "0"], 2, "--jobs-per-s 0.0, expected a number > 0"),
        (["openb", "--jobs-per-s", "nan"], 2, "--jobs-per-s nan, expected a number > 0"),
        (["openb", "--mode", "calm"], 2, "--mode calm, expected one of trace, sparse, dense"),
        (["openb", "--day-swing", "0.5"], 2, "--day-swing 0.5, expected a number from 1"),
        (["openb", "--day-swing", "nan"], 2, "--day-swing nan, expected"),
        (["openb", "--seed", "-1"], 2, "-1 is not in the range"),
        (["openb", "--out", "no/x.parquet"], 1, "no/x.parquet: there is no folder no"),
        (["openb", "--out", "there.parquet"], 1, "there.parquet: exists already; --force"),
    ],
)
def test_generate_refuses_in_one_line_and_leaves_nothing(
    folder: Path, arguments: list[str], exit_code: int, message: str, capsys: Capture
) -> None:
    (folder / "there.parquet").write_text("precious")
    before = names(folder)
    line = refused(["trace", "generate", "--out", "x.parquet", *arguments], exit_code, capsys)
    assert message in line
    assert names(folder) == before
    assert (folder / "there.parquet").read_text() == "precious"


def test_time_without_an_arrival_is_refused(folder: Path, capsys: Capture) -> None:
    arguments = ["openb", "--jobs-per-s", "1e-9", "--out", "x.parquet"]
    assert run(["trace", "generate", *arguments]) == 1
    assert capsys.readouterr().err.endswith(
        "error: no job arrived in 3600 s, expected a longer time or a higher rate\n"
    )
    assert names(folder) == ["raw"]
