"""Formats spar and spar-stats: one hour of Alibaba's v2018 batch tasks."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from raw_traces import Outcome, convert_sources, convert_tables, damaged, damaged_bytes, survives
from raw_traces import converted_or_refused as converts

from marl_sched.errors import TraceError
from marl_sched.workload.raw.alibaba import spar_stats
from marl_sched.workload.raw.convert import Conversion, convert
from marl_sched.workload.raw.names import LONGEST_NAME
from marl_sched.workload.traces.tasks import load_tasks, task_path

TASK = {
    "arrive": "12",
    "job": "j_1",
    "task": "M1",
    "duration": "268",
    "plan_cpu": "50.0",
    "plan_mem": "0.3",
    "inst_num": "3",
}
STATISTICS = {
    "arrive": "12",
    "job": "j_1",
    "task": "M1",
    "task_duration": "268",
    "plan_cpu": "50.0",
    "plan_mem": "0.3",
    "inst_num": "9",
    "dur_mean": "27.333",
    "dur_p50": "28.0",
    "dur_max": "29",
    "cpu_avg_mean": "101.556",
    "cpu_avg_max": "113.0",
    "mem_avg_mean": "0.102",
    "mem_avg_max": "0.11",
    "dur_p95": "28.6",
}
GOOD = {"job": "j_good", "arrive": "1"}
HOUR = "alibaba-v2018-spar-hour"


def tasks_text(*rows: dict[str, str]) -> str:
    return "".join(",".join((TASK | row).values()) + "\n" for row in rows)


def statistics_text(*rows: dict[str, str]) -> str:
    lines = [",".join(STATISTICS), *(",".join((STATISTICS | row).values()) for row in rows)]
    return "\n".join(lines) + "\n"


def of_statistics(*rows: dict[str, str], turned: tuple[str, ...] = ()) -> Outcome:
    files = {"tasks_with_instance_stats.csv": statistics_text(*rows)}
    return convert_tables("spar-stats", files, *turned)


def of_tasks(*rows: dict[str, str], instances: str = "", turned: tuple[str, ...] = ()) -> Outcome:
    files = {"sample_tasks.csv": tasks_text(*rows)}
    if instances:
        files["sample_instances.csv"] = instances
    return convert_tables("spar", files, *turned)


def test_statistics_are_converted_to_the_units_of_the_table() -> None:
    table = of_statistics({}).table
    assert table.job_arrival_us.tolist() == [12_000_000]
    assert table.n_instances.tolist() == [9]
    assert table.request.tolist() == [[500, 1180]]
    assert table.duration_s.tolist() == [[27.333, 28.0, 28.6, 29.0]]  # not the task's 268 s
    memory = [1020 * 0.393216, 1100 * 0.393216]  # millionths of the machine, then MiB
    assert table.use.tolist() == [[[1016.0, 1130.0], memory]]


def test_order_of_jobs_is_that_of_arrivals_then_of_rows() -> None:
    table = of_statistics(
        {"job": "j_2", "arrive": "7", "inst_num": "1"},
        {"job": "j_1", "arrive": "3", "inst_num": "2"},
        {"job": "j_3", "arrive": "3", "inst_num": "3"},
        {"job": "j_1", "arrive": "3", "inst_num": "4", "task": "R2_1"},
    ).table
    assert table.n_instances.tolist() == [2, 4, 3, 1]
    assert table.job_task_start.tolist() == [0, 2, 3, 4]


BAD = [
    ("name-missing", [{"task": ""}]),
    ("missing-value", [{"plan_mem": ""}]),
    ("missing-value", [{"plan_mem": "many"}]),
    ("missing-value", [{"plan_mem": "nan"}]),
    ("bad-value", [{"arrive": "-1"}]),
    ("bad-value", [{"inst_num": "0"}]),
    ("bad-value", [{"inst_num": "1.5"}]),
    ("bad-value", [{"plan_cpu": "0"}]),
    ("bad-value", [{"plan_mem": "1e300"}]),
    ("arrival-differs", [{}, {"task": "M2", "arrive": "4"}]),
    ("name-cut", [{}, {"task": "R2_1_"}]),
    ("name-cut", [{}, {"task": "R2" + "_1" * (LONGEST_NAME // 2 - 1)}]),
    ("name-unknown", [{"task": "MergeTask"}]),
    ("duplicate", [{}, {}]),
    ("duplicate", [{}, {"task": "R1"}]),
    ("duplicate", [{"task": "task_a"}, {"task": "task_a"}]),
    ("parent-missing", [{}, {"task": "R2_3"}]),
    ("cycle", [{"task": "M1_1"}]),
]


@pytest.mark.parametrize("convert_rows", [of_statistics, of_tasks])
@pytest.mark.parametrize(("rule", "rows"), BAD)
def test_bad_row_is_dropped_under_its_rule_with_its_job(
    rule: str, rows: list[dict[str, str]], convert_rows: type[Outcome]
) -> None:
    outcome = convert_rows(GOOD, *rows)
    assert outcome.table.job_arrival_us.tolist() == [1_000_000]
    (account,) = outcome.account.tables.values()
    incomplete = {"job-incomplete": len(rows) - 1} if len(rows) > 1 else {}
    assert dict(account.dropped) == {rule: 1} | incomplete


def test_quantiles_must_ascend() -> None:
    for change in ({"dur_p95": "29.5"}, {"dur_p50": "28.7"}, {"dur_mean": "30"}):
        assert of_statistics(GOOD, change).of("tasks").dropped["bad-value"] == 1


def test_row_without_a_job_takes_no_job_along() -> None:
    assert dict(of_statistics(GOOD, {"job": ""}, {"job": ""}).of("tasks").dropped) == {
        "job-missing": 2
    }


def test_use_above_the_request_is_counted() -> None:
    found = of_statistics({}, {"job": "j_2", "cpu_avg_max": "50", "cpu_avg_mean": "9"}).of("tasks")
    assert found.found["use-above-request"] == 1


def test_header_must_have_all_columns() -> None:
    with pytest.raises(TraceError, match="no column dur_p95 in the header"):
        convert_tables(
            "spar-stats",
            {"tasks_with_instance_stats.csv": statistics_text({}).replace("dur_p95", "p95")},
        )


INSTANCES = """12,j_1,M1,ins_1,10,20,0.1
12,j_1,M1,ins_2,20,30,0.2
12,j_1,M1,ins_3,60,100,0.3
"""


def test_instances_replace_the_tasks_own_duration() -> None:
    outcome = of_tasks({}, {"job": "j_2"}, instances=INSTANCES)
    assert outcome.table.duration_s.tolist() == [[30.0, 20.0, 56.0, 60.0], [268.0] * 4]
    np.testing.assert_allclose(outcome.table.use[0], [[500, 1000], [786.432, 1179.648]])
    found = outcome.of("tasks").found
    assert found["instances-missing"] == found["duration-includes-queueing"] == 1
    assert outcome.of("instances").rows_kept == 3


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("instance-name-missing", "12,,M1,ins_4,10,20,0.1"),
        ("instance-bad-value", "12,j_1,M1,ins_4,,20,0.1"),
        ("instance-bad-value", "12,j_1,M1,ins_4,-1,20,0.1"),
        ("instance-bad-value", "12,j_1,M1,ins_4,10,x,0.1"),
        ("instance-task-unknown", "12,j_1,M2,ins_4,10,20,0.1"),
        ("wrong-column-count", "12,j_1,M1,ins_4,10,20"),
    ],
)
def test_bad_instance_is_dropped_alone(rule: str, line: str) -> None:
    outcome = of_tasks({}, instances=INSTANCES + line + "\n")
    dropped = {name: n for name, n in outcome.of("instances").dropped.items() if n}
    assert dropped == {rule: 1}
    assert outcome.of("instances").rows_kept == 3


def test_instances_of_a_dropped_task_are_dropped() -> None:
    outcome = of_tasks({"plan_cpu": "0"}, GOOD, instances=INSTANCES)
    assert outcome.of("instances").dropped["instance-task-dropped"] == 3


@given(damaged(statistics_text({}, {"task": "R2_1"}, GOOD), first_row=1))
@settings(max_examples=60, deadline=None)
def test_damaged_statistics_are_accounted_for(content: bytes) -> None:
    survives("spar-stats", {"tasks_with_instance_stats.csv": content}, has_header=True)


@given(damaged(tasks_text({}, {"task": "R2_1"}, GOOD)), damaged(INSTANCES))
@settings(max_examples=60, deadline=None)
def test_damaged_tables_are_accounted_for(tasks: bytes, instances: bytes) -> None:
    survives("spar", {"sample_tasks.csv": tasks, "sample_instances.csv": instances})


@given(damaged_bytes(tasks_text({}, {"task": "R2_1"}, GOOD)), damaged_bytes(INSTANCES))
@settings(max_examples=60, deadline=None)
def test_damaged_bytes_are_accounted_for(tasks: bytes, instances: bytes) -> None:
    converts("spar", {"sample_tasks.csv": tasks, "sample_instances.csv": instances})


def test_sample_that_ships_is_small() -> None:
    assert task_path("package:alibaba-v2018-hour").stat().st_size <= 1_500_000


def test_whole_hour_is_what_ships(public_traces: Path, tmp_path: Path) -> None:
    source = public_traces / HOUR / "tasks_with_instance_stats.csv.gz"
    out = tmp_path / "hour.parquet"
    account = convert(Conversion("spar-stats", (str(source),), out)).account
    table = account.tables["tasks"]
    assert (table.rows_read, table.rows_kept) == (67_634, 67_228)
    assert dict(table.dropped) == {"name-cut": 9, "job-incomplete": 397}
    assert (account.facts["n_jobs"], account.facts["n_instances"]) == (16_742, 3_044_592)
    shipped = pl.read_parquet(task_path("package:alibaba-v2018-hour"))
    assert pl.read_parquet(out).equals(shipped)


def test_whole_hour_of_tasks_gives_the_known_figures(public_traces: Path) -> None:
    source = public_traces / HOUR / "sample_tasks.csv"
    outcome = convert_sources("spar", [str(source)], "name-cut=keep")
    facts = outcome.account.facts
    assert outcome.of("tasks").rows_kept == 67_634
    assert (facts["n_jobs"], facts["n_instances"]) == (16_749, 3_056_536)
    found = outcome.of("tasks")
    assert found.found["parent-id-above-own"] == 3_336
    assert found.examined["parent-id-above-own"] == 52_833


def test_real_instances_give_the_statistics_that_ship(public_traces: Path) -> None:
    folder = public_traces / HOUR
    outcome = convert_sources("spar", [str(folder)])
    assert outcome.of("instances").rows_read == outcome.of("instances").rows_kept == 274_744
    shipped, table = load_tasks("package:alibaba-v2018-hour"), outcome.table
    assert table.request.tolist() == shipped.request.tolist()
    is_known = (table.use != table.request[:, :, None]).any(axis=(1, 2))
    assert 6_900 < is_known.sum() <= 6_949
    np.testing.assert_array_equal(table.duration_s[is_known], shipped.duration_s[is_known])
    # What ships was rounded to three decimals of a percent before.
    off = np.abs(table.use - shipped.use)[is_known]
    assert off[:, 0].max() < 0.506
    assert off[:, 1].max() < 0.0005 * 3932.17


def test_rule_names_of_both_forms_agree() -> None:
    rules = {rule.name for rule in spar_stats.FORMAT.rules}
    assert {rule for rule, _ in BAD} <= rules
