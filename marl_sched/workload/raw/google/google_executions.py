"""From the events of Google's 2011 trace to whole executions.

An execution is a run of events of one (job, index): SUBMIT, SCHEDULE, maybe updates, and the event
that ends it. Events come in the order of time, so that only open executions are kept from block to
block. Every event belongs to one execution, and is kept or dropped with it.

Shapes: N events, E executions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from marl_sched.workload.raw.account import N_ROWS, TableAccount
from marl_sched.workload.raw.rules import DROP_ROW, KEEP, Rule
from marl_sched.workload.table import Int

START_US = 600_000_000
"""When the trace begins, by its own clock."""
SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, UPDATE_PENDING, UPDATE_RUNNING = range(9)
AT_START, LEAVE_OUT = "at-start", "leave-out"
EXECUTION_RULES = (
    Rule(
        "missing-info",
        "of an execution with an event that is not in the record but was added to it",
        (DROP_ROW, KEEP),
    ),
    Rule(
        "event-order",
        "of an execution that is scheduled twice, goes back in time, finishes without having been "
        "scheduled, or is submitted again without an end",
        (DROP_ROW,),
    ),
    Rule(
        "before-trace",
        "of an execution that began before the trace; `at-start`: it begins with the trace",
        (DROP_ROW, AT_START),
    ),
    Rule("never-scheduled", "of an execution that was never scheduled", (DROP_ROW,)),
    Rule("no-end", "of an execution that was not over at the end of the trace", (DROP_ROW,)),
    Rule("evicted", "of an execution that was evicted", (DROP_ROW, KEEP)),
    Rule("failed", "of an execution that failed", (DROP_ROW, KEEP)),
    Rule("killed", "of an execution that was killed", (DROP_ROW, KEEP)),
    Rule("lost", "of an execution whose end is not in the record", (DROP_ROW, KEEP)),
    Rule(
        "submit-missing",
        "of an execution without a SUBMIT; kept, it was submitted when it was scheduled",
        (DROP_ROW, KEEP),
    ),
    Rule("missing-request", "of an execution without a request of cpu or memory", (DROP_ROW,)),
    Rule(
        "request-above-largest",
        "of an execution that asks for more than the largest machine",
        (DROP_ROW, KEEP),
    ),
    Rule("cpu-zero", "of one that asks for no cpu: a thousandth of a core", (KEEP, DROP_ROW)),
    Rule(
        "request-updated",
        "an update of an execution: the request when it was scheduled counts",
        (KEEP,),
    ),
    Rule(
        "different-machines",
        "of one whose job wants every instance on a machine of its own: it may be on any",
        (KEEP, DROP_ROW),
    ),
    Rule("disk-request", "asks for disk; `leave-out`: disk is no resource", (KEEP, LEAVE_OUT)),
    Rule(
        "submitted-late",
        "of a task with an execution submitted more than a minute after its job's first one; all "
        "arrive with that",
        (KEEP,),
    ),
)

_ENDED = {"evicted": EVICT, "failed": FAIL, "killed": KILL, "lost": LOST}
_ENOUGH = 300_000
"""Events that are gathered before executions are looked for, at least."""


@dataclass
class Executions:
    """Puts events together.

    Attributes:
        table: Account of the events.
        emit: Takes over the executions that count, with the columns of `_executions`.
    """

    table: TableAccount
    emit: Callable[[pl.DataFrame], None]
    _open: pl.DataFrame | None = None
    _new: list[pl.DataFrame] = field(default_factory=list)

    def add(self, events: pl.DataFrame) -> None:
        """Take over events (N,).

        Args:
            events: `time`, `job`, `index`, `event`, `priority` (Int64); `cpu`, `memory`, `disk`
                (Float64, shares or null); `is_synthesized`, `is_apart` (Boolean).
        """
        self._new.append(events)
        n_open = 0 if self._open is None else len(self._open)
        if sum(map(len, self._new)) >= max(_ENOUGH, 2 * n_open):
            self._process(is_end=False)

    def close(self) -> None:
        """End: what is open now stays so."""
        self._process(is_end=True)

    def _process(self, is_end: bool) -> None:
        parts = [*([] if self._open is None else [self._open]), *self._new]
        self._new, self._open = [], None
        if not parts:
            return
        events = pl.concat(parts).sort("job", "index", maintain_order=True)
        if not len(events):
            return
        executions = _executions(events)
        is_open = executions["is_open"].to_numpy() & (not is_end)
        if is_open.any():
            n_rows = executions[N_ROWS].to_numpy()
            self._open = events.filter(pl.Series(np.repeat(is_open, n_rows)))
            executions = executions.filter(pl.Series(~is_open))
        self.table.find("request-updated", int(executions["n_updates"].sum()))
        kept = self.table.sort_out(executions, self._tests())
        self.table.rows_kept += int(kept[N_ROWS].sum())
        self.emit(kept)

    def _tests(self) -> dict[str, pl.Expr]:
        """Return the tests of an execution in the rules' order."""
        col = pl.col
        shares = ("cpu", "memory", "disk")
        return {
            "missing-info": col("is_synthesized"),
            "event-order": col("is_disordered"),
            "before-trace": col("first_us") < START_US,
            "never-scheduled": col("schedule_us").is_null(),
            "no-end": col("end").is_null() & col("schedule_us").is_not_null(),
            **{
                rule: (col("end") == end) & col("schedule_us").is_not_null()
                for rule, end in _ENDED.items()
            },
            "submit-missing": col("submit_us").is_null() & col("schedule_us").is_not_null(),
            "missing-request": col("cpu").is_null() | col("memory").is_null(),
            "request-above-largest": pl.any_horizontal(col(name) > 1 for name in shares),
            "cpu-zero": col("cpu") == 0,
            "different-machines": col("is_apart"),
            "disk-request": col("disk") > 0,
        }


