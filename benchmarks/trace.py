"""How fast a raw trace is converted: `python benchmarks/trace.py [--json]`.

Makes a batch_task table as Alibaba's cluster-trace-v2018 has it (seeded; jobs of 1 to 20 tasks, and
some of every trap), plain and in gzip, and converts each in a process of its own; then with a
batch_instance table of `--instances` rows in random order. Rows per second of wall time, the
interpreter's start included, and the largest memory of the process. Bars, on two cores: at least
1,000,000 rows/s of batch_task, at most 1.5 GB.

The tables are made once if `--folder` is given; they take 0.9 GB there.
"""

import gzip
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from measuring import parser, print_figures

from marl_sched.commands.warm_up import warm_up

BARS = {"rows_per_s": 1_000_000, "peak_gb": 1.5}
SEED = 2018
N_JOBS_A_PART = 250_000
CONVERT = """
import sys
from pathlib import Path
from marl_sched.workload.raw.convert import Conversion, convert

done = convert(Conversion("alibaba-v2018", tuple(sys.argv[2:]), Path(sys.argv[1])))
print(sum(table.rows_read for table in done.account.tables.values()))
print(next(x.split()[1] for x in open("/proc/self/status") if x.startswith("VmHWM")))
"""
Draws = np.random.Generator


def dag_names(n_tasks: int, draws: Draws) -> list[str]:
    """Return the names of one job's tasks; some DAGs are numbered against the order."""
    numbers = np.arange(1, n_tasks + 1)
    if draws.random() < 0.15:
        numbers = numbers[::-1]
    names = []
    for i, number in enumerate(numbers):
        n_parents = min(i, int(draws.choice(4, p=(0.35, 0.5, 0.1, 0.05))))
        parents = numbers[np.sort(draws.choice(i, n_parents, replace=False))] if i else []
        letter = "R" if n_parents else "M"
        names.append("_".join([f"{letter}{number}", *(str(parent) for parent in parents)]))
    return names


def job_kinds(draws: Draws) -> list[list[str]]:
    """Return the names of 4,000 kinds of jobs; the trace too has many equal ones."""
    shares = 0.45 ** np.arange(20) + 0.004
    sizes = draws.choice(20, 4000, p=shares / shares.sum()) + 1
    return [dag_names(int(n), draws) for n in sizes]


def draw_tasks(first_job: int, n_jobs: int, kinds: list[list[str]], draws: Draws) -> pl.DataFrame:
    """Return the rows of some jobs in the columns of batch_task."""
    kind = draws.integers(0, len(kinds), n_jobs)
    counts = np.array([len(names) for names in kinds])[kind]
    job = np.repeat(np.arange(n_jobs), counts)
    n = len(job)
    names = pl.Series([name for k in kind for name in kinds[k]])
    on_its_own = pl.Series(draws.integers(0, 2**40, n)).cast(pl.String)
    start = np.repeat(draws.integers(1, 690_000, n_jobs), counts) + draws.integers(0, 60, n)
    frame = pl.DataFrame(
        {
            "name": names,
            "instance_num": np.ceil(draws.pareto(1.0, n) + 1e-9).clip(1, 40_000),
            "job": pl.Series(job + first_job).cast(pl.String),
            "start": start,
            "end": start + np.floor(draws.exponential(40, n)),
            "cpu": draws.choice((50.0, 100.0), n),
            "mem": draws.choice((0.2, 0.3, 0.39, 0.49, 0.59), n),
            "is_single": np.repeat(counts == 1, counts) & (draws.random(n) < 0.3),
            "luck": draws.random(n),
        }
    ).with_columns(
        name=pl.when("is_single").then(pl.lit("task_") + on_its_own + "==").otherwise("name")
    )
    return with_traps(frame)


