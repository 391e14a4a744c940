"""The machine table of Alibaba's PAI."""

import polars as pl

from marl_sched.errors import TraceError
from marl_sched.workload.raw.account import TableAccount
from marl_sched.workload.raw.formats import Sources
from marl_sched.workload.raw.gpu_machines import MILLI_PER_GPU, MOST_GPUS, NO_FAILURE_DOMAIN
from marl_sched.workload.raw.lines import TextColumns, read_text
from marl_sched.workload.raw.rules import DROP_ROW, Rule
from marl_sched.workload.raw.values import LARGEST_AMOUNT, is_bad, number

MACHINES = TextColumns(
    (
        "machine",
        "gpu_type",  # CPU: has none
        "cap_cpu",  # cores
        "cap_mem",  # GB
        "cap_gpu",
    )
)
MIB_PER_GB = 1024
_LIMITS = {
    "cap_cpu": (1e-3, LARGEST_AMOUNT / 1e3),
    "cap_mem": (1e-3, LARGEST_AMOUNT / MIB_PER_GB),
    "cap_gpu": (0.0, MOST_GPUS),
}
MACHINE_RULES = (
    Rule("machine-missing-value", "a machine without a name or a capacity", (DROP_ROW,)),
    Rule("machine-bad-value", "a capacity that is no number, too large, or none", (DROP_ROW,)),
    Rule("machine-duplicate", "a second row of the same machine", (DROP_ROW,)),
    NO_FAILURE_DOMAIN,
)


def load_machines(sources: Sources, table: TableAccount) -> pl.DataFrame:
    """Return the machines as `gpu_zones` takes them.

    Raises:
        TraceError: No row is a machine.
    """
    paths = sources.files["pai_machine_spec"]
    frames = [
        frame for path in paths for frame in read_text(path, MACHINES, table, sources.on_bytes)
    ]
    required = ("machine", *_LIMITS)
    tests = {
        "machine-missing-value": pl.any_horizontal(pl.col(name).is_null() for name in required),
        "machine-bad-value": pl.any_horizontal(is_bad(x, *ends) for x, ends in _LIMITS.items()),
        "machine-duplicate": ~pl.col("machine").is_first_distinct(),
    }
    kept = table.sort_out(pl.concat(frames), tests) if frames else pl.DataFrame()
    if not len(kept):
        names = ", ".join(str(path) for path in paths)
        raise TraceError(f"{names}: none of {table.rows_read} rows is a machine")
    capacity = {
        "cpu_milli": number("cap_cpu") * 1000,
        "memory_mib": number("cap_mem") * MIB_PER_GB,
        "gpu_milli": number("cap_gpu") * MILLI_PER_GPU,
    }
    return kept.select(
        pl.when(pl.col("gpu_type") != "CPU").then("gpu_type").alias("model"),
        *(amount.round().cast(pl.Int64).alias(name) for name, amount in capacity.items()),
    )
