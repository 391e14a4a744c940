"""How the parts of a column mapping must fit together.

Every check yields `path = value, expected ...`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from marl_sched.config.yaml_text import show_value

if TYPE_CHECKING:  # column_mapping.py imports this module
    from marl_sched.workload.raw.columns.column_mapping import Mapping, TextFile

UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6, "days": 86_400e6}
"""Units of time in microseconds."""
ALWAYS_ASKED = ("cpu_milli", "memory_mib")


def mapping_problems(mapping: "Mapping") -> Iterator[str]:
    """Yield everything that does not fit."""
    if mapping.file.kind == "text":
        yield from _text_problems(mapping.file)
        yield from _name_problems(mapping, mapping.file)
    yield from _row_problems(mapping)
    yield from _parent_problems(mapping)
    yield from _time_problems(mapping)
    yield from _source_problems(mapping)
    yield from _resource_problems(mapping)


def _text_problems(file: "TextFile") -> Iterator[str]:
    if len(file.separator) != 1 or not file.separator.isascii() or file.separator in '"\r\n\0':
        yield f"file.separator = {show_value(file.separator)}, expected one ASCII character"
    if file.comment == "":
        yield "file.comment = '', expected some characters or null"


def _name_problems(mapping: "Mapping", file: "TextFile") -> Iterator[str]:
    if file.header:
        if file.names:
            yield f"file.names = {show_value(file.names)}, expected none, since there is a header"
        return
    if not file.names:
        yield "file.names is missing, expected all columns, since there is no header"
    for index, name in enumerate(file.names):
        if name in file.names[:index]:
            yield f"file.names[{index}] = {show_value(name)}, expected every name once"
    for column, key in mapping.columns().items():
        if column not in file.names:
            yield f"{key} = {show_value(column)}, expected one of {', '.join(file.names)}"


def _row_problems(mapping: "Mapping") -> Iterator[str]:
    if mapping.row != "instance":
        return
    for key in ("job", "task"):
        if getattr(mapping, key) is None:
            yield f"{key} is missing, expected a column, since rows are instances"
    n_instances = mapping.n_instances
    if n_instances.column is not None or n_instances.constant != 1:
        yield "n_instances, expected none: rows are instances, and counted"


def _parent_problems(mapping: "Mapping") -> Iterator[str]:
    parents = mapping.parents
    if parents is None:
        return
    if mapping.job is None:
        yield "job is missing, expected a column, since there are parents"
    if parents.kind == "names":
        if (parents.column or mapping.task) is None:
            yield "parents.column is missing, expected a column, since there is no column task"
        return
    if mapping.task is None:
        yield "task is missing, expected a column, since parents are names of tasks"
    if not parents.separator:
        yield "parents.separator = '', expected some characters"


def _time_problems(mapping: "Mapping") -> Iterator[str]:
    times = mapping.times
    if times.arrival is None and times.start is None:
        yield "times.arrival is missing, expected one of arrival and start"
    if times.duration is None and times.end is None:
        yield "times.duration is missing, expected one of duration and end"
    points = [(key, time) for key, time in mapping.times_by_key() if key != "times.duration"]
    for key, time in points:
        if time.constant is not None:
            yield f"{key}.constant = {time.constant:g}, expected a column"
    if times.duration is not None and times.duration.unit == "iso":
        yield f"times.duration.unit = iso, expected one of {', '.join(UNITS_US)}"
    is_iso = {time.unit == "iso" for _, time in points}
    if len(is_iso) > 1:
        yield "times, expected all points in time in iso, or none: they are on one clock"
    elif is_iso == {True} and times.origin == "zero":
        yield "times.origin = zero, expected first with timestamps"


def _source_problems(mapping: "Mapping") -> Iterator[str]:
    for key, part in mapping.parts():
        if (part.column is None) == (part.constant is None):
            given = "both" if part.column is not None else "neither"
            yield f"{key} has {given} of column and constant, expected one"


def _resource_problems(mapping: "Mapping") -> Iterator[str]:
    for name in ALWAYS_ASKED:
        if name not in mapping.requests:
            yield f"requests.{name} is missing, expected a column or a constant"
    for key in ("use_mean", "use_max", "reference"):
        for name in getattr(mapping, key):
            if name not in mapping.requests:
                yield f"{key}.{name}, expected one of {', '.join(mapping.requests)}"
    for name in mapping.use_max:
        if name not in mapping.use_mean:
            yield f"use_mean.{name} is missing, expected a column beside use_max.{name}"
    for key, quantity in mapping.quantities():
        name = key.partition(".")[2]
        if quantity.is_share and name not in mapping.reference:
            yield f"{key}.is_share = true, expected an amount of {name or key} in reference"
