"""Values of text columns as numbers; what is no number, or not finite, is null."""

from collections.abc import Sequence

import polars as pl

LONGEST_S = 2.0**33
"""Times of a trace are at most this (272 years): larger ones are damage."""
LARGEST_AMOUNT = 2.0**40
"""Likewise amounts of a resource."""
LARGEST_MACHINE = 2**26
"""Likewise amounts of the largest machine (67,000 cores, 64 TiB): shares of it, which may be above
1, then stay below `LARGEST_AMOUNT`."""
MOST_INSTANCES = 2.0**31
"""Likewise instances of a task."""


def number(column: str) -> pl.Expr:
    """Return a String column as Float64."""
    value = pl.col(column).cast(pl.Float64, strict=False)
    return pl.when(value.is_finite()).then(value).alias(column)


def with_numbers(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return a frame with String columns as `number` has them; parses each value once only."""
    parsed = frame.with_columns(pl.col(name).cast(pl.Float64, strict=False) for name in columns)
    return parsed.with_columns(
        pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name) for name in columns
    )


def is_bad(column: str, low: float, high: float) -> pl.Expr:
    """Return whether a value is there but is not a number from low to high."""
    value = number(column)
    return pl.col(column).is_not_null() & ~value.is_between(low, high).fill_null(value=False)


def is_outside(column: str, low: float, high: float) -> pl.Expr:
    """Return whether a numeric column is null or not from low to high."""
    return ~pl.col(column).is_between(low, high).fill_null(value=False)


def whole(expression: pl.Expr, kind: type[pl.DataType]) -> pl.Expr:
    """Return numbers rounded, as integers; 0 where there is none, or none that fits."""
    return expression.round().cast(kind, strict=False).fill_null(0)
