"""The exchange under mutual TLS: a zone is who its certificate says, and nobody else comes in."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from outboxes import NAMES, three_zones

from federation.certificates import Authority, make_authority
from federation.exchange_hub import ExchangeHub
from federation.zone_keys import ZoneKeys
from marl_sched.errors import ExchangeError
from zones.chains import certificates_to_pem
from zones.exchange_client import RemoteExchange
from zones.keys import PrivateKey, key_to_pem, new_key

pytestmark = pytest.mark.network


@dataclass
class Secured:
    authority: Authority
    keys: ZoneKeys
    hub: ExchangeHub
    owned: dict[str, PrivateKey]

    def credentials(self, zone: str, key: PrivateKey | None = None) -> grpc.ChannelCredentials:
        """A zone's credentials, or with another key those of whoever the CA has signed."""
        key = key or self.owned[zone]
        certificate = self.authority.sign_zone(zone, key.public_key())
        pem = certificates_to_pem((certificate,))
        return grpc.ssl_channel_credentials(self.authority.roots(), key_to_pem(key), pem)

    def join(self, zone: str, as_zone: str, credentials: grpc.ChannelCredentials | None) -> None:
        """Come with the invitation of `as_zone`."""
        invitation = self.hub.open(NAMES, 1, 1)[as_zone]
        exchange = RemoteExchange(as_zone, credentials, connect_s=5.0)
        try:
            exchange.join(invitation, 1, 1, NAMES)
        finally:
            exchange.leave()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    authority = make_authority(tmp_path / "pki")
    keys = ZoneKeys(authority.folder)
    owned = {zone: new_key() for zone in NAMES}
    for zone, key in owned.items():
        keys.assign(key.public_key(), zone, NAMES)
    with ExchangeHub(
        three_zones(),
        "127.0.0.1:0",
        authority.files.load().credentials(client_ca=authority.roots()),
        zone_of=keys.zone_of_certificate,
    ) as hub:
        yield Secured(authority, keys, hub, owned)


def test_zone_with_its_own_certificate_is_let_in(secured: Secured) -> None:
    secured.join("a", "a", secured.credentials("a"))
    assert secured.hub.lost() == {}


def test_zone_with_the_token_of_another_is_refused_and_the_other_unharmed(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ExchangeError, match="refused: not invited"):
        secured.join("a", "b", secured.credentials("a"))
    assert "the certificate of a comes as 'b'" in caplog.text
    assert secured.hub.lost() == {}


def test_key_that_was_never_let_in_is_refused(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ExchangeError, match="refused: not invited"):
        secured.join("a", "a", secured.credentials("a", new_key()))
    assert "is unknown, expected the key of a zone" in caplog.text


def test_revoked_key_is_refused_from_the_next_attempt_on(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    secured.join("a", "a", secured.credentials("a"))
    secured.keys.revoke("a")
    with pytest.raises(ExchangeError, match="refused: not invited"):
        secured.join("a", "a", secured.credentials("a"))
    assert "was revoked" in caplog.text


@pytest.mark.parametrize("kind", ["plain", "no certificate", "another CA"])
def test_stranger_gets_no_connection(secured: Secured, tmp_path: Path, kind: str) -> None:
    credentials = None
    if kind == "no certificate":
        credentials = grpc.ssl_channel_credentials(secured.authority.roots())
    if kind == "another CA":
        other = make_authority(tmp_path / "other")
        key = new_key()
        pem = certificates_to_pem((other.sign_zone("a", key.public_key()),))
        credentials = grpc.ssl_channel_credentials(secured.authority.roots(), key_to_pem(key), pem)
    with pytest.raises(ExchangeError):
        secured.join("a", "a", credentials)
    assert secured.hub.lost() == {}
