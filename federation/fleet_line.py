"""A connection to the Fleet API: calls that are bounded and end when the node is to stop."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from federation.fleet_errors import LinkDown, Stopping, meaning
from federation.flower_private import FleetStub, NodeAuthClientInterceptor, caller_metadata
from zones.chains import certificates_to_pem, check_dates, load_certificates, utc_now
from zones.keys import PrivateKey

LOOK_S = 0.05
"""Time between two looks, during a wait, whether the node is to stop."""
_CALL_S = 10.0
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 3000),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True)
class SuperLinkAddress:
    """Where the SuperLink is and how to know it.

    Attributes:
        address: HOST:PORT of its Fleet API.
        ca: File of the CAs that sign its certificate; None: plain text, on loopback only.
    """

    address: str
    ca: Path | None


class FleetLine:
    """One connection, for the calls of one thread."""

    def __init__(self, superlink: SuperLinkAddress, key: PrivateKey, stop: threading.Event) -> None:
        """Prepare it; nothing is sent.

        Args:
            superlink: Whom to call.
            key: Signs every call.
            stop: Ends every call when set.

        Raises:
            SecurityError: The CAs cannot be read, or are not valid now.
        """
        self._superlink = superlink
        self._key = key
        self._stop = stop
        self._credentials = _credentials(superlink.ca)
        self._channel = self._open()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def reopen(self) -> None:
        """Begin with a new connection: the present one may hang for minutes."""
        self._channel.close()
        self._channel = self._open()

    def last_call(self, name: str, request: Any, timeout_s: float) -> bool:
        """Make a call though the node is to stop; return whether it was answered."""
        try:
            getattr(FleetStub(self._channel), name)(
                request, timeout=timeout_s, metadata=caller_metadata()
            )
        except grpc.RpcError:
            return False
        return True

    def _open(self) -> grpc.Channel:
        address = self._superlink.address
        channel = (
            grpc.insecure_channel(address, _OPTIONS)
            if self._credentials is None
            else grpc.secure_channel(address, self._credentials, _OPTIONS)
        )
        sign = NodeAuthClientInterceptor(self._key, self._key.public_key())
        return grpc.intercept_channel(channel, sign)

    def call(
        self, name: str, request: Any, timeout_s: float = _CALL_S, grace_s: float = 0.0
    ) -> Any:
        """Make a call that ends when it is over, when time is up, or when the node is to stop.

        Args:
            name: The method.
            request: What to send.
            timeout_s: How long the call may take.
            grace_s: How long it goes on, at most, once the node is to stop.
        """
        return self.calls(name, [request], timeout_s, grace_s)[0]

    def calls(
        self, name: str, requests: Sequence[Any], timeout_s: float, grace_s: float = 0.0
    ) -> list[Any]:
        """Make calls at the same time; the ServerApp, too, takes a reply only when it is whole."""
        calls: list[Any] = []
        try:
            method: Any = getattr(FleetStub(self._channel), name)
            calls.extend(
                method.future(request, timeout=timeout_s, metadata=caller_metadata())
                for request in requests
            )
            return [self._result(call, grace_s) for call in calls]
        finally:
            for call in calls:
                call.cancel()

    def _result(self, call: Any, grace_s: float) -> Any:
        is_over = threading.Event()
        call.add_done_callback(lambda _: is_over.set())
        while not is_over.wait(LOOK_S):
            if self._stop.is_set() and not is_over.wait(grace_s):
                raise Stopping
        try:
            return call.result()
        except grpc.RpcError as error:
            raise meaning(self._superlink.address, error) from None
        except grpc.FutureCancelledError:
            raise LinkDown(f"{self._superlink.address}: the call was cancelled") from None


def _credentials(ca: Path | None) -> grpc.ChannelCredentials | None:
    if ca is None:
        return None
    roots = load_certificates(ca)
    for root in roots:
        check_dates(root, str(ca), utc_now())
    return grpc.ssl_channel_credentials(certificates_to_pem(roots))
