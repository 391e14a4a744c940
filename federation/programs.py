"""Command lines and environment of every process of a deployed run."""

import os
import secrets
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from federation.events import PRIVATE
from federation.processes import free_port
from federation.server_tls import ServerFiles
from federation.wanted_config import ConfigSource
from marl_sched.config import Experiment
from marl_sched.errors import SecurityError
from marl_sched.training_config import require_learners_apart
from zones.keys import write_private
from zones.tls import split_address

LOOPBACK = "127.0.0.1"
WILDCARDS = ("0.0.0.0", "::")
"""Addresses to listen at that nobody can be reached by."""
_POLL_S = "0.5"
"""Between two questions of the SuperExec, which go on while a run does."""


@dataclass(frozen=True)
class Ports:
    """Where to listen; 0: a free port.

    Attributes:
        fleet: Flower's Fleet API: weights.
        exchange: Between zones.
        enrolment: Lets new zones in.
        control: Flower's Control and Runtime APIs, on loopback.
    """

    fleet: int = 0
    exchange: int = 0
    enrolment: int = 0
    control: int = 0

    def chosen(self, host: str, is_secure: bool) -> "Ports":
        """Return the ports with free ones for 0.

        Raises:
            RunError: A port is taken, or the address is not one of this host.
        """
        enrolment = free_port(host, self.enrolment, "enrolment") if is_secure else 0
        return Ports(
            fleet=free_port(host, self.fleet, "the SuperLink's Fleet API"),
            exchange=free_port(host, self.exchange, "the exchange"),
            enrolment=enrolment,
            control=free_port(LOOPBACK, self.control, "the SuperLink's Control API"),
        )


@dataclass(frozen=True)
class DeploymentSettings:
    """What a deployment is given.

    Attributes:
        experiment: What to run.
        folder: The run's folder, which exists.
        host: Address to listen at.
        public_host: Name or address by which zones reach it; empty: `host`.
        ports: Ports to listen at.
        has_zones: Whether to start a process for every zone on this host.
        security: Folder of the CA; None: plain text, on loopback only.
        join_folder: Folder to keep join tokens in, for zones that are started alike.
        n_join_tokens: How many.
        source: Where the experiment comes from: watched for other zones. None: it is not.
    """

    experiment: Experiment
    folder: Path
    host: str = LOOPBACK
    public_host: str = ""
    ports: Ports = Ports()
    has_zones: bool = True
    security: Path | None = None
    join_folder: Path | None = None
    n_join_tokens: int = 8
    source: ConfigSource | None = None

    def __post_init__(self) -> None:
        """Check that the experiment is one for zones in processes of their own.

        Raises:
            ConfigError: It is not.
        """
        require_learners_apart(self.experiment)

    @property
    def private(self) -> Path:
        """Folder for logs, keys and the SuperLink's database."""
        return self.folder / PRIVATE

    def secured(self, folder: Path | None) -> "DeploymentSettings":
        """Return the settings with a CA's folder; None: one below the run's."""
        return replace(self, security=folder or self.private / "pki")

    @property
    def local_host(self) -> str:
        """Address by which processes on this host reach the listeners."""
        return LOOPBACK if self.host in WILDCARDS else self.host

    @property
    def zones_host(self) -> str:
        """Name or address by which zones reach the listeners."""
        return self.public_host or self.local_host


