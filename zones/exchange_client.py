"""The exchange over gRPC, a zone's side: one stream to the hub an attempt."""

from collections.abc import Callable, Sequence

import grpc
from google.protobuf.message import DecodeError

from marl_sched.cluster.exchange import Outbox
from marl_sched.errors import ExchangeAborted, ExchangeError
from zones.deadlines import Deadlines
from zones.exchange_calls import CallEnded, new_call
from zones.exchange_codec import (
    MAX_FRAME_BYTES,
    STEADY_WINDOW,
    pack_outbox,
    unpack_collected,
)
from zones.proto import exchange_pb2 as pb
from zones.records import Invitation

_LEAVE_S = 5.0
_TAKE_S = 60.0
"""Longest wait for the hub to take a frame."""
_KEEPALIVE_MS = 10_000


class RemoteExchange:
    """The exchange of one zone with the others of an attempt, through the hub.

    `join`, then `post` and `collect` in turn, then `leave`. Called from one thread.
    """

    def __init__(
        self,
        zone: str,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = 900.0,
        connect_s: float = 30.0,
    ) -> None:
        """Serve one zone.

        Args:
            zone: The zone.
            credentials: Of the channel; None: plain text, for loopback.
            timeout_s: Longest wait for the others; longer than the hub's, which knows who is late.
            connect_s: Longest wait for the hub to let the zone in.
        """
        self._zone = zone
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._connect_s = connect_s
        self._members: tuple[str, ...] = ()
        self._stream: _Stream | None = None
        self._n_posted = 0
        self._posted_step: int | None = None
        """What was posted and not collected yet."""

    @property
    def zone_names(self) -> tuple[str, ...]:
        """Names of all members, sorted."""
        return self._members

    def join(
        self, invitation: Invitation, round_number: int, attempt: int, members: Sequence[str]
    ) -> None:
        """Meet the other members of an attempt.

        Raises:
            ExchangeAborted: The attempt is void already.
            ExchangeError: The hub cannot be reached, or refuses the invitation.
        """
        self.leave()
        self._members = tuple(sorted(members))
        self._n_posted, self._posted_step = 0, None
        stream = _Stream(invitation.address, self._credentials, len(self._members))
        try:
            hello = pb.Hello(
                zone=self._zone, round=round_number, attempt=attempt, token=invitation.token
            )
            stream.ask(pb.FromZone(hello=hello).SerializeToString())
            welcome = stream.receive(self._connect_s, f"{invitation.address}: the exchange").welcome
            if tuple(welcome.members) != self._members:
                raise ExchangeError(f"the exchange is one of {', '.join(welcome.members)}")
        except ExchangeError as error:
            stream.leave()
            if stream.has_answered:
                raise
            # It is this zone that cannot take part: the others are not to wait for it.
            raise ExchangeError(str(error)) from None
        self._stream = stream

    def leave(self) -> None:
        """End the stream, if there is one."""
        if self._stream is not None:
            self._stream.leave()
            self._stream = None

    def post(self, outbox: Outbox) -> None:
        """Hand in this zone's outbox of a step; see Exchange."""
        if outbox.zone != self._zone or self._posted_step is not None:
            raise ExchangeError(
                f"zone {outbox.zone}, step {outbox.step}: posted twice, or not {self._zone}"
            )
        post = pb.Post(number=self._n_posted, step=outbox.step, outbox=pack_outbox(outbox))
        frame = pb.FromZone(post=post).SerializeToString()
        size = len(frame)
        if size > MAX_FRAME_BYTES:
            raise ExchangeError(
                f"zone {outbox.zone}, step {outbox.step}: an outbox of {size} bytes, expected at "
                f"most {MAX_FRAME_BYTES}"
            )
        self._joined().ask(frame)
        self._posted_step = outbox.step

    def collect(self, zone: str, step: int) -> list[Outbox]:
        """Wait for all outboxes of a step, of rows those for this zone; see Exchange."""
        if zone != self._zone or self._posted_step != step:
            raise ExchangeError(f"zone {zone}, step {step}: not posted, or not {self._zone}")
        collected = self._joined().receive(self._timeout_s, f"step {step}").collected
        if (collected.number, collected.step) != (self._n_posted, step):
            raise ExchangeError(
                f"step {step}: the exchange answers with number {collected.number}, step "
                f"{collected.step}, expected number {self._n_posted}"
            )
        try:
            outboxes = unpack_collected(collected, self._members)
        except ExchangeError as error:
            raise ExchangeError(f"step {step}: the exchange answers with {error}") from None
        self._n_posted += 1
        self._posted_step = None
        return outboxes

    def show(self, view: bytes) -> None:
        """Send a view of the zone, as JSON; to nobody, where no exchange is joined."""
        if self._stream is not None:
            self._stream.tell(pb.FromZone(view=pb.View(json=view)).SerializeToString())

    def _joined(self) -> "_Stream":
        if self._stream is None:
            raise ExchangeError(f"zone {self._zone} has not joined an exchange")
        return self._stream


