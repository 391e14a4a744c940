"""The mapping file of format `columns`: which column of a table means what.

A YAML file, strict: unknown keys, wrong types and parts that do not fit are errors that name file,
key and value. docs/examples/columns.yaml is a commented example.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from marl_sched.config.base import WHOLE_FILE, Model, Name
from marl_sched.config.messages import problems
from marl_sched.config.yaml_text import parse_yaml, show_value
from marl_sched.errors import ConfigError, TraceError, printable
from marl_sched.workload.raw.columns.column_checks import ALWAYS_ASKED, mapping_problems
from marl_sched.workload.raw.values import LARGEST_AMOUNT

LONGEST_RESOLUTION_S = 604_800.0
"""A week: no clock of a trace is coarser."""
_MAX_BYTES = 1 << 20


class TextFile(Model):
    """Text, plain or in gzip, bzip2, xz or a tar of one file; a line is a row."""

    kind: Literal["text"]
    separator: str = ","
    """One character between values; " " stands for any run of spaces and tabs, "\\t" for a tab."""
    header: bool = True
    """Whether the first line names the columns; they may come in any order."""
    names: list[str] = Field(default=[])
    """All columns in their order, if there is no header."""
    quoted: bool = True
    """Whether values may stand in double quotes (never with a separator of blanks); a quoted line
    break is not read."""
    comment: str | None = None
    """Lines that begin so are no rows."""


class ParquetFile(Model):
    """A Parquet file; only the columns that are named here are read.

    Columns may hold numbers, text, dates and times, or lists of text or numbers (`parents`).
    """

    kind: Literal["parquet"]


class Quantity(Model):
    """An amount or a number: value of a column, or constant, times a factor."""

    column: str | None = None
    """Column of numbers."""
    constant: float | None = None
    """The value of every row, instead of a column."""
    default: float | None = None
    """The value where the column is empty; without it the row breaks `missing-value`."""
    factor: float = 1.0
    """What a value is multiplied by, to convert units: 1000 from cores to cpu_milli, 953.674 from
    GB to MiB, 0.01 from percent to shares."""
    is_share: bool = False
    """Whether value times factor is a share of the largest machine (`reference`)."""


class Time(Model):
    """A point in time or a duration: value of a column, or constant, in a unit."""

    column: str | None = None
    """Column of numbers, or of timestamps."""
    constant: float | None = None
    """The value of every row, instead of a column; for durations."""
    unit: Literal["us", "ms", "s", "min", "h", "days", "iso"] = "s"
    """Unit of the numbers; iso: ISO 8601 timestamps like 2026-03-01T12:30:00+01:00, in UTC if they
    name no time zone."""


class Times(Model):
    """When a task arrives, starts and ends, on one clock.

    One of arrival and start is needed, and one of duration and end. A duration is `duration`, else
    end - start, else end - arrival.
    """

    arrival: Time | None = None
    """When the task was submitted; a job arrives with its first. Null: with its start."""
    start: Time | None = None
    """When it started; with `end` also what `child-before-parent` compares."""
    end: Time | None = None
    """When it ended."""
    duration: Time | None = None
    """How long it ran."""
    origin: Literal["first", "zero"] = "first"
    """What is 0 in the task table: the first arrival, or the clock's own 0 (then times below it
    break `before-trace`)."""


class ListParents(Model):
    """Parents as a list of task names in one column."""

    kind: Literal["list"]
    column: str
    """Column of the tasks that a task waits for; empty: none."""
    separator: str = ";"
    """What stands between names; spaces around a name do not count."""


class NameParents(Model):
    """Parents in the task's name, as Alibaba's v2018 has them: `R4_2` is task 4, after task 2."""

    kind: Literal["names"]
    column: str | None = None
    """Column of those names; null: the column `task`."""


class Status(Model):
    """How a task ended."""

    column: str
    """Column of the status."""
    success: list[str] = Field(min_length=1)
    """Values that count as success; all others break `status-not-success`."""


class Mapping(Model):
    """What the columns of a table mean."""

    file: Annotated[TextFile | ParquetFile, Field(discriminator="kind")]
    """How the table is written."""
    row: Literal["task", "instance"] = "task"
    """What a row is. instance: the rows of one job and task are its instances."""
    job: str | None = None
    """Column of the job's name; null: every row is a job of its own."""
    task: str | None = None
    """Column of the task's name within its job; needed for parents and for rows of instances."""
    parents: Annotated[ListParents | NameParents | None, Field(discriminator="kind")] = None
    """What a task waits for; null: nothing."""
    times: Times
    """Arrival, and start and end or duration."""
    n_instances: Quantity = Quantity(constant=1.0)
    """Instances of the task, at least 1."""
    priority: Quantity = Quantity(constant=0.0)
    """Larger goes first; a factor of -1 turns it round."""
    requests: dict[Name, Quantity]
    """What an instance asks for, by resource: cpu_milli (1000 = one core), memory_mib and others.
    Rounded up to whole units; at least 1 cpu_milli."""
    use_mean: dict[Name, Quantity] = Field(default={})
    """Mean real use of an instance, by resource; empty or not mapped: the request."""
    use_max: dict[Name, Quantity] = Field(default={})
    """Largest mean use of the task's instances; not mapped: `use_mean`."""
    status: Status | None = None
    """How a task ended; null: all ended well."""
    reference: dict[Name, Annotated[int, Field(gt=0, le=int(LARGEST_AMOUNT))]] = Field(default={})
    """The largest machine of the trace, by resource, as far as it is known."""
    resolution_s: Annotated[float, Field(gt=0, le=LONGEST_RESOLUTION_S)] = 1.0
    """Arrivals are multiples of it; jobs of one tick are spread over it when they are drawn."""

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources, cpu and memory first."""
        return ALWAYS_ASKED + tuple(name for name in self.requests if name not in ALWAYS_ASKED)

    def columns(self) -> dict[str, str]:
        """Return the columns that are named, each with the key that names it first."""
        found: dict[str, str] = {}
        for key, column in self._named():
            if column is not None:
                found.setdefault(column, key)
        return found

    def parts(self) -> Iterator[tuple[str, Time | Quantity]]:
        """Yield all times and quantities with their keys."""
        yield from self.times_by_key()
        yield from self.quantities()

    def quantities(self) -> Iterator[tuple[str, Quantity]]:
        """Yield all quantities with their keys."""
        yield "n_instances", self.n_instances
        yield "priority", self.priority
        for key in ("requests", "use_mean", "use_max"):
            for name, quantity in getattr(self, key).items():
                yield f"{key}.{name}", quantity

    def times_by_key(self) -> Iterator[tuple[str, Time]]:
        """Yield the times that are mapped with their keys."""
        for name in ("arrival", "start", "end", "duration"):
            time = getattr(self.times, name)
            if time is not None:
                yield f"times.{name}", time

    def _named(self) -> Iterator[tuple[str, str | None]]:
        yield "job", self.job
        yield "task", self.task
        if self.parents is not None:
            yield "parents.column", self.parents.column
        for key, part in self.parts():
            yield f"{key}.column", part.column
        if self.status is not None:
            yield "status.column", self.status.column

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        found = list(mapping_problems(self))
        if found:
            raise PydanticCustomError(WHOLE_FILE, "the parts do not fit", {"problems": found})
        return self


def load_mapping(path: Path) -> Mapping:
    """Read and check a mapping.

    Raises:
        TraceError: The file cannot be read, or a key or value is not valid; names file, key and
            value.
    """
    if path.exists() and not path.is_file():  # a pipe could be waited for without end
        raise TraceError(f"{path}: not a file, expected a mapping")
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1).decode("utf-8-sig")
        if len(text) > _MAX_BYTES:
            raise TraceError(f"{path}: expected at most {_MAX_BYTES >> 20} MiB of YAML")
        data = parse_yaml(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise TraceError(f"{path}: cannot be read: {reason}") from None
    except ConfigError as error:
        raise TraceError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise TraceError(f"{path}: {show_value(data)}, expected a mapping of keys")
    try:
        return Mapping.model_validate(data)
    except ValidationError as error:
        found = problems(error, Mapping)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise TraceError(printable(f"{path}: {found[0]}{more}"))
