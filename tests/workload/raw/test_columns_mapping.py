import io
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_traces import STRANGE, convert_sources, convert_tables, converted_or_refused, damaged_bytes

from marl_sched.errors import TraceError
from marl_sched.workload.raw.columns import column_files
from marl_sched.workload.raw.columns.column_mapping import load_mapping

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
PLAIN = """
file: {kind: text}
job: job
task: task
times:
  arrival: {column: at}
  duration: {column: runs, unit: min}
requests:
  cpu_milli: {column: cores, factor: 1000}
  memory_mib: {column: mib}
"""
PARENTS = PLAIN + "parents: {kind: list, column: after, separator: '|'}\n"
NAMES = PLAIN + "parents: {kind: names}\n"
INSTANCES = PARENTS + "row: instance\n"
STARTS = PARENTS.replace("duration: {column: runs, unit: min}", "end: {column: ends}").replace(
    "arrival: {column: at}", "arrival: {column: at}\n  start: {column: starts}"
)
TIMESTAMPS = PLAIN.replace("{column: at}", "{column: at, unit: iso}")
ROW = {"job": "a", "task": "x", "at": "10", "runs": "2", "cores": "1.5", "mib": "100"}
OTHER = ROW | {"job": "b", "at": "15"}


def table(*rows: dict[str, str], separator: str = ",") -> str:
    """A text table with a header."""
    return "".join(
        separator.join(values) + "\n" for values in (rows[0], *(r.values() for r in rows))
    )


def convert_text(mapping: str, *rows: dict[str, str], turned: tuple[str, ...] = ()):
    return convert_tables("columns", {"my.csv": table(*rows)}, *turned, mapping=mapping)


def test_example_converts_as_its_comments_say():
    outcome = convert_sources(
        "columns", [str(EXAMPLES / "my-trace.csv")], mapping=EXAMPLES / "columns.yaml"
    )
    account = outcome.of("table")
    assert (account.rows_read, account.rows_kept) == (12, 8)
    assert account.dropped == {
        "status-not-success": 1,
        "job-incomplete": 1,
        "end-before-start": 1,
        "parent-missing": 1,
    }
    assert account.found["child-before-parent"] == 1
    assert account.examined["child-before-parent"] == 6
    assert account.found["duration-zero"] == 1
    trace = outcome.table
    assert trace.job_arrival_us.tolist() == [0, 30_000_000, 660_000_000, 780_000_000]
    assert trace.job_task_start.tolist() == [0, 4, 5, 7, 8]
    assert trace.parents.tolist() == [0, 0, 1, 2, 0]
    assert trace.n_instances.tolist() == [4, 8, 2, 1, 1, 32, 1, 1]
    assert trace.priority.tolist() == [5, 5, 5, 5, 1, 9, 9, 9]
    assert trace.duration_s[:5, 0].tolist() == [120.0, 180.0, 90.0, 30.0, 3600.0]
    assert trace.request[:2].tolist() == [[1000, 1908], [2000, 3815]]
    assert trace.request[5].tolist() == [1000, 954]  # no memory given: 1 GB
    assert trace.use[1].tolist() == [[1500.0, 1500.0], [3815.0, 3815.0]]
    assert trace.use[2, 0].tolist() == [1000.0, 1000.0]  # no use given: the request


def test_row_is_a_task():
    trace = convert_text(PLAIN, ROW, ROW | {"task": "y", "at": "12"}, OTHER).table
    assert trace.job_arrival_us.tolist() == [0, 5_000_000]  # from the first arrival on
    assert trace.job_task_start.tolist() == [0, 2, 3]
    assert trace.duration_s[:, 0].tolist() == [120.0] * 3
    assert trace.request.tolist() == [[1500, 100]] * 3
    assert trace.resolution_us == 1_000_000


def test_origin_zero_keeps_the_clock():
    mapping = PLAIN.replace("times:", "times:\n  origin: zero")
    assert convert_text(mapping, ROW).table.job_arrival_us.tolist() == [10_000_000]


def test_rows_without_job_are_jobs_of_their_own():
    mapping = PLAIN.replace("job: job\ntask: task\n", "")
    assert convert_text(mapping, ROW, ROW).table.n_jobs == 2


