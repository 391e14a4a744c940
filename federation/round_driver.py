"""One attempt at a round: push the orders, poll for replies, lose who does not answer.

A member that fails, stays silent or sends an update that must not be averaged is lost, and losing a
member voids the attempt: the others have met it in the exchange. The exchange is aborted, so that
no zone waits for one that is gone; all that still run are waited for, within a bound.

    orders out --> replies in --> all fine             --> Attempt(replies, lost={})
                        |  error reply, bad update, lost by the exchange, deadline, grace over
                        +--> abort the exchange --> collect the rest --> Attempt({}, lost={...})

At the deadline all may be silent because of one, for which they wait in the exchange: those that
come back when it is aborted are not to blame. Once somebody has answered, the exchange is behind
all of them, and the silent ones are.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from federation.messages import ABORTED, FATAL
from marl_sched.errors import AggregationError, RunError
from zones.records import Invitation

Check = Callable[[str, RecordDict], None]

_POLL_SHARE = 0.02


class ExchangeControl(Protocol):
    """The exchange between zones, as the federation steers it."""

    def open(
        self, members: Sequence[str], round_number: int, attempt: int
    ) -> Mapping[str, Invitation]:
        """Start an exchange among `members`; zones of earlier attempts are refused from now on.

        Returns:
            What each member needs to take part; empty where they need nothing.
        """
        ...

    def lost(self) -> Mapping[str, str]:
        """Return why, by zone that the exchange has lost in this attempt.

        A zone is in it before any other zone is told that the attempt is void.
        """
        ...

    def abort(self, reason: str) -> None:
        """Wake every zone that waits in the exchange, with ExchangeAborted."""
        ...

    def measured(self) -> Mapping[str, Mapping[str, float]]:
        """Return what was measured of this attempt, by zone and name; empty: nothing."""
        ...


class Stopped(Exception):
    """The run was asked to stop."""


class Unlucky(RunError):
    """The run cannot go on, but nothing says that it would not if it were started again."""


@dataclass(frozen=True)
class Limits:
    """Bounds of every wait of a round, in seconds.

    Attributes:
        quorum: Replies after which the grace begins.
        deadline_s: Longest an attempt may take.
        grace_s: Longest wait for the others once the quorum has answered.
        abort_s: Longest wait for zones to notice that the attempt was called off.
        poll_s: Time between two looks for replies.
        longest_poll_s: The same late in a long round: a look must not cost more than it gains, so
            that it is _POLL_SHARE of the time that has passed, within the two bounds.
        is_fatal: Whether a zone can end the run by saying that every zone would fail like it: where
            all are of this process. Elsewhere that is its own failure, whatever it says.
    """

    quorum: int
    deadline_s: float
    grace_s: float
    abort_s: float = 60.0
    poll_s: float = 0.01
    longest_poll_s: float = 0.0
    is_fatal: bool = True

    def pause_s(self, passed_s: float) -> float:
        """Return the time to the next look, when so much of the attempt has passed."""
        return max(self.poll_s, min(self.longest_poll_s, _POLL_SHARE * passed_s))


@dataclass
class Attempt:
    """What came of an attempt.

    Attributes:
        replies: Checked replies by zone, all members; empty when somebody was lost.
        lost: Why, by zone.
        nodes: Node that was asked, by zone.
    """

    replies: dict[str, Message] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)


class RoundDriver:
    """Drives attempts over a Grid."""

    def __init__(
        self,
        grid: Grid,
        exchange: ExchangeControl,
        limits: Limits,
        stop: threading.Event,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a driver.

        Args:
            grid: Where messages go.
            exchange: Aborted when a member is lost.
            limits: Bounds of every wait.
            stop: Set to end the run: the attempt under way is aborted.
            now: A clock in seconds.
        """
        self._grid = grid
        self._exchange = exchange
        self._limits = limits
        self._stop = stop
        self._now = now

    def run(self, messages: Mapping[str, Message], check: Check) -> Attempt:
        """Make one attempt.

        Args:
            messages: The order of every member, by zone.
            check: Called with zone and content of every reply; raises AggregationError to refuse.

        Raises:
            RunError: A zone failed in a way that every zone would repeat.
            Stopped: The run was asked to stop.
        """
        waiting, attempt = self._push(messages)
        try:
            is_overdue = self._collect(waiting, attempt, check)
        except BaseException as error:
            self._call_off(waiting, attempt, str(error) or type(error).__name__)
            raise
        if is_overdue:
            reason = f"no reply within {self._bound(is_deadline=True)}"
            self._call_off(waiting, attempt, reason)
            if not attempt.lost:
                raise Unlucky(f"{reason} from any zone, though all still run")
        elif attempt.lost:
            zone, reason = next(iter(attempt.lost.items()))
            self._call_off(waiting, attempt, f"{zone} was lost: {reason}")
        if attempt.lost:
            attempt.replies.clear()
        return attempt

    def _push(self, messages: Mapping[str, Message]) -> tuple[dict[str, str], Attempt]:
        """Send the orders; return zones by message id, and the attempt."""
        members = sorted(messages)
        # Flower has None for a message that it did not take, and nothing at all if all are too big.
        message_ids: list[str | None] = [
            *self._grid.push_messages([messages[zone] for zone in members])
        ]
        message_ids += [None] * (len(members) - len(message_ids))
        waiting, attempt = {}, Attempt()
        for message_id, zone in zip(message_ids, members, strict=True):
            attempt.nodes[zone] = messages[zone].metadata.dst_node_id
            if message_id is None:
                attempt.lost[zone] = "its order could not be sent"
            else:
                waiting[message_id] = zone
        return waiting, attempt

    def _collect(self, waiting: dict[str, str], attempt: Attempt, check: Check) -> bool:
        """Poll until all have answered, somebody is lost, or time is up.

        Returns:
            Whether time is up and nobody has answered, so that nobody can be blamed yet.
        """
        start = self._now()
        deadline = start + self._limits.deadline_s
        grace_ends = math.inf
        aborted: dict[str, str] = {}
        while waiting and not attempt.lost:
            if self._stop.is_set():
                raise Stopped("the run was asked to stop")
            self._take(waiting, attempt, check, aborted)
            self._take_lost(waiting, attempt)
            now = self._now()
            if grace_ends == math.inf and len(attempt.replies) >= self._limits.quorum:
                grace_ends = now + self._limits.grace_s
            if not waiting or now < min(deadline, grace_ends):
                self._stop.wait(self._limits.pause_s(now - start) if waiting else 0)
            elif not attempt.replies:
                return True
            else:
                reason = f"no reply within {self._bound(now >= deadline)}"
                attempt.lost |= dict.fromkeys(waiting.values(), reason)
        if aborted and not attempt.lost:
            zone, reason = next(iter(aborted.items()))
            raise Unlucky(f"{zone}: the exchange was aborted though no zone failed: {reason}")
        return False

    def _bound(self, is_deadline: bool) -> str:
        if is_deadline:
            return f"{self._limits.deadline_s:g} s (federation.deadline_s)"
        return f"{self._limits.grace_s:g} s of the others (federation.grace_s)"

    def _take(
        self,
        waiting: dict[str, str],
        attempt: Attempt,
        check: Check,
        aborted: dict[str, str],
    ) -> None:
        """Take the replies that are there; errors are mapped by the message they answer."""
        replies = self._grid.pull_messages(list(waiting))
        for reply in sorted(replies, key=lambda r: waiting[r.metadata.reply_to_message_id]):
            zone = waiting.pop(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                try:
                    _check_sender(zone, reply, attempt.nodes[zone])
                    check(zone, reply.content)
                    attempt.replies[zone] = reply
                except AggregationError as error:
                    attempt.lost[zone] = str(error)
            elif reply.error.code == FATAL and self._limits.is_fatal:
                raise RunError(f"{zone}: {reply.error.reason}")
            elif reply.error.code == ABORTED:
                aborted[zone] = str(reply.error.reason)
            else:
                attempt.lost[zone] = str(reply.error.reason)

    def _take_lost(self, waiting: dict[str, str], attempt: Attempt) -> None:
        """Strike out the zones that the exchange has lost, unless their replies are here."""
        for zone, reason in self._exchange.lost().items():
            if zone not in attempt.replies:
                attempt.lost[zone] = reason
        for message_id in [key for key, zone in waiting.items() if zone in attempt.lost]:
            del waiting[message_id]

    def _call_off(self, waiting: dict[str, str], attempt: Attempt, reason: str) -> None:
        """Abort the exchange and wait for who still runs; who does not come back is lost too."""
        self._exchange.abort(reason)
        deadline = self._now() + self._limits.abort_s
        waiting = dict(waiting)
        self._take_lost(waiting, attempt)
        while waiting and self._now() < deadline:
            for reply in self._grid.pull_messages(list(waiting)):
                zone = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error() and reply.error.code != ABORTED:
                    attempt.lost[zone] = str(reply.error.reason)
            self._take_lost(waiting, attempt)
            if waiting:
                time.sleep(self._limits.poll_s)
        for zone in waiting.values():
            attempt.lost[zone] = f"did not end within {self._limits.abort_s:g} s of: {reason}"


def _check_sender(zone: str, reply: Message, node_id: int) -> None:
    if reply.metadata.src_node_id != node_id:
        raise AggregationError(
            f"{zone}: the reply is from node {reply.metadata.src_node_id}, expected {node_id}"
        )
