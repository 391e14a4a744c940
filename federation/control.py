"""The SuperLink's Control API, as the supervisor uses it: in process, on loopback only.

It knows no authentication: whoever reaches it may do all that is here.
"""

import contextlib
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from federation.fleet_errors import LinkDown
from federation.flower_private import (
    ControlHttpClient,
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StopRunRequest,
    UnregisterNodeRequest,
    start_request,
)
from marl_sched.errors import RunError

_HEALTH_S = 2.0
_PYPROJECT = """\
[project]
name = "marl-sched"
version = "1"
description = "A run of marl-sched."
license = "Apache-2.0"

[tool.flwr.app]
publisher = "marl-sched"

[tool.flwr.app.components]
serverapp = "federation.deployed:server_app"
clientapp = "federation.deployed:client_app"

[tool.flwr.app.config]
config = ""
run-dir = ""
exchange-address = ""
exchange-public = ""
security-dir = ""
"""
_KNOWN = ("in use", "already")


@dataclass(frozen=True)
class RunState:
    """What the SuperLink knows of a run.

    Attributes:
        status: pending, starting, running or finished.
        outcome: completed, failed or stopped; empty before its end.
        details: Why it failed.
        bytes_sent: From zones to the ServerApp, by the SuperLink's record.
        bytes_received: The other way.
    """

    status: str
    outcome: str
    details: str
    bytes_sent: int
    bytes_received: int

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.status == "finished"


class Control:
    """Calls to one SuperLink."""

    def __init__(self, address: str, ca: Path | None) -> None:
        """Prepare the calls.

        Args:
            address: HOST:PORT on loopback.
            ca: File of the CAs that sign its certificate; None: plain text.
        """
        self._address = address
        self._ca = ca
        self._client = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=ca is None,
            root_certificates=None if ca is None else ca.read_bytes(),
            interceptors=[],
        )

    def is_healthy(self) -> bool:
        """Return whether the SuperLink answers."""
        context = None if self._ca is None else ssl.create_default_context(cafile=str(self._ca))
        scheme = "http" if context is None else "https"
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(f"{scheme}://{self._address}/health", timeout=_HEALTH_S) as reply:
                return bool(reply.status == httpx.codes.OK)
        except (OSError, urllib.error.URLError):
            return False

    def register(self, public_key: bytes, name: str) -> None:
        """Make a node's key known; knowing it already is no failure.

        Args:
            public_key: PEM.
            name: What Flower calls it.

        Raises:
            RunError: The SuperLink refuses it.
            LinkDown: No answer.
        """
        request = RegisterNodeRequest(public_key=public_key, name=name)
        try:
            self._call("RegisterNode", request)
        except RunError as error:
            if not any(word in str(error).lower() for word in _KNOWN):
                raise

    def nodes(self) -> dict[int, bytes]:
        """Return the public key (PEM) of every node that is known, by the node's id.

        Raises:
            RunError: The SuperLink refuses to say.
            LinkDown: No answer.
        """
        reply = self._call("ListNodes", ListNodesRequest())
        known = [node for node in reply.nodes_info if not node.HasField("unregistered_at")]
        return {int(node.node_id): bytes(node.public_key) for node in known}

    def forget(self, node_id: int) -> None:
        """Put a node out: it is refused from now on, and its key for good.

        Raises:
            RunError: The SuperLink does not know it.
            LinkDown: No answer.
        """
        self._call("UnregisterNode", UnregisterNodeRequest(node_id=node_id))

    def start(self, run_config: dict[str, str]) -> int:
        """Start a run of our apps and return its id.

        Raises:
            RunError: The SuperLink refuses it.
            LinkDown: No answer.
        """
        reply = self._call("StartRun", start_request(_PYPROJECT, run_config))
        if not reply.HasField("run_id"):
            raise RunError(f"{self._address}: the SuperLink did not start the run")
        return int(reply.run_id)

    def state(self, run_id: int) -> RunState | None:
        """Return what is known of a run; None: it is not known.

        Raises:
            LinkDown: No answer.
        """
        try:
            reply = self._call("ListRuns", ListRunsRequest(run_id=run_id))
        except RunError:
            return None
        if run_id not in reply.run_dict:
            return None
        run = reply.run_dict[run_id]
        status = run.status
        return RunState(
            status.status, status.sub_status, status.details, run.bytes_sent, run.bytes_recv
        )

    def unfinished(self) -> list[int]:
        """Return the ids of all runs that have not ended.

        Raises:
            LinkDown: No answer.
        """
        reply = self._call("ListRuns", ListRunsRequest())
        return [i for i, run in reply.run_dict.items() if run.status.status != "finished"]

    def stop(self, run_id: int) -> None:
        """End a run, if it has not ended.

        Raises:
            LinkDown: No answer.
        """
        with contextlib.suppress(RunError):
            self._call("StopRun", StopRunRequest(run_id=run_id))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _call(self, name: str, request: Any) -> Any:
        try:
            return getattr(self._client, name)(request)
        except httpx.HTTPStatusError as error:
            text = " ".join(error.response.text.split())
            raise RunError(f"{self._address}: {name}: {text}") from None
        except httpx.HTTPError as error:
            raise LinkDown(f"{self._address}: {name}: {error or type(error).__name__}") from None
