"""A real SuperLink on loopback, and a ServerApp's side to drive nodes with, for tests."""

import contextlib
import functools
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from flwr.app import Error, Message, MessageType, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest, StopRunRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid import HttpGrid, http_grid

from federation.flower_private import claim_identity
from federation.greeting import Hello, ZoneStatus, decode_status, encode_hello
from zones.keys import PublicKey, public_to_pem

BIN = Path(sys.executable).parent
WAIT_S = 40.0
_pull_objects = http_grid.pull_objects
APP = b"""
[project]
name = "nothing"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "nobody"
[tool.flwr.app.components]
serverapp = "nothing.app:app"
clientapp = "federation.deployed:client_app"
"""


def wait_for(condition: Callable[[], object], what: str, within_s: float = WAIT_S) -> None:
    """Wait until something holds that only another process can bring about."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)


def free_ports(n: int) -> list[int]:
    """Return ports that nobody listens at."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass(frozen=True)
class Tls:
    """Certificates of a SuperLink; it admits registered keys only."""

    ca: Path
    certificate: Path
    key: Path

    def options(self) -> list[str]:
        return [
            "--ssl-ca-certfile",
            str(self.ca),
            "--ssl-certfile",
            str(self.certificate),
            "--ssl-keyfile",
            str(self.key),
            "--enable-supernode-auth",
        ]


@dataclass
class SuperLink:
    """A SuperLink's process, which may be killed and started again."""

    folder: Path
    tls: Tls | None = None
    program: Sequence[str | Path] = (BIN / "flower-superlink",)
    process: "subprocess.Popen[bytes] | None" = None
    ports: list[int] = field(default_factory=lambda: free_ports(2))

    @property
    def fleet(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.ports[1]}"

    @property
    def root(self) -> bytes | None:
        return None if self.tls is None else self.tls.ca.read_bytes()

    def start(self) -> None:
        """Start it and wait until it is healthy."""
        command = [
            *map(str, self.program),
            "--isolation=process",
            "--disable-runtime-dependency-installation",
            "--host=127.0.0.1",
            f"--port={self.ports[1]}",
            f"--fleet-api-address={self.fleet}",
            f"--database={self.folder / 'superlink.db'}",
            *(["--insecure"] if self.tls is None else self.tls.options()),
        ]
        with (self.folder / "superlink.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "FLWR_TELEMETRY_ENABLED": "0",
                    "FLWR_DISABLE_UPDATE_CHECK": "1",
                    "FLWR_HOME": str(self.folder / "flwr"),
                },
            )
        wait_for(self.is_healthy, "the SuperLink is healthy")

    def is_healthy(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "superlink.log").read_text()[-2000:]
        scheme = "http" if self.tls is None else "https"
        verify = self.tls is None or ssl.create_default_context(cafile=self.tls.ca)
        try:
            return httpx.get(f"{scheme}://{self.http}/health", verify=verify).is_success
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(WAIT_S)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def control(self) -> ControlHttpClient:
        return ControlHttpClient.from_server_address(
            server_address=self.http,
            insecure=self.tls is None,
            root_certificates=self.root,
            interceptors=[],
        )

    def register(self, key: PublicKey, name: str) -> None:
        """Let a node's key in."""
        with contextlib.closing(self.control()) as control:
            control.RegisterNode(RegisterNodeRequest(public_key=public_to_pem(key), name=name))


@contextlib.contextmanager
def running(superlink: SuperLink) -> Iterator[SuperLink]:
    try:
        superlink.start()
        yield superlink
    finally:
        superlink.stop()


class Driver:
    """What a ServerApp has: a run and its Grid."""

    def __init__(self, superlink: SuperLink) -> None:
        self.superlink = superlink
        claim_identity(0, 1)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            content, _ = build_fab_from_files({"pyproject.toml": APP, "nothing/app.py": b"app = 0"})
        fab = Fab(hash_str=_hash(content), content=content, verifications={})
        root = superlink.root
        with contextlib.closing(superlink.control()) as control:
            self.run_id = control.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id
        with contextlib.closing(
            RuntimeHttpClient.from_server_address(
                server_address=superlink.http,
                insecure=root is None,
                root_certificates=root,
                interceptors=[],
                retry_invoker=make_simple_http_retry_invoker(),
            )
        ) as runtime:
            request = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
            token = runtime.AcquireTask(request).token
        # As it stands, it waits a second when a reply is still being sent.
        http_grid.pull_objects = functools.partial(_pull_objects, initial_backoff=0.02)
        self.grid = HttpGrid(superlink.http, root is None, root, token=token)
        client = self.grid._runtime_client
        task = client.PullTaskInput(PullTaskInputRequest())
        claim_identity(task.run.run_id, task.context.node_id)
        self.grid.set_run(run_from_proto(task.run))
        self._heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
        self._heart.start()

    def close(self) -> None:
        if self._heart.is_running:
            self._heart.stop()
        self.grid._disconnect()

    def stop_run(self) -> None:
        self._heart.stop()
        with contextlib.closing(self.superlink.control()) as control:
            control.StopRun(StopRunRequest(run_id=self.run_id))

    def wait_for_nodes(self, n: int, within_s: float = WAIT_S) -> list[int]:
        wait_for(lambda: len(self.nodes()) == n, f"{n} nodes are online", within_s)
        return self.nodes()

    def nodes(self) -> list[int]:
        return sorted(self.grid.get_node_ids())

    def push(
        self, node_id: int, content: RecordDict, kind: str = MessageType.TRAIN, ttl: float = 60.0
    ) -> str:
        (message_id,) = self.grid.push_messages([Message(content, node_id, kind, ttl=ttl)])
        assert message_id
        return message_id

    def pull(self, message_id: str, within_s: float = WAIT_S) -> Message:
        found: list[Message] = []

        def is_there() -> bool:
            found.extend(self.grid.pull_messages([message_id]))
            return bool(found)

        wait_for(is_there, "a reply", within_s)
        return found[0]

    def ask(
        self, node_id: int, content: RecordDict, kind: str = MessageType.TRAIN, s: float = WAIT_S
    ) -> Message:
        return self.pull(self.push(node_id, content, kind), s)

    def greet(self, node_id: int, hello: Hello, within_s: float = WAIT_S) -> ZoneStatus:
        reply = self.ask(node_id, encode_hello(hello), MessageType.QUERY, within_s)
        assert not reply.has_error(), reply.error
        return decode_status(reply.content)

    def greet_until_ready(self, node_id: int, hello: Hello, within_s: float = WAIT_S) -> ZoneStatus:
        last: list[ZoneStatus] = []

        def is_ready() -> bool:
            last.append(self.greet(node_id, hello, within_s))
            assert not last[-1].problem
            return last[-1].is_ready

        wait_for(is_ready, "the zone is ready", within_s)
        return last[-1]


@contextlib.contextmanager
def driving(superlink: SuperLink) -> Iterator[Driver]:
    driver = Driver(superlink)
    try:
        yield driver
    finally:
        driver.close()


def error_of(reply: Message) -> Error:
    assert reply.has_error(), reply
    return reply.error


@contextlib.contextmanager
def processes() -> Iterator["Callable[..., subprocess.Popen[bytes]]"]:
    """Start processes that are all gone at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str | Path, log: Path, **environment: str) -> "subprocess.Popen[bytes]":
        with log.open("ab") as file:
            process = subprocess.Popen(
                [*map(str, command)],
                stdout=file,
                stderr=file,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10.0)
            process.kill()
            process.wait(WAIT_S)


def _hash(content: bytes) -> str:
    from hashlib import sha256

    return sha256(content).hexdigest()
