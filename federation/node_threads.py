"""What a resident node is made of: its work thread, its heart, and how it waits."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import Error, Message, MessageType

from federation.fleet_errors import MessageLost, NodeUnknown, Stopping
from federation.fleet_link import HEARTBEAT_S, FleetLink
from federation.messages import FAILED, STALE
from marl_sched.errors import MarlSchedError

_logger = logging.getLogger(__name__)

_BEAT_S = 0.35 * HEARTBEAT_S
_REMIND_S = 30.0
"""How often a wait is mentioned again."""


@dataclass(frozen=True)
class Task:
    """A message to be answered, and how long it took to fetch."""

    message: Message
    fetch_s: float


@dataclass(frozen=True)
class Done:
    """A reply to be sent."""

    reply: Message
    what: str
    fetch_s: float = 0.0
    work_s: float = 0.0

    @property
    def is_late(self) -> bool:
        """Whether the message it answers has expired: nobody waits for it."""
        metadata = self.reply.metadata
        return time.time() > metadata.created_at + metadata.ttl

    @property
    def is_greeting(self) -> bool:
        """Whether it answers a greeting."""
        return bool(self.reply.metadata.message_type == MessageType.QUERY)


def stale(message: Message) -> Done:
    """Return the reply to a message that is not carried out."""
    reason = "a newer message was there"
    return Done(Message(Error(STALE, reason), reply_to=message), "an older message")


def lost(message: Message, error: MessageLost) -> Done:
    """Return the reply to a message that did not arrive whole."""
    return Done(Message(Error(FAILED, str(error)), reply_to=message), "a message in parts")


class Work:
    """The thread that carries out orders, and the one that waits."""

    def __init__(self, carry_out: Callable[[Task], Done]) -> None:
        """Start the thread; it calls `carry_out`, which must not raise."""
        self._carry_out = carry_out
        self._changed = threading.Condition()
        self._next: Task | None = None
        self._done: list[Done] = []
        self._is_ended = False
        self.is_busy = False
        """Whether an order is being carried out, or waits for it."""
        self._thread = threading.Thread(target=self._run, name="work", daemon=True)
        self._thread.start()

    def give(self, task: Task) -> Task | None:
        """Let an order be carried out next; return the one that it pushes aside."""
        with self._changed:
            displaced, self._next = self._next, task
            self.is_busy = True
            self._changed.notify_all()
        return displaced

    def take_done(self) -> list[Done]:
        """Return the replies to orders that were carried out, once."""
        with self._changed:
            done, self._done = self._done, []
        return done

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait for a reply, at most so long; a stop is noticed soon."""
        end = time.monotonic() + seconds
        with self._changed:
            while not self._done and not stop.is_set():
                left_s = end - time.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(min(left_s, 0.1))

    def end(self) -> None:
        """End the thread once it is idle; an order under way is not waited for."""
        with self._changed:
            self._next, self._is_ended = None, True
            self._changed.notify_all()

    def _run(self) -> None:
        while (task := self._take()) is not None:
            done = self._carry_out(task)
            with self._changed:
                self._done.append(done)
                self.is_busy = self._next is not None
                self._changed.notify_all()

    def _take(self) -> Task | None:
        with self._changed:
            while self._next is None and not self._is_ended:
                self._changed.wait()
            task, self._next = self._next, None
            return task


class Heart:
    """The thread that tells the SuperLink that the node is alive."""

    def __init__(self, link: FleetLink, stop: threading.Event) -> None:
        """Start the thread."""
        self._link = link
        self._stop = stop
        self._is_over = threading.Event()
        self.is_known = True
        """Whether the SuperLink knows the node."""
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; no beat follows."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while self.is_known and not self._is_over.wait(_BEAT_S):
            try:
                self._link.heartbeat()
            except NodeUnknown:
                self.is_known = False
            except Stopping:
                return
            except MarlSchedError as error:
                # Whoever asks for messages meets the same, and deals with it.
                _logger.debug("no heartbeat: %s", error)


class Retries:
    """How long to wait before the next try."""

    def __init__(self, first_s: float, last_s: float) -> None:
        """Begin with `first_s`, doubled with every failure up to `last_s`."""
        self._first_s = first_s
        self._last_s = last_s
        self.n_failures = 0
        """Failures since the last success."""

    def next_s(self) -> float:
        """Count a failure and return how long to wait."""
        pause_s = self._first_s * 2.0 ** min(self.n_failures, 20)
        self.n_failures += 1
        return min(pause_s, self._last_s)

    def reset(self) -> None:
        """Note a success."""
        self.n_failures = 0


class Reminder:
    """Says a thing once, and again after a while."""

    def __init__(self) -> None:
        """Begin with nothing said."""
        self._said: dict[str, float] = {}

    def say(self, text: str, *values: object) -> None:
        """Log a warning, unless the same was logged a moment ago."""
        line = text % values
        now = time.monotonic()
        if now - self._said.get(line, -_REMIND_S) >= _REMIND_S:
            self._said = {line: now}
            _logger.warning("%s", line)
