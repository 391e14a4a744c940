"""Format alibaba-v2018: hand-made rows for every trap, and the real files' figures."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from raw_traces import (
    Outcome,
    convert_sources,
    convert_tables,
    converted_or_refused,
    damaged,
    damaged_bytes,
    survives,
)

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import Account
from marl_sched.workload.raw.alibaba.alibaba_v2018 import FORMAT
from marl_sched.workload.raw.convert import Conversion, convert

TASK = {
    "task_name": "M1",
    "instance_num": "4",
    "job_name": "j_1",
    "task_type": "1",
    "status": "Terminated",
    "start_time": "100",
    "end_time": "130",
    "plan_cpu": "50",
    "plan_mem": "0.39",
}
INSTANCE = {
    "instance_name": "ins_1",
    "task_name": "M1",
    "job_name": "j_1",
    "task_type": "1",
    "status": "Terminated",
    "start_time": "100",
    "end_time": "110",
    "machine_id": "m_1",
    "seq_no": "1",
    "total_seq_no": "1",
    "cpu_avg": "20",
    "cpu_max": "90",
    "mem_avg": "0.1",
    "mem_max": "0.5",
}
GOOD = {"job_name": "j_good", "start_time": "90", "end_time": "95"}


def line(row: dict[str, str], **changes: str) -> str:
    assert not set(changes) - set(row)
    return ",".join((row | changes).values())


def tasks_text(*rows: dict[str, str]) -> str:
    return "\n".join(line(TASK, **row) for row in rows) + "\n"


def instances_text(*rows: dict[str, str]) -> str:
    return "\n".join(line(INSTANCE, **row) for row in rows) + "\n"


def of_tasks(*rows: dict[str, str], turned: tuple[str, ...] = ()) -> Outcome:
    return convert_tables(FORMAT.name, {"batch_task.csv": tasks_text(*rows)}, *turned)


def of_instances(
    *rows: dict[str, str],
    tasks: tuple[dict[str, str], ...] = ({}, GOOD),
    turned: tuple[str, ...] = (),
) -> Outcome:
    files = {"batch_task.csv": tasks_text(*tasks), "batch_instance.csv": instances_text(*rows)}
    return convert_tables(FORMAT.name, files, *turned)


def test_row_is_converted_to_the_units_of_the_table() -> None:
    table = of_tasks({"instance_num": "371.0"}).table
    assert table.resources == ("cpu_milli", "memory_mib")
    assert table.job_arrival_us.tolist() == [100_000_000]
    assert table.n_instances.tolist() == [371]
    assert table.request.tolist() == [[500, 1534]]  # half a core; 0.39% of 384 GiB, not 39%
    assert table.duration_s.tolist() == [[30.0] * 4]
    assert table.use.tolist() == [[[500.0] * 2, [1534.0] * 2]]  # not known: the request


def test_job_arrives_with_its_first_task_and_has_the_dag_of_the_names() -> None:
    outcome = of_tasks(
        {"task_name": "R2_9", "start_time": "140", "end_time": "150"},
        {"job_name": "j_0", "start_time": "120"},
        {"task_name": "J7_2_9", "start_time": "160", "end_time": "170"},
        {"task_name": "M9", "start_time": "110"},
    )
    table = outcome.table
    assert table.job_arrival_us.tolist() == [110_000_000, 120_000_000]
    assert table.job_task_start.tolist() == [0, 3, 4]
    starts = table.parent_start
    parents = [table.parents[a:b].tolist() for a, b in pairwise(starts)]
    assert parents == [[2], [0, 2], [], []]
    assert outcome.of("batch_task").found["parent-id-above-own"] == 2
    assert outcome.of("batch_task").examined["parent-id-above-own"] == 3


def test_header_in_another_order_is_understood() -> None:
    names = list(TASK)[::-1]
    text = ",".join(names) + "\n" + ",".join(TASK[name] for name in names) + "\n"
    outcome = convert_tables(FORMAT.name, {"batch_task.csv": text})
    assert outcome.of("batch_task").rows_read == 1
    assert outcome.table.duration_s[0, 0] == 30.0


BAD_TASKS = [
    ("name-missing", {"task_name": ""}),
    ("status-waiting", {"status": "Waiting"}),
    ("status-running", {"status": "Running"}),
    ("status-failed", {"status": "Failed"}),
    ("status-unknown", {"status": "Cancelled"}),
    ("status-unknown", {"status": ""}),
    ("instance-num-missing", {"instance_num": ""}),
    ("plan-missing", {"plan_cpu": ""}),
    ("plan-missing", {"plan_mem": ""}),
    ("bad-value", {"plan_cpu": "much"}),
    ("bad-value", {"plan_cpu": "0"}),
    ("bad-value", {"plan_mem": "-1"}),
    ("bad-value", {"instance_num": "2.5"}),
    ("bad-value", {"instance_num": "0"}),
    ("bad-value", {"start_time": "nan"}),
    ("bad-value", {"end_time": "1e300"}),
    ("end-missing", {"end_time": "0"}),
    ("end-before-start", {"end_time": "99"}),
    ("start-missing", {"start_time": "0"}),
    ("time-missing", {"start_time": ""}),
    ("time-missing", {"end_time": ""}),
    ("name-cut", {"task_name": "R2_3_"}),
    ("name-cut", {"task_name": "R22" + "_3" * 24}),
    ("name-unknown", {"task_name": "MergeTask"}),
    ("parent-missing", {"task_name": "R2_7"}),
    ("duplicate", {"task_name": "R3"}),
    ("cycle", {"task_name": "R2_2"}),
]


@pytest.mark.parametrize(("rule", "change"), BAD_TASKS)
def test_bad_task_goes_under_its_rule_with_its_job(rule: str, change: dict[str, str]) -> None:
    outcome = of_tasks({"task_name": "M3"}, change, GOOD)
    account = outcome.of("batch_task")
    assert outcome.table.job_arrival_us.tolist() == [90_000_000]
    assert dict(account.dropped) == {rule: 1, "job-incomplete": 1}
    assert account.found[rule] == 1
    assert account.rows_read == 3


def test_row_without_a_job_takes_no_job_along() -> None:
    outcome = of_tasks({"job_name": ""}, {}, GOOD)
    assert dict(outcome.of("batch_task").dropped) == {"job-missing": 1}


@pytest.mark.parametrize(
    ("rule", "change", "duration_s"),
    [
        ("status-running", {"status": "Running"}, 30.0),
        ("status-failed", {"status": "Failed"}, 30.0),
        ("status-unknown", {"status": "Cancelled"}, 30.0),
        ("start-missing", {"start_time": "0"}, 130.0),
        ("name-cut", {"task_name": "R2_"}, 30.0),
        ("name-unknown", {"task_name": "MergeTask"}, 30.0),
    ],
)
def test_rule_can_be_turned_to_keep(rule: str, change: dict[str, str], duration_s: float) -> None:
    outcome = of_tasks(change, turned=(f"{rule}=keep",))
    assert outcome.table.duration_s.tolist() == [[duration_s] * 4]
    assert outcome.of("batch_task").found[rule] == 1


def test_kept_status_still_needs_times_and_a_plan() -> None:
    outcome = of_tasks(
        {"status": "Running", "end_time": "0"}, GOOD, turned=("status-running=keep",)
    )
    assert dict(outcome.of("batch_task").dropped) == {"end-missing": 1}


def test_what_every_task_without_instances_has_is_counted() -> None:
    found = of_tasks({"end_time": "100"}, GOOD).of("batch_task").found
    assert found["duration-zero"] == 1
    assert found["duration-includes-queueing"] == 2
    assert found["use-unknown"] == 2


@pytest.mark.parametrize(
    ("action", "n_edges", "n_jobs"), [("keep-dag", 1, 2), ("drop-edge", 0, 2), ("drop-job", 0, 1)]
)
def test_child_that_starts_before_its_parent_ends(action: str, n_edges: int, n_jobs: int) -> None:
    child = {"task_name": "R2_1", "start_time": "129"}
    outcome = of_tasks({}, child, GOOD, turned=(f"child-before-parent={action}",))
    assert len(outcome.table.parents) == n_edges
    assert outcome.table.n_jobs == n_jobs
    assert outcome.of("batch_task").found["child-before-parent"] == 1
    assert outcome.of("batch_task").examined["child-before-parent"] == 1


def test_times_of_an_unfinished_task_are_not_compared() -> None:
    child = {"task_name": "R2_1", "start_time": "129"}
    account = of_tasks({"status": "Failed"}, child, GOOD).of("batch_task")
    assert account.examined["child-before-parent"] == 0


def test_table_without_a_usable_row_is_refused() -> None:
    with pytest.raises(TraceError, match=r"batch_task\.csv: none of 1 rows is usable"):
        of_tasks({"status": "Waiting"})


def test_instances_replace_the_tasks_own_duration() -> None:
    ends = [{"end_time": str(100 + s), "cpu_avg": str(c)} for s, c in ((1, 10), (2, 30), (9, 80))]
    outcome = of_instances(*ends, tasks=({"instance_num": "3"},))
    assert outcome.table.duration_s.tolist() == [[4.0, 2.0, 8.3, 9.0]]
    np.testing.assert_allclose(outcome.table.use, [[[400, 800], [393.216, 393.216]]])
    account = outcome.of("batch_instance")
    assert (account.rows_read, account.rows_kept) == (3, 3)
    found = outcome.of("batch_task").found
    assert found["use-above-request"] == 1  # 0.8 of a core where half a core is asked for
    assert found["instances-differ"] == found["instances-missing"] == found["use-unknown"] == 0


BAD_INSTANCES = [
    ("instance-name-missing", {"job_name": ""}),
    ("instance-name-missing", {"task_name": ""}),
    ("instance-unfinished", {"status": "Failed"}),
    ("instance-unfinished", {"status": ""}),
    ("instance-retried", {"seq_no": "1", "total_seq_no": "2"}),
    ("instance-bad-value", {"cpu_avg": "-1"}),
    ("instance-bad-value", {"mem_avg": "x"}),
    ("instance-bad-value", {"start_time": "1e99"}),
    ("instance-time-missing", {"start_time": "0"}),
    ("instance-time-missing", {"end_time": ""}),
    ("instance-end-before-start", {"end_time": "99"}),
    ("instance-task-unknown", {"task_name": "M2"}),
    ("instance-task-unknown", {"job_name": "j_2"}),
    ("instance-task-dropped", {"job_name": "j_failed"}),
]


@pytest.mark.parametrize(("rule", "change"), BAD_INSTANCES)
def test_bad_instance_is_dropped_alone_under_its_rule(rule: str, change: dict[str, str]) -> None:
    tasks = ({}, GOOD, {"job_name": "j_failed", "status": "Failed"})
    outcome = of_instances(change, {}, tasks=tasks)
    account = outcome.of("batch_instance")
    assert dict(account.dropped) == {rule: 1} | {
        name: 0 for name in account.dropped if name != rule
    }
    assert (account.rows_read, account.rows_kept) == (2, 1)
    assert outcome.table.duration_s[1].tolist() == [10.0] * 4


def test_instance_without_use_counts_for_the_duration_only() -> None:
    rows = ({"cpu_avg": "", "end_time": "120"}, {"mem_avg": "", "end_time": "120"}, {})
    outcome = of_instances(*rows, tasks=({"instance_num": "3"},))
    assert outcome.table.duration_s[0, 1] == 20.0
    np.testing.assert_allclose(outcome.table.use[0, 0], [200, 200])
    assert outcome.of("batch_instance").found["instance-use-missing"] == 2


def test_task_without_a_usable_instance_keeps_its_own_duration() -> None:
    outcome = of_instances({}, {"job_name": "j_good", "status": "Failed"})
    assert outcome.table.duration_s[:, 0].tolist() == [5.0, 10.0]
    found = outcome.of("batch_task").found
    assert found["instances-missing"] == found["duration-includes-queueing"] == 1
    assert found["instances-differ"] == 1  # j_1 says four instances


def test_task_without_a_usable_instance_can_be_dropped() -> None:
    outcome = of_instances({}, turned=("instances-missing=drop-job",))
    assert outcome.table.job_arrival_us.tolist() == [100_000_000]
    assert dict(outcome.of("batch_task").dropped) == {"instances-missing": 1}


MACHINES = """m_1,0,219,17,96,100,USING
m_1,10,219,18,96,100,USING
m_1,5,219,17,96,100,USING
m_2,0,7,3,96,100,USING
m_2,9,7,,96,100,USING
m_3,0,7,3,64,50,IMPORT_INSTALLING
"""


def test_last_event_of_a_machine_counts() -> None:
    outcome = convert_tables(FORMAT.name, {"machine_meta.csv": MACHINES})
    assert outcome.tasks is None
    assert list(outcome.zones) == ["domain_3", "domain_18"]
    assert outcome.zones["domain_3"] == [
        {"count": 1, "capacity": {"cpu_milli": 64_000, "memory_mib": 196_608}},
        {"count": 1, "capacity": {"cpu_milli": 96_000, "memory_mib": 393_216}},
    ]
    account = outcome.of("machine_meta")
    assert dict(account.dropped) == {"failure-domain-missing": 1, "superseded-event": 2}
    assert account.rows_kept == 3
    assert account.found["machine-not-in-use"] == 1


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("machine-missing", ",0,1,1,96,100,USING"),
        ("machine-bad-value", "m_9,0,1,1,0,100,USING"),
        ("machine-bad-value", "m_9,0,1,1,96,,USING"),
        ("machine-bad-value", "m_9,-1,1,1,96,100,USING"),
        ("machine-bad-value", "m_9,0,1,a b,96,100,USING"),
        ("failure-domain-missing", "m_9,0,1,,96,100,USING"),
    ],
)
def test_bad_machine_event_is_dropped_under_its_rule(rule: str, row: str) -> None:
    outcome = convert_tables(FORMAT.name, {"machine_meta.csv": f"m_0,0,1,1,96,100,USING\n{row}\n"})
    assert dict(outcome.of("machine_meta").dropped) | {"superseded-event": 0} == {
        rule: 1,
        "superseded-event": 0,
    }
    assert outcome.account.facts["n_machines"] == 1


def day_curve(mean: float, amplitude: float, noise: float) -> list[tuple[int, float]]:
    """Two days of a sine, every ten minutes; noise of equal size, up and down in turn."""
    times = np.arange(0, 2 * 86_400, 600)
    values = mean + amplitude * np.sin(2 * np.pi * times / 86_400 + 1.0)
    values += noise * np.where(np.arange(len(times)) % 2, 1, -1)
    return list(zip(times.tolist(), values.tolist(), strict=True))


def background_of(folder: Path, files: dict[str, str]) -> tuple[Account, dict[str, Any]]:
    """Convert tables, and return the account and the only zone's background."""
    for name, text in files.items():
        (folder / name).write_text(text)
    out = folder / "out.parquet"
    account = convert(Conversion(FORMAT.name, (str(folder),), out)).account
    account.check()
    zones = yaml.safe_load((folder / "out.zones.yaml").read_text())["zones"]
    assert len(zones) == 1
    return account, zones[0].get("background")


