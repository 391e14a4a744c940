"""The DAG kernel and the assembly of jobs, against loops that are slow and obvious."""

from collections import Counter
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marl_sched.workload.raw.account import RULE, Account, TableAccount
from marl_sched.workload.raw.assemble import DAG_RULES, AssembledTasks, TaskRows, assemble
from marl_sched.workload.raw.names import TaskName, TaskNames, parse_task_name
from marl_sched.workload.raw.rules import DROP_JOB, JOB_INCOMPLETE, Rule, Rules
from marl_sched.workload.traces.tasks import TraceInfo

BROKEN = Rule("broken", "goes by itself", (DROP_JOB,))
RULES = (BROKEN, *DAG_RULES, JOB_INCOMPLETE)
INFO = TraceInfo(format="hand-made", reference={"cpu_milli": 1, "memory_mib": 1})


class Task(NamedTuple):
    job: str
    name: str
    begin: int = -1
    end: int = -1
    is_broken: bool = False


def table_of(*turned: str) -> TableAccount:
    table = Account("hand-made", Rules.of("hand-made", RULES, turned)).table("tasks")
    table.files.append("tasks.csv")
    return table


def assembled(tasks: list[Task], table: TableAccount) -> AssembledTasks:
    table.rows_read = len(tasks)
    names = TaskNames()
    rows = TaskRows(("cpu_milli", "memory_mib"), names)
    frame = pl.DataFrame(
        {
            "job": [task.job for task in tasks],
            "arrival_us": [max(task.begin, 0) for task in tasks],
            "n_instances": [row + 1 for row in range(len(tasks))],  # tells the rows apart
            "begin_s": [task.begin for task in tasks],
            "finish_s": [task.end for task in tasks],
            "request:cpu_milli": [1] * len(tasks),
            "request:memory_mib": [1] * len(tasks),
            "duration_ms": [1000] * len(tasks),
            RULE: pl.Series(
                [table.rules.number("broken") * task.is_broken for task in tasks], dtype=pl.UInt8
            ),
        }
    )
    rows.add(frame.hstack(names.encode(pl.Series([task.name for task in tasks]))))
    made = assemble(rows, table, INFO)
    assert table.rows_read == table.rows_kept + sum(table.dropped.values())
    return made


class Expected(NamedTuple):
    rows: list[list[int]]
    parents: list[list[int]]
    dropped: Counter[str]
    edges: Counter[str]


def slow_assembly(tasks: list[Task], early_action: str) -> Expected:
    """What should come out: rows by job, parents by task, rows dropped by rule, edges."""
    of_job: dict[str, list[int]] = {}
    for row, task in enumerate(tasks):
        of_job.setdefault(task.job, []).append(row)
    dropped: Counter[str] = Counter()
    edges: Counter[str] = Counter()
    kept: list[tuple[int, list[int], list[list[int]]]] = []
    for rows in of_job.values():
        rule = slow_duplicates(tasks, rows)
        parents = slow_parents(tasks, rows, early_action, rule, edges)
        if not rule:
            rule = dict.fromkeys(unready(rows, parents), "cycle")
        if rule:
            dropped.update(rule.get(row, "job-incomplete") for row in rows)
        else:
            arrival = min(max(tasks[row].begin, 0) for row in rows)
            kept.append((arrival, rows, [parents[row] for row in rows]))
    kept.sort(key=lambda job: job[0])
    return Expected(
        [rows for _, rows, _ in kept],
        [parents for _, _, all_parents in kept for parents in all_parents],
        dropped,
        edges,
    )


def slow_duplicates(tasks: list[Task], rows: list[int]) -> dict[int, str]:
    rule = {row: "broken" for row in rows if tasks[row].is_broken}
    for i, row in enumerate(rows):
        own = number_of(tasks[row].name)
        if any(own == number_of(tasks[other].name) for other in rows[:i]):
            rule.setdefault(row, "duplicate")
    return rule


def slow_parents(
    tasks: list[Task],
    rows: list[int],
    early_action: str,
    rule: dict[int, str],
    edges: Counter[str],
) -> dict[int, list[int]]:
    parents: dict[int, list[int]] = {row: [] for row in rows}
    for row in rows:
        for number in parse_task_name(tasks[row].name).parents:
            found = [other for other in rows if number_of(tasks[other].name) == number]
            if not found:
                rule.setdefault(row, "parent-missing")
                continue
            is_known = tasks[row].begin >= 0 and tasks[found[0]].end >= 0
            is_early = is_known and tasks[row].begin < tasks[found[0]].end
            edges.update(checked=is_known, early=is_early)
            if is_early and early_action == "drop-job":
                rule.setdefault(row, "child-before-parent")
            place = rows.index(found[0])
            if place not in parents[row] and not (is_early and early_action == "drop-edge"):
                parents[row].append(place)
    return parents


def number_of(name: str) -> int | str:
    number = parse_task_name(name).number
    return name if number is None else number


