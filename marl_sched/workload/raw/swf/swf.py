"""Format `swf`: logs in the Standard Workload Format 2.2 of the Parallel Workloads Archive.

A line is a rigid parallel job: n processors that start and end together. It becomes a job of one
task with n instances of one core, which all run for the job's run time (`parallel-job=instances`).
That keeps the work and its shape in time when the machines are shared, and lets a job be larger
than a machine, as it is on the machines of the archive. That the instances must start together is
lost: nothing here starts instances as a gang. `parallel-job=one-instance` keeps them together as
one instance of n cores, which then must fit on one machine.

Memory is per processor in the log. A value of -1 is not known. The header tells the machines only
in part: MaxProcs processors in MaxNodes nodes, never their memory (`machine-memory-unknown`).
"""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import RULE, TableAccount
from marl_sched.workload.raw.assemble import TaskRows, assemble
from marl_sched.workload.raw.formats import Format, Loaded, Sources, TableSpec
from marl_sched.workload.raw.lines import LINE_RULES, TextColumns, read_text
from marl_sched.workload.raw.machines import ZoneMachines
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.swf.swf_header import MOST_PROCESSORS, machines_of, read_header
from marl_sched.workload.raw.values import LARGEST_AMOUNT, LONGEST_S
from marl_sched.workload.traces.tasks import REQUEST, USES, TraceInfo

RESOURCES = ("cpu_milli", "memory_mib")
COLUMNS = TextColumns(
    (
        "job",
        "submit_s",
        "wait_s",
        "run_s",
        "processors",
        "cpu_s",
        "memory_kb",
        "requested_processors",
        "requested_s",
        "requested_memory_kb",
        "status",
        "user",
        "group",
        "executable",
        "queue",
        "partition",
        "preceding_job",
        "think_s",
    ),
    separator=" ",
    comment=";",
    has_header=False,
)
"""The 18 fields, in their order."""
FAILED, COMPLETED, PARTIAL, LAST_COMPLETED, LAST_FAILED, CANCELLED = range(6)
UNKNOWN = -1

_KB_PER_MIB = 1024
_USED = {
    "job": LONGEST_S,
    "submit_s": LONGEST_S,
    "run_s": LONGEST_S,
    "processors": MOST_PROCESSORS,
    "cpu_s": LONGEST_S,
    "memory_kb": LARGEST_AMOUNT,
    "requested_processors": MOST_PROCESSORS,
    "requested_memory_kb": LARGEST_AMOUNT,
    "status": CANCELLED,
    "preceding_job": LONGEST_S,
}
"""The fields that are read, and the largest value of each."""
INSTANCES, ONE_INSTANCE = "instances", "one-instance"

_RULES = (
    *LINE_RULES,
    Rule(
        "bad-value",
        "a field is no number, below -1, or beyond any machine or log; or a status above 5",
        (DROP_ROW,),
    ),
    Rule(
        "partial-execution",
        "status 2, 3 or 4: one of several executions, which another line has as a whole",
        (DROP_ROW,),
    ),
    Rule("duplicate", "a second line with the number of a job", (DROP_ROW, KEEP)),
    Rule("status-failed", "status 0; kept, it runs as long as it did", (DROP_ROW, KEEP)),
    Rule("status-cancelled", "status 5; kept, it runs as long as it did", (DROP_ROW, KEEP)),
    Rule("status-unknown", "status -1, as in logs and models without one", (KEEP, DROP_ROW)),
    Rule("missing-submit-time", "submit time -1", (DROP_ROW,)),
    Rule("missing-run-time", "run time -1", (DROP_ROW,)),
    Rule("missing-processors", "no processors, neither allocated nor requested", (DROP_ROW,)),
    Rule(
        "allocated-unknown",
        "allocated processors not known: as many as requested",
        (KEEP, DROP_ROW),
    ),
    Rule("run-time-zero", "run time 0: less than half a second", (KEEP, DROP_ROW)),
    Rule("submit-out-of-order", "submitted before the line above it", (KEEP, DROP_ROW)),
    Rule(
        "parallel-job",
        "more than one processor: instances of one core each, not started as a gang; or one "
        "instance of all cores, which must fit on one machine",
        (INSTANCES, ONE_INSTANCE),
    ),
    Rule(
        "preceding-job",
        "starts after another job: the dependency is lost, jobs do not wait for one another",
        (KEEP, DROP_ROW),
    ),
    Rule(
        "memory-request-unknown",
        "requested memory not known: the used memory is taken",
        (KEEP, DROP_ROW),
    ),
    Rule("memory-unknown", "neither requested nor used memory known: 0", (KEEP, DROP_ROW)),
    Rule("use-unknown", "used cpu time or memory not known: it is the request", (KEEP,)),
    Rule(
        "machine-memory-unknown",
        "no header has a machine's memory: its processors times the largest of a processor in the "
        "log, 1 MiB where nobody asks for any",
        (KEEP,),
        of="files",
    ),
)


