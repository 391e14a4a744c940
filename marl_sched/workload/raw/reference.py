"""docs/trace-formats.md, written from the formats of raw traces."""

from collections.abc import Iterator

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
of your own: [traces.md](traces.md). This page is written from the code by `make docs`.
"""


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