def test_constants_defaults_priority_and_further_resources():
    mapping = PLAIN.replace("{column: mib}", "{column: mib, default: 64}") + (
        "  gpu_milli: {constant: 500}\n"
        "n_instances: {column: n, default: 3}\n"
        "priority: {column: nice, factor: -1}\n"
        "resolution_s: 0.001\n"
    )
    rows = [ROW | {"mib": "", "n": "", "nice": "4"}, OTHER | {"n": "2", "nice": "-1"}]
    trace = convert_text(mapping, *rows).table
    assert trace.resources == ("cpu_milli", "memory_mib", "gpu_milli")
    assert trace.request.tolist() == [[1500, 64, 500], [1500, 100, 500]]
    assert trace.n_instances.tolist() == [3, 2]
    assert trace.priority.tolist() == [-4, 1]
    assert trace.resolution_us == 1000


def test_shares_of_the_largest_machine():
    mapping = PLAIN.replace("factor: 1000", "factor: 0.01, is_share: true") + (
        "reference: {cpu_milli: 64000}\n"
    )
    outcome = convert_text(mapping, ROW, OTHER | {"cores": "101"})
    assert outcome.table.request[:, 0].tolist() == [960, 64_640]
    assert outcome.table.reference.tolist() == [64_000, 0]
    assert outcome.of("table").found["request-above-largest"] == 1


def test_use():
    mapping = PLAIN + (
        "use_mean: {cpu_milli: {column: used}}\nuse_max: {cpu_milli: {column: most}}\n"
    )
    rows = [ROW | {"used": "700", "most": ""}, OTHER | {"used": "700", "most": "900"}]
    trace = convert_text(mapping, *rows).table
    assert trace.use[:, 0].tolist() == [[700.0, 700.0], [700.0, 900.0]]
    assert trace.use[:, 1].tolist() == [[100.0, 100.0]] * 2


@pytest.mark.parametrize(
    ("unit", "value", "duration_s"),
    [
        ("us", "2e6", 2.0),
        ("ms", "2500", 2.5),
        ("s", "3", 3.0),
        ("h", "1", 3600.0),
        ("days", "2", 172_800.0),
    ],
)
def test_units_of_time(unit, value, duration_s):
    mapping = PLAIN.replace("unit: min", f"unit: {unit}")
    assert convert_text(mapping, ROW | {"runs": value}).table.duration_s[0, 0] == duration_s


def test_timestamps_with_and_without_zone():
    mapping = TIMESTAMPS
    rows = [
        ROW | {"at": "2026-03-01T12:00:00+01:00"},
        OTHER | {"at": "2026-03-01 11:00:30.25"},
        OTHER | {"job": "c", "at": "20260301T110100Z"},
    ]
    trace = convert_text(mapping, *rows).table
    assert trace.job_arrival_us.tolist() == [0, 30_250_000, 60_000_000]


def test_duration_is_end_less_start_and_children_are_compared():
    rows = [
        {"task": "x", "after": "", "at": "0", "starts": "5", "ends": "9"},
        {"task": "y", "after": " x | x ", "at": "1", "starts": "8", "ends": "8.5"},
    ]
    outcome = convert_text(STARTS, *(ROW | row for row in rows))
    assert outcome.table.duration_s[:, 0].tolist() == [4.0, 1.0]  # half a second is taken for one
    assert outcome.table.parents.tolist() == [0]
    assert outcome.of("table").found["child-before-parent"] == 1
    turned = ("child-before-parent=drop-edge",)
    assert convert_text(STARTS, *(ROW | row for row in rows), turned=turned).table.parents.size == 0


def test_end_alone_counts_from_arrival():
    mapping = PLAIN.replace("duration: {column: runs, unit: min}", "end: {column: runs}")
    assert convert_text(mapping, ROW | {"runs": "40"}).table.duration_s[0, 0] == 30.0


def test_parents_in_names():
    rows = [ROW | {"task": name} for name in ("R3_1_2", "M1", "M2", "task_abc")]
    outcome = convert_text(NAMES, *rows)
    assert outcome.table.parents.tolist() == [1, 2]
    rows = [ROW | {"task": "M1_2"}, ROW | {"task": "M2"}]
    assert convert_text(NAMES, *rows).of("table").found["parent-id-above-own"] == 1