class _Stream:
    """One call to the hub: messages out, answers in, no wait without a bound."""

    def __init__(
        self, address: str, credentials: grpc.ChannelCredentials | None, n_members: int
    ) -> None:
        options = _options(n_members)
        self._channel = (
            grpc.insecure_channel(address, options)
            if credentials is None
            else grpc.secure_channel(address, credentials, options)
        )
        self._call = new_call(self._channel)
        self.has_answered = False
        """Whether the hub has answered anything."""
        self._error: ExchangeError | None = None
        self._is_overdue = False
        self._deadlines = Deadlines()

    def tell(self, frame: bytes) -> None:
        """Send a frame that gets no answer; whether it arrives, `receive` tells."""
        self._send(self._call.tell, frame)

    def ask(self, frame: bytes) -> None:
        """Send a frame whose answer is to be received."""
        self._send(self._call.ask, frame)

    def receive(self, within_s: float, what: str) -> pb.FromHub:
        """Return the next answer.

        Raises:
            ExchangeAborted: The attempt is void, the stream broke, or time is up.
            ExchangeError: The hub has refused what this zone sent.
        """
        if self._error is None:
            try:
                return self._next(within_s, what)
            except ExchangeError as error:
                self._error = error
        raise self._error

    def leave(self) -> None:
        """End the call, in good order if the hub still listens."""
        with self._deadlines.within(_LEAVE_S, self._call.cancel):
            self._call.tell(pb.FromZone(leave=pb.Leave()).SerializeToString())
            self._call.finish()
        self._deadlines.close()
        self._channel.close()

    def _send(self, send: Callable[[bytes], None], frame: bytes) -> None:
        with self._deadlines.within(_TAKE_S, self._give_up):
            send(frame)

    def _next(self, within_s: float, what: str) -> pb.FromHub:
        try:
            with self._deadlines.within(within_s, self._give_up):
                frame = self._call.answer()
        except CallEnded as end:
            raise self._meaning(end, within_s, what) from None
        try:
            answer = pb.FromHub.FromString(frame)
        except DecodeError:
            raise ExchangeAborted(f"{what}: {len(frame)} bytes that are no answer") from None
        self.has_answered = True
        if answer.HasField("aborted"):
            raise ExchangeAborted(answer.aborted.reason)
        return answer

    def _give_up(self) -> None:
        self._is_overdue = True
        self._call.cancel()

    def _meaning(self, end: CallEnded, within_s: float, what: str) -> ExchangeError:
        """Return the error that the end of the call stands for."""
        if self._is_overdue:
            return ExchangeAborted(f"{what}: no answer for {within_s:g} s")
        if end.code is grpc.StatusCode.OK:
            return ExchangeAborted(f"{what}: the hub has ended the stream")
        if end.code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT):
            return ExchangeError(f"{what}: refused: {end.details}")
        why = end.details or end.code.name
        return ExchangeAborted(f"{what}: the stream to the hub broke: {why}")


def _options(n_members: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_send_message_length", MAX_FRAME_BYTES),
        # An answer holds what several zones sent.
        ("grpc.max_receive_message_length", n_members * MAX_FRAME_BYTES),
        *STEADY_WINDOW,
        ("grpc.enable_retries", 0),  # a stream that broke is a zone that is lost
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS),
        ("grpc.http2.ping_timeout_ms", _KEEPALIVE_MS),  # the one that counts; else a minute
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),  # no back-off left over from another attempt
        ("grpc.enable_http_proxy", 0),  # the hub is where the invitation says
    ]