def unready(rows: list[int], parents: dict[int, list[int]]) -> list[int]:
    """Rows that are never ready, taking one ready row after the other."""
    taken: list[int] = []
    while True:
        ready = [
            row
            for row in rows
            if row not in taken and all(rows[parent] in taken for parent in parents[row])
        ]
        if not ready:
            return [row for row in rows if row not in taken]
        taken.append(ready[0])


@st.composite
def task_lists(draw: st.DrawFn) -> list[Task]:
    numbers = st.integers(1, 5)
    time = st.integers(-1, 4)
    names = st.one_of(
        st.builds(
            lambda own, parents: "_".join([f"M{own}", *map(str, parents)]),
            numbers,
            st.lists(numbers, max_size=3),
        ),
        st.sampled_from(["task_a", "task_b", "Merge"]),
    )
    task = st.builds(
        Task, st.sampled_from("abcd"), names, time, time, st.sampled_from([False] * 9 + [True])
    )
    return draw(st.lists(task, min_size=1, max_size=14))


@pytest.mark.parametrize("action", ["keep-dag", "drop-edge", "drop-job"])
@given(tasks=task_lists())
@settings(max_examples=150, deadline=None)
def test_jobs_are_as_a_slow_loop_finds_them(action: str, tasks: list[Task]) -> None:
    tasks = [*tasks, Task("good", "M1", 0, 1)]  # assembling nothing is an error
    table = table_of(f"child-before-parent={action}")
    made = assembled(tasks, table)
    expected = slow_assembly(tasks, action)
    frame = made.frame()
    assert [row - 1 for row in frame["n_instances"]] == [r for rows in expected.rows for r in rows]
    assert frame["parents"].to_list() == expected.parents
    lengths = [len(rows) for rows in expected.rows]
    assert frame["job"].to_list() == np.repeat(range(len(lengths)), lengths).tolist()
    assert table.dropped == expected.dropped
    assert table.found["child-before-parent"] == expected.edges["early"]
    assert table.examined["child-before-parent"] == expected.edges["checked"]


def test_rows_of_jobs_that_lie_apart_become_whole_jobs() -> None:
    tasks = [Task("a", "R2_1", 5), Task("b", "M1", 3), Task("a", "M1", 4), Task("b", "R2_1", 9)]
    made = assembled(tasks, table_of())
    assert made.columns["n_instances"].tolist() == [2, 4, 1, 3]
    assert made.frame()["parents"].to_list() == [[], [0], [1], []]


def test_large_job_is_sorted_too() -> None:
    n = 100
    chain = [Task("a", f"M{i}" if i == n else f"R{i}_{i + 1}") for i in range(1, n + 1)]
    made = assembled(chain, table_of())
    assert made.frame()["parents"].to_list() == [[i] for i in range(1, n)] + [[]]


def test_row_that_goes_is_not_a_missing_parent() -> None:
    table = table_of()
    assembled([Task("a", "M1", is_broken=True), Task("a", "R2_1"), Task("b", "M1")], table)
    assert (table.dropped["broken"], table.dropped["job-incomplete"]) == (1, 1)
    assert table.found["parent-missing"] == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("M1", TaskName(1, ())),
        ("R4_2", TaskName(4, (2,))),
        ("J25_16_18_24", TaskName(25, (16, 18, 24))),
        ("R2_9", TaskName(2, (9,))),
        ("R3_1_1", TaskName(3, (1, 1))),
        ("task_NTY1MTg4ODc5Mw==", TaskName(None, ())),
        ("task_" + "x" * 60, TaskName(None, ())),
        ("R4_2_", TaskName(4, (2,), is_cut=True)),
        ("R4_" + "1_" * 23 + "1", TaskName(4, (1,) * 24, is_cut=True)),
        ("4_2", TaskName(None, ())),
        ("R4__2", TaskName(None, ())),
        ("MergeTask", TaskName(None, ())),
        ("x" * 50, TaskName(None, (), is_cut=True)),
        ("M٣", TaskName(None, ())),
        ("M" + "9" * 10, TaskName(None, ())),
        ("", TaskName(None, ())),
    ],
)
def test_task_names(name: str, said: TaskName) -> None:
    assert parse_task_name(name) == said


@given(
    st.lists(
        st.lists(
            st.sampled_from([None, "M1", "R2_1", "R1_2_3", "task_a", "task_b", "Merge", "R2_1_"])
        ),
        max_size=3,
    )
)
@settings(max_examples=50, deadline=None)
def test_names_say_the_same_in_every_block(blocks: list[list[str | None]]) -> None:
    names = TaskNames()
    for block in blocks:
        said = names.encode(pl.Series(block, dtype=pl.String))
        starts, numbers = names.parents()
        assert len(said) == len(block)
        for name, row in zip(block, said.iter_rows(named=True), strict=True):
            expected = parse_task_name(name or "task_")
            code = row["name"]
            parents = tuple(numbers[starts[code] : starts[code + 1]].tolist())
            assert parents == expected.parents
            assert row["n_parents"] == len(parents)
            assert row["is_cut"] == expected.is_cut
            assert row["is_known"] == (name != "Merge")
            assert (row["key"] if row["key"] >= 0 else None) == expected.number
