"""One attempt as the exchange sees it: who was let in, who has posted what, who was lost.

    invited --hello--> present --leave--> left
       |                  |  the stream broke, a message that no zone by the rules sends, silence
       +------------------+--> lost: the attempt is void for all

Nothing here knows of gRPC. A meeting belongs to one event loop: nothing in it is to be called from
another thread. Every stream has a task there, which waits here for the others.
"""

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass

from federation.exchange_answers import Answers, Posted
from federation.exchange_checks import OutboxCheck
from federation.exchange_ledger import Ledger
from federation.exchange_plan import Place, Plan
from marl_sched.config import Experiment
from marl_sched.errors import ExchangeError
from zones.exchange_codec import ROWS, unpack_outbox
from zones.proto import exchange_pb2 as pb

_logger = logging.getLogger(__name__)

_TOKEN_BYTES = 32


@dataclass(frozen=True)
class HubLimits:
    """Bounds of what zones may do to the hub.

    Attributes:
        hello_s: Longest wait for a caller to say who it is.
        silent_s: Longest wait for the slowest post once the first has come; `grace_s` of the
            federation counts if that is less.
        take_s: Longest wait for a zone to take an answer, and to leave a void attempt.
        keepalive_s: Silence of a connection after which it is probed, and longest wait for the
            probe's answer.
        max_rows: Most rows of one kind in one outbox.
        max_instances: Most instances of a zone in one replica: the hub keeps 4 bytes for each.
        min_zones: Zones that there is room for, however few there are at first.
    """

    hello_s: float = 10.0
    silent_s: float = 600.0
    take_s: float = 30.0
    keepalive_s: float = 10.0
    max_rows: int = 100_000
    max_instances: int = 1 << 22
    min_zones: int = 64


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
        self._silent_s = min(limits.silent_s, experiment.federation.grace_s)
        self._plan = Plan(experiment, round_number)
        self._check = OutboxCheck(experiment, self.members, limits.max_rows, limits.max_instances)
        self._ledger = Ledger(len(self._zones), 0)
        self._aborted: str | None = None
        self._present: set[str] = set()
        self._left: set[str] = set()
        self._lost: dict[str, str] = {}
        self._number = 0
        """Of the exchange under way."""
        self._posts: dict[str, Posted] = {}
        """Posts of the exchange under way, by zone."""
        self._posted_s: dict[str, float] = {}
        """When each of them came."""
        self._waited_s = dict.fromkeys(self.members, 0.0)
        self._n_frame_bytes = dict.fromkeys(self.members, 0)
        self._is_over = asyncio.Event()
        """Whether the exchange under way is complete, or the attempt void."""
        self._patience: asyncio.TimerHandle | None = None
        """Runs from the first post of the exchange under way."""
        self._answers: Answers | None = None
        """Of the exchange before it: kept until the next one is complete."""

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
        if hello.zone in self._present | self._left or hello.zone in self._lost:
            raise ExchangeError(f"{hello.zone} has been here before")
        self._present.add(hello.zone)

    @property
    def is_void(self) -> bool:
        """Whether all that a member can still hear is why the attempt is void."""
        return self._aborted is not None

    def welcome(self) -> bytes:
        """Return the answer to who was let in."""
        if self._aborted is not None:
            return self._void()
        return pb.FromHub(welcome=pb.Welcome(members=self.members)).SerializeToString()

    async def exchange(self, zone: str, post: pb.Post) -> bytes:
        """Take a zone's post, wait for the others', and return what is for this zone.

        Raises:
            ExchangeError: The post is not one that a zone sends by the rules.
        """
        if self._aborted is not None:
            return self._void()
        number, is_over = self._number, self._is_over
        self._require_next(zone, post, number)
        place = self._plan.place(number)
        self._posts[zone] = self._checked(zone, post, place)
        self._posted_s[zone] = time.monotonic()
        if len(self._posts) == len(self.members):
            self._finish(place)
        elif len(self._posts) == 1:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(self._silent_s, self._lose_silent, place.step)
        await is_over.wait()
        if self._aborted is not None or self._answers is None:
            return self._void()
        return self._answers.frame(zone)

    def leave(self, zone: str) -> None:
        """Note that a zone has left of its own accord; it says why to the federation."""
        self._present.discard(zone)
        self._left.add(zone)

    def lose(self, zone: str, reason: str) -> None:
        """Note that a zone was lost, unless it has left or is lost already: the attempt is void."""
        if zone in self._left or zone in self._lost:
            return
        self._lost[zone] = reason
        _logger.warning("round %d.%d: %s is lost: %s", self._round, self._attempt, zone, reason)
        self.abort(f"{zone} was lost: {reason}")

    def abort(self, reason: str) -> None:
        """Make the attempt void: every zone that waits or posts is told."""
        self._aborted = self._aborted or reason
        self._posts = {}
        self._answers = None
        self._stop_waiting()

    def end(self, reason: str) -> None:
        """Make the attempt void, over for good: nobody can be lost any more."""
        self.abort(reason)
        self._left.update(self.members)

    @property
    def lost(self) -> dict[str, str]:
        """Why, by zone that was lost."""
        return dict(self._lost)

    def count(self, zone: str, n_bytes: int) -> None:
        """Count the bytes of a frame to or from a zone."""
        self._n_frame_bytes[zone] += n_bytes

    def measured(self) -> dict[str, dict[str, float]]:
        """Return the attempt's figures by zone.

        `peer_wait_s`: from its posts to the last of the others'; `exchange_bytes`: both ways.
        """
        return {
            zone: {
                "peer_wait_s": round(self._waited_s[zone], 3),
                "exchange_bytes": self._n_frame_bytes[zone],
            }
            for zone in self.members
        }

    @property
    def n_bytes(self) -> int:
        """Bytes kept between messages: the ledger."""
        return self._ledger.n_bytes

    def _void(self) -> bytes:
        return pb.FromHub(aborted=pb.Aborted(reason=self._aborted or "")).SerializeToString()

    def _require_next(self, zone: str, post: pb.Post, number: int) -> None:
        if zone in self._posts or post.number != number or number >= self._plan.n_exchanges:
            raise ExchangeError(
                f"post number {post.number}, expected {number + (zone in self._posts)} of "
                f"{self._plan.n_exchanges}"
            )
        step = self._plan.place(number).step
        if post.step != step:
            raise ExchangeError(f"post number {number} of step {post.step}, expected {step}")

    def _checked(self, zone: str, post: pb.Post, place: Place) -> Posted:
        outbox = unpack_outbox(post.outbox, place.step)
        self._check.check(zone, outbox, place)
        if place.step > 0:  # before, there is nothing, or the episode before
            self._ledger.check(outbox)
        elif any(len(getattr(outbox, name)) for name in ROWS):
            raise ExchangeError("rows in the step that opens an episode, expected none")
        return Posted(outbox, post.outbox)

    def _finish(self, place: Place) -> None:
        """Complete the exchange under way."""
        if place.step == 0:
            self._ledger = Ledger(len(self._zones), place.n_replicas)
        posts = [self._posts[name] for name in self.members]
        self._ledger.enter(posted.outbox for posted in posts)
        self._answers = Answers(self._number, posts, self.members, self._zones)
        last_s = time.monotonic()
        for zone, posted_s in self._posted_s.items():
            self._waited_s[zone] += last_s - posted_s
        self._posts, self._posted_s = {}, {}
        self._number += 1
        self._stop_waiting()
        self._is_over = asyncio.Event()

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self._is_over.set()

    def _lose_silent(self, step: int) -> None:
        """Lose who has not posted in time: the others have waited since the first post.

        It hangs, or it was never let in: its order may have been lost on the way.
        """
        reason = f"no word of it for {self._silent_s:g} s at step {step}"
        for missing in sorted(set(self.members) - set(self._posts)):
            self.lose(missing, reason)
