"""A zone on Flower's own `flower-supernode`, which starts a process for every message.

What the zone is and what it has learned is on disk between messages: the slow way, with nothing
but Flower's public API.

    flower-supernode --node-config 'zone="zone_a" state-dir="/var/lib/zone_a"' ...
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grpc
from flwr.app import Context

from federation.client_app import make_host_app
from federation.hosted_worker import HostSettings
from federation.kernels import KernelCompiler
from federation.zone_host import ZoneHost
from federation.zone_process import brought_credentials
from marl_sched.errors import ConfigError
from marl_sched.files import alone_in
from zones.exchange_client import RemoteExchange
from zones.identity import is_enrolled, load_identity
from zones.keys import load_key, make_private_folder

_held = ExitStack()
"""The zone's folder, until the process ends."""


@dataclass(frozen=True)
class StockSettings:
    """The node's configuration, `--node-config`; else the environment, MARL_SCHED_STATE_DIR etc.

    Attributes:
        state_dir: The zone's folder.
        zone: The zone it is for; empty: any.
        ca: File of the CAs of the coordinator; empty: as enrolled, or plain text on loopback.
        key: File of the zone's key.
        certificate: File of the zone's certificate.
        exchange: HOST:PORT of the exchange as seen from here; empty: as invited.
    """

    state_dir: str
    zone: str = ""
    ca: str = ""
    key: str = ""
    certificate: str = ""
    exchange: str = ""

    @classmethod
    def of(cls, node_config: Mapping[str, object]) -> "StockSettings":
        """Read them.

        Raises:
            ConfigError: There is no state-dir.
        """

        def value(name: str) -> str:
            variable = f"MARL_SCHED_{name.upper().replace('-', '_')}"
            return str(node_config.get(name) or os.environ.get(variable, ""))

        if not value("state-dir"):
            raise ConfigError("no state-dir, expected --node-config 'state-dir=\"FOLDER\"'")
        names = ("state-dir", "zone", "ca", "key", "certificate", "exchange")
        return cls(*(value(name) for name in names))


def _host_of(context: Context) -> ZoneHost:
    return _host(StockSettings.of(context.node_config))


@cache
def _host(settings: StockSettings) -> ZoneHost:
    """Return what this node hosts; its folder is ours until the process ends."""
    folder = Path(settings.state_dir).expanduser()
    make_private_folder(folder)
    (folder / "runs").mkdir(exist_ok=True)
    _held.enter_context(alone_in(folder / "runs"))
    credentials = _credentials(settings, folder)
    return ZoneHost(
        HostSettings(
            name=settings.zone,
            folder=folder,
            connect=lambda zone: RemoteExchange(zone, credentials),
            compile_kernels=KernelCompiler().compile,
            exchange_address=settings.exchange,
            is_secure=credentials is not None,
        ),
        is_resident=False,
    )


def _credentials(settings: StockSettings, folder: Path) -> grpc.ChannelCredentials | None:
    if settings.ca:
        key = load_key(Path(settings.key or folder / "node_key"), is_node_key=True)
        certificate = Path(settings.certificate) if settings.certificate else None
        return brought_credentials(Path(settings.ca), key, certificate)
    return load_identity(folder).credentials() if is_enrolled(folder) else None


client_app = make_host_app(_host_of)