def _load(sources: Sources) -> Loaded:
    files = sources.files["log"]
    if len(files) > 1:
        raise TraceError(f"{files[0]} and {files[1]}: two logs have two clocks, expected one file")
    path = files[0]
    table = sources.account.table("log")
    header = read_header(path)
    rows, state = TaskRows(RESOURCES), _State()
    for frame in read_text(path, COLUMNS, table, sources.on_bytes):
        found = _sorted_out(frame, table, state)
        if len(found):
            state.memory_mib = max(state.memory_mib, int(found["memory_mib"].to_numpy().max()))
            rows.add(_canonical(found, table.rules.action("parallel-job")))
    machines = machines_of(header, state.memory_mib)
    largest = machines.max(0).tolist() if len(machines) else ()
    info = TraceInfo(format=FORMAT.name, reference=dict(zip(RESOURCES, largest, strict=False)))
    tasks = assemble(rows, table, info)
    sources.account.facts |= {"header": header}
    if not len(machines):
        return Loaded(tasks=tasks)
    table.find("machine-memory-unknown")
    return Loaded(tasks=tasks, zones=[ZoneMachines("all", machines)], resources=RESOURCES)


@dataclass
class _State:
    """What is remembered from block to block.

    Attributes:
        jobs: Numbers of the jobs so far, ascending.
        submit_s: Submit time of the last line.
        memory_mib: Largest memory of a processor.
        n_lines: Lines so far.
    """

    jobs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    submit_s: float = 0.0
    memory_mib: int = 0
    n_lines: int = 0


def _sorted_out(frame: pl.DataFrame, table: TableAccount, state: _State) -> pl.DataFrame:
    """Return the usable lines of a block, with their amounts."""
    col = pl.col
    values = frame.select(col(name).cast(pl.Float64, strict=False) for name in _USED)
    is_bad = pl.any_horizontal(
        ~col(name).is_between(UNKNOWN, most).fill_null(value=False) for name, most in _USED.items()
    )
    is_bad |= (col("status") % 1 != 0) | (col("processors") % 1 != 0)
    is_bad |= (col("requested_processors") % 1 != 0) | (col("job") % 1 != 0)
    requested = pl.max_horizontal("requested_memory_kb", 0)
    used = pl.max_horizontal("memory_kb", 0)
    memory_kb = pl.when(col("requested_memory_kb") < 0).then(used).otherwise(requested)
    values = values.with_columns(
        line=pl.int_range(pl.len(), dtype=pl.UInt64) + state.n_lines,
        is_bad=is_bad.fill_null(value=True),
        n=pl.when(col("processors") > 0)
        .then("processors")
        .otherwise(pl.max_horizontal("requested_processors", 0)),
        memory_mib=(memory_kb / _KB_PER_MIB).ceil(),
        cpu_use=pl.when((col("cpu_s") >= 0) & (col("run_s") > 0)).then(
            1000 * col("cpu_s") / col("run_s")
        ),
        memory_use=pl.when(col("memory_kb") >= 0).then(col("memory_kb") / _KB_PER_MIB),
    )
    total = col("n") * pl.max_horizontal("memory_mib", "memory_use", "cpu_use")
    values = values.with_columns(is_bad=col("is_bad") | (total > LARGEST_AMOUNT))
    values = values.with_columns(is_repeated=_is_repeated(values, state))
    found = table.sort_out(values, _tests(state.submit_s))
    state.n_lines += len(values)
    good = values.filter(~col("is_bad"))
    state.submit_s = float(good["submit_s"][-1]) if len(good) else state.submit_s
    return found


