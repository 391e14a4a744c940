"""docs/trace-formats.md and docs/column-mapping.md, written from the code."""

from collections.abc import Iterator

from marl_sched.config.reference import page
from marl_sched.workload.raw.columns.column_mapping import Mapping
from marl_sched.workload.raw.formats import Format
from marl_sched.workload.raw.registry import FORMATS

_INTRODUCTION = """# Trace formats

What `marl-sched trace convert FORMAT SOURCE... --out NAME.parquet` reads. A SOURCE is a folder that
holds files under the names below (plain, or in gzip, bzip2, xz or a tar of them), a file, or
TABLE=FILE. Every row read is kept, or dropped under one rule: the first it breaks, in the order of
the tables below. The first action of a rule is its default; `--rule RULE=ACTION` takes another.

- `keep` counts the row and leaves it; `drop-row` drops it; `drop-job` drops it and the rest of its
  job with it (counted under `job-incomplete`), since a DAG with a hole is false.
- `stop` ends the conversion with an error; nothing is written.

Why the defaults are what they are: [traces-explained.md](traces-explained.md). How to bring a trace
of your own: [traces.md](traces.md); what a mapping may say: [column-mapping.md](column-mapping.md).
This page is written from the code by `make docs`.
"""


_MAPPING = """# Column mapping

What stands in the `--mapping FILE` of `marl-sched trace convert columns`, a YAML file that says
which column of a table means what. Unknown keys, values of another type and parts that do not fit
are errors that name file, key, value and what is allowed. `docs/examples/columns.yaml` is an
example, [traces.md](traces.md) the tutorial. This page is written from the code by `make docs`.

Three shapes of tables need different keys:

- one row a task: `row: task` (default); `n_instances` for how many alike;
- one row an instance: `row: instance`; rows of equal `job` and `task` are one task. Without it
  such a table has its rows dropped as `duplicate`;
- parents in names like Alibaba's `R4_2` (task 4 waits for task 2): `parents: {kind: names}`, and
  `task` is that column.
"""


def column_mapping_page() -> str:
    """Return the page: one section a model of the mapping."""
    return page(_MAPPING, Mapping)


def trace_formats_page() -> str:
    """Return the page: one section a format."""
    return "\n".join([_INTRODUCTION, *(_section(found) for found in FORMATS.values())])


def _section(found: Format) -> str:
    return "\n".join(_lines(found))


def _lines(found: Format) -> Iterator[str]:
    yield f"## `{found.name}`\n\n{found.title}\n"
    if found.reference:
        amounts = ", ".join(f"{name} = {amount}" for name, amount in found.reference.items())
        yield f"Amounts are relative to the largest machine; default `--reference`: {amounts}.\n"
    yield "| table | files | a row is |"
    yield "|---|---|---|"
    for table in found.tables:
        patterns = ", ".join(f"`{pattern}`" for pattern in table.patterns)
        yield f"| `{table.name}` | {patterns} | {_cell(table.what)} |"
    yield "\n| rule | counts | a row falls under it when | actions |"
    yield "|---|---|---|---|"
    for rule in found.rules:
        actions = ", ".join(f"`{action}`" for action in rule.actions)
        yield f"| `{rule.name}` | {rule.of} | {_cell(rule.what)} | {actions} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
