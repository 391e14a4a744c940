"""What the hub of an exchange asks of every post, row by row: bounds, addresses, who holds what.

The rows are laid out in messages.py. Nothing here trusts what it reads: values are compared before
any is used as an index. A fault comes back as numbers; who calls puts it into words.

Shapes: K rows of one kind, C columns of the widest kind, Z zones, N cells of the books.
"""

from math import floor
from typing import Any

from numpy.typing import NDArray

from marl_sched.cluster.kernels.messages import FROM, INSTANCE_ROW, REPLICA, S_SIGN, TO
from marl_sched.kernel_cache import inner, kernel

Array = NDArray[Any]
Fault = tuple[int, int, int]
"""What is wrong, in which part, and where: a place in the amounts, or row * columns + column."""
Rows = tuple[Array, Array, Array]
"""Offloads, notices and settlements, (K, columns) each."""
Rules = tuple[Array, Array, Array, Array]
"""Lowest and highest amount (2,); of each column by kind of row (3, 2, C); whether a column may
hold more than integers (3, C); whether a zone takes part (Z,)."""
Books = tuple[Array, Array, Array, Array, Array]
"""First cell of each zone's instances (Z,) and cells of each zone a replica (Z,); by cell, the zone
that holds an instance, or NOBODY (N,), 1 once its end was told (N,), and its credit (N,)."""

MOMENTS, DIGESTS, OFFLOADS, NOTICES, SETTLEMENTS = range(5)
(
    RIGHT,
    AMOUNT,
    VALUE,
    ADDRESS,
    NO_ROOM,
    OFFLOADED,
    NOT_HELD,
    ENDED,
    CREDITED,
) = range(9)
NOBODY = -1
_CLAIMED = -2
_MOST_CREDITS = 100
"""Credits of one sign for one instance in one outbox, above what any zone gives by the rules."""


@kernel
def first_fault(amounts: tuple[Array, Array], rows: Rows, rules: Rules, zone: int) -> Fault:
    """Return the first fault of an outbox of a zone on its own."""
    amount_bounds, bounds, is_real, is_member = rules
    for part in range(len(amounts)):
        at = _bad_amount(amounts[part], amount_bounds)
        if at >= 0:
            return AMOUNT, part, at
    for kind in range(len(rows)):
        part, mine = OFFLOADS + kind, rows[kind]
        at = _bad_value(mine, bounds[kind], is_real[kind])
        if at >= 0:
            return VALUE, part, at
        for row in range(len(mine)):
            to = int(mine[row, TO])
            has_no_sign = part == SETTLEMENTS and mine[row, S_SIGN] == 0
            if to == zone or not is_member[to] or has_no_sign:
                return ADDRESS, part, row * mine.shape[1]
    return RIGHT, 0, 0


@inner
def _bad_amount(values: Array, amounts: Array) -> int:
    for at in range(len(values)):
        if not (amounts[0] <= values[at] <= amounts[1]):  # so it is for NaN
            return at
    return -1


@inner
def _bad_value(rows: Array, bounds: Array, is_real: Array) -> int:
    for row in range(len(rows)):
        for column in range(rows.shape[1]):
            value = rows[row, column]
            is_within = bounds[0, column] <= value <= bounds[1, column]  # false for NaN
            if not is_within or (not is_real[column] and value != floor(value)):
                return row * rows.shape[1] + column
    return -1


@inner
def _cell(rows: Array, row: int, owner: int, starts: Array, n_rows: Array) -> int:
    """Return where the books hold the instance of a row, of the zone in column `owner`.

    It is -1 beyond their end.
    """
    zone, instance = int(rows[row, owner]), int(rows[row, INSTANCE_ROW])
    if instance >= n_rows[zone]:
        return -1
    return int(starts[zone] + int(rows[row, REPLICA]) * n_rows[zone] + instance)


