"""Write pages of docs/ from the code: `python -m marl_sched.reference_pages metrics`."""

import sys
from collections.abc import Callable, Iterable

from marl_sched.cluster.metrics import DEFINITIONS
from marl_sched.observation import COLUMNS, LIMIT, Layout
from marl_sched.workload.raw.reference import column_mapping_page, trace_formats_page

_METRICS = """\
# Metrics

Written by `make docs` from `marl_sched/cluster/metrics.py`: do not edit.

Every number that is reported, of one episode of the whole cluster. RESOURCE stands for `cpu`,
`memory`, or the first word of another resource's name. An instance is scored in the zone where it
ended; one that has not finished counts up to the end of the episode. *Ready* is when the instance
could first run: its job has arrived and its parent tasks have finished. The *reference duration* is
the mean duration of its type, in a trace of its task, whatever policies know of it
(`duration_knowledge`). Samples are taken at window boundaries of the measured span
(`episode.measured_from`, up to the horizon).
"""
_OBSERVATION = f"""\
# Observation

Written by `make docs` from `marl_sched/observation.py`: do not edit.

What an agent sees when an instance is to be placed: the instance, every candidate, and its zone.
Candidates are the M machines of the zone, in the order of the configuration, then the peer zones by
name; both have the same columns, and one that means nothing for a kind of candidate is 0 there.
Whatever an agent knows of a peer is the peer's last digest, plus what was sent there since. A mask
says which candidates may be picked. All features are float32, clipped to [-{LIMIT:g}, {LIMIT:g}].

Columns per resource are named `NAME:RESOURCE`, as in `free_share:cpu_milli`, and stand behind the
plain ones: all resources of the first name, then of the next. A resource that a machine or peer
does not have counts as one unit of which none is free: its columns are 0, and `free_share_after` is
below 0 for an instance that asks for it. Means and standard deviations are over the machines that
have the resource. Durations are known as
`duration_knowledge` says: the *known mean* is the type's, the task's own, or one for all.
"""
_TITLES = {
    "instance": "Instance, (I,)",
    "candidates": "Candidates, (M + P, F)",
    "zone": "Zone, (Z,)",
}
_RESOURCES = ("cpu_milli", "memory_mib")


def metrics_page() -> str:
    """Return docs/metrics.md."""
    rows = ((f"`{name}`", unit, text) for name, (unit, text) in DEFINITIONS.items())
    return f"{_METRICS}\n{_table(('metric', 'unit', 'definition'), rows)}"


def observation_page() -> str:
    """Return docs/observation.md."""
    layout = Layout(_RESOURCES)
    sections = [_OBSERVATION]
    counts = (len(layout.instance), len(layout.candidate), len(layout.zone))
    for (name, (plain, per_resource)), count in zip(COLUMNS.items(), counts, strict=True):
        rows = [(f"`{column}`", "", text) for column, text in plain.items()]
        rows += [(f"`{column}`", "per resource", text) for column, text in per_resource.items()]
        sections.append(
            f"## {_TITLES[name]}\n\n{count} columns with the resources "
            f"{' and '.join(_RESOURCES)}.\n\n{_table(('column', '', 'meaning'), rows)}"
        )
    return "\n".join(sections)


PAGES: dict[str, Callable[[], str]] = {
    "metrics": metrics_page,
    "observation": observation_page,
    "trace-formats": trace_formats_page,
    "column-mapping": column_mapping_page,
}


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = tuple(head)
    lines = [head, ("---",) * len(head), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]())
