import os
from pathlib import Path

import polars as pl
import pytest

from marl_sched.errors import TraceError
from marl_sched.workload.traces.alibaba_v2018 import (
    COLUMNS,
    RULES,
    load_hour,
    main,
    parse_task_name,
)
from marl_sched.workload.traces.tasks import TASK_SCHEMA, task_path

ROOT = Path(__file__).parents[3]
TRACES = Path(os.environ.get("MARL_SCHED_TRACES", ROOT.parent / "shared" / "traces"))
HOUR = TRACES / "alibaba-v2018-spar-hour" / "tasks_with_instance_stats.csv.gz"
SAMPLE = task_path("package:alibaba-v2018-hour")
VALUES = "268,50.0,0.3,9,27.333,28.0,29,101.556,113.0,0.102,0.11,28.6"


def row(job: str, task: str, arrive: str = "0", values: str = VALUES) -> str:
    return f"{arrive},{job},{task},{values}"


def write(folder: Path, *rows: str) -> Path:
    path = folder / "tasks.csv"
    path.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("M1", (1, [])),
        ("R4_2", (4, [2])),
        ("J25_16_18_24", (25, [16, 18, 24])),
        ("R2_9", (2, [9])),
        ("task_NTY1MTg4ODc5Mw==", (None, [])),
        ("R4_2_", None),
        ("4_2", None),
        ("MergeTask", None),
        ("", None),
    ],
)
def test_task_names(name: str, parsed: tuple[int | None, list[int]] | None) -> None:
    assert parse_task_name(name) == parsed


def test_row_is_converted_to_the_units_of_the_table(tmp_path: Path) -> None:
    table, _ = load_hour(write(tmp_path, row("j_1", "M1", "12")))
    assert dict(table.schema) == TASK_SCHEMA
    assert table.row(0, named=True) == {
        "job": 0,
        "arrival_s": 12,
        "parents": [],
        "n_instances": 9,
        "cpu_milli": 500,
        "memory_ppm": 3000,
        "duration_mean_ms": 27_333,  # of the instances, not the task's 268 s
        "duration_p50_ms": 28_000,
        "duration_p95_ms": 28_600,
        "duration_max_ms": 29_000,
        "cpu_used_mean_milli": 1016,
        "cpu_used_max_milli": 1130,
        "memory_used_mean_ppm": 1020,
        "memory_used_max_ppm": 1100,
    }


def test_parents_are_positions_in_the_job_whatever_the_order_of_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, row("j_1", "R2_9"), row("j_1", "J7_2_9"), row("j_1", "M9"))
    table, _ = load_hour(path)
    assert table["parents"].to_list() == [[2], [0, 2], []]


def test_jobs_are_in_order_of_arrival_and_whole(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        row("j_2", "M1", "7"),
        row("j_1", "M1", "3"),
        row("j_3", "M1", "3"),
        row("j_1", "R2_1", "3"),
    )
    table, account = load_hour(path)
    assert table["job"].to_list() == [0, 0, 1, 2]
    assert table["arrival_s"].to_list() == [3, 3, 3, 7]
    assert account.n_jobs == 3


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("missing_value", [row("j_1", "M1", values=VALUES.replace("0.3", ""))]),
        ("missing_value", [row("j_1", "M1", values=VALUES.replace("0.3", "many"))]),
        ("missing_value", [row("j_1", "M1", values=VALUES.replace("0.3", "nan"))]),
        ("bad_value", [row("j_1", "M1", arrive="-1")]),
        ("bad_value", [row("j_1", "M1", values=VALUES.replace(",9,", ",0,"))]),
        ("bad_value", [row("j_1", "M1", values=VALUES.replace("50.0", "0"))]),
        ("bad_value", [row("j_1", "M1", values=VALUES.replace("28.6", "29.5"))]),
        ("arrival_differs", [row("j_1", "M1"), row("j_1", "M2", "4")]),
        ("name_cut", [row("j_1", "M1"), row("j_1", "R2_1_")]),
        ("name_cut", [row("j_1", "M1"), row("j_1", "R2" + "_1" * 24)]),
        ("name_unknown", [row("j_1", "MergeTask")]),
        ("duplicate", [row("j_1", "M1"), row("j_1", "M1")]),
        ("duplicate", [row("j_1", "M1"), row("j_1", "R1")]),
        ("parent_missing", [row("j_1", "M1"), row("j_1", "R2_3")]),
        ("cycle", [row("j_1", "M1_1")]),
    ],
)
def test_bad_row_is_dropped_under_its_rule_with_its_job(
    tmp_path: Path, rule: str, rows: list[str]
) -> None:
    table, account = load_hour(write(tmp_path, row("j_0", "M1"), *rows))
    assert len(table) == 1
    assert account.dropped == dict.fromkeys(RULES, 0) | {
        "job_incomplete": len(rows) - 1,
        rule: 1,
    }
    assert account.n_rows == account.n_kept + sum(account.dropped.values())