def _executions(events: pl.DataFrame) -> pl.DataFrame:
    """Return the executions (E,) of sorted events (N,), in their order.

    Columns: `job`, `priority`, `cpu`, `memory`, `disk`, `submit_us`, `schedule_us`, `end_us`,
    `first_us`, `end` (the event, null: none), `is_open` (the last of its (job, index), without an
    end), `is_disordered`, `is_synthesized`, `is_apart`, `n_updates`, N_ROWS.
    """
    job, index, event, time = (
        events[name].to_numpy() for name in ("job", "index", "event", "time")
    )
    is_new = np.ones(len(events), bool)  # (N,) of another (job, index) than the event before
    is_new[1:] = (job[1:] != job[:-1]) | (index[1:] != index[:-1])
    is_end = (event >= EVICT) & (event <= LOST)
    is_first = is_new | (event == SUBMIT)
    is_first[1:] |= is_end[:-1]
    start = np.flatnonzero(is_first)  # (E,)
    last = np.append(start[1:], len(events)) - 1  # (E,)
    ends = is_end[last]
    is_last = np.append(is_new[start[1:]], True)
    schedule, n_schedules = _last_where(event == SCHEDULE, start)
    goes_back = np.zeros(len(events), bool)
    goes_back[1:] = (time[1:] < time[:-1]) & ~is_first[1:]
    unlike = (
        (n_schedules > 1)
        | np.logical_or.reduceat(goes_back, start)
        | ((event[last] == FINISH) & (n_schedules == 0))
        | (~ends & ~is_last)
    )
    asks = events[np.where(schedule >= 0, schedule, last)]
    return asks.select("job", "priority", "cpu", "memory", "disk").with_columns(
        _or_null("submit_us", time[start], event[start] == SUBMIT),
        _or_null("schedule_us", time[schedule], schedule >= 0),
        _or_null("end", event[last], ends),
        end_us=time[last],
        first_us=np.minimum.reduceat(time, start),
        is_open=~ends & is_last,
        is_disordered=unlike,
        is_synthesized=np.logical_or.reduceat(events["is_synthesized"].to_numpy(), start),
        is_apart=asks["is_apart"],
        n_updates=np.add.reduceat((event >= UPDATE_PENDING).astype(np.int64), start),
        **{N_ROWS: last - start + 1},
    )


def _last_where(hit: np.ndarray, start: Int) -> tuple[Int, Int]:
    """Return the last hit (E,) of every segment, -1 if none, and how many there are (E,)."""
    place = np.where(hit, np.arange(len(hit)), -1)
    return np.maximum.reduceat(place, start), np.add.reduceat(hit.astype(np.int64), start)


def _or_null(name: str, values: Int, is_known: np.ndarray) -> pl.Series:
    return pl.Series(name, values).zip_with(
        pl.Series(is_known), pl.Series(name, [None], dtype=pl.Int64)
    )
