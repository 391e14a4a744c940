import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_traces import STRANGE, convert_tables, converted_or_refused, damaged_bytes

from marl_sched.errors import TraceError

FIELDS = {
    "job": "1",
    "submit": "100",
    "wait": "5",
    "run": "60",
    "processors": "4",
    "cpu": "45",
    "memory": "1536",
    "requested_processors": "4",
    "requested_time": "300",
    "requested_memory": "2048",
    "status": "1",
    "user": "3",
    "group": "1",
    "executable": "7",
    "queue": "0",
    "partition": "-1",
    "preceding": "-1",
    "think": "-1",
}
SECOND = {"job": "2", "submit": "200"}
HEADER = """; Version: 2.2
; MaxNodes: 3
;  MaxProcs:  10  (of 12)
; UnixStartTime: 749458803
;
"""


def log(*lines: dict[str, str], header: str = "") -> str:
    """A log: each line says what differs from FIELDS."""
    return header + "".join(" ".join((FIELDS | line).values()) + "\n" for line in lines)


def convert_log(text: str | bytes, *turned: str):
    return convert_tables("swf", {"log.swf": text}, *turned)


def test_parallel_job_becomes_instances_of_one_core():
    table = convert_log(log({}, SECOND)).table
    assert table.job_arrival_us.tolist() == [100_000_000, 200_000_000]
    assert table.n_instances.tolist() == [4, 4]
    assert table.request.tolist() == [[1000, 2]] * 2
    assert table.duration_s.tolist() == [[60.0] * 4] * 2
    assert table.use[0].tolist() == [[750.0] * 2, [1.5] * 2]  # 45 of 60 s, 1536 KB


def test_parallel_job_becomes_one_instance_if_asked():
    table = convert_log(log({}), "parallel-job=one-instance").table
    assert table.n_instances.tolist() == [1]
    assert table.request.tolist() == [[4000, 8]]
    assert table.use[0].tolist() == [[3000.0] * 2, [6.0] * 2]


def test_header_tells_the_machines():
    outcome = convert_log(log({}, SECOND | {"requested_memory": "9000"}, header=HEADER))
    assert outcome.zones["all"] == [
        {"count": 2, "capacity": {"cpu_milli": 3000, "memory_mib": 27}},
        {"count": 1, "capacity": {"cpu_milli": 4000, "memory_mib": 36}},
    ]
    assert outcome.account.facts["header"]["UnixStartTime"] == 749_458_803
    assert outcome.table.reference.tolist() == [4000, 36]
    assert outcome.of("log").found["machine-memory-unknown"] == 1


@pytest.mark.parametrize("header", ["", "; MaxProcs: 64\n", "; MaxNodes: 9\n; MaxProcs: 8\n"])
def test_header_without_machines_gives_no_zone(header):
    outcome = convert_log(log({}, header=header))
    assert outcome.zones == {}
    assert outcome.table.reference.tolist() == [0, 0]


def test_comments_are_no_rows():
    text = log({}, header=HEADER) + ";a remark\n  ; another\n" + log(SECOND)
    assert convert_log(text).of("log").rows_read == 2


def test_comment_with_a_carriage_return_is_one_line():
    assert convert_log("; one\rline\n" + log({})).of("log").rows_read == 1


def test_fields_may_be_apart_by_any_blanks():
    text = "   " + "   ".join(FIELDS.values()) + "\t\n" + "\t".join((FIELDS | SECOND).values())
    assert convert_log(text).table.n_jobs == 2


