"""One attempt as the exchange sees it: who was let in, who has posted what, who was lost.

    invited --hello--> present --leave--> left
       |                  |  the stream broke, a message that no zone by the rules sends, silence
       +------------------+--> lost: the attempt is void for all

Nothing here knows of gRPC. Every stream has a thread of its own; it waits here for the others.
"""

import hmac
import logging
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from federation.exchange_checks import OutboxCheck
from federation.exchange_ledger import Ledger
from federation.exchange_plan import Place, Plan
from marl_sched.cluster.exchange import Outbox
from marl_sched.cluster.kernels.messages import TO
from marl_sched.config import Experiment
from marl_sched.errors import ExchangeError
from zones.exchange_codec import ROWS, pack_array, unpack_outbox
from zones.proto import exchange_pb2 as pb

_logger = logging.getLogger(__name__)

_TOKEN_BYTES = 32


@dataclass(frozen=True)
class HubLimits:
    """Bounds of what zones may do to the hub.

    Attributes:
        hello_s: Longest wait for a caller to say who it is.
        silent_s: Longest wait for the slowest post once the first has come.
        take_s: Longest wait for a zone to take an answer, and to leave a void attempt.
        keepalive_s: Silence of a connection after which it is probed, and longest wait for the
            probe's answer.
        max_rows: Most rows of one kind in one outbox.
        max_instances: Most instances of a zone in one replica: the hub keeps 4 bytes for each.
    """

    hello_s: float = 10.0
    silent_s: float = 600.0
    take_s: float = 30.0
    keepalive_s: float = 10.0
    max_rows: int = 100_000
    max_instances: int = 1 << 22


@dataclass(frozen=True)
class _Posted:
    """A checked outbox, the message it came in, and its rows by name and zone they are for."""

    outbox: Outbox
    message: pb.Outbox
    rows: Mapping[tuple[str, int], pb.Array]

    def addressed_to(self, zone: int) -> pb.Outbox:
        """Return the outbox as another zone gets it: of rows, those addressed to it."""
        return pb.Outbox(
            zone=self.message.zone,
            digests=self.message.digests if self.message.HasField("digests") else None,
            moments=self.message.moments,
            offloads=self.rows["offloads", zone],
            notices=self.rows["notices", zone],
            settlements=self.rows["settlements", zone],
        )


