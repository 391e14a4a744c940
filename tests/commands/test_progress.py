import io

import pytest

from marl_sched.commands.progress import Progress


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_short_work_is_quiet_when_not_on_a_terminal() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress("evaluate", 3, "episodes", stream, clock) as progress:
        for _ in range(3):
            clock.now_s += 3.0
            progress.advance()
    assert stream.getvalue() == ""


def test_long_work_says_a_line_every_ten_seconds_and_one_at_the_end() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress("train", 5, "rounds", stream, clock) as progress:
        for number in range(5):
            clock.now_s += 6.0
            progress.advance(note=f"loss {number}")
    assert stream.getvalue().splitlines() == [
        "train: 2/5 rounds, 12 s, loss 1",
        "train: 4/5 rounds, 24 s, loss 3",
        "train: 5/5 rounds, 30 s",
    ]


def test_failed_work_has_no_closing_line() -> None:
    stream, clock = io.StringIO(), Clock()

    def interrupted() -> None:
        with Progress("train", 6, "rounds", stream, clock) as progress:
            clock.now_s = 11.0
            progress.advance(2)
            clock.now_s = 12.0
            progress.advance(2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue() == "train: 2/6 rounds, 11 s\n"


def test_terminal_shows_a_bar() -> None:
    stream = Terminal()
    with Progress("train", 2, "rounds", stream) as progress:
        progress.advance(note="loss 1")
        progress.advance(note="loss 0.5")
    assert "2/2" in stream.getvalue()
    assert "loss 0.5" in stream.getvalue()