@pytest.mark.parametrize(
    ("mapping", "rule", "change"),
    [
        (PLAIN, "wrong-column-count", {"mib": "1,2"}),
        (PLAIN, "missing-job", {"job": ""}),
        (PLAIN, "missing-value", {"task": " "}),
        (PLAIN, "missing-value", {"at": ""}),
        (PLAIN, "missing-value", {"cores": ""}),
        (PLAIN, "bad-value", {"at": "noon"}),
        (PLAIN, "bad-value", {"runs": "1e300"}),
        (PLAIN, "bad-value", {"cores": "-1"}),
        (PLAIN, "bad-value", {"mib": "inf"}),
        (PLAIN, "end-before-start", {"runs": "-1"}),
        (PLAIN + "n_instances: {column: mib}", "bad-value", {"mib": "1.5"}),
        (PLAIN + "n_instances: {column: mib}", "bad-value", {"mib": "0"}),
        (PLAIN + "status: {column: mib, success: ['100']}", "status-not-success", {"mib": "7"}),
        (PLAIN + "status: {column: mib, success: ['100']}", "status-not-success", {"mib": ""}),
        (TIMESTAMPS, "bad-value", {"at": "2026-13-01"}),
        (PLAIN.replace("times:", "times:\n  origin: zero"), "before-trace", {"at": "-1"}),
        (NAMES, "bad-name", {"task": "final"}),
        (NAMES, "name-cut", {"task": "M9_"}),
        (NAMES, "parent-missing", {"task": "M2_1"}),
        (NAMES, "cycle", {"task": "M2_2"}),
    ],
)  # fmt: skip
def test_row_goes_under_its_rule(mapping, rule, change):
    good = ROW | ({"task": "M1"} if mapping is NAMES else {})
    good |= {"at": "2026-01-01"} if "iso" in mapping else {}
    account = convert_text(mapping, good, good | {"job": "b"} | change).of("table")
    assert account.dropped == {rule: 1}
    assert (account.rows_read, account.rows_kept) == (2, 1)


@pytest.mark.parametrize(
    ("rule", "change"),
    [("duration-zero", {"runs": "0"}), ("cpu-below-one", {"cores": "0"})],
)
def test_row_is_kept_and_counted_and_goes_if_asked(rule, change):
    account = convert_text(PLAIN, ROW, OTHER | change).of("table")
    assert (account.found[rule], account.rows_kept) == (1, 2)
    account = convert_text(PLAIN, ROW, OTHER | change, turned=(f"{rule}=drop-row",)).of("table")
    assert account.dropped == {rule: 1}


def test_start_before_arrival_is_counted():
    row = ROW | {"after": "", "at": "5", "starts": "4", "ends": "9"}
    assert convert_text(STARTS, row).of("table").found["start-before-arrival"] == 1


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("duplicate", {"task": "x"}),
        ("parent-missing", {"after": "z"}),
        ("cycle", {"after": "y"}),
        ("missing-value", {"task": ""}),
        ("missing-value", {"mib": ""}),
    ],
)
def test_row_takes_its_job_along(rule, change):
    rows = [ROW | {"after": ""}, ROW | {"task": "y", "after": "x"} | change, OTHER | {"after": ""}]
    account = convert_text(PARENTS, *rows).of("table")
    assert account.dropped == {rule: 1, "job-incomplete": 1}
    assert account.rows_kept == 1


def test_row_goes_alone_if_asked():
    rows = [ROW, ROW | {"task": "y", "mib": ""}]
    account = convert_text(PLAIN, *rows, turned=("missing-value=drop-row",)).of("table")
    assert (account.dropped, account.rows_kept) == ({"missing-value": 1}, 1)


def test_rows_are_instances():
    rows = [
        ROW | {"after": "", "runs": str(runs), "cores": cores}
        for runs, cores in ((1, "1"), (2, "1"), (6, "2"))
    ]
    rows.append(ROW | {"task": "y", "after": "x"})
    outcome = convert_text(INSTANCES, *rows)
    trace = outcome.table
    assert trace.n_instances.tolist() == [3, 1]
    assert trace.parents.tolist() == [0]
    assert trace.duration_s[0, [0, 1, 3]].tolist() == [180.0, 120.0, 360.0]
    assert trace.request[0].tolist() == [2000, 100]
    assert trace.use[0, 0].tolist() == [4000 / 3, 2000.0]
    account = outcome.of("table")
    assert (account.rows_kept, account.found["request-differs"]) == (4, 3)