@kernel
def first_untrue(rows: Rows, books: Books) -> Fault:
    """Return the first fault of an outbox, within bounds, against the books, left as they were.

    What an outbox says twice is found by taking it down, and then striking it out again.
    """
    offloads, notices, settlements = rows
    starts, n_rows, holder, has_ended, credit = books
    most = -1
    for row in range(len(offloads)):
        if _cell(offloads, row, FROM, starts, n_rows) < 0:
            most = max(most, int(offloads[row, INSTANCE_ROW]))
    if most >= 0:
        return NO_ROOM, OFFLOADS, most
    at = _first_offloaded(offloads, starts, n_rows, holder)
    if at >= 0:
        return OFFLOADED, OFFLOADS, at
    at = _first_not_held(notices, starts, n_rows, holder)
    if at >= 0:
        return NOT_HELD, NOTICES, at
    at = _first_ended(notices, starts, n_rows, has_ended)
    if at >= 0:
        return ENDED, NOTICES, at
    at = _first_not_held(settlements, starts, n_rows, holder)
    if at >= 0:
        return NOT_HELD, SETTLEMENTS, at
    at = _first_credited(settlements, starts, n_rows, credit)
    if at >= 0:
        return CREDITED, SETTLEMENTS, at
    return RIGHT, 0, 0


@kernel
def enter(rows: Rows, books: Books) -> None:
    """Take down an outbox without a fault."""
    offloads, notices, settlements = rows
    starts, n_rows, holder, has_ended, credit = books
    for row in range(len(offloads)):
        holder[_cell(offloads, row, FROM, starts, n_rows)] = int(offloads[row, TO])
    for row in range(len(notices)):
        has_ended[_cell(notices, row, TO, starts, n_rows)] = 1
    for row in range(len(settlements)):
        credit[_cell(settlements, row, TO, starts, n_rows)] += int(settlements[row, S_SIGN])


@inner
def _first_offloaded(rows: Array, starts: Array, n_rows: Array, holder: Array) -> int:
    """Return the first row of an instance that was offloaded before, by another row maybe."""
    found, n_taken = -1, 0
    for row in range(len(rows)):
        cell = _cell(rows, row, FROM, starts, n_rows)
        if holder[cell] != NOBODY:
            found = row
            break
        holder[cell] = _CLAIMED
        n_taken += 1
    for row in range(n_taken):
        holder[_cell(rows, row, FROM, starts, n_rows)] = NOBODY
    return found


@inner
def _first_not_held(rows: Array, starts: Array, n_rows: Array, holder: Array) -> int:
    for row in range(len(rows)):
        cell = _cell(rows, row, TO, starts, n_rows)
        if cell < 0 or holder[cell] != int(rows[row, FROM]):
            return row
    return -1


@inner
def _first_ended(rows: Array, starts: Array, n_rows: Array, has_ended: Array) -> int:
    found, n_taken = -1, 0
    for row in range(len(rows)):
        cell = _cell(rows, row, TO, starts, n_rows)
        if has_ended[cell] != 0:
            found = row
            break
        has_ended[cell] = 1
        n_taken += 1
    for row in range(n_taken):
        has_ended[_cell(rows, row, TO, starts, n_rows)] = 0
    return found


@inner
def _first_credited(rows: Array, starts: Array, n_rows: Array, credit: Array) -> int:
    """Return the first row of an instance whose credit would be neither none nor one."""
    found, n_taken = -1, 0
    for row in range(len(rows)):
        cell = _cell(rows, row, TO, starts, n_rows)
        credit[cell] += int(rows[row, S_SIGN])
        n_taken += 1
        if abs(credit[cell]) > _MOST_CREDITS:
            found = row
            break
    if found < 0:
        for row in range(len(rows)):
            after = credit[_cell(rows, row, TO, starts, n_rows)]
            if after < 0 or after > 1:
                found = row
                break
    for row in range(n_taken):
        credit[_cell(rows, row, TO, starts, n_rows)] -= int(rows[row, S_SIGN])
    return found
