"""A revoked key, of a zone or free, against a real SuperLink: put out while all others go on."""

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from superlink import SuperLink, Tls, free_ports, running, wait_for
from tiny import tiny, zone

from federation.admission import Admission
from federation.control import Control
from federation.fleet_errors import NodeUnknown, NotAdmitted
from federation.fleet_line import SuperLinkAddress
from federation.fleet_link import FleetLink
from federation.flower_private import ListNodesRequest
from federation.join_tokens import JoinTokens
from federation.programs import DeploymentSettings, Ports, Programs
from federation.zone_keys import ZoneKeys
from marl_sched.errors import SecurityError
from zones.enrolment_client import Coordinator, enrol
from zones.identity import load_identity
from zones.join_token import JoinToken
from zones.keys import fingerprint, load_key, public_to_pem

pytestmark = pytest.mark.network


@dataclass
class Deployed:
    """A SuperLink, and the admission beside it."""

    folder: Path
    stack: ExitStack
    admission: Admission
    superlink: SuperLink
    enrolment: str
    keys: ZoneKeys
    controls: list[Control] = field(default_factory=list)

    @property
    def ca(self) -> Path:
        return self.folder / "pki" / "ca.pem"

    def connect(self) -> None:
        """Do what the supervisor does once the SuperLink answers."""
        control = self.stack.enter_context(closing(Control(self.superlink.http, self.ca)))
        self.controls.append(control)
        self.admission.use(control)

    def restart_superlink(self, forgets: bool) -> None:
        """Kill the SuperLink; it comes back with or without its database."""
        self.admission.pause()
        self.superlink.kill()
        if forgets:
            for path in self.folder.glob("superlink.db*"):
                path.unlink()
        self.superlink.start()
        self.connect()

    def come(self, name: str, zone_name: str = "") -> FleetLink:
        """Enrol, with a token the first time, and return the node's link."""
        tokens = JoinTokens(self.folder / "pki")
        ca_fingerprint = self.admission._authority.files.load().ca_fingerprint
        token = JoinToken(tokens.create(zone_name, 60), ca_fingerprint)
        identity = enrol(
            Coordinator(self.enrolment, timeout_s=20.0), self.folder / name, token=token
        )
        key = load_key(identity.key_path, is_node_key=True)
        link = FleetLink(SuperLinkAddress(self.superlink.fleet, self.ca), key, threading.Event())
        self.stack.callback(link.close)
        return link

    def listed(self) -> dict[bytes, str]:
        """Return what Flower calls every node, put out or not, by key."""
        with closing(self.superlink.control()) as control:
            nodes = control.ListNodes(ListNodesRequest()).nodes_info
        return {node.public_key: node.name for node in nodes}

    def label_of(self, name: str) -> str:
        key = load_key(self.folder / name / "node_key", is_node_key=True)
        return fingerprint(key.public_key()).hex()[:8]


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    settings = DeploymentSettings(tiny(zone("a"), zone("b")), tmp_path).secured(tmp_path / "pki")
    ports = Ports(*free_ports(4))
    with ExitStack() as stack:
        admission = Admission(settings, ports, Programs(settings, ports))
        stack.callback(admission.close)
        pki = tmp_path / "pki"
        tls = Tls(pki / "ca.pem", pki / "server.pem", pki / "server.key")
        superlink = stack.enter_context(running(SuperLink(tmp_path, tls)))
        enrolment = f"127.0.0.1:{ports.enrolment}"
        found = Deployed(tmp_path, stack, admission, superlink, enrolment, ZoneKeys(pki))
        found.connect()
        yield found


def is_unknown(link: FleetLink) -> bool:
    try:
        link.heartbeat()
    except NodeUnknown:
        return True
    return False


def require_out(link: FleetLink) -> None:
    with pytest.raises(NotAdmitted, match="not registered with the SuperLink, or was revoked"):
        link.activate()


@pytest.mark.parametrize("zone_name", ["a", ""])
def test_revoked_key_is_put_out_for_good_and_the_others_stay(
    zone_name: str, deployed: Deployed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bad, good = deployed.come("bad", zone_name), deployed.come("good", "b")
    bad.activate()
    node_id = good.activate()
    bad.heartbeat()
    label = deployed.label_of("bad")
    deployed.keys.revoke(zone_name or label)
    wait_for(lambda: is_unknown(bad), "the SuperLink forgets the key", 10.0)
    assert f"key {label} was revoked: its node is put out" in caplog.text
    require_out(bad)
    good.heartbeat()
    with pytest.raises(SecurityError, match="its key was revoked by the coordinator"):
        deployed.come("bad", zone_name)
    for forgets in (False, True):
        deployed.restart_superlink(forgets)
        require_out(bad)
        assert is_unknown(bad)
    assert good.activate() != node_id  # of a new database
    assert deployed.come("new", zone_name).activate()


def test_key_revoked_while_the_superlink_is_away_is_put_out_when_it_is_back(
    deployed: Deployed,
) -> None:
    link = deployed.come("bad")
    link.activate()
    deployed.admission.pause()
    deployed.superlink.kill()
    deployed.keys.revoke(deployed.label_of("bad"))
    deployed.superlink.start()
    deployed.connect()
    assert is_unknown(link)
    require_out(link)


def test_key_revoked_while_it_is_let_in_is_put_out_all_the_same(deployed: Deployed) -> None:
    """Enrolment has found it good, and tells Flower of it once it has been revoked."""
    link = deployed.come("bad")
    key = load_key(deployed.folder / "bad" / "node_key", is_node_key=True).public_key()
    control = deployed.controls[-1]
    deployed.keys.revoke(deployed.label_of("bad"))
    wait_for(lambda: public_to_pem(key) not in control.nodes().values(), "it is put out", 10.0)
    deployed.restart_superlink(forgets=True)
    wait_for(lambda: deployed.admission._forgotten, "it was looked for", 10.0)
    assert public_to_pem(key) not in deployed.listed()
    deployed.admission._register(public_to_pem(key), "")
    assert public_to_pem(key) in deployed.listed()
    control = deployed.controls[-1]
    wait_for(lambda: public_to_pem(key) not in control.nodes().values(), "it is put out", 10.0)
    require_out(link)


def test_supervisor_that_is_started_again_knows_who_was_put_out(deployed: Deployed) -> None:
    link = deployed.come("bad", "a")
    link.activate()
    deployed.keys.revoke("a")
    deployed.admission.close()
    settings = DeploymentSettings(tiny(zone("a"), zone("b")), deployed.folder)
    settings = settings.secured(deployed.folder / "pki")
    ports = Ports(*free_ports(4))
    deployed.admission = Admission(settings, ports, Programs(settings, ports))
    deployed.stack.callback(deployed.admission.close)
    deployed.connect()
    assert is_unknown(link)
    require_out(link)


def test_flower_calls_nodes_by_their_zone_or_by_their_free_key(deployed: Deployed) -> None:
    for name, zone_name in (("x", "b"), ("y", "")):
        deployed.come(name, zone_name)
        assert load_identity(deployed.folder / name).zone == zone_name
    expected = ["b", f"free {deployed.label_of('y')}"]
    assert sorted(deployed.listed().values()) == expected
    deployed.restart_superlink(forgets=True)
    assert sorted(deployed.listed().values()) == expected
