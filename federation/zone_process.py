"""A zone as a process of its own: node, host and exchange put together.

The composition root of `marl-sched zone`.
"""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import grpc

from federation.client_app import make_host_app
from federation.fleet_line import SuperLinkAddress
from federation.fleet_link import FleetLink
from federation.hosted_worker import HostSettings
from federation.kernels import KernelCompiler
from federation.ready_file import READY, ReadyFile
from federation.resident_node import Pace, ResidentNode, Watch
from federation.zone_host import ZoneHost
from marl_sched import kernel_cache
from marl_sched.errors import RunError, SecurityError
from marl_sched.files import alone_in
from zones.chains import check_dates, check_pair, load_certificates, utc_now
from zones.enrolment_client import Coordinator, EnrolmentStopped, TokenRefused, enrol
from zones.exchange_client import RemoteExchange
from zones.identity import Identity, is_enrolled, load_identity, needs_token, own_key
from zones.join_folder import take_token
from zones.join_token import JoinToken
from zones.keys import PrivateKey, key_to_pem, load_key, make_private_folder, read_file
from zones.memory import give_back_freed_memory, trim
from zones.metrics_server import MetricsServer, process_registry
from zones.tls import is_loopback, split_address
from zones.zone_metrics import ZoneMetrics

_logger = logging.getLogger(__name__)

_MAX_TOKENS = 3
"""Tokens of a join folder that are tried: those of a supervisor that was killed are void."""


@dataclass(frozen=True)
class Trust:
    """How a zone and the coordinator know each other.

    Attributes:
        is_insecure: Not at all: plain text, on loopback.
        ca: File of the CAs of the coordinator.
        key: File of the zone's key; None: the one in its folder, made if need be.
        certificate: File of the zone's certificate, for the exchange.
        enrolment: HOST:PORT of the enrolment service.
        token: Lets a new zone in there.
        join_folder: Folder of the coordinator's to take a token from, once one is needed.
    """

    is_insecure: bool = False
    ca: Path | None = None
    key: Path | None = None
    certificate: Path | None = None
    enrolment: str = ""
    token: JoinToken | None = None
    join_folder: Path | None = None


@dataclass(frozen=True)
class ZoneSettings:
    """What a zone's process is started with.

    Attributes:
        superlink: HOST:PORT of the SuperLink's Fleet API; empty: as the enrolment said.
        name: The zone it is for; empty: any.
        folder: For key, certificates, states; one process at a time.
        trust: How the coordinator is known.
        learner_state: Folder for the states of all zones of this host; None: below `folder`.
        exchange_address: HOST:PORT of the exchange as seen from here; empty: as invited.
        wait_s: Longest wait for the SuperLink, and to be admitted by it.
        metrics: HOST:PORT to serve Prometheus metrics at; empty: nowhere.
    """

    superlink: str
    name: str
    folder: Path
    trust: Trust
    learner_state: Path | None = None
    exchange_address: str = ""
    wait_s: float = 300.0
    metrics: str = ""


@dataclass(frozen=True)
class _Means:
    """What the process has to connect with."""

    name: str
    superlink: SuperLinkAddress
    key: PrivateKey
    exchange: grpc.ChannelCredentials | None


class ZoneProcess:
    """A zone from its start to its end."""

    def __init__(self, settings: ZoneSettings, stop: threading.Event) -> None:
        """Prepare it.

        Args:
            settings: What it is started with.
            stop: Set to end it.
        """
        self._settings = settings
        self._stop = stop
        self._host: ZoneHost | None = None
        self._node: ResidentNode | None = None

    @property
    def is_busy(self) -> bool:
        """Whether an order is being carried out: its thread outlives `run`, for minutes maybe."""
        node, host = self._node, self._host
        return (node is not None and node.is_busy) or (host is not None and host.is_busy)

    def run(self) -> None:
        """Be a zone until told to stop.

        Raises:
            SecurityError: A key, certificate, clock or token is not as it should be.
            RunError: The SuperLink was not there or did not admit us for too long, the run does not
                want this zone, or another process uses the folder.
            OSError: The folder cannot be written.
        """
        give_back_freed_memory()
        folder = self._settings.folder
        make_private_folder(folder)
        (folder / "runs").mkdir(exist_ok=True)
        with alone_in(folder / "runs"):
            try:
                means = _means(self._settings, self._stop)
            except EnrolmentStopped:
                return
            compiler = KernelCompiler()
            ready = ReadyFile(folder / READY, lambda: self._label)
            try:
                self._serve(means, compiler, ready)
            finally:
                ready.remove()
                compiler.stop()

    @property
    def place(self) -> dict[str, str]:
        """What log lines of this process are about."""
        zone = "" if self._host is None else self._host.zone
        return {"zone": zone} if zone else {}

    @property
    def _label(self) -> str:
        return "a zone" if self._host is None else self._host.label

    def _serve(self, means: "_Means", compiler: KernelCompiler, ready: ReadyFile) -> None:
        settings = self._settings
        link = FleetLink(means.superlink, means.key, self._stop)
        self._host = host = ZoneHost(
            HostSettings(
                name=means.name,
                folder=settings.folder,
                connect=lambda zone: RemoteExchange(zone, means.exchange),
                compile_kernels=compiler.compile,
                learner_state=settings.learner_state,
                exchange_address=settings.exchange_address,
                is_secure=means.exchange is not None,
            )
        )
        registry = process_registry()
        metrics = ZoneMetrics(registry)

        def tell(state: str, node_id: int) -> None:
            metrics.note_link(state != "connecting")
            ready.tell(state, node_id)

        watch = Watch(lambda: self._label, tell, lambda: _after_reply(host))
        app = make_host_app(lambda context: host, observer=metrics)
        pace = Pace(wait_s=settings.wait_s)
        self._node = ResidentNode(link, app, self._stop, watch, pace, ready.left_node)
        with MetricsServer(settings.metrics, registry) if settings.metrics else nullcontext():
            self._node.run()


