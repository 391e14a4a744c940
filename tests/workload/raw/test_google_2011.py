import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_traces import convert_tables, converted_or_refused, damaged, damaged_bytes

from marl_sched.errors import TraceError
from marl_sched.workload.raw.google import google_executions

SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, UPDATE_PENDING, UPDATE_RUNNING = range(9)
AFTER = 2**63 - 1
PART = "task_events/part-00000-of-00500.csv"
MACHINES = "machine_events/part-00000-of-00001.csv"
ROUND = {"cpu_milli": 32_000, "memory_mib": 64_000, "disk_mib": 1_000_000}


def event(
    second: float,
    kind: int,
    job: int = 7,
    index: int = 0,
    missing: str = "",
    priority: int = 9,
    shares: str = "0.125,0.0625,0.0004",
    apart: str = "0",
) -> str:
    time_us = AFTER if second == AFTER else round(second * 1e6)
    return f"{time_us},{missing},{job},{index},42,{kind},user,3,{priority},{shares},{apart}"


def whole(start: float = 700, length: float = 60, **rest) -> list[str]:
    """An execution that is submitted, scheduled after 5 s, and finishes."""
    return [
        event(start, SUBMIT, **rest),
        event(start + 5, SCHEDULE, **rest),
        event(start + 5 + length, FINISH, **rest),
    ]


def text(*events: str) -> str:
    return "".join(f"{line}\n" for line in events)


def convert_events(*events: str, turned: tuple[str, ...] = ()):
    return convert_tables("google-2011", {PART: text(*events)}, *turned, reference=ROUND)


def test_whole_executions_of_a_job_that_are_alike_are_one_task():
    events = [
        *whole(700, 60, index=0),
        *whole(701, 120, index=1),
        *whole(702, 10, index=2, priority=10),
        *whole(703, 10, index=3, shares="0.25,0.0625,0.0004"),
        *whole(650, 30, job=8),
    ]
    outcome = convert_events(*sorted(events, key=lambda line: int(line.split(",")[0])))
    table = outcome.table
    assert table.resources == ("cpu_milli", "memory_mib", "disk_mib")
    assert table.job_arrival_us.tolist() == [650_000_000, 700_000_000]
    assert table.job_task_start.tolist() == [0, 1, 4]
    tasks = sorted(zip(table.priority, table.n_instances, table.request.tolist(), strict=True))
    alike = [4000, 4000, 400]
    assert tasks == [(9, 1, alike), (9, 1, [8000, 4000, 400]), (9, 2, alike), (10, 1, alike)]
    [both] = table.duration_s[table.n_instances == 2].tolist()
    assert (both[0], both[3]) == (90.0, 120.0)
    account = outcome.of("task_events")
    assert (account.rows_read, account.rows_kept, account.dropped) == (15, 15, {})


def test_amounts_are_rounded_up_to_whole_units():
    table = convert_events(*whole(shares="0.0000001,0.00001,0")).table
    assert table.request.tolist() == [[1, 1, 0]]


def test_each_run_of_an_instance_is_its_own_execution():
    events = [
        event(700, SUBMIT),
        event(710, SCHEDULE),
        event(720, EVICT),
        event(720, SUBMIT),
        event(730, SCHEDULE),
        event(790, FINISH),
    ]
    outcome = convert_events(*events)
    assert outcome.of("task_events").dropped == {"evicted": 3}
    assert outcome.table.duration_s[0, 0] == 60.0
    assert outcome.table.job_arrival_us.tolist() == [720_000_000]
    outcome = convert_events(*events, turned=("evicted=keep",))
    assert outcome.table.n_instances.tolist() == [2]
    assert outcome.table.duration_s[0, [0, 3]].tolist() == [35.0, 60.0]


