"""One call to the hub: frames out, and an answer to each that asks for one. Called from one thread.

gRPC's public way to hold a stream from a thread that waits has two more threads, one that sends and
one that hears, and a hand-over to each a message. `direct_call` has none. It takes names that gRPC
does not promise to keep, the same as gRPC's own single-threaded streams; where they are gone, the
public way does.
"""

import queue
from collections import deque
from contextlib import suppress
from typing import Any, Protocol

import grpc

from zones.proto import exchange_pb2 as pb

METHOD = f"/{pb.DESCRIPTOR.services_by_name['Exchange'].full_name}/Meet"

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_STATUS, _METADATA, _SENT, _ANSWERED, _CLOSED = range(5)


class CallEnded(Exception):  # that a call ends is no error
    """There will be no more answers."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        """Tell how the call has ended."""
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


class Call(Protocol):
    """A call, from its first frame to its end."""

    def tell(self, frame: bytes) -> None:
        """Send a frame that gets no answer."""
        ...

    def ask(self, frame: bytes) -> None:
        """Send a frame that gets an answer, once the last answer was taken."""
        ...

    def answer(self) -> bytes:
        """Wait for the answer to the last question.

        Raises:
            CallEnded: The call is over instead.
        """
        ...

    def finish(self) -> None:
        """Send no more, and wait for the end of the call."""
        ...

    def cancel(self) -> None:
        """End the call at once; from any thread."""
        ...


class QueuedCall:
    """A call by the public API alone."""

    def __init__(self, channel: grpc.Channel) -> None:
        """Begin a call."""
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        begin: Any = channel.stream_stream(METHOD)
        self._call: Any = begin(iter(self._out.get, None))

    def tell(self, frame: bytes) -> None:
        """Send a frame; see Call."""
        self._out.put(frame)

    def ask(self, frame: bytes) -> None:
        """Send a frame; see Call."""
        self._out.put(frame)

    def answer(self) -> bytes:
        """Wait for the answer; see Call."""
        try:
            frame: bytes = next(self._call)
        except StopIteration:
            raise CallEnded(grpc.StatusCode.OK, "") from None
        except grpc.RpcError:
            raise CallEnded(self._call.code(), self._call.details() or "") from None
        return frame

    def finish(self) -> None:
        """Wait for the end of the call; see Call."""
        self._out.put(None)
        with suppress(grpc.RpcError):
            deque(self._call, maxlen=0)  # what is still on its way

    def cancel(self) -> None:
        """End the call at once; see Call."""
        self._call.cancel()


class _DirectCall:
    """A call whose events the calling thread takes itself."""

    def __init__(self, core: Any, channel: Any) -> None:
        """Begin a call.

        Args:
            core: gRPC's compiled part.
            channel: Its channel.
        """
        self._core = core
        begin = core.SendInitialMetadataOperation(None, 0)
        self._call = channel.segregated_call(
            core.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
            METHOD.encode(),
            None,  # host
            None,  # deadline
            None,  # metadata
            None,  # credentials
            (
                ((begin, core.ReceiveStatusOnClientOperation(0)), _STATUS),
                ((core.ReceiveInitialMetadataOperation(0),), _METADATA),
            ),
            core.build_census_context(),
            None,  # a handle of a registered method
        )
        self._due = {_STATUS, _METADATA}
        self._frame: bytes | None = None
        self._end: CallEnded | None = None

    def tell(self, frame: bytes) -> None:
        """Send a frame; see Call."""
        self._start(_SENT, self._core.SendMessageOperation(frame, 0))

    def ask(self, frame: bytes) -> None:
        """Send a frame; see Call."""
        self.tell(frame)
        self._start(_ANSWERED, self._core.ReceiveMessageOperation(0))

    def answer(self) -> bytes:
        """Wait for the answer; see Call."""
        while _ANSWERED in self._due:
            self._take_event()
        frame, self._frame = self._frame, None
        if frame is not None:
            return frame
        while self._end is None:
            self._take_event()
        raise self._end

    def finish(self) -> None:
        """Wait for the end of the call; see Call."""
        self._start(_CLOSED, self._core.SendCloseFromClientOperation(0))
        while self._end is None:
            if _ANSWERED not in self._due:  # what is still on its way
                self._start(_ANSWERED, self._core.ReceiveMessageOperation(0))
            self._take_event()
        while self._due:
            self._take_event()

    def cancel(self) -> None:
        """End the call at once; see Call."""
        self._call.cancel(self._core.StatusCode.cancelled, "given up")

    def _start(self, tag: int, operation: Any) -> None:
        """Start an operation, unless the call is over; of a kind, one after the other."""
        before = {tag, _SENT} if tag == _CLOSED else {tag}
        while self._end is None and self._due & before:
            self._take_event()
        if self._end is None:
            self._call.operate((operation,), tag)
            self._due.add(tag)

    def _take_event(self) -> None:
        event = self._call.next_event()
        self._due.discard(event.tag)
        for operation in event.batch_operations:
            if event.tag == _ANSWERED and hasattr(operation, "message"):
                self._frame = operation.message()
            elif event.tag == _STATUS and hasattr(operation, "code"):
                details = operation.details() or ""
                details = details.decode() if isinstance(details, bytes) else details
                code = _CODES.get(operation.code(), grpc.StatusCode.UNKNOWN)
                self._end = CallEnded(code, details)


def new_call(channel: grpc.Channel) -> Call:
    """Begin a call on a channel, in the best way that this gRPC has."""
    try:
        return direct_call(channel)
    except (ImportError, AttributeError, TypeError):
        return QueuedCall(channel)


def direct_call(channel: grpc.Channel) -> Call:
    """Begin a call on a channel without a thread of its own.

    Raises:
        ImportError: This gRPC has another compiled part.
        AttributeError: The same.
        TypeError: The same.
    """
    import grpc._cython.cygrpc as core  # type: ignore[import-not-found]

    inner: Any = channel
    return _DirectCall(core, inner._channel)