def test_instances_that_name_other_parents_are_counted():
    rows = [
        ROW | {"task": task, "after": after} for task, after in (("x", ""), ("y", "x"), ("y", ""))
    ]
    outcome = convert_text(INSTANCES, *rows)
    assert outcome.of("table").found["parents-differ"] == 2
    assert outcome.table.parents.tolist() == [0]


def test_bad_instance_takes_its_job_along_or_goes_alone():
    rows = [ROW | {"after": "", "mib": mib} for mib in ("100", "x", "100")]
    rows += [ROW | {"task": "y", "after": "x"}, OTHER | {"after": ""}]
    account = convert_text(INSTANCES, *rows).of("table")
    assert account.dropped == {"bad-value": 1, "job-incomplete": 3}
    outcome = convert_text(INSTANCES, *rows, turned=("bad-value=drop-row",))
    assert outcome.of("table").dropped == {"bad-value": 1}
    assert outcome.table.n_instances.tolist() == [2, 1, 1]


@pytest.mark.parametrize("mapping", [PLAIN, INSTANCES])
def test_blocks_make_no_difference(monkeypatch, mapping):
    rows = [
        ROW | {"job": f"j{i % 4}", "task": f"t{i if mapping is PLAIN else i % 3}", "after": "",
               "at": str(i), "runs": str(i % 7)}
        for i in range(60)
    ]  # fmt: skip
    frame = pl.DataFrame(rows)
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    parquet = mapping.replace("kind: text", "kind: parquet")
    whole = convert_tables("columns", {"my.parquet": buffer.getvalue()}, mapping=parquet)
    monkeypatch.setattr(column_files, "_BLOCK", 7)
    parts = convert_tables("columns", {"my.parquet": buffer.getvalue()}, mapping=parquet)
    text = convert_text(mapping, *rows)
    for name in ("job_arrival_us", "n_instances", "duration_s", "request", "use"):
        expected = getattr(whole.table, name).tolist()
        assert getattr(parts.table, name).tolist() == expected
        assert getattr(text.table, name).tolist() == expected


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("{kind: text, separator: ';'}", table(ROW, OTHER, separator=";")),
        ('{kind: text, separator: "\\t"}', table(ROW, OTHER, separator="\t")),
        ("{kind: text, separator: ' ', comment: '#'}", "# a\n" + table(ROW, OTHER, separator="  ")),
        ("{kind: text}", table(ROW, OTHER | {"job": '"b, c"'})),
        ("{kind: text, quoted: false}", table(ROW, OTHER | {"job": '"b'})),
        (
            "{kind: text, header: false, names: [job, task, at, runs, cores, mib]}",
            table(ROW, OTHER).partition("\n")[2],
        ),
        ("{kind: text}", table({"more": "1"} | ROW, {"more": ""} | OTHER)),
    ],
)  # fmt: skip
def test_text_may_be_written_in_many_ways(file, text):
    mapping = PLAIN.replace("{kind: text}", file)
    trace = convert_tables("columns", {"my.csv": text}, mapping=mapping).table
    assert trace.request.tolist() == [[1500, 100]] * 2