@pytest.mark.parametrize(
    ("rule", "events"),
    [
        ("wrong-column-count", ["1,2,3"]),
        ("bad-value", [event(1, SUBMIT, job=-1)]),
        ("bad-value", [event(1, 9)]),
        ("bad-value", [event(1, SUBMIT, shares="-0.1,0,0")]),
        ("bad-value", [event(1, SUBMIT, shares="many,0,0")]),
        ("bad-value", [event(1, SUBMIT).replace("1000000", "1.5", 1)]),
        ("after-trace", [event(AFTER, FINISH)]),
        ("missing-info", whole(job=9, missing="1")),
        ("event-order", [event(700, SUBMIT, 9), event(701, FINISH, 9)]),
        ("event-order", [event(700, SCHEDULE, 9), event(702, SCHEDULE, 9), event(703, FINISH, 9)]),
        ("event-order", [event(700, SUBMIT, 9), event(720, SCHEDULE, 9), event(710, FINISH, 9)]),
        ("before-trace", [event(0, SUBMIT, 9), event(0, SCHEDULE, 9), event(700, FINISH, 9)]),
        ("never-scheduled", [event(700, SUBMIT, 9), event(701, KILL, 9)]),
        ("never-scheduled", [event(700, SUBMIT, 9)]),
        ("no-end", [event(700, SUBMIT, 9), event(701, SCHEDULE, 9)]),
        ("evicted", [event(700, SUBMIT, 9), event(701, SCHEDULE, 9), event(702, EVICT, 9)]),
        ("failed", [event(700, SUBMIT, 9), event(701, SCHEDULE, 9), event(702, FAIL, 9)]),
        ("killed", [event(700, SUBMIT, 9), event(701, SCHEDULE, 9), event(702, KILL, 9)]),
        ("lost", [event(700, SUBMIT, 9), event(701, SCHEDULE, 9), event(702, LOST, 9)]),
        ("submit-missing", [event(701, SCHEDULE, 9), event(702, FINISH, 9)]),
        ("missing-request", whole(job=9, shares=",0.1,0")),
        ("missing-request", whole(job=9, shares="0.1,,0")),
        ("request-above-largest", whole(job=9, shares="1.5,0.1,0")),
    ],
)  # fmt: skip
def test_events_of_an_execution_go_under_its_rule(rule, events):
    account = convert_events(*whole(), *events).of("task_events")
    assert account.dropped == {rule: len(events)}
    assert account.found[rule] == len(events)
    assert account.rows_kept == 3


def test_submission_without_an_end_before_the_next_is_out_of_order():
    account = convert_events(event(690, SUBMIT), *whole()).of("task_events")
    assert (account.dropped, account.rows_kept) == ({"event-order": 1}, 3)


@pytest.mark.parametrize(
    ("rule", "events", "duration_s"),
    [
        ("missing-info", whole(missing="0"), 60.0),
        ("failed", [event(700, SUBMIT), event(701, SCHEDULE), event(711, FAIL)], 10.0),
        ("killed", [event(700, SUBMIT), event(701, SCHEDULE), event(711, KILL)], 10.0),
        ("lost", [event(700, SUBMIT), event(701, SCHEDULE), event(711, LOST)], 10.0),
        ("submit-missing", [event(700, SCHEDULE), event(711, FINISH)], 11.0),
        ("request-above-largest", whole(shares="2,0.1,0"), 60.0),
    ],
)
def test_execution_is_kept_if_asked(rule, events, duration_s):
    table = convert_events(*events, turned=(f"{rule}=keep",)).table
    assert table.duration_s[0, 0] == duration_s
    assert table.job_arrival_us.tolist() == [700_000_000]


def test_execution_from_before_the_trace_begins_with_it_if_asked():
    events = [event(0, SUBMIT), event(0, SCHEDULE), event(700, FINISH)]
    table = convert_events(*events, turned=("before-trace=at-start",)).table
    assert table.job_arrival_us.tolist() == [600_000_000]
    assert table.duration_s[0, 0] == 100.0


@pytest.mark.parametrize(
    ("rule", "events", "count"),
    [
        ("cpu-zero", whole(shares="0,0.1,0"), 3),
        ("different-machines", whole(apart="1"), 3),
        ("disk-request", whole(), 3),
        ("submitted-late", whole() + whole(800, index=1), 6),
        ("use-unknown", whole(), 1),
        (
            "request-updated",
            [
                event(700, SUBMIT),
                event(701, UPDATE_PENDING),
                event(705, SCHEDULE),
                event(706, UPDATE_RUNNING, shares="0.5,0.5,0"),
                event(765, FINISH, shares="0.5,0.5,0"),
            ],
            2,
        ),
    ],
)
def test_events_are_kept_and_counted(rule, events, count):
    outcome = convert_events(*events)
    account = outcome.of("task_events")
    assert (account.found[rule], account.rows_kept) == (count, len(events))
    assert outcome.table.duration_s[0, 0] == 60.0
    assert outcome.table.request[0, 0] in (1, 4000)  # as it was when it was scheduled


def test_disk_is_no_resource_if_asked():
    files = {PART: text(*whole()), MACHINES: "0,5,0,p,0.5,0.25\n"}
    outcome = convert_tables("google-2011", files, "disk-request=leave-out", reference=ROUND)
    assert outcome.table.resources == ("cpu_milli", "memory_mib")
    assert outcome.zones["all"] == [
        {"count": 1, "capacity": {"cpu_milli": 16_000, "memory_mib": 16_000}}
    ]


def test_execution_may_go_over_files_and_blocks(monkeypatch):
    monkeypatch.setattr(google_executions, "_ENOUGH", 1)
    first, second, third = whole()
    files = {
        PART: text(first, second, *whole(710, job=8)),
        PART.replace("00000-", "00001-"): text(third, event(800, SUBMIT, 9)),
    }
    outcome = convert_tables("google-2011", files)
    assert outcome.table.n_jobs == 2
    account = outcome.of("task_events")
    assert (account.rows_kept, account.dropped) == (6, {"never-scheduled": 1})