ZONE = "m_1,0,1,1,96,100,USING\nm_2,0,1,1,96,100,USING\n"


def test_background_is_a_day_curve_through_the_samples(tmp_path: Path) -> None:
    text = "".join(
        f"m_1,{time},{100 * cpu:.4f},80,,,1,1,101\n" for time, cpu in day_curve(0.4, 0.1, 0.05)
    ) + "".join(f"m_2,{time},{100 * cpu:.4f},60,1,1,1,1,-1\n" for time, cpu in day_curve(0.2, 0, 0))
    account, background = background_of(
        tmp_path, {"machine_meta.csv": ZONE, "machine_usage.csv": text}
    )
    assert background["mean"] == {"cpu_milli": 0.3, "memory_mib": 0.7}
    assert background["amplitude"] == 0.05  # of the mean curve
    assert background["sd"] == pytest.approx(0.05 / np.sqrt(2), abs=1e-4)
    table = account.tables["machine_usage"]
    n = len(day_curve(0, 0, 0))
    assert (table.rows_read, table.rows_kept) == (2 * n, 2 * n)
    assert table.found["usage-disk-io-invalid"] == 2 * n
    assert table.found["usage-memory-traffic-missing"] == n
    assert table.found["background-is-all-use"] == 1


def test_samples_of_less_than_a_day_give_no_curve(tmp_path: Path) -> None:
    text = "m_1,0,10,50,,,1,1,1\nm_1,3600,30,50,,,1,1,1\n"
    _, background = background_of(tmp_path, {"machine_meta.csv": ZONE, "machine_usage.csv": text})
    assert background == {
        "mean": {"cpu_milli": 0.2, "memory_mib": 0.5},
        "amplitude": 0.0,
        "sd": 0.1,
    }