def with_traps(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows as published, about 2% of them with one of the trace's traps."""
    luck = pl.col("luck")
    is_waiting, is_running = luck < 0.003, luck.is_between(0.003, 0.012)
    is_failed, is_cut = luck.is_between(0.012, 0.0126), luck.is_between(0.013, 0.014)
    is_backward = luck.is_between(0.015, 0.0155)
    status = (
        pl.when(is_waiting)
        .then(pl.lit("Waiting"))
        .when(is_running)
        .then(pl.lit("Running"))
        .when(is_failed)
        .then(pl.lit("Failed"))
        .otherwise(pl.lit("Terminated"))
    )
    return frame.select(
        pl.when(is_cut).then(pl.col("name") + "_").otherwise("name").alias("task_name"),
        pl.when(~is_waiting).then("instance_num").alias("instance_num"),
        (pl.lit("j_") + pl.col("job")).alias("job"),
        (luck * 1e6 % 12 + 1).cast(pl.Int64).cast(pl.String).alias("task_type"),
        status.alias("status"),
        pl.when(is_waiting).then(0).otherwise("start").alias("start"),
        pl.when(is_waiting | is_backward).then(0).otherwise("end").cast(pl.Int64).alias("end"),
        pl.when(~is_waiting).then("cpu").alias("cpu"),
        pl.when(~is_waiting & ~is_running).then("mem").alias("mem"),
    )


def draw_instances(tasks: pl.DataFrame, n: int, draws: Draws) -> pl.DataFrame:
    """Return n instances of some tasks, in random order, in the columns of batch_instance."""
    weight = tasks["instance_num"].fill_null(1).to_numpy()
    row = draws.choice(len(tasks), n, p=weight / weight.sum())
    task = tasks[row]
    start = draws.integers(1, 690_000, n)
    duration = np.round((row % 97 + 1) * draws.lognormal(0.0, 0.3, n)).astype(np.int64)
    percent = draws.integers(1, 150, n)
    return task.select(
        pl.Series(draws.integers(0, 2**31, n)).cast(pl.String).alias("instance"),
        "task_name",
        "job",
        "task_type",
        pl.Series(np.where(draws.random(n) < 0.99, "Terminated", "Failed")).alias("status"),
        pl.Series(start).alias("start"),
        pl.Series(start + duration).alias("end"),
        pl.lit("m_") + pl.Series(draws.integers(1, 4034, n)).cast(pl.String).alias("machine"),
        pl.lit(1).alias("seq"),
        pl.lit(1).alias("total"),
        pl.Series(percent).alias("cpu_avg"),
        pl.Series(percent * 2).alias("cpu_max"),
        pl.Series(percent / 500).alias("mem_avg"),
        pl.Series(percent / 400).alias("mem_max"),
    )


def make_tables(folder: Path, n_tasks: int, n_instances: int) -> dict[str, Path]:
    """Write the tables, but for those that are there; return their files."""
    files = {
        "batch_task": folder / f"batch_task-{n_tasks}.csv",
        "batch_task gzip": folder / f"batch_task-{n_tasks}.csv.gz",
        "batch_task of batch_instance": folder / f"batch_task-of-{n_tasks}.csv",
        "batch_instance": folder / f"batch_instance-{n_tasks}-{n_instances}.csv",
    }
    done = folder / f"made-{n_tasks}-{n_instances}"
    if done.exists():
        return files
    draws = np.random.default_rng(SEED)
    kinds = job_kinds(draws)
    n_written, first_job = 0, 1
    with files["batch_task"].open("wb") as plain:
        while n_written < n_tasks:
            part = draw_tasks(first_job, N_JOBS_A_PART, kinds, draws).head(n_tasks - n_written)
            part.write_csv(plain, include_header=False)
            if not n_written:
                first_part = part
            n_written, first_job = n_written + len(part), first_job + N_JOBS_A_PART
    with (
        files["batch_task"].open("rb") as plain,
        gzip.open(files["batch_task gzip"], "wb", compresslevel=6) as packed,
    ):
        shutil.copyfileobj(plain, packed, 1 << 24)
    first_part.write_csv(files["batch_task of batch_instance"], include_header=False)
    with files["batch_instance"].open("wb") as plain:
        for first in range(0, n_instances, 1_000_000):
            n = min(1_000_000, n_instances - first)
            draw_instances(first_part, n, draws).write_csv(plain, include_header=False)
    done.touch()
    return files


def converted(folder: Path, *sources: Path) -> dict[str, float]:
    """Convert in a new process; return rows, times and the largest resident memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", CONVERT, str(folder / "out.parquet"), *map(str, sources)],
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    n_rows, peak_kib = map(int, done.stdout.split())
    return {
        "rows": n_rows,
        "wall_s": wall_s,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "rows_per_s": n_rows / wall_s,
        "peak_gb": peak_kib * 1024 / 1e9,
    }


def measure(folder: Path, n_tasks: int, n_instances: int) -> dict[str, Any]:
    """Return the figures of every table."""
    files = make_tables(folder, n_tasks, n_instances)
    small, plain = files["batch_task of batch_instance"], files["batch_task"]
    figures: dict[str, Any] = {"bars": BARS}
    figures["batch_task"] = converted(folder, plain)
    figures["batch_task gzip"] = converted(folder, files["batch_task gzip"])
    figures["batch_task and batch_instance"] = converted(folder, small, files["batch_instance"])
    return figures


def main() -> None:
    """Run the benchmark and print its figures."""
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, default=10_000_000, metavar="N", help="tasks")
    arguments.add_argument("--instances", type=int, default=10_000_000, metavar="N")
    arguments.add_argument("--folder", type=Path, help="keep the tables there")
    given = arguments.parse_args()
    warm_up()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print_figures(measure(folder, given.rows, given.instances), given.json)


if __name__ == "__main__":
    main()