def parquet_of(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


PARQUET = """
file: {kind: parquet}
job: job
task: task
parents: {kind: list, column: after}
times: {arrival: {column: at, unit: iso}, duration: {column: runs}}
requests: {cpu_milli: {column: cpu}, memory_mib: {constant: 64}}
"""
FRAME = pl.DataFrame(
    {
        "job": [1, 1, 2],
        "task": ["x", "y", "x"],
        "after": [[], ["x"], None],
        "at": [datetime(2026, 3, 1, 8, 0, second, tzinfo=UTC) for second in (0, 0, 7)],
        "runs": [1.5, 60.0, 90.0],
        "cpu": pl.Series([500, 1000, 1], dtype=pl.UInt16),
        "unread": [{"a": 1}] * 3,
    },
    schema_overrides={"after": pl.List(pl.String)},
)


def test_parquet_types():
    outcome = convert_tables("columns", {"my.parquet": parquet_of(FRAME)}, mapping=PARQUET)
    trace = outcome.table
    assert trace.job_arrival_us.tolist() == [0, 7_000_000]
    assert trace.duration_s[:, 0].tolist() == [1.5, 60.0, 90.0]
    assert trace.request.tolist() == [[500, 64], [1000, 64], [1, 64]]
    assert trace.parents.tolist() == [0]
    assert outcome.of("table").rows_read == 3
    dated = FRAME.with_columns(at=pl.Series([date(2026, 3, 1), date(2026, 3, 1), date(2026, 3, 2)]))
    trace = convert_tables("columns", {"my.parquet": parquet_of(dated)}, mapping=PARQUET).table
    assert trace.job_arrival_us.tolist() == [0, 86_400_000_000]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a whole Parquet file"),
        (b"job,task\n", "not a whole Parquet file"),
        (parquet_of(FRAME)[:-20], "not a whole Parquet file"),
        (parquet_of(FRAME.drop("cpu", "runs")), "no column runs, cpu among job, task"),
        (parquet_of(FRAME.with_columns(cpu="unread")), "the column cpu is Struct"),
    ],
)
def test_parquet_file_is_refused(content, message):
    with pytest.raises(TraceError, match=message):
        convert_tables("columns", {"my.parquet": content}, mapping=PARQUET)


def test_text_file_without_a_column_is_refused():
    with pytest.raises(TraceError, match="no column mib in the header"):
        convert_text(PLAIN, {name: value for name, value in ROW.items() if name != "mib"})


def test_parquet_as_text_is_refused():
    with pytest.raises(TraceError, match="is a Parquet file, expected"):
        convert_tables("columns", {"my.parquet": parquet_of(FRAME)}, mapping=PLAIN)


