"""The exchange over gRPC, the coordinator's side: one server, one attempt at a time.

    round driver        open, abort, lost      a stream a zone
        |                                          |
    ExchangeHub  -->  Meeting of this attempt  <-- Hello, Post, Leave

A call that cannot say which member it is gets no reason, only a refusal; the log has it. A member
that breaks the rules is told why, and lost.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from federation.exchange_meeting import HubLimits, Meeting
from marl_sched.config import Experiment
from marl_sched.errors import ExchangeError, MarlSchedError, SecurityError
from zones.deadlines import Deadlines
from zones.exchange_codec import MAX_FRAME_BYTES
from zones.proto import exchange_pb2 as pb
from zones.records import Invitation

_logger = logging.getLogger(__name__)

ZoneOf = Callable[[bytes], str]

_SERVICE = pb.DESCRIPTOR.services_by_name["Exchange"]
_MAX_HELLO_BYTES = 4096
_STOP_S = 0.5
"""What zones are given to hear that it is over."""
_NOTE_S = 1.0
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
                caller can be no other. None: callers show none.

        Raises:
            ExchangeError: The address cannot be listened on.
        """
        self._experiment = experiment
        self._zone_of = zone_of
        self._limits = limits or HubLimits()
        self._meeting: Meeting | None = None
        self._deadlines = Deadlines()
        self._n_refused, self._next_note_s = 0, 0.0
        n_streams = 2 * len(experiment.zones) + 4
        self._pool = ThreadPoolExecutor(n_streams, thread_name_prefix="exchange")
        self._server = grpc.server(
            self._pool, options=_options(self._limits), maximum_concurrent_rpcs=n_streams
        )
        # Frames come and go as bytes: what is no message is to be named, not logged by gRPC.
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(
            self._meet
        )
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(_SERVICE.full_name, {"Meet": handler})]
        )
        try:
            port = (
                self._server.add_insecure_port(address)
                if credentials is None
                else self._server.add_secure_port(address, credentials)
            )
        except RuntimeError as error:
            self._deadlines.close()
            raise ExchangeError(f"{address}: the exchange cannot listen there: {error}") from None
        self.address = public_address or f"{address.rpartition(':')[0]}:{port}"
        """HOST:PORT that zones are told."""
        self._server.start()

    def open(
        self, members: Sequence[str], round_number: int, attempt: int
    ) -> dict[str, Invitation]:
        """Start an exchange among `members` and return their invitations.

        Zones of earlier attempts are refused from now on; those still here are sent away.
        """
        self._end("a new attempt has begun")
        self._meeting = Meeting(self._experiment, members, round_number, attempt, self._limits)
        tokens = self._meeting.tokens
        return {zone: Invitation(self.address, token) for zone, token in tokens.items()}

    def abort(self, reason: str) -> None:
        """Make the attempt void: every zone that waits or posts is told."""
        if self._meeting is not None:
            self._meeting.abort(reason)

    def lost(self) -> dict[str, str]:
        """Return why, by zone that was lost in this attempt."""
        return {} if self._meeting is None else self._meeting.lost

    def close(self) -> None:
        """Tell the zones that it is over and stop listening."""
        self._end("the exchange is closed")
        self._server.stop(_STOP_S).wait()
        self._deadlines.close()
        self._pool.shutdown()

    def _end(self, reason: str) -> None:
        if self._meeting is not None:
            self._meeting.end(reason)

    def __enter__(self) -> "ExchangeHub":
        """Return the hub."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _meet(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Serve one stream, in a thread of its own, from Hello to its end."""
        meeting = self._meeting
        try:
            if meeting is None:
                raise ExchangeError("there is no attempt under way")
            with self._deadlines.within(self._limits.hello_s, context.cancel):
                hello = _hello(next(frames, b""))
            self._require_identity(hello.zone, context)
            meeting.admit(hello)
            zone = hello.zone
        except (ExchangeError, SecurityError) as error:
            self._note_refusal(context.peer(), error)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, _REFUSED)
        if not context.add_callback(lambda: meeting.lose(zone, "its stream broke")):
            meeting.lose(zone, "its stream broke")
        try:
            yield from self._answers(meeting, zone, frames, context)
        except ExchangeError as error:
            meeting.lose(zone, str(error))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _require_identity(self, zone: str, context: grpc.ServicerContext) -> None:
        """Check that a caller is the zone that its certificate is of.

        Raises:
            SecurityError: It is not.
        """
        if self._zone_of is None:
            return
        found: Any = context.auth_context()  # typed as bytes, but a list of them
        shown: list[bytes] = list(found.get("x509_pem_cert", ()))
        if not shown:
            raise SecurityError("the caller shows no certificate, expected a zone's")
        owner = self._zone_of(shown[0])
        if owner != zone:
            raise SecurityError(f"the certificate of {owner} comes as {zone!r}")

    def _note_refusal(self, peer: str, reason: MarlSchedError) -> None:
        """Log a refusal, one a second at most: a caller must not fill the disk."""
        self._n_refused += 1
        now = time.monotonic()
        if now >= self._next_note_s:
            _logger.warning("%s was refused (call %d): %s", peer, self._n_refused, reason)
            self._next_note_s = now + _NOTE_S

    def _answers(
        self, meeting: Meeting, zone: str, frames: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """Answer what a member sends, until it leaves."""

        def give_up() -> None:
            meeting.lose(zone, f"took no answer, or did not leave, for {self._limits.take_s:g} s")
            context.cancel()

        answer = meeting.welcome()
        while True:
            # The bound holds until the answer is taken; of the last one, until the zone has left.
            with self._deadlines.within(self._limits.take_s, give_up):
                yield answer.SerializeToString()
                message = _parsed(next(frames, b"")) if answer.HasField("aborted") else None
            message = message or _parsed(next(frames, b""))
            kind = message.WhichOneof("kind")
            if kind == "leave":
                meeting.leave(zone)
                return
            if kind != "post":
                raise ExchangeError(f"a message of kind {kind}, expected post or leave")
            answer = meeting.exchange(zone, message.post)


def _hello(frame: bytes) -> pb.Hello:
    """Return what a caller says first.

    Raises:
        ExchangeError: It is no hello.
    """
    if len(frame) > _MAX_HELLO_BYTES:
        raise ExchangeError(f"a first message of {len(frame)} bytes")
    message = _parsed(frame)
    if not message.HasField("hello"):
        raise ExchangeError("a first message that is no hello")
    return message.hello


def _parsed(frame: bytes) -> pb.FromZone:
    """Return the message of a frame.

    Raises:
        ExchangeError: It is none; an empty one stands for a stream that has ended.
    """
    if not frame:
        raise ExchangeError("its stream broke")
    try:
        return pb.FromZone.FromString(frame)
    except DecodeError:
        raise ExchangeError(f"{len(frame)} bytes that are no message of the exchange") from None


def _options(limits: HubLimits) -> list[tuple[str, int]]:
    keepalive_ms = round(1000 * limits.keepalive_s)
    return [
        ("grpc.so_reuseport", 0),  # a second hub on one port is an error
        ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
        ("grpc.max_send_message_length", -1),  # of several zones' frames
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        ("grpc.http2.ping_timeout_ms", keepalive_ms),  # the one that counts; else a minute
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", keepalive_ms // 2),
        ("grpc.http2.max_ping_strikes", 0),
    ]