def test_containers_add_up_to_their_machine_and_are_preferred(tmp_path: Path) -> None:
    # Of 96 cores, c_1 asks for 48 and uses 50%, c_2 asks for 24 and uses 20%.
    containers = (
        "c_1,m_1,0,app_1,started,400,400,3.13\n"
        "c_1,m_1,9,app_1,started,4800,4800,50\n"
        "c_2,m_1,0,app_1,started,2400,2400,10\n"
        "c_3,m_7,0,app_1,started,400,400,3.13\n"
    )
    usage = (
        "c_1,m_1,0,40,80,1,,1,1,1,5\nc_1,m_1,600,60,80,1,,1,1,1,5\n"
        "c_2,m_1,0,20,50,1,1,1,1,1,5\nc_2,m_1,600,20,50,1,1,1,1,1,5\n"
        "c_9,m_1,0,20,50,1,1,1,1,1,5\nc_1,m_1,0,,50,1,1,1,1,1,5\nc_1,m_1,0,x,50,1,1,1,1,1,5\n"
    )
    account, background = background_of(
        tmp_path,
        {
            "machine_meta.csv": ZONE,
            "container_meta.csv": containers,
            "container_usage.csv": usage,
            "machine_usage.csv": "m_1,0,99,99,1,1,1,1,1\n",
        },
    )
    assert background == {
        "mean": {"cpu_milli": 0.3, "memory_mib": 0.45},
        "amplitude": 0.0,
        "sd": 0.05,
    }
    assert dict(account.tables["container_meta"].dropped) == {
        "container-machine-unknown": 1,
        "superseded-event": 1,
    }
    used = account.tables["container_usage"]
    assert dict(used.dropped) == {"usage-missing": 1, "usage-bad-value": 1, "usage-of-unknown": 1}
    assert used.rows_kept == 4
    assert "machine_usage" not in account.tables
    assert account.facts["not_read"] == ["machine_usage (container_usage is preferred)"]