def _is_repeated(values: pl.DataFrame, state: _State) -> pl.Series:
    """Return whether a line has the number of an earlier job; remember the numbers.

    The executions of one job have its number, too: they are no jobs.
    """
    is_part = values["status"].is_between(PARTIAL, LAST_FAILED)
    is_job = (~is_part & ~values["is_bad"]).fill_null(value=False).to_numpy()
    number = values["job"].to_numpy()[is_job]
    is_new = np.zeros(len(number), bool)
    is_new[np.unique(number, return_index=True)[1]] = True
    is_new &= ~np.isin(number, state.jobs)
    state.jobs = np.union1d(state.jobs, number)
    is_repeated = np.zeros(len(values), bool)
    is_repeated[is_job] = ~is_new
    return pl.Series(is_repeated)


def _tests(last_submit_s: float) -> dict[str, pl.Expr]:
    """Return the tests in the rules' order."""
    col = pl.col
    status = col("status")
    is_unlike_use = pl.any_horizontal(col("cpu_use").is_null(), col("memory_use").is_null())
    return {
        "bad-value": col("is_bad"),
        "partial-execution": status.is_between(PARTIAL, LAST_FAILED),
        "duplicate": col("is_repeated"),
        "status-failed": status == FAILED,
        "status-cancelled": status == CANCELLED,
        "status-unknown": status == UNKNOWN,
        "missing-submit-time": col("submit_s") < 0,
        "missing-run-time": col("run_s") < 0,
        "missing-processors": col("n") < 1,
        "allocated-unknown": (col("processors") < 1) & (col("n") >= 1),
        "run-time-zero": col("run_s") == 0,
        "submit-out-of-order": col("submit_s") < col("submit_s").shift(1, fill_value=last_submit_s),
        "parallel-job": col("n") > 1,
        "preceding-job": col("preceding_job") > 0,
        "memory-request-unknown": (col("requested_memory_kb") < 0) & (col("memory_kb") >= 0),
        "memory-unknown": (col("requested_memory_kb") < 0) & (col("memory_kb") < 0),
        "use-unknown": is_unlike_use,
    }


def _canonical(found: pl.DataFrame, parallel_job: str) -> pl.DataFrame:
    """Return usable lines as `TaskRows.add` takes them; every line is a job."""
    col = pl.col
    is_one = parallel_job == ONE_INSTANCE
    cores = col("n") if is_one else pl.lit(1.0)
    amounts = {"cpu_milli": pl.lit(1000.0), "memory_mib": col("memory_mib")}
    uses = {"cpu_milli": col("cpu_use"), "memory_mib": col("memory_use")}
    columns = {
        f"{use}{name}": uses[name].fill_null(amounts[name]) * cores
        for use in USES
        for name in RESOURCES
    }
    return found.select(
        RULE,
        job="line",
        arrival_us=(col("submit_s") * 1e6).round().cast(pl.Int64),
        n_instances=(pl.lit(1.0) if is_one else col("n")).cast(pl.UInt32),
        duration_ms=(col("run_s") * 1000).round().cast(pl.Int64),
        **{f"{REQUEST}{name}": (amounts[name] * cores).cast(pl.Int64) for name in RESOURCES},
        **columns,
    )


FORMAT = Format(
    name="swf",
    title="Standard Workload Format 2.2, the logs of the Parallel Workloads Archive; tried on "
    "NASA-iPSC-1993-3.1-cln, LCG-2005 and a log made by Lublin's model",
    tables=(TableSpec("log", "a job", ("*.swf", "*.swf.gz", "*.swf.bz2", "*.swf.xz")),),
    rules=_RULES,
    load=_load,
)