def test_result_does_not_depend_on_block_size(monkeypatch):
    events = [
        line
        for start in range(700, 900, 7)
        for line in (
            *whole(start, start % 13, index=start % 5),
            event(start + 20, SUBMIT, 9, start),
            event(start + 20, SCHEDULE, 9, start),
            event(start + 21, EVICT if start % 2 else FINISH, 9, start),
        )
    ]
    one = convert_events(*events)
    monkeypatch.setattr(google_executions, "_ENOUGH", 1)
    lines = iter(events)
    several = {
        PART.replace("00000-", f"{number:05}-"): text(*chunk)
        for number, chunk in enumerate(zip(lines, lines, lines, strict=False))
    }
    many = convert_tables("google-2011", several, reference=ROUND)
    assert many.of("task_events").dropped == one.of("task_events").dropped
    assert many.of("task_events").found["submitted-late"] > 0
    for name in ("job_arrival_us", "n_instances", "request", "duration_s"):
        assert getattr(many.table, name).tolist() == getattr(one.table, name).tolist()


def test_machines_have_their_last_capacity():
    events = [
        "0,5,0,HofL,0.5,0.25",
        "0,6,0,HofL,0.5,0.25",
        "0,7,0,HofL,1,1",
        "700000000,6,2,HofL,0.5,0.125",
        "800000000,7,1,HofL,1,1",
        "900000000,5,1,HofL,,",
    ]
    outcome = convert_tables("google-2011", {MACHINES: text(*events)}, reference=ROUND)
    assert outcome.tasks is None
    assert sorted(str(group["capacity"]) for group in outcome.zones["all"]) == [
        "{'cpu_milli': 16000, 'memory_mib': 16000, 'disk_mib': 1000000}",
        "{'cpu_milli': 16000, 'memory_mib': 8000, 'disk_mib': 1000000}",
        "{'cpu_milli': 32000, 'memory_mib': 64000, 'disk_mib': 1000000}",
    ]
    account = outcome.of("machine_events")
    assert account.dropped == {"missing-capacity": 1, "machine-superseded": 2}
    assert account.found["machine-removed"] == 1
    assert account.found["machine-disk-unknown"] == 1
    gone = convert_tables("google-2011", {MACHINES: text(*events)}, "machine-removed=drop-row")
    assert sum(group["count"] for group in gone.zones["all"]) == 2


@pytest.mark.parametrize(
    "line",
    ["x,8,0,p,0.5,0.5", "0,8,3,p,0.5,0.5", "0,8,0,p,0,0.5", "0,8,0,p,1.5,0.5", "0,8,0,p,a,1"],
)
def test_bad_machine_event_goes(line):
    files = {MACHINES: text("0,5,0,p,0.5,0.25", line)}
    assert convert_tables("google-2011", files).of("machine_events").dropped == {"bad-value": 1}


def test_folders_tell_the_tables_apart():
    other = "task_usage/part-00000-of-00500.csv"
    files = {PART: text(*whole()), MACHINES: "0,5,0,p,0.5,0.25\n", other: "1,2\n"}
    assert list(convert_tables("google-2011", files).account.tables) == [
        "machine_events",
        "task_events",
    ]


@pytest.mark.parametrize("files", [{PART: ""}, {PART: text(event(0, SUBMIT))}, {MACHINES: "\n"}])
def test_trace_without_usable_row_is_refused(files):
    with pytest.raises(TraceError, match="none of"):
        convert_tables("google-2011", files)


PLAIN = text(
    *whole(700, index=0), *whole(701, index=1), *whole(702, job=8), event(703, SUBMIT, 9),
)  # fmt: skip
PLAIN_MACHINES = "0,5,0,HofL,0.5,0.25\n0,6,0,HofL,0.5,0.25\n700000000,6,1,HofL,0.5,0.25\n"


def survives_as_google(events: bytes, machines: bytes) -> None:
    outcome = converted_or_refused("google-2011", {PART: events, MACHINES: machines})
    if outcome is None:
        return
    for name, content in (("task_events", events), ("machine_events", machines)):
        n_lines = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
        assert outcome.of(name).rows_read == n_lines


@settings(max_examples=80, deadline=None)
@given(damaged(PLAIN), damaged(PLAIN_MACHINES))
def test_damaged_rows_are_counted(events, machines):
    survives_as_google(events, machines)


@settings(max_examples=80, deadline=None)
@given(damaged_bytes(PLAIN), damaged_bytes(PLAIN_MACHINES))
def test_damaged_bytes_are_counted(events, machines):
    survives_as_google(events, machines)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8), st.integers(0, 5)), max_size=30))
def test_any_order_of_events_is_accounted_for(kinds):
    events = [event(600 + at, kind, index=index) for index, kind, at in kinds]
    outcome = convert_events(*whole(job=99), *events)
    assert outcome.of("task_events").rows_read == 3 + len(events)
