"""A small trace, made by hand: every test can compute what should come out."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from marl_sched.workload.traces.tasks import TraceInfo, metadata, task_schema

RESOURCES = ("cpu_milli", "memory_mib")
INFO = TraceInfo(format="hand-made", reference={"cpu_milli": 96_000, "memory_mib": 393_216})
ROW: dict[str, Any] = {
    "parents": [],
    "priority": 0,
    "n_instances": 4,
    "duration_mean_ms": 10_000,
    "duration_p50_ms": 9_000,
    "duration_p95_ms": 15_000,
    "duration_max_ms": 20_000,
    "request:cpu_milli": 1000,
    "request:memory_mib": 3932,
    "use_mean:cpu_milli": 500.0,
    "use_mean:memory_mib": 786.0,
    "use_max:cpu_milli": 900.0,
    "use_max:memory_mib": 1573.0,
}

Rows = list[dict[str, Any]]


def write_rows(path: Path, rows: Rows, info: TraceInfo = INFO) -> str:
    """Write a task table: rows give `job`, `arrival_s` and what differs from ROW."""
    full = []
    for row in rows:
        given = dict(row)
        if "arrival_s" in given:
            given["arrival_us"] = int(given.pop("arrival_s") * 1_000_000)
        full.append(ROW | given)
    resources = tuple(
        name.removeprefix("request:")
        for name in (full[0] if full else ROW)
        if name.startswith("request:")
    )
    frame = pl.DataFrame(full, schema=task_schema(resources))
    frame.write_parquet(path, metadata=metadata(info))
    return str(path)


@pytest.fixture
def write_trace(tmp_path: Path) -> Callable[[Rows], str]:
    """Return a writer of task tables, see `write_rows`."""
    return lambda rows: write_rows(tmp_path / "trace.parquet", rows)


@pytest.fixture
def trace(write_trace: Callable[[Rows], str]) -> str:
    """A job of a diamond of four tasks every second of 200 s; every tenth is a giant."""
    rows: Rows = []
    for job in range(200):
        size = {"n_instances": 4000} if job % 10 == 0 else {}
        diamond: list[list[int]] = [[], [0], [0], [1, 2]]
        rows += [{"job": job, "arrival_s": job, "parents": p} | size for p in diamond]
    return write_trace(rows)


@pytest.fixture
def public_traces() -> Path:
    """The folder of small public traces, where there is one."""
    default = Path(__file__).parents[3] / "shared" / "traces"
    folder = Path(os.environ.get("MARL_SCHED_TRACES", default))
    if not folder.is_dir():
        pytest.skip(f"no public traces in {folder}: name their folder in MARL_SCHED_TRACES")
    return folder
