"""Listens, serves, and ends when it is told to."""

import asyncio
import contextlib
import errno
import socket
from types import FrameType

import uvicorn

from dashboard.app import Settings, make_app
from marl_sched.errors import RunError

_BACKLOG = 64
_MOST_CONNECTIONS = 256
_END_S = 3
_STALLED_MS = 30_000
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        RunError: The port is taken, or the address is not one of this host.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"--host {host}: not an address of this host: {reason}") from None
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # The kernel drops a peer that has stopped reading, with what was written for it.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED_MS)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise RunError(
                f"port {port} of {host} is taken by another program; give another: --port PORT, "
                "0 for a free one"
            ) from None
        raise RunError(f"cannot listen at {host}, port {port}: {error.strerror}") from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address of a listening socket as a browser takes it."""
    host, port = listener.getsockname()[:2]
    host = _WILDCARDS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Serves a dashboard; when it ends it sends the watchers home, or it would wait for them."""

    def __init__(self, settings: Settings) -> None:
        """Make the application; `run(sockets=[listener])` serves it."""
        self._app = make_app(settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(
            uvicorn.Config(
                self._app,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="none",
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_graceful_shutdown=_END_S,
            )
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End as uvicorn does, and send the watchers home."""
        super().handle_exit(sig, frame)
        self.stop()

    def stop(self) -> None:
        """End soon; from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._app.state.watchers.close)


def serve(settings: Settings, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM."""
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises again what has ended it
        Server(settings).run(sockets=[listener])
