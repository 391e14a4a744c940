"""What a hub wants of a stream: frames in time that are messages, and a caller who is the zone."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from federation.exchange_meeting import HubLimits
from marl_sched.errors import ExchangeError, SecurityError
from zones.exchange_codec import MAX_FRAME_BYTES, STEADY_WINDOW
from zones.proto import exchange_pb2 as pb

Context = grpc.aio.ServicerContext[bytes, bytes]
ZoneOf = Callable[[bytes], str]

_MAX_HELLO_BYTES = 4096


async def frame_within(seconds: float, context: Context, give_up: Callable[[], object]) -> bytes:
    """Return the next frame of a stream, empty at its end; a caller that is late is hung up on.

    A read that has begun is never cancelled, since gRPC's core still holds its place: it ends with
    its call.

    Raises:
        CancelledError: There was none in time; `give_up` was called.
    """
    reading = asyncio.ensure_future(context.read())
    reading.add_done_callback(lambda read: read.cancelled() or read.exception())
    await asyncio.wait({reading}, timeout=seconds)
    if reading.done():
        return frame_of(reading.result())
    give_up()
    with suppress(grpc.aio.AbortError):
        await context.abort(grpc.StatusCode.CANCELLED, "too late")
    raise asyncio.CancelledError


def frame_of(read: Any) -> bytes:
    """Return what was read, empty at the end of the stream."""
    return b"" if read is grpc.aio.EOF else read


def hello_of(frame: bytes) -> pb.Hello:
    """Return what a caller says first.

    Raises:
        ExchangeError: It is no hello.
    """
    if len(frame) > _MAX_HELLO_BYTES:
        raise ExchangeError(f"a first message of {len(frame)} bytes")
    message = parsed(frame)
    if not message.HasField("hello"):
        raise ExchangeError("a first message that is no hello")
    return message.hello


def parsed(frame: bytes) -> pb.FromZone:
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


def require_identity(zone: str, context: Context, zone_of: ZoneOf | None) -> None:
    """Check that a caller is the zone that its certificate is of, if it is of one.

    Raises:
        SecurityError: It is not.
    """
    if zone_of is None:
        return
    found: Any = context.auth_context()  # typed as bytes, but a list of them
    shown: list[bytes] = list(found.get("x509_pem_cert", ()))
    if not shown:
        raise SecurityError("the caller shows no certificate, expected a zone's")
    owner = zone_of(shown[0])
    if owner and owner != zone:  # a free key's zone is the one whose token it was given
        raise SecurityError(f"the certificate of {owner} comes as {zone!r}")


def server_options(limits: HubLimits) -> list[tuple[str, int]]:
    """Return the options of a hub's server."""
    keepalive_ms = round(1000 * limits.keepalive_s)
    return [
        ("grpc.so_reuseport", 0),  # a second hub on one port is an error
        ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
        ("grpc.max_send_message_length", -1),  # of several zones' frames
        *STEADY_WINDOW,
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        ("grpc.http2.ping_timeout_ms", keepalive_ms),  # the one that counts; else a minute
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", keepalive_ms // 2),
        ("grpc.http2.max_ping_strikes", 0),
    ]
