"""Log lines, as text or as one JSON object each, with the zone and the round they are about."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["text", "json"]
Place = Callable[[], Mapping[str, str | int]]
LOG_FORMAT_VARIABLE = "MARL_SCHED_LOG_FORMAT"
"""Environment variable that the processes of a run inherit."""

_PLACE: ContextVar[Mapping[str, str | int]] = ContextVar("place")
_KEYS = ("zone", "round", "attempt")


@contextmanager
def at_place(**place: str | int) -> Iterator[None]:
    """Say what the lines logged by this thread are about, until the block ends.

    Args:
        place: zone, round, attempt; those of an outer block hold where they are not given.
    """
    token = _PLACE.set({**_PLACE.get({}), **place})
    try:
        yield
    finally:
        _PLACE.reset(token)


class JsonLines(logging.Formatter):
    """Formats a record as JSON on one line.

    Keys: time (UTC, ISO 8601), level, logger, message; zone, round and attempt where known; error
    with the traceback of an exception. `extra={"zone": ...}` of a call wins over `at_place`, which
    wins over what holds for the whole process.
    """

    def __init__(self, place: Place | None = None) -> None:
        """Format lines of one process.

        Args:
            place: Returns what lines are about that say nothing of it.
        """
        super().__init__()
        self._place = place or dict

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        place = {**self._place(), **_PLACE.get({})}
        about = {key: getattr(record, key, place.get(key)) for key in _KEYS}
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in about.items() if value is not None},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def formatter(log_format: str, text: str, place: Place | None = None) -> logging.Formatter:
    """Return a formatter.

    Args:
        log_format: `json`; anything else is text.
        text: How a line of text looks, as for `logging.Formatter`.
        place: Returns what lines are about that say nothing of it; for JSON.
    """
    return JsonLines(place) if log_format == "json" else logging.Formatter(text)
