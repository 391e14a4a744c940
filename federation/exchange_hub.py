"""The exchange over gRPC, the coordinator's side: one server, one attempt at a time.

    round driver        open, abort, lost      a stream a zone
        |                                          |
    ExchangeHub  -->  Meeting of this attempt  <-- Hello, Post, Leave

One thread serves all streams, as tasks of an event loop: who posts last completes the exchange, and
all are answered without a hand-over between threads. What others call waits for that thread.

A call that cannot say which member it is gets no reason, only a refusal; the log has it. A member
that breaks the rules is told why, and lost.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio

from federation.exchange_checks import load_kernels
from federation.exchange_frames import (
    Context,
    ZoneOf,
    frame_of,
    frame_within,
    hello_of,
    parsed,
    require_identity,
    server_options,
)
from federation.exchange_meeting import HubLimits, Meeting
from marl_sched.config import Experiment
from marl_sched.errors import ExchangeError, MarlSchedError, SecurityError
from zones.proto import exchange_pb2 as pb
from zones.records import Invitation

_logger = logging.getLogger(__name__)

Watch = Callable[[str, bytes], None]
_T = TypeVar("_T")

_SERVICE = pb.DESCRIPTOR.services_by_name["Exchange"]
_STOP_S = 0.5
"""What zones are given to hear that it is over."""
_NOTE_S = 1.0
_ANSWER_S = 60.0
"""Longest wait for the thread of the streams, which itself waits for nothing."""
_MAX_VIEWS = 1000
"""Most views between two posts: who sends more wants to keep the hub busy."""
_REFUSED = "not invited to the exchange"


class ExchangeHub:
    """Serves the exchange between the zones of one experiment."""

    def __init__(
        self,
        experiment: Experiment,
        address: str,
        credentials: grpc.ServerCredentials | None = None,
        limits: HubLimits | None = None,
        public_address: str | None = None,
        zone_of: ZoneOf | None = None,
    ) -> None:
        """Listen, until `close`.

        Args:
            experiment: What the zones run: it says what they may send.
            address: HOST:PORT to listen on; port 0 takes a free one.
            credentials: Of the server; None: plain text, for loopback.
            limits: Bounds of what zones may do.
            public_address: HOST:PORT that zones are told; None: where it listens.
            zone_of: Returns the zone of a caller's certificate, in PEM, or raises SecurityError; a
                caller can be no other. Empty: the caller may be any that it has the token of.
                None: callers show none.

        Raises:
            ExchangeError: The address cannot be listened on.
        """
        self._experiment = experiment
        self._zone_of = zone_of
        self.watch: Watch | None = None
        """Given what zones send as views, unchecked; it must not wait."""
        self._limits = limits or HubLimits()
        self._meeting: Meeting | None = None
        self._n_refused, self._next_note_s = 0, 0.0
        self._max_zones = 2 * max(len(experiment.zones), self._limits.min_zones)
        load_kernels()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="exchange", daemon=True)
        self._thread.start()
        try:
            port = self._wait_for(self._serve(address, credentials))
        except RuntimeError as error:
            self._stop_loop()
            raise ExchangeError(f"{address}: the exchange cannot listen there: {error}") from None
        self.address = public_address or f"{address.rpartition(':')[0]}:{port}"
        """HOST:PORT that zones are told."""

    def use(self, experiment: Experiment) -> None:
        """Serve the zones of another experiment from the next attempt on.

        Raises:
            ExchangeError: They are too many for the streams that this hub was made for.
        """
        if len(experiment.zones) > self._max_zones:
            raise ExchangeError(
                f"{len(experiment.zones)} zones, expected at most {self._max_zones} in a run that "
                f"began with {len(self._experiment.zones)}; end it and go on with --resume"
            )
        self._experiment = experiment

    def open(
        self, members: Sequence[str], round_number: int, attempt: int
    ) -> dict[str, Invitation]:
        """Start an exchange among `members` and return their invitations.

        Zones of earlier attempts are refused from now on; those still here are sent away.
        """
        return self._wait_for(self._open(members, round_number, attempt))

    def abort(self, reason: str) -> None:
        """Make the attempt void: every zone that waits or posts is told."""
        self._wait_for(self._abort(reason))

    def lost(self) -> dict[str, str]:
        """Return why, by zone that was lost in this attempt."""
        return self._wait_for(self._lost())

    def measured(self) -> dict[str, dict[str, float]]:
        """Return waits and bytes of this attempt, by zone."""
        return self._wait_for(self._measured())

    def close(self) -> None:
        """Tell the zones that it is over and stop listening."""
        if not self._loop.is_closed():
            self._wait_for(self._stop())
            self._stop_loop()

    def __enter__(self) -> "ExchangeHub":
        """Return the hub."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Let the event loop do something, or do it here once that is over."""
        if self._loop.is_closed():
            return asyncio.run(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_S)

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        """Listen and return the port.

        Raises:
            RuntimeError: The address cannot be listened on.
        """
        self._server = grpc.aio.server(
            options=server_options(self._limits), maximum_concurrent_rpcs=self._max_zones + 4
        )
        # Frames come and go as bytes: what is no message is to be named, not logged by gRPC.
        handler: Any = grpc.stream_stream_rpc_method_handler(self._meet)
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(_SERVICE.full_name, {"Meet": handler})]
        )
        port = (
            self._server.add_insecure_port(address)
            if credentials is None
            else self._server.add_secure_port(address, credentials)
        )
        await self._server.start()
        return int(port)

    async def _open(
        self, members: Sequence[str], round_number: int, attempt: int
    ) -> dict[str, Invitation]:
        self._end("a new attempt has begun")
        self._meeting = Meeting(self._experiment, members, round_number, attempt, self._limits)
        tokens = self._meeting.tokens
        return {zone: Invitation(self.address, token) for zone, token in tokens.items()}

    async def _abort(self, reason: str) -> None:
        if self._meeting is not None:
            self._meeting.abort(reason)

    async def _lost(self) -> dict[str, str]:
        return {} if self._meeting is None else self._meeting.lost

    async def _measured(self) -> dict[str, dict[str, float]]:
        return {} if self._meeting is None else self._meeting.measured()

    async def _stop(self) -> None:
        self._end("the exchange is closed")
        await self._server.stop(_STOP_S)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_STOP_S)

    def _end(self, reason: str) -> None:
        if self._meeting is not None:
            self._meeting.end(reason)

    async def _meet(self, _: AsyncIterator[bytes], context: Context) -> None:
        """Serve one stream from Hello to its end."""
        meeting = self._meeting

        def late() -> None:
            within_s = self._limits.hello_s
            self._note_refusal(context.peer(), ExchangeError(f"no hello for {within_s:g} s"))

        try:
            if meeting is None:
                raise ExchangeError("there is no attempt under way")
            hello = hello_of(await frame_within(self._limits.hello_s, context, late))
            require_identity(hello.zone, context, self._zone_of)
            meeting.admit(hello)
            zone = hello.zone
        except (ExchangeError, SecurityError) as error:
            self._note_refusal(context.peer(), error)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, _REFUSED)
        try:
            await self._answer(meeting, zone, context)
        except ExchangeError as error:
            meeting.lose(zone, str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            meeting.lose(zone, "its stream broke")  # unless it has left, or is lost already

    def _note_refusal(self, peer: str, reason: MarlSchedError) -> None:
        """Log a refusal, one a second at most: a caller must not fill the disk."""
        self._n_refused += 1
        now = time.monotonic()
        if now >= self._next_note_s:
            _logger.warning("%s was refused (call %d): %s", peer, self._n_refused, reason)
            self._next_note_s = now + _NOTE_S

    async def _answer(self, meeting: Meeting, zone: str, context: Context) -> None:
        """Answer what a member sends, until it leaves."""
        take_s = self._limits.take_s

        def give_up() -> None:
            meeting.lose(zone, f"took no answer, or did not leave, for {take_s:g} s")

        answer = meeting.welcome()
        while True:
            is_last = meeting.is_void
            try:
                meeting.count(zone, len(answer))
                async with asyncio.timeout(take_s):
                    await context.write(answer)
            except TimeoutError:
                give_up()
                raise asyncio.CancelledError from None  # a status would wait behind the answer
            message = await self._next(meeting, zone, context, give_up if is_last else None)
            kind = message.WhichOneof("kind")
            if kind == "leave":
                meeting.leave(zone)
                return
            if kind != "post":
                raise ExchangeError(f"a message of kind {kind}, expected post or leave")
            answer = await meeting.exchange(zone, message.post)

    async def _next(
        self, meeting: Meeting, zone: str, context: Context, give_up: Callable[[], None] | None
    ) -> pb.FromZone:
        """Return a member's next message that wants an answer, or ends the stream.

        Raises:
            CancelledError: It had to come within a bound and did not; `give_up` was called.
        """
        end = self._loop.time() + self._limits.take_s
        for _ in range(_MAX_VIEWS):
            if give_up is None:
                frame = frame_of(await context.read())
            else:
                frame = await frame_within(end - self._loop.time(), context, give_up)
            meeting.count(zone, len(frame))
            message = parsed(frame)
            if not message.HasField("view"):
                return message
            if self.watch is not None:
                self.watch(zone, message.view.json)
        raise ExchangeError(f"{_MAX_VIEWS} views in a row")
