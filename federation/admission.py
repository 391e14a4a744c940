"""Who is let into a secured deployment: enrolment beside the supervisor, and keys for Flower.

The SuperLink forgets keys with its database, so those of the CA's folder are told to it whenever it
has started. A thread looks after what changes meanwhile: keys that are revoked by hand, and the
tokens of the join folder.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from federation.certificates import Authority, make_authority
from federation.control import Control
from federation.enrolment import Enrolment, EnrolmentServer, Offer
from federation.fleet_errors import LinkDown
from federation.join_folder import JoinFolder
from federation.join_tokens import JoinTokens
from federation.programs import DeploymentSettings, Ports, Programs, join_address
from federation.zone_keys import ZoneKeys
from marl_sched.errors import MarlSchedError, RunError
from zones.identity import needs_token
from zones.join_token import JoinToken
from zones.keys import PublicKey, fingerprint, public_to_pem

_logger = logging.getLogger(__name__)

_TOKEN_MINUTES = 10
_LOOK_S = 1.0
_END_S = 10.0


def open_pki(settings: DeploymentSettings) -> Authority:
    """Open the CA's folder of a secured deployment; it is made if it does not exist.

    Raises:
        SecurityError: The folder is not usable, or its certificate is for another host.
        ValueError: The deployment is not secured.
    """
    if settings.security is None:
        raise ValueError("a deployment without a CA")
    return make_authority(settings.security, sorted({settings.zones_host, settings.local_host}))


class Admission:
    """The CA's folder, the enrolment service, and what Flower is told."""

    def __init__(self, settings: DeploymentSettings, ports: Ports, programs: Programs) -> None:
        """Open the CA's folder, made if it does not exist, and listen.

        Raises:
            SecurityError: A folder is not usable, for another host, or the port is taken.
            RunError: The join folder is another supervisor's.
            OSError: A folder cannot be written.
            ValueError: The deployment is not secured.
        """
        self._programs = programs
        self._control: Control | None = None
        self._authority = open_pki(settings)
        self._keys = ZoneKeys(self._authority.folder)
        self._tokens = JoinTokens(self._authority.folder)
        self._tokens.void_shared()  # a supervisor that was killed has left them
        self._join_folder = self._open_join_folder(settings)
        self._forgotten: frozenset[str] = frozenset()
        """Revoked keys that the SuperLink does not know any more."""
        self._forgetting = threading.RLock()
        files = self._authority.files
        offer = Offer(
            settings.experiment.zone_names,
            join_address(settings.zones_host, ports.fleet),
            join_address(settings.zones_host, ports.exchange),
        )
        self._service = service = Enrolment(self._authority, files, offer, self._register)
        address = join_address(settings.host, ports.enrolment)
        try:
            self._server = EnrolmentServer(service, files, address)
        except BaseException:
            self._close_join_folder()
            raise
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="admission", daemon=True)
        self._thread.start()

    def use(self, control: Control) -> None:
        """Tell a SuperLink that has just started which keys are in, and which are not any more.

        Raises:
            LinkDown: It does not answer.
            RunError: It refuses a key.
        """
        with self._forgetting:
            self._forgotten = frozenset()
            self._control = control
            for known in self._keys.all():
                control.register(
                    public_to_pem(known.public_key), _node_name(known.zone, known.fingerprint)
                )
            self._forget_revoked()

    def use_zones(self, zone_names: Sequence[str]) -> None:
        """Let in the zones of another configuration from now on."""
        self._service.use_zones(zone_names)

    def pause(self) -> None:
        """Note that there is no SuperLink now: new zones are told to try again."""
        self._control = None

    def environment(self, zone: str) -> dict[str, str]:
        """Return what a zone's process on this host needs in its environment: a join token."""
        if not needs_token(self._programs.zone_folder(zone)):
            return {}
        secret = self._tokens.create(zone, _TOKEN_MINUTES)
        token = JoinToken(secret, self._authority.files.load().ca_fingerprint)
        return {"MARL_SCHED_JOIN_TOKEN": token.text()}

    def close(self) -> None:
        """Stop listening, and make void what lies in the join folder."""
        self._end.set()
        self._server.close()
        self._thread.join(_END_S)
        self._close_join_folder()

    def _open_join_folder(self, settings: DeploymentSettings) -> JoinFolder | None:
        if settings.join_folder is None:
            return None
        ca_fingerprint = self._authority.files.load().ca_fingerprint
        return JoinFolder(
            settings.join_folder, self._tokens, ca_fingerprint, settings.n_join_tokens
        )

    def _close_join_folder(self) -> None:
        if self._join_folder is not None:
            self._join_folder.close()

    def _look_after(self) -> None:
        """Do what is due until told to end; a failure is said once and tried again."""
        said: set[str] = set()
        while True:
            self._attempt(self._forget_revoked, said)
            if self._join_folder is not None:
                self._attempt(self._join_folder.keep, said)
            if self._end.wait(_LOOK_S):
                return

    def _attempt(self, step: Callable[[], None], said: set[str]) -> None:
        try:
            step()
        except LinkDown:
            pass  # it is told when it is back
        except (MarlSchedError, OSError, RuntimeError) as error:  # RuntimeError: a closed client
            if self._control is not None and str(error) not in said:
                said.add(str(error))
                _logger.error("%s (tried again)", error)

    def _forget_revoked(self) -> None:
        """Have the SuperLink forget keys that were revoked."""
        with self._forgetting:
            control, revoked = self._control, self._keys.revoked()
            if control is None or revoked <= self._forgotten:
                return
            for node_id, public_key in control.nodes().items():
                name = _fingerprint(public_key)
                if name in revoked:
                    control.forget(node_id)
                    _logger.warning("key %s was revoked: its node is put out", name[:8])
            self._forgotten = revoked

    def _register(self, public_key: bytes, zone: str) -> None:
        """Make a new key known to Flower; from a thread of the enrolment service."""
        control = self._control
        if control is None:
            raise LinkDown("the SuperLink is not up")
        name = _fingerprint(public_key)
        try:
            control.register(public_key, _node_name(zone, name))
        except RunError as error:
            _logger.error("%s: Flower does not take its key: %s", zone or "any zone", error)
            raise
        if name in self._keys.revoked():  # in the meantime: it is looked at again
            with self._forgetting:
                self._forgotten -= {name}


def _fingerprint(public_key: bytes) -> str:
    """Return the fingerprint of a key in PEM; empty: it is none of ours."""
    try:
        key = serialization.load_pem_public_key(public_key)
    except (ValueError, UnsupportedAlgorithm):
        return ""
    return fingerprint(key).hex() if isinstance(key, PublicKey) else ""


def _node_name(zone: str, name: str) -> str:
    """Return what Flower calls the node of a key."""
    return zone or f"free {name[:8]}"