@contextmanager
def stopping_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT set; a second one ends the process at once."""
    stop = threading.Event()

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _after_reply(host: ZoneHost) -> None:
    if not host.is_busy:
        kernel_cache.drop_intermediate_code()
        trim()
    if host.failure:
        raise RunError(host.failure)


def _means(settings: ZoneSettings, stop: threading.Event) -> _Means:
    """Find key, CAs and credentials, and check them before anybody is called."""
    trust, folder = settings.trust, settings.folder
    if trust.is_insecure:
        host, _ = split_address(settings.superlink)
        if not is_loopback(host):
            raise SecurityError(
                f"{settings.superlink}: --insecure is refused beyond this host, expected a "
                "loopback address, or --ca, or a join token"
            )
        link = SuperLinkAddress(settings.superlink, None)
        return _Means(settings.name, link, own_key(folder), None)
    if trust.enrolment or (trust.ca is None and is_enrolled(folder)):
        return _enrolled(settings, stop)
    if trust.ca is None:
        raise SecurityError(
            f"{folder}: not enrolled, expected --insecure on loopback, --ca, or --join-token or "
            "--join-folder with --enrol"
        )
    split_address(settings.superlink)
    key = own_key(folder) if trust.key is None else load_key(trust.key, is_node_key=True)
    superlink = SuperLinkAddress(settings.superlink, trust.ca)
    return _Means(
        settings.name, superlink, key, brought_credentials(trust.ca, key, trust.certificate)
    )


def _enrolled(settings: ZoneSettings, stop: threading.Event) -> _Means:
    folder = settings.folder
    identity = _enrol(settings, stop) if settings.trust.enrolment else load_identity(folder)
    if identity.zone and settings.name not in ("", identity.zone):
        raise SecurityError(f"{folder}: enrolled as {identity.zone}, not as {settings.name}")
    address = settings.superlink or identity.fleet_address
    return _Means(
        name=identity.zone or settings.name,
        superlink=SuperLinkAddress(address, identity.ca_path),
        key=load_key(identity.key_path, is_node_key=True),
        exchange=identity.credentials(),
    )


def _enrol(settings: ZoneSettings, stop: threading.Event) -> Identity:
    """Enrol, or renew; a token of the join folder is taken where one is needed."""
    trust, folder = settings.trust, settings.folder
    coordinator = Coordinator(trust.enrolment, trust.ca, settings.wait_s, stop)
    if trust.join_folder is None or not needs_token(folder):
        return enrol(coordinator, folder, settings.name, trust.token)
    for number in range(1, _MAX_TOKENS + 1):
        token = take_token(trust.join_folder, settings.wait_s, stop)
        try:
            return enrol(coordinator, folder, settings.name, token)
        except TokenRefused as error:
            if number == _MAX_TOKENS:
                raise
            _logger.warning("%s; taking another", error)
    raise AssertionError


def brought_credentials(
    ca: Path, key: PrivateKey, certificate: Path | None
) -> grpc.ChannelCredentials:
    """Return the credentials for the exchange from files that were brought.

    Raises:
        SecurityError: They cannot be read, are not valid now, or do not belong together.
    """
    load_certificates(ca)
    roots = read_file(ca, "certificates in PEM")
    if certificate is None:
        return grpc.ssl_channel_credentials(roots)
    found = load_certificates(certificate)
    check_pair(found[0], key, str(certificate), "the zone's key")
    check_dates(found[0], str(certificate), utc_now())
    chain = read_file(certificate, "certificates in PEM")
    return grpc.ssl_channel_credentials(roots, key_to_pem(key), chain)
