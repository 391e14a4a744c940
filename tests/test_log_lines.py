"""Log lines as JSON: one object each, with what they are about."""

import json
import logging
import threading
from collections.abc import Iterator
from io import StringIO

import pytest

from marl_sched.log_lines import at_place, formatter


@pytest.fixture
def said() -> Iterator[StringIO]:
    """What a logger of the test writes as JSON."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter("json", "%(message)s"))
    logger = logging.getLogger("a.b")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def lines(said: StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_line_is_one_object_whatever_the_message_holds(said: StringIO) -> None:
    logging.getLogger("a.b").warning('%s: "two"\nlines', "zone_ä")
    (line,) = lines(said)
    assert line["message"] == 'zone_ä: "two"\nlines'
    assert (line["level"], line["logger"]) == ("warning", "a.b")
    assert str(line["time"]).endswith("+00:00")
    assert "zone" not in line


def test_line_says_what_it_is_about(said: StringIO) -> None:
    logger = logging.getLogger("a.b")
    with at_place(zone="a", round=3):
        with at_place(attempt=2):
            logger.info("inner")
        logger.info("outer", extra={"zone": "b"})
    logger.info("after")
    places = [{k: line.get(k) for k in ("zone", "round", "attempt")} for line in lines(said)]
    assert places == [
        {"zone": "a", "round": 3, "attempt": 2},
        {"zone": "b", "round": 3, "attempt": None},
        {"zone": None, "round": None, "attempt": None},
    ]


def test_threads_are_at_places_of_their_own(said: StringIO) -> None:
    with at_place(zone="a"):
        thread = threading.Thread(target=lambda: logging.getLogger("a.b").info("other"))
        thread.start()
        thread.join()
    assert "zone" not in lines(said)[0]


def test_exception_is_in_its_line(said: StringIO) -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("a.b").exception("failed")
    (line,) = lines(said)
    assert "ValueError: odd" in str(line["error"])


def test_text_stays_text() -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, "%d", (4,), None)
    assert formatter("text", "%(name)s %(message)s").format(record) == "a 4"


def test_what_holds_for_the_process_is_said_where_nothing_else_is() -> None:
    lines_of = formatter("json", "%(message)s", lambda: {"zone": "a", "round": 1})
    record = logging.LogRecord("a", logging.INFO, "", 0, "x", (), None)
    with at_place(round=5):
        inner = json.loads(lines_of.format(record))
    outer = json.loads(lines_of.format(record))
    assert (inner["zone"], inner["round"]) == ("a", 5)
    assert (outer["zone"], outer["round"]) == ("a", 1)
