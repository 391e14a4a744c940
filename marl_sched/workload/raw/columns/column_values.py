"""The rows of a mapped table: values in the task table's units, and what is wrong with them.

Shapes: N rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import polars as pl

from marl_sched.workload.raw.account import RULE, TableAccount
from marl_sched.workload.raw.columns.column_checks import UNITS_US
from marl_sched.workload.raw.columns.column_mapping import (
    ListParents,
    Mapping,
    NameParents,
    Quantity,
    Time,
)
from marl_sched.workload.raw.columns.column_parents import ListedParents, name_key
from marl_sched.workload.raw.names import TaskNames
from marl_sched.workload.raw.rules import DROP_JOB, DROP_ROW, KEEP, Rule
from marl_sched.workload.raw.values import LARGEST_AMOUNT, LONGEST_S, MOST_INSTANCES, number
from marl_sched.workload.traces.tasks import REQUEST, USES

_GOES = (DROP_JOB, DROP_ROW)
_MAY_GO = (KEEP, DROP_JOB, DROP_ROW)
VALUE_RULES = (
    Rule("missing-job", "no job", (DROP_ROW,)),
    Rule(
        "status-not-success",
        "a status that is not one of those mapped as success, or none",
        (DROP_JOB, DROP_ROW, KEEP),
    ),
    Rule("missing-value", "a mapped value is empty and has no default", _GOES),
    Rule(
        "bad-value",
        "a mapped value is not of its kind: no number, no timestamp, negative, too large, or a "
        "number of instances that is not whole or below 1",
        _GOES,
    ),
    Rule("bad-name", "a task name without a number, where names hold the parents", _GOES),
    Rule(
        "name-cut",
        "a task name of 50 characters or that ends in _: parents may be lost",
        (DROP_JOB, DROP_ROW, KEEP),
    ),
    Rule("end-before-start", "ends before it starts", _GOES),
    Rule("before-trace", "arrives before the clock's 0, where that is the origin", _GOES),
    Rule("start-before-arrival", "starts before it arrives", _MAY_GO),
    Rule("duration-zero", "runs for no time", _MAY_GO),
    Rule("cpu-below-one", "asks for less than 1 cpu_milli: 1", _MAY_GO),
    Rule("request-above-largest", "asks for more than the reference has", _MAY_GO),
    Rule(
        "use-unknown",
        "no real use of a resource is mapped, or it is empty: it is the request",
        (KEEP,),
    ),
)
_LONGEST_US = LONGEST_S * 1e6
_MOST_PRIORITY = 2.0**31 - 1


@dataclass
class ColumnValues:
    """Turns blocks of texts to blocks of canonical rows (`TaskRows`).

    Attributes:
        mapping: What the columns mean.
        table: Where rows are counted.
        names: What holds the DAG, if there is one.
    """

    mapping: Mapping
    table: TableAccount
    names: TaskNames | ListedParents | None = field(init=False)
    _n_rows: int = 0

    def __post_init__(self) -> None:
        """Choose how parents are read; names of tasks must differ even where there are none."""
        parents = self.mapping.parents
        if isinstance(parents, NameParents):
            self.names = TaskNames()
        elif self.mapping.task is None:
            self.names = None
        else:
            self.names = ListedParents(parents.separator if parents else ";")

    def canonical(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows (N,) that stay, as `TaskRows.add` takes them; amounts still as numbers.

        Besides its columns there are `duration_us` (Int64, instead of `duration_ms`) and, if there
        is a DAG, `parents_id` (UInt64), equal for equal parents.
        """
        values = self._values(frame)
        found = self.table.sort_out(values, self._tests())
        # Rows that go with their job may hold anything: their values only must be some.
        most = int(MOST_INSTANCES)
        return found.select(
            RULE,
            "job",
            *(name for name in ("name", "key", "parents_id") if name in found.columns),
            *(pl.col(name).fill_null(0) for name in ("arrival_us", "duration_us")),
            *(
                pl.col(name).fill_null(-1)
                for name in ("begin_s", "finish_s")
                if name in found.columns
            ),
            n_instances=pl.col("n_instances").fill_null(1).clip(1, most).cast(pl.UInt32),
            priority=pl.col("priority").fill_null(0).clip(*_limits("priority")).cast(pl.Int32),
            **self._amounts(),
        )

    def _amounts(self) -> dict[str, pl.Expr]:
        """Return requests and use of rows; where use is not known, the request."""
        columns = {}
        for name in self.mapping.resources:
            request = pl.col(f"{REQUEST}{name}").fill_null(0.0).round(6).ceil()
            request = request.clip(1.0 if name == "cpu_milli" else 0.0, LARGEST_AMOUNT)
            columns[f"{REQUEST}{name}"] = request
            known = pl.lit(None, pl.Float64)
            for use, mapped in zip(
                USES, (self.mapping.use_mean, self.mapping.use_max), strict=True
            ):
                known = pl.col(f"{use}{name}").fill_null(known) if name in mapped else known
                columns[f"{use}{name}"] = known.fill_null(request).clip(0.0, LARGEST_AMOUNT)
        return columns

    def _values(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a block's values, with `is_missing`, `is_bad` and what else the tests need."""
        mapping = self.mapping
        missing: list[pl.Expr] = []
        bad: list[pl.Expr] = []
        columns: dict[str, pl.Expr] = {}
        for key, quantity in mapping.quantities():
            name = _column_name(key)
            low, high = _limits(name)
            value, is_missing, is_bad = self._quantity(quantity, name)
            if not key.startswith("use"):
                missing.append(is_missing)
            bad.append(is_bad | (value < low) | (value > high))
            columns[name] = value
        bad.append(columns["n_instances"] % 1 != 0)
        for key, time in mapping.times_by_key():
            value, is_missing, is_bad = _time(time, frame)
            missing.append(is_missing)
            bad.append(is_bad | (value.abs() > _LONGEST_US))
            columns[f"{key.partition('.')[2]}_us"] = value
        missing += [pl.col(mapping.task).is_null()] if mapping.task is not None else []
        first = self._n_rows
        self._n_rows += len(frame)
        row = pl.int_range(pl.len(), dtype=pl.UInt64) + first
        values = frame.select(
            job=row if mapping.job is None else pl.col(mapping.job).hash(),
            is_jobless=pl.lit(value=False)
            if mapping.job is None
            else pl.col(mapping.job).is_null(),
            is_success=self._is_success(),
            is_missing=_any(missing),
            is_bad=_any(bad),
            **columns,
        )
        return values.hstack(self._named(frame, first)).with_columns(*_derived(values.columns))

    def _named(self, frame: pl.DataFrame, first: int) -> pl.DataFrame:
        """Return the columns `name` and `key` of a block, and what is wrong with names."""
        parents, task = self.mapping.parents, self.mapping.task
        if isinstance(self.names, TaskNames):
            assert isinstance(parents, NameParents)
            column = frame[parents.column or str(task)]
            named = self.names.encode(column)
            n_above, n_parents = (int(named[name].sum()) for name in ("n_above", "n_parents"))
            self.table.find("parent-id-above-own", n_above, n_parents)
            return named.with_columns(
                is_unnamed=column.is_null(), parents_id=pl.col("name").cast(pl.UInt64)
            )
        if self.names is None or task is None:
            return pl.DataFrame()
        # A task without a name has a key of its own: it is no second task of the same name.
        own = -1 - (pl.int_range(pl.len()) + first)
        named = frame.select(key=name_key(task).fill_null(own))
        if isinstance(parents, ListParents):
            return named.with_columns(
                self.names.encode(frame[parents.column]),
                parents_id=frame[parents.column].fill_null("").hash(),
            )
        return named.with_columns(name=pl.lit(0, pl.UInt32), parents_id=pl.lit(0, pl.UInt64))

    def _is_success(self) -> pl.Expr:
        status = self.mapping.status
        if status is None:
            return pl.lit(value=True)
        return pl.col(status.column).is_in(status.success).fill_null(value=False)

    def _quantity(self, quantity: Quantity, name: str) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
        """Return the value of a quantity (null: none), whether it is missing, and bad."""
        factor = quantity.factor
        if quantity.is_share:
            factor *= self.mapping.reference[name.partition(":")[2]]
        no = pl.lit(value=False)
        if quantity.column is None:
            return pl.lit(quantity.constant, pl.Float64) * factor, no, no
        text = pl.col(quantity.column)
        value = number(quantity.column)
        if quantity.default is not None:
            value = pl.when(text.is_null()).then(quantity.default).otherwise(value)
        is_missing = text.is_null() if quantity.default is None else no
        return value * factor, is_missing, text.is_not_null() & value.is_null()

    def _tests(self) -> dict[str, pl.Expr]:
        """Return the tests in the rules' order."""
        mapping, col = self.mapping, pl.col
        tests = {
            "missing-job": col("is_jobless"),
            "status-not-success": ~col("is_success"),
            "missing-value": col("is_missing"),
            "bad-value": col("is_bad"),
        }
        if isinstance(mapping.parents, NameParents):
            tests["bad-name"] = ~col("is_known") | col("is_unnamed")
            tests["name-cut"] = col("is_cut")
        tests["end-before-start"] = col("duration_us") < 0
        if mapping.times.origin == "zero":
            tests["before-trace"] = col("arrival_us") < 0
        if mapping.times.arrival is not None and mapping.times.start is not None:
            tests["start-before-arrival"] = col("start_us") < col("arrival_us")
        tests["duration-zero"] = col("duration_us") == 0
        tests["cpu-below-one"] = col(f"{REQUEST}cpu_milli") < 1
        tests["request-above-largest"] = pl.any_horizontal(
            [col(f"{REQUEST}{name}") > most for name, most in mapping.reference.items()]
            or [pl.lit(value=False)]
        )
        tests["use-unknown"] = pl.any_horizontal(
            col(f"use_mean:{name}").is_null() if name in mapping.use_mean else pl.lit(value=True)
            for name in mapping.resources
        )
        return tests


def _column_name(key: str) -> str:
    kind, _, name = key.partition(".")
    return {"requests": REQUEST, "use_mean": USES[0], "use_max": USES[1]}.get(kind, kind) + name


def _limits(name: str) -> tuple[float, float]:
    if name == "n_instances":
        return 1.0, MOST_INSTANCES
    if name == "priority":
        return -_MOST_PRIORITY, _MOST_PRIORITY
    return 0.0, LARGEST_AMOUNT


def _any(tests: list[pl.Expr]) -> pl.Expr:
    return pl.any_horizontal(test.fill_null(value=False) for test in tests)


def _time(time: Time, frame: pl.DataFrame) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Return a time in us (Float64, null: none), whether it is missing, and bad."""
    no = pl.lit(value=False)
    if time.column is None:
        return pl.lit(time.constant, pl.Float64) * UNITS_US[time.unit], no, no
    text = pl.col(time.column)
    if time.unit == "iso":
        value = pl.lit(
            pl.Series([_timestamp(text) for text in frame[time.column]], dtype=pl.Float64)
        )
    else:
        value = number(time.column) * UNITS_US[time.unit]
    return value, text.is_null(), text.is_not_null() & value.is_null()


def _timestamp(text: str | None) -> float | None:
    """Return the microseconds from 1970 to an ISO 8601 timestamp."""
    try:
        moment = datetime.fromisoformat(text or "")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return since.days * 86_400e6 + since.seconds * 1e6 + since.microseconds


def _derived(names: list[str]) -> Iterator[pl.Expr]:
    """Yield the times that follow from those that are mapped, as whole microseconds."""
    col = pl.col
    begin = col("start_us") if "start_us" in names else col("arrival_us")
    duration = col("duration_us") if "duration_us" in names else col("end_us") - begin
    arrival = col("arrival_us") if "arrival_us" in names else col("start_us")

    def whole(value: pl.Expr, name: str) -> pl.Expr:
        # A value beyond the limits is found by then, and goes.
        bounded = value.clip(-2 * _LONGEST_US, 2 * _LONGEST_US)
        return bounded.round().cast(pl.Int64).alias(name)

    yield whole(arrival, "arrival_us")
    yield whole(duration, "duration_us")
    if "start_us" in names and "end_us" in names:  # in us: they are only compared
        yield whole(col("start_us"), "begin_s")
        yield whole(col("end_us"), "finish_s")
