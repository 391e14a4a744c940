"""Machines of Alibaba's GPU clusters (OpenB, PAI): zones, and the largest machine.

Neither trace tells a failure domain. Zones are the GPU models by default: the clusters' operators
divide them so, it is all that a trace tells machines apart by, and one zone would leave several
agents nothing to share. GPUs are amounts: 1000 `gpu_milli` are one GPU, and a machine of eight has
8000, whichever of the eight a share of a GPU lies on.
"""

import re

import polars as pl

from marl_sched.workload.raw.account import TableAccount
from marl_sched.workload.raw.machines import ZoneMachines
from marl_sched.workload.raw.rules import Rule

RESOURCES = ("cpu_milli", "memory_mib", "gpu_milli")
MILLI_PER_GPU = 1000
MOST_GPUS = 2.0**20
"""More GPUs of a machine or an instance are damage."""
NO_FAILURE_DOMAIN = Rule(
    "no-failure-domain",
    "a machine, whose failure domain the trace does not tell: zones are GPU models, or one zone",
    ("zone-by-model", "one-zone"),
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST_MODEL = 50


def gpu_zones(machines: pl.DataFrame, table: TableAccount) -> list[ZoneMachines]:
    """Return the zones of machines, the largest first, and count the machines as kept.

    Args:
        machines: A row each, columns `model` (null: none is told) and `RESOURCES`.
        table: Account of the table they come from.
    """
    table.rows_kept += len(machines)
    table.find(NO_FAILURE_DOMAIN.name, len(machines))
    if table.rules.action(NO_FAILURE_DOMAIN.name) == "one-zone":
        names = pl.Series(["all"] * len(machines), dtype=pl.String)
    else:
        names = pl.Series([_zone_name(*row) for row in machines["model", "gpu_milli"].iter_rows()])
    groups = machines.with_columns(names.alias("zone")).partition_by("zone", maintain_order=True)
    groups.sort(key=len, reverse=True)
    return [ZoneMachines(group["zone"][0], group.select(RESOURCES).to_numpy()) for group in groups]


def _zone_name(model: str | None, gpu_milli: int) -> str:
    if model is None:
        model = "unknown" if gpu_milli else "none"
    return f"model_{_NOT_IN_NAMES.sub('_', model)[:_LONGEST_MODEL]}"


def largest_machine(machines: pl.DataFrame, published: dict[str, int]) -> dict[str, int]:
    """Return the largest amount of each resource, of the published machines where none was read."""
    if not len(machines):
        return published
    amounts = machines.select(RESOURCES).to_numpy().max(axis=0)
    return {name: int(amount) for name, amount in zip(RESOURCES, amounts, strict=True) if amount}
