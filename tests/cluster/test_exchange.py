"""The barrier between zones: complete steps in the order of names, or everybody is told."""

import threading
import time

import numpy as np
import pytest

from marl_sched.cluster.exchange import LocalExchange, Outbox
from marl_sched.errors import ExchangeAborted, ExchangeError


def _outbox(zone: str, step: int = 0) -> Outbox:
    nothing = np.zeros((0, 1))
    return Outbox(zone, step, nothing, nothing, nothing, None, np.zeros((1, 2, 3)))


class Waiting(threading.Thread):
    """A zone that waits for a step."""

    def __init__(self, exchange: LocalExchange, zone: str, step: int = 0) -> None:
        super().__init__(daemon=True)
        self.exchange, self.zone, self.step = exchange, zone, step
        self.result: list[str] | Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            outboxes = self.exchange.collect(self.zone, self.step)
            self.result = [outbox.zone for outbox in outboxes]
        except ExchangeError as error:
            self.result = error

    def outcome(self) -> list[str] | Exception | None:
        self.join(timeout=10.0)
        assert not self.is_alive()
        return self.result


def test_all_get_the_same_outboxes_in_the_order_of_names() -> None:
    exchange = LocalExchange(["b", "c", "a"])
    waiting = [Waiting(exchange, name) for name in ("c", "a", "b")]
    for name in ("c", "b", "a"):
        exchange.post(_outbox(name))
    assert [zone.outcome() for zone in waiting] == [["a", "b", "c"]] * 3


def test_a_step_is_forgotten_once_all_have_it() -> None:
    exchange = LocalExchange(["a", "b"])
    for _ in range(2):  # a second episode counts its steps from 0 again
        for name in ("a", "b"):
            exchange.post(_outbox(name))
        for name in ("a", "b"):
            assert len(exchange.collect(name, 0)) == 2


def test_a_quick_zone_may_be_a_step_ahead() -> None:
    exchange = LocalExchange(["a", "b"])
    exchange.post(_outbox("a", 0))
    exchange.post(_outbox("b", 0))
    exchange.collect("a", 0)
    exchange.post(_outbox("a", 1))
    assert [outbox.step for outbox in exchange.collect("b", 0)] == [0, 0]
    exchange.post(_outbox("b", 1))
    assert [outbox.step for outbox in exchange.collect("b", 1)] == [1, 1]


@pytest.mark.parametrize("zone", ["a", "nobody"])
def test_posting_twice_or_from_outside_is_refused(zone: str) -> None:
    exchange = LocalExchange(["a", "b"])
    exchange.post(_outbox("a"))
    with pytest.raises(
        ExchangeError, match=f"zone {zone}, step 0: posted twice or not one of a, b"
    ):
        exchange.post(_outbox(zone))


def test_abort_wakes_everybody_and_holds_for_later_calls() -> None:
    exchange = LocalExchange(["a", "b", "c"])
    waiting = [Waiting(exchange, name) for name in ("a", "b")]
    exchange.post(_outbox("a"))
    exchange.abort("zone c has left")
    for zone in waiting:
        assert isinstance(zone.outcome(), ExchangeAborted)
        assert str(zone.outcome()) == "zone c has left"
    with pytest.raises(ExchangeAborted, match="zone c has left"):
        exchange.post(_outbox("b"))
    with pytest.raises(ExchangeAborted, match="zone c has left"):
        exchange.collect("c", 0)


def test_the_first_reason_of_an_abort_is_kept() -> None:
    exchange = LocalExchange(["a"])
    exchange.abort("first")
    exchange.abort("second")
    with pytest.raises(ExchangeAborted, match="first"):
        exchange.post(_outbox("a"))


def test_one_timeout_wakes_all_who_wait() -> None:
    exchange = LocalExchange(["a", "b", "c"], timeout_s=0.2)
    exchange.post(_outbox("a"))
    first = Waiting(exchange, "a")
    exchange.post(_outbox("b"))
    second = Waiting(exchange, "b")
    started = time.monotonic()
    outcomes = [first.outcome(), second.outcome()]
    assert time.monotonic() - started < 5.0
    assert [str(outcome) for outcome in outcomes] == ["step 0: no word of c for 0.2 s"] * 2
    with pytest.raises(ExchangeAborted):  # the late one does not go on alone
        exchange.post(_outbox("c"))


def test_restart_serves_a_new_attempt() -> None:
    exchange = LocalExchange(["a", "b", "c"])
    exchange.post(_outbox("a"))
    exchange.abort("c has left")
    exchange.restart(["a", "b"])
    assert exchange.zone_names == ("a", "b")
    exchange.post(_outbox("a"))
    exchange.post(_outbox("b"))
    assert [outbox.zone for outbox in exchange.collect("a", 0)] == ["a", "b"]


def test_who_still_waits_when_a_new_attempt_begins_is_sent_away() -> None:
    exchange = LocalExchange(["a", "b"])
    waiting = Waiting(exchange, "a")
    while not exchange._changed._waiters:  # until it waits: nothing else shows it
        pass
    with exchange._changed:  # the waiter cannot wake between the two
        exchange.abort("b has left")
        exchange.restart(["a", "b"])
    assert isinstance(waiting.outcome(), ExchangeAborted)