def test_mapping_is_needed():
    with pytest.raises(TraceError, match="columns needs --mapping FILE"):
        convert_tables("columns", {"my.csv": table(ROW)})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("job: job", "jobs: job", "jobs = job is not a known key, expected one of file, row, job"),
        ("kind: text", "kind: csv", "file.kind = csv, expected text or parquet"),
        ("{kind: text}", "text", "file = text, expected a mapping with kind: text or parquet"),
        ("kind: text", "kind: text, separator: ab", "file.separator = ab, expected one ASCII"),
        ("kind: text", "kind: text, header: 1", "file.header = 1, expected true or false"),
        ("kind: text", "kind: text, names: [job]", "file.names = .job., expected none"),
        ("kind: text", "kind: text, header: false", "file.names is missing"),
        (
            "kind: text",
            "kind: text, header: false, names: [job, task, at, runs, mib]",
            "requests.cpu_milli.column = cores, expected one of job, task, at, runs, mib",
        ),
        ("kind: text", "kind: text, header: false, names: [at, at]", r"names.1. = at, expected"),
        ("{column: at}", "{column: at, unit: weeks}", "times.arrival.unit = weeks, expected us"),
        ("{column: cores", "{column: cores, constant: 3", "requests.cpu_milli has both of column"),
        ("{column: at}", "{}", "times.arrival has neither of column and constant"),
        ("{column: at}", "{constant: 3}", "times.arrival.constant = 3, expected a column"),
        ("arrival: {column: at}", "origin: zero", "times.arrival is missing, expected one of"),
        ("duration: {column: runs, unit: min}", "", "times.duration is missing, expected one of"),
        ("unit: min", "unit: iso", "times.duration.unit = iso, expected one of us, ms"),
        ("duration: {c", "end: {column: e, unit: iso}\n  duration: {c", "times, expected all"),
        ("memory_mib: {column: mib}", "", "requests.memory_mib is missing"),
        ("cpu_milli:", "cpu_milli: 5 #", "requests.cpu_milli = 5, expected a mapping with"),
        ("factor: 1000", "factor: many", "requests.cpu_milli.factor = many, expected a number"),
        ("factor: 1000", "is_share: true", "is_share = true, expected an amount of cpu_milli in"),
        ("times:", "row: instance\nn_instances: {column: mib}\ntimes:", "n_instances, expected no"),
        ("task: task", "row: instance", "task is missing, expected a column, since rows are inst"),
        ("task: task", "parents: {kind: names}", "parents.column is missing"),
        ("task: task", "parents: {kind: list, column: p}", "task is missing, expected a column"),
        ("job: job", "parents: {kind: list, column: p}", "job is missing, expected a column"),
        ("times:", "use_mean: {gpu_milli: {column: g}}\ntimes:", "use_mean.gpu_milli, expected"),
        ("times:", "use_max: {cpu_milli: {column: g}}\ntimes:", "use_mean.cpu_milli is missing"),
        ("times:", "status: {column: s, success: []}\ntimes:", "status.success = .*, expected a"),
        ("times:", "times: [", "not valid YAML"),
        (PLAIN, "", "expected a mapping of keys"),
    ],
)  # fmt: skip
def test_mapping_error_names_file_key_and_value(tmp_path, old, new, message):
    path = tmp_path / "mapping.yaml"
    assert old in PLAIN
    path.write_text(PLAIN.replace(old, new, 1))
    with pytest.raises(TraceError, match=message) as caught:
        load_mapping(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_mapping_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        load_mapping(tmp_path / "none.yaml")
    path = tmp_path / "mapping.yaml"
    path.write_bytes(b"file: \xff")
    with pytest.raises(TraceError, match="not UTF-8"):
        load_mapping(path)


GOOD = [ROW | {"task": f"t{i}", "after": f"t{i - 1}" if i else "", "at": str(i)} for i in range(5)]
MAPPINGS = st.sampled_from(
    [PLAIN, PARENTS, INSTANCES, TIMESTAMPS, NAMES, NAMES + "row: instance\n"]
)


@settings(max_examples=100, deadline=None)
@given(st.data(), MAPPINGS)
def test_damaged_rows_are_counted(data, mapping):
    rows = [dict(row) for row in GOOD]
    for _ in range(data.draw(st.integers(1, 6))):
        row = data.draw(st.sampled_from(rows))
        value = st.sampled_from([*STRANGE, "t1", "t4", "t1|t2", "a", "2026-01-01"])
        row[data.draw(st.sampled_from(list(ROW)))] = data.draw(value)
    outcome = converted_or_refused("columns", {"my.csv": table(*rows)}, mapping=mapping)
    assert outcome is None or outcome.of("table").rows_read == len(rows)


@settings(max_examples=60, deadline=None)
@given(damaged_bytes(table(*GOOD)), MAPPINGS)
def test_damaged_bytes_are_counted(content, mapping):
    outcome = converted_or_refused("columns", {"my.csv": content}, mapping=mapping)
    n_lines = content.count(b"\n") + (not content.endswith(b"\n"))
    assert outcome is None or outcome.of("table").rows_read == n_lines - 1


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_parquet_file_without_its_end_is_refused(share):
    content = parquet_of(FRAME)
    with pytest.raises(TraceError, match="not a whole Parquet file"):
        convert_tables(
            "columns", {"my.parquet": content[: int(share * len(content))]}, mapping=PARQUET
        )


VALUES = st.one_of(st.none(), st.floats(), st.integers(-(2**63), 2**63 - 1).map(float))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), VALUES, VALUES, VALUES), max_size=9))
def test_strange_parquet_values_are_counted(rows):
    good = [(1, 2.0, 3.0, 4.0)]
    schema = {"job": pl.Int64, "at": pl.Float64, "runs": pl.Float64, "cpu": pl.Float64}
    content = parquet_of(pl.DataFrame([*good, *rows], schema=schema, orient="row"))
    mapping = """
file: {kind: parquet}
job: job
times: {arrival: {column: at}, duration: {column: runs}}
requests: {cpu_milli: {column: cpu}, memory_mib: {constant: 64}}
"""
    outcome = converted_or_refused("columns", {"my.parquet": content}, mapping=mapping)
    assert outcome is None or outcome.of("table").rows_read == 1 + len(rows)


@settings(max_examples=60, deadline=None)
@given(damaged_bytes(PARENTS))
def test_damaged_mapping_is_read_or_refused(content):
    text = content.decode("utf-8", "replace")
    converted_or_refused("columns", {"my.csv": table(*GOOD)}, mapping=text)