class Meeting:
    """An attempt at a round among its members."""

    def __init__(
        self,
        experiment: Experiment,
        members: Iterable[str],
        round_number: int,
        attempt: int,
        limits: HubLimits,
    ) -> None:
        """Invite the members."""
        self.members = tuple(sorted(members))
        self.tokens = {zone: secrets.token_bytes(_TOKEN_BYTES) for zone in self.members}
        self._zones = sorted(experiment.zone_names)
        self._round, self._attempt = round_number, attempt
        self._limits = limits
        self._plan = Plan(experiment, round_number)
        self._check = OutboxCheck(experiment, self.members, limits.max_rows, limits.max_instances)
        self._ledger = Ledger(len(self._zones), 0)
        self._changed = threading.Condition()
        self._aborted: str | None = None
        self._present: set[str] = set()
        self._left: set[str] = set()
        self._lost: dict[str, str] = {}
        self._number = 0
        """Of the exchange under way."""
        self._posts: dict[str, _Posted] = {}
        """Posts of the exchange under way, by zone."""
        self._first_post_s = 0.0
        self._complete: dict[str, _Posted] = {}
        """Posts of the exchange before it: kept until the next one is complete."""

    def admit(self, hello: pb.Hello) -> None:
        """Let a zone in, once.

        Raises:
            ExchangeError: It was not invited to this attempt, or is or was here.
        """
        token = self.tokens.get(hello.zone, bytes(_TOKEN_BYTES))
        is_right = hmac.compare_digest(hello.token, token)
        if not is_right or hello.zone not in self.tokens:
            raise ExchangeError(f"{hello.zone!r} has no token of this attempt")
        if (hello.round, hello.attempt) != (self._round, self._attempt):
            raise ExchangeError(f"{hello.zone} comes for round {hello.round}.{hello.attempt}")
        with self._changed:
            if hello.zone in self._present | self._left or hello.zone in self._lost:
                raise ExchangeError(f"{hello.zone} has been here before")
            self._present.add(hello.zone)

    def welcome(self) -> pb.FromHub:
        """Return the answer to who was let in."""
        with self._changed:
            if self._aborted is not None:
                return self._void()
        return pb.FromHub(welcome=pb.Welcome(members=self.members))

    def exchange(self, zone: str, post: pb.Post) -> pb.FromHub:
        """Take a zone's post, wait for the others', and return what is for this zone.

        Raises:
            ExchangeError: The post is not one that a zone sends by the rules.
        """
        with self._changed:
            if self._aborted is not None:
                return self._void()
            number = self._number
            self._require_next(zone, post, number)
        place = self._plan.place(number)
        posted = self._checked(zone, post, place)
        with self._changed:
            self._posts[zone] = posted
            if len(self._posts) == 1:
                self._first_post_s = time.monotonic()
            if len(self._posts) == len(self.members):
                self._finish()
            self._wait_for(number, place.step)
            if self._aborted is not None:
                return self._void()
            complete = self._complete
        index = self._zones.index(zone)
        outboxes = [complete[name].addressed_to(index) for name in self.members]
        return pb.FromHub(collected=pb.Collected(number=number, step=place.step, outboxes=outboxes))

    def leave(self, zone: str) -> None:
        """Note that a zone has left of its own accord; it says why to the federation."""
        with self._changed:
            self._present.discard(zone)
            self._left.add(zone)

    def lose(self, zone: str, reason: str) -> None:
        """Note that a zone was lost, unless it has left or is lost already: the attempt is void."""
        with self._changed:
            if zone in self._left or zone in self._lost:
                return
            self._lost[zone] = reason
            _logger.warning("round %d.%d: %s is lost: %s", self._round, self._attempt, zone, reason)
            self._abort(f"{zone} was lost: {reason}")

    def abort(self, reason: str) -> None:
        """Make the attempt void: every zone that waits or posts is told."""
        with self._changed:
            self._abort(reason)

    def end(self, reason: str) -> None:
        """Make the attempt void, over for good: nobody can be lost any more."""
        with self._changed:
            self._abort(reason)
            self._left.update(self.members)

    @property
    def lost(self) -> dict[str, str]:
        """Why, by zone that was lost."""
        with self._changed:
            return dict(self._lost)

    @property
    def n_bytes(self) -> int:
        """Bytes kept between messages: the ledger."""
        return self._ledger.n_bytes

    def _abort(self, reason: str) -> None:
        self._aborted = self._aborted or reason
        self._posts = {}
        self._complete = {}
        self._changed.notify_all()

    def _void(self) -> pb.FromHub:
        return pb.FromHub(aborted=pb.Aborted(reason=self._aborted or ""))

    def _require_next(self, zone: str, post: pb.Post, number: int) -> None:
        if zone in self._posts or post.number != number or number >= self._plan.n_exchanges:
            raise ExchangeError(
                f"post number {post.number}, expected {number + (zone in self._posts)} of "
                f"{self._plan.n_exchanges}"
            )
        step = self._plan.place(number).step
        if post.step != step:
            raise ExchangeError(f"post number {number} of step {post.step}, expected {step}")

    def _checked(self, zone: str, post: pb.Post, place: Place) -> _Posted:
        outbox = unpack_outbox(post.outbox, place.step)
        self._check.check(zone, outbox, place)
        if place.step > 0:  # before, there is nothing, or the episode before
            self._ledger.check(outbox)
        elif any(len(getattr(outbox, name)) for name in ROWS):
            raise ExchangeError("rows in the step that opens an episode, expected none")
        return _Posted(outbox, post.outbox, _by_address(outbox, len(self._zones)))

    def _finish(self) -> None:
        """Complete the exchange under way."""
        place = self._plan.place(self._number)
        if place.step == 0:
            self._ledger = Ledger(len(self._zones), place.n_replicas)
        self._ledger.enter(posted.outbox for posted in self._posts.values())
        self._complete, self._posts = self._posts, {}
        self._number += 1
        self._changed.notify_all()

    def _wait_for(self, number: int, step: int) -> None:
        """Wait until an exchange is complete or the attempt void; the silent ones are lost."""
        while self._number == number and self._aborted is None:
            remaining_s = self._first_post_s + self._limits.silent_s - time.monotonic()
            if remaining_s > 0:
                self._changed.wait(remaining_s)
                continue
            reason = f"no word of it for {self._limits.silent_s:g} s at step {step}"
            for missing in sorted(set(self.members) - set(self._posts)):
                self.lose(missing, reason)


def _by_address(outbox: Outbox, n_zones: int) -> dict[tuple[str, int], pb.Array]:
    """Return the rows of an outbox by name and the zone they are addressed to."""
    found: dict[tuple[str, int], pb.Array] = {}
    for name in ROWS:
        rows = getattr(outbox, name)
        none = pack_array(rows[:0])
        found |= {(name, zone): none for zone in range(n_zones)}
        for zone in set(rows[:, TO].tolist()):
            found[name, int(zone)] = pack_array(rows[rows[:, TO] == zone])
    return found
