"""The job table of Alibaba's PAI: when each job was submitted."""

import polars as pl

from marl_sched.workload.raw.formats import Sources
from marl_sched.workload.raw.lines import TextColumns, read_text
from marl_sched.workload.raw.rules import DROP_ROW, Rule
from marl_sched.workload.raw.values import LONGEST_S, is_bad, number

JOBS = TextColumns(("job_name", "inst_id", "user", "status", "start_time", "end_time"))
JOB_RULES = (
    Rule("job-missing-value", "a row of the job table without name or submission", (DROP_ROW,)),
    Rule("job-bad-value", "a submission that is no number, negative or too large", (DROP_ROW,)),
    Rule("job-duplicate", "a second row of the same job", (DROP_ROW,)),
    Rule("job-without-task", "a job of which the task table has no row", (DROP_ROW,)),
)


def load_jobs(sources: Sources) -> pl.DataFrame:
    """Return jobs once each: `job` (UInt64) code of the name, `submitted` (s). None: no rows."""
    blocks = [pl.DataFrame(schema={"job": pl.UInt64, "submitted": pl.Float64})]
    table = sources.account.table("pai_job_table") if "pai_job_table" in sources.files else None
    if table is None:
        return blocks[0]
    tests = {
        "job-missing-value": pl.col("job_name").is_null() | pl.col("start_time").is_null(),
        "job-bad-value": is_bad("start_time", 0.0, LONGEST_S),
    }
    for path in sources.files["pai_job_table"]:
        blocks += [
            table.sort_out(frame, tests).select(
                pl.col("job_name").hash(1).alias("job"), number("start_time").alias("submitted")
            )
            for frame in read_text(path, JOBS, table, sources.on_bytes)
        ]
    jobs = pl.concat(blocks)
    is_first = jobs["job"].is_first_distinct()
    table.drop("job-duplicate", len(jobs) - int(is_first.sum()))
    return jobs.filter(is_first)


def settle_jobs(jobs: pl.DataFrame, tasks: pl.Series, sources: Sources) -> None:
    """Count the jobs (of `load_jobs`): kept are those that a task names.

    Args:
        jobs: The jobs.
        tasks: Code of every task's job.
        sources: What holds the account.
    """
    if "pai_job_table" not in sources.files:
        return
    table = sources.account.table("pai_job_table")
    n_kept = int(jobs["job"].is_in(tasks.unique().implode()).sum())
    table.rows_kept += n_kept
    table.drop("job-without-task", len(jobs) - n_kept)