def test_a_child_of_a_dropped_task_is_not_short_of_a_parent(tmp_path: Path) -> None:
    rows = [row("j_1", "M1_"), row("j_1", "R2_1"), row("j_0", "M1")]
    _, account = load_hour(write(tmp_path, *rows))
    assert (account.dropped["name_cut"], account.dropped["job_incomplete"]) == (1, 1)


def test_every_task_of_a_cycle_is_counted(tmp_path: Path) -> None:
    rows = [row("j_1", "M1"), row("j_1", "R2_3"), row("j_1", "R3_2"), row("j_0", "M1")]
    _, account = load_hour(write(tmp_path, *rows))
    assert (account.dropped["cycle"], account.dropped["job_incomplete"]) == (2, 1)


def test_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv: no such file"):
        load_hour(tmp_path / "none.csv")


def test_other_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text("arrive,job\n0,j_1\n", encoding="utf-8")
    with pytest.raises(TraceError, match=r"columns \['arrive', 'job'\], expected \['arrive', "):
        load_hour(path)


def test_file_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="none of 1 rows is usable"):
        load_hour(write(tmp_path, row("j_1", "MergeTask")))


def test_command_writes_the_table_and_accounts_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path, row("j_0", "M1"), row("j_1", "MergeTask"))
    assert main([str(source), str(tmp_path / "out.parquet")]) == 0
    assert len(pl.read_parquet(tmp_path / "out.parquet")) == 1
    assert "2 rows read, 1 kept (1 jobs, 9 instances)" in capsys.readouterr().err


def test_command_fails_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.csv"), str(tmp_path / "out.parquet")]) == 1
    assert main(["only-one"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert not (tmp_path / "out.parquet").exists()


def test_shipped_sample_is_small() -> None:
    assert SAMPLE.stat().st_size <= 1_500_000


@pytest.mark.skipif(not HOUR.exists(), reason=f"needs {HOUR.name} in MARL_SCHED_TRACES")
def test_whole_hour_is_accounted_for_and_is_what_ships() -> None:
    table, account = load_hour(HOUR)
    assert account.n_rows == 67_634 == account.n_kept + sum(account.dropped.values())
    assert {rule: n for rule, n in account.dropped.items() if n} == {
        "name_cut": 9,
        "job_incomplete": 397,
    }
    assert (account.n_jobs, account.n_instances) == (16_742, 3_044_592)
    assert table.equals(pl.read_parquet(SAMPLE))


@pytest.mark.skipif(not HOUR.exists(), reason=f"needs {HOUR.name} in MARL_SCHED_TRACES")
def test_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "half.csv.gz"
    path.write_bytes(HOUR.read_bytes()[:100_000])
    with pytest.raises(TraceError, match=r"half\.csv\.gz: not a whole CSV file"):
        load_hour(path)
