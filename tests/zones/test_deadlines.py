"""What takes too long is cancelled, and nothing else."""

import threading
from collections.abc import Iterator

import pytest

from zones.deadlines import Deadlines


@pytest.fixture
def deadlines() -> Iterator[Deadlines]:
    made = Deadlines()
    yield made
    made.close()


def test_block_that_takes_too_long_is_cancelled_once(deadlines: Deadlines) -> None:
    cancelled = threading.Event()
    n_calls = []

    def cancel() -> None:
        n_calls.append(1)
        cancelled.set()

    with deadlines.within(0.01, cancel):
        assert cancelled.wait(10.0)
    with deadlines.within(0.02, lambda: n_calls.append(2)):
        pass
    assert n_calls == [1]


def test_short_bound_is_kept_while_a_long_one_is_under_way(deadlines: Deadlines) -> None:
    short, long = threading.Event(), threading.Event()
    with deadlines.within(60.0, long.set), deadlines.within(0.01, short.set):
        assert short.wait(10.0)
    assert not long.is_set()


def test_bounds_of_many_threads_are_kept_apart(deadlines: Deadlines) -> None:
    cancelled = [threading.Event() for _ in range(8)]

    def wait(number: int) -> None:
        with deadlines.within(0.01 if number % 2 else 60.0, cancelled[number].set):
            assert number % 2 == 0 or cancelled[number].wait(10.0)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20.0)
    assert [event.is_set() for event in cancelled] == [False, True] * 4


def test_close_ends_the_watch_whatever_is_under_way() -> None:
    made = Deadlines()
    with made.within(60.0, lambda: None):
        made.close()
    assert not made._watch.is_alive()