class Programs:
    """The programs of one deployment."""

    def __init__(self, settings: DeploymentSettings, ports: Ports) -> None:
        """Describe them.

        Args:
            settings: What to run, and where.
            ports: As chosen.
        """
        self._settings = settings
        self._ports = ports
        self._tls: ServerFiles | None = None
        if settings.security is not None:
            folder = settings.security
            self._tls = ServerFiles(folder / "ca.pem", folder / "server.pem", folder / "server.key")

    @property
    def ca(self) -> Path | None:
        """File of the CAs; None: plain text."""
        return None if self._tls is None else self._tls.ca

    @property
    def control_address(self) -> str:
        """HOST:PORT of the Control API."""
        return f"{LOOPBACK}:{self._ports.control}"

    def superlink(self) -> list[str]:
        """Return the command of the SuperLink."""
        settings = self._settings
        command = [
            _program("flower-superlink"),
            *("--host", LOOPBACK, "--port", str(self._ports.control)),
            *("--fleet-api-address", join_address(settings.host, self._ports.fleet)),
            *("--isolation", "process"),
            *("--superexec-auth-secret-file", str(self._secret())),
            *("--database", str(settings.private / "superlink.db")),
            "--disable-runtime-dependency-installation",
        ]
        if self._tls is None:
            return [*command, "--insecure"]
        return [
            *command,
            "--enable-supernode-auth",
            *("--ssl-ca-certfile", str(self._tls.ca)),
            *("--ssl-certfile", str(self._tls.certificate)),
            *("--ssl-keyfile", str(self._tls.key)),
        ]

    def superexec(self) -> list[str]:
        """Return the command of the SuperExec; it installs nothing unless told to."""
        trust = ["--insecure"] if self.ca is None else ["--root-certificates", str(self.ca)]
        return [
            _program("flower-superexec"),
            *("--runtime-api-address", self.control_address),
            *("--superexec-auth-secret-file", str(self._secret())),
            *trust,
        ]

    def zone(self, zone: str) -> list[str]:
        """Return the command of a zone's process on this host."""
        settings = self._settings
        host = settings.local_host
        command = [
            _program("marl-sched"),
            "zone",
            *("--superlink", join_address(host, self._ports.fleet), "--zone", zone),
            *("--state", str(self.zone_folder(zone))),
            *("--learner-state", str(settings.folder / "checkpoints" / "zones")),
            *("--exchange", join_address(host, self._ports.exchange)),
        ]
        if self._tls is None:
            return [*command, "--insecure"]
        return [
            *command,
            "--enrol",
            join_address(host, self._ports.enrolment),
            "--ca",
            str(self.ca),
        ]

    def zone_folder(self, zone: str) -> Path:
        """Return the folder of a zone's process on this host."""
        return self._settings.private / "zones" / zone

    def elsewhere(self, zone: str) -> str:
        """Return the command by which a zone is started on another host."""
        host = self._settings.zones_host
        if self._tls is None:
            address = join_address(host, self._ports.fleet)
            return f"marl-sched zone --superlink {address} --zone {zone} --insecure"
        command = f"marl-sched zone --enrol {join_address(host, self._ports.enrolment)}"
        if self._settings.join_folder is not None:
            return f"{command} --join-folder {self._settings.join_folder}"
        return f"{command} --zone {zone} --join-token TOKEN"

    def run_config(self) -> dict[str, str]:
        """Return the run configuration of the ServerApp."""
        settings = self._settings
        return {
            "run-dir": str(settings.folder.resolve()),
            "exchange-address": join_address(settings.host, self._ports.exchange),
            "exchange-public": join_address(settings.zones_host, self._ports.exchange),
            "security-dir": "" if settings.security is None else str(settings.security.resolve()),
        }

    def environment(self) -> dict[str, str]:
        """Return the environment of every process: nothing calls home, nothing is installed."""
        home = self._settings.private / "flwr"
        home.mkdir(0o700, exist_ok=True)
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        return {
            **os.environ,
            "PATH": path,
            "FLWR_HOME": str(home.resolve()),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": _POLL_S,
            "FLWR_LOG_LEVEL": "WARNING",
            "PYTHONUNBUFFERED": "1",
            **{name: _without_proxy(name) for name in ("NO_PROXY", "no_proxy")},
        }

    def _secret(self) -> Path:
        """Return the file of the secret between SuperLink and SuperExec."""
        if self._settings.security is not None:
            return self._settings.security / "superexec.secret"
        path = self._settings.private / "superexec.secret"
        if not path.exists():
            write_private(path, secrets.token_hex(32).encode())
        return path


def require_host(host: str) -> None:
    """Check an address to listen at or to be reached by.

    Raises:
        SecurityError: It cannot be one.
    """
    if not host or host != host.strip() or "/" in host:
        raise SecurityError(f"{host!r}: not a host, expected a name or an address without a port")
    split_address(join_address(host, 1))


def join_address(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets where they are needed."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _without_proxy(name: str) -> str:
    return ",".join(filter(None, (os.environ.get(name), LOOPBACK, "localhost")))


def _program(name: str) -> str:
    """Return a program that was installed with us."""
    path = Path(sys.executable).parent / name
    return str(path) if path.exists() else name
