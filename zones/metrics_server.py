"""Prometheus metrics of a process, at http://HOST:PORT/metrics."""

import threading
from types import TracebackType
from typing import Any, Self
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)

from marl_sched.errors import RunError
from zones.tls import split_address


def process_registry() -> CollectorRegistry:
    """Return a registry that holds what is known of every process: memory, CPU, open files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


class MetricsServer:
    """Serves a registry over HTTP, in a thread of its own."""

    def __init__(self, address: str, registry: CollectorRegistry) -> None:
        """Listen.

        Args:
            address: HOST:PORT.
            registry: What is served.

        Raises:
            SecurityError: The text is no address.
            RunError: It cannot be listened on.
        """
        host, port = split_address(address)
        try:
            started: Any = start_http_server(port, host, registry)
        except OSError as error:
            raise RunError(
                f"--metrics {address}: {error.strerror or error}, expected a free port of this host"
            ) from None
        self._server: WSGIServer = started[0]
        self._thread: threading.Thread = started[1]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()
