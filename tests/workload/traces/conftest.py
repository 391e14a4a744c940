"""A small trace, made by hand: every test can compute what should come out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from marl_sched.workload.traces.tasks import TASK_SCHEMA

ROW: dict[str, Any] = {
    "parents": [],
    "n_instances": 4,
    "cpu_milli": 1000,
    "memory_ppm": 10_000,
    "duration_mean_ms": 10_000,
    "duration_p50_ms": 9_000,
    "duration_p95_ms": 15_000,
    "duration_max_ms": 20_000,
    "cpu_used_mean_milli": 500,
    "cpu_used_max_milli": 900,
    "memory_used_mean_ppm": 2_000,
    "memory_used_max_ppm": 4_000,
}


@pytest.fixture
def write_trace(tmp_path: Path) -> Callable[[list[dict[str, Any]]], str]:
    """Return a writer of task tables: rows give `job`, `arrival_s` and what differs from ROW."""

    def write(rows: list[dict[str, Any]]) -> str:
        path = tmp_path / "trace.parquet"
        pl.DataFrame([ROW | row for row in rows], schema=TASK_SCHEMA).write_parquet(path)
        return str(path)

    return write


@pytest.fixture
def trace(write_trace: Callable[[list[dict[str, Any]]], str]) -> str:
    """A job of a diamond of four tasks every second of 200 s; every tenth is a giant."""
    rows: list[dict[str, Any]] = []
    for job in range(200):
        size = {"n_instances": 4000} if job % 10 == 0 else {}
        diamond: list[list[int]] = [[], [0], [0], [1, 2]]
        rows += [{"job": job, "arrival_s": job, "parents": p} | size for p in diamond]
    return write_trace(rows)
