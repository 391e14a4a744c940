"""Who is let into a secured deployment: enrolment beside the supervisor, and keys for Flower.

The SuperLink forgets keys with its database, so those of the CA's folder are told to it whenever it
has started.
"""

import logging

from federation.certificates import Authority, make_authority
from federation.control import Control
from federation.enrolment import Enrolment, EnrolmentServer, Offer
from federation.fleet_errors import LinkDown
from federation.join_tokens import JoinTokens
from federation.programs import DeploymentSettings, Ports, Programs
from federation.zone_keys import ZoneKeys
from marl_sched.errors import RunError
from zones.identity import is_enrolled
from zones.join_token import JoinToken
from zones.keys import public_to_pem

_logger = logging.getLogger(__name__)

_TOKEN_MINUTES = 10


class Admission:
    """The CA's folder, the enrolment service, and what Flower is told."""

    def __init__(self, settings: DeploymentSettings, ports: Ports, programs: Programs) -> None:
        """Open the CA's folder, made if it does not exist, and listen.

        Raises:
            SecurityError: The folder is not usable, for another host, or the port is taken.
            ValueError: The deployment is not secured.
        """
        if settings.security is None:
            raise ValueError("a deployment without a CA")
        self._programs = programs
        self._control: Control | None = None
        self._authority: Authority = make_authority(
            settings.security, sorted({settings.zones_host, settings.local_host})
        )
        self._keys = ZoneKeys(self._authority.folder)
        files = self._authority.files
        offer = Offer(
            settings.experiment.zone_names,
            f"{settings.zones_host}:{ports.fleet}",
            f"{settings.zones_host}:{ports.exchange}",
        )
        service = Enrolment(self._authority, files, offer, self._register)
        address = f"{settings.host}:{ports.enrolment}"
        self._server = EnrolmentServer(service, files, address)

    def use(self, control: Control) -> None:
        """Tell a SuperLink that has just started every key that is in.

        Raises:
            LinkDown: It does not answer.
        """
        self._control = control
        for known in self._keys.all():
            control.register(public_to_pem(known.public_key), known.zone)

    def pause(self) -> None:
        """Note that there is no SuperLink now: new zones are told to try again."""
        self._control = None

    def environment(self, zone: str) -> dict[str, str]:
        """Return what a zone's process on this host needs in its environment: a join token."""
        if is_enrolled(self._programs.zone_folder(zone)):
            return {}
        secret = JoinTokens(self._authority.folder).create(zone, _TOKEN_MINUTES)
        token = JoinToken(secret, self._authority.files.load().ca_fingerprint)
        return {"MARL_SCHED_JOIN_TOKEN": token.text()}

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def _register(self, public_key: bytes, zone: str) -> None:
        """Make a new key known to Flower; from a thread of the enrolment service."""
        control = self._control
        if control is None:
            raise LinkDown("the SuperLink is not up")
        try:
            control.register(public_key, zone)
        except RunError as error:
            _logger.error("%s: Flower does not take its key: %s", zone, error)
            raise