def test_times_may_be_fractions():
    table = convert_log(log({"submit": "0.25", "run": "2.5"})).table
    assert (table.job_arrival_us[0], table.duration_s[0, 0]) == (250_000, 2.5)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("wrong-column-count", {"think": ""}),
        ("bad-value", {"submit": "soon"}),
        ("bad-value", {"submit": "-2"}),
        ("bad-value", {"run": "1e300"}),
        ("bad-value", {"processors": "1.5"}),
        ("bad-value", {"processors": "99999999"}),
        ("bad-value", {"status": "6"}),
        ("bad-value", {"memory": "nan"}),
        ("partial-execution", {"status": "2"}),
        ("partial-execution", {"status": "3"}),
        ("partial-execution", {"status": "4"}),
        ("duplicate", {"job": "1"}),
        ("status-failed", {"status": "0"}),
        ("status-cancelled", {"status": "5"}),
        ("missing-submit-time", {"submit": "-1"}),
        ("missing-run-time", {"run": "-1"}),
        ("missing-processors", {"processors": "-1", "requested_processors": "0"}),
    ],
)
def test_line_goes_under_its_rule(rule, change):
    account = convert_log(log({}, SECOND | change)).of("log")
    assert account.dropped == {rule: 1}
    assert (account.rows_read, account.rows_kept) == (2, 1)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("status-unknown", {"status": "-1"}),
        ("allocated-unknown", {"processors": "-1"}),
        ("run-time-zero", {"run": "0"}),
        ("submit-out-of-order", {"submit": "99"}),
        ("preceding-job", {"preceding": "1", "think": "10"}),
        ("memory-request-unknown", {"requested_memory": "-1"}),
        ("memory-unknown", {"requested_memory": "-1", "memory": "-1"}),
    ],
)
def test_line_is_kept_and_counted_and_goes_if_asked(rule, change):
    text = log({}, SECOND | change)
    account = convert_log(text).of("log")
    assert (account.found[rule], account.rows_kept) == (1, 2)
    assert convert_log(text, f"{rule}=drop-row").of("log").dropped == {rule: 1}


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("status-failed", {"status": "0"}),
        ("status-cancelled", {"status": "5"}),
        ("duplicate", {"job": "1"}),
    ],
)
def test_line_is_kept_if_asked(rule, change):
    assert convert_log(log({}, SECOND | change), f"{rule}=keep").table.n_jobs == 2


def test_executions_of_a_job_are_no_duplicates():
    lines = [{}, {"status": "2"}, {"status": "3"}]
    assert convert_log(log(*lines)).of("log").found["duplicate"] == 0


def test_duplicate_is_found_however_far_apart():
    lines = [{"job": str(i % 200_000)} for i in range(200_001)]
    assert convert_log(log(*lines)).of("log").dropped == {"duplicate": 1}


def test_unknown_memory_and_use():
    change = {"requested_memory": "-1", "memory": "3000", "cpu": "-1"}
    outcome = convert_log(log(change))
    assert outcome.table.request.tolist() == [[1000, 3]]
    assert outcome.table.use[0, 0].tolist() == [1000.0, 1000.0]
    assert outcome.of("log").found["use-unknown"] == 1


def test_two_logs_are_refused():
    with pytest.raises(TraceError, match="two clocks"):
        convert_tables("swf", {"a.swf": log({}), "b.swf": log({})})


@pytest.mark.parametrize("text", ["", HEADER, "; only this", log({"run": "-1"})])
def test_log_without_usable_line_is_refused(text):
    with pytest.raises(TraceError, match="none of"):
        convert_log(text)


def survives_as_log(content: bytes) -> None:
    outcome = converted_or_refused("swf", {"log.swf": content}, "file-cut-short=keep")
    if outcome is None:
        return
    lines = content.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n")
    n_lines = sum(not line.lstrip().startswith(b";") for line in lines)
    assert outcome.of("log").rows_read == n_lines


PLAIN = log(*({"job": str(i), "submit": str(60 * i)} for i in range(5)), header=HEADER)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_lines_are_counted(data):
    lines = [line.split() for line in PLAIN.splitlines()]
    for _ in range(data.draw(st.integers(1, 6))):
        line = lines[data.draw(st.integers(5, len(lines) - 1))]
        line[data.draw(st.integers(0, 17))] = data.draw(st.sampled_from(STRANGE))
    survives_as_log("\n".join(" ".join(line) for line in lines).encode())


@settings(max_examples=80, deadline=None)
@given(damaged_bytes(PLAIN))
def test_damaged_bytes_are_counted(content):
    survives_as_log(content)