def test_zone_without_samples_has_no_background(tmp_path: Path) -> None:
    _, background = background_of(
        tmp_path, {"machine_meta.csv": ZONE, "machine_usage.csv": "m_9,0,1,1,1,1,1,1,1\n"}
    )
    assert background is None


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"batch_instance.csv": "1"}, "table batch_instance needs batch_task too"),
        ({"machine_usage.csv": "1"}, "table machine_usage needs machine_meta too"),
        ({"machine_meta.csv": "1", "container_usage.csv": "1"}, "needs container_meta too"),
    ],
)
def test_table_that_needs_another_says_so(files: dict[str, str], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        convert_tables(FORMAT.name, files)


def test_reference_machine_can_be_given() -> None:
    files = {"batch_task.csv": tasks_text({})}
    outcome = convert_tables(FORMAT.name, files, reference={"memory_mib": 100_000})
    assert outcome.table.request.tolist() == [[500, 390]]
    assert outcome.table.reference.tolist() == [96_000, 100_000]


SOME_TASKS = tasks_text(
    {"task_name": "M1"},
    {"task_name": "R2_1", "start_time": "131", "end_time": "140"},
    {"job_name": "j_2", "task_name": "task_abc"},
    {"job_name": "j_3"},
    GOOD,
)
SOME_INSTANCES = instances_text(
    {}, {"end_time": "105"}, {"job_name": "j_2", "task_name": "task_abc"}
)


@given(damaged(SOME_TASKS))
@settings(max_examples=80, deadline=None)
def test_damaged_values_are_accounted_for(content: bytes) -> None:
    survives(FORMAT.name, {"batch_task.csv": content})


@given(damaged_bytes(SOME_TASKS))
@settings(max_examples=80, deadline=None)
def test_damaged_bytes_are_accounted_for(content: bytes) -> None:
    converted_or_refused(FORMAT.name, {"batch_task.csv": content})


@given(damaged(SOME_INSTANCES))
@settings(max_examples=60, deadline=None)
def test_damaged_instances_are_accounted_for(content: bytes) -> None:
    survives(FORMAT.name, {"batch_task.csv": SOME_TASKS.encode(), "batch_instance.csv": content})


@given(damaged(MACHINES), damaged("m_1,0,10,50,,,1,1,1\nm_3,90000,30,50,,,1,1,-1\n"))
@settings(max_examples=60, deadline=None)
def test_damaged_machine_tables_are_accounted_for(meta: bytes, usage: bytes) -> None:
    survives(FORMAT.name, {"machine_meta.csv": meta, "machine_usage.csv": usage})


def test_real_tasks_give_the_known_figures(public_traces: Path) -> None:
    source = public_traces / "alibaba-v2018-dags-2119" / "selected_DAGs.csv"
    outcome = convert_sources(FORMAT.name, [str(source)])
    account = outcome.of("batch_task")
    assert account.rows_read == 55_874
    assert {rule: n for rule, n in account.found.items() if n} == {
        "status-waiting": 192,
        "status-running": 652,
        "status-failed": 36,
        "instance-num-missing": 192,
        "plan-missing": 354,
        "end-missing": 248,
        "end-before-start": 56,
        "start-missing": 192,
        "name-cut": 330,
        "duration-zero": 650,
        "duration-includes-queueing": 55_626,
        "use-unknown": 55_874,
        "parent-id-above-own": 12_265,
        "child-before-parent": 40_891,
        "job-incomplete": 17_884,
    }
    assert account.examined["parent-id-above-own"] == 63_285
    assert account.examined["child-before-parent"] == 61_778  # 66% are early
    assert outcome.table.n_jobs == 1881
    assert outcome.table.n_tasks == account.rows_kept == 36_803


def test_real_machines_give_the_known_figures(public_traces: Path) -> None:
    outcome = convert_sources(FORMAT.name, [str(public_traces / "alibaba-v2018-machines")])
    machines, usage = outcome.of("machine_meta"), outcome.of("machine_usage")
    assert (machines.rows_read, machines.rows_kept) == (17_592, 4_034)
    assert machines.found["failure-domain-missing"] == 34
    assert machines.found["machine-not-in-use"] == 5
    assert len(outcome.zones) == 20
    assert sum(group["count"] for zone in outcome.zones.values() for group in zone) == 4_034
    assert (usage.rows_read, usage.rows_kept) == (100_002, 100_002)
    assert usage.found["usage-disk-io-invalid"] == 16
    assert usage.found["usage-memory-traffic-missing"] == 78_325
