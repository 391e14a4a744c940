"""The exchange under mutual TLS: a zone is who its certificate says, and nobody else comes in."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from outboxes import NAMES, three_zones

from federation.certificates import Authority, make_authority
from federation.exchange_hub import ExchangeHub
from federation.zone_keys import ZoneKey, ZoneKeys
from marl_sched.errors import ExchangeError
from zones.chains import certificates_to_pem
from zones.exchange_client import RemoteExchange
from zones.keys import PrivateKey, key_to_pem, new_key
from zones.records import Invitation

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

    def let_in_free(self) -> PrivateKey:
        """Let a key in that is bound to no zone."""
        key = new_key()
        self.keys.assign(key.public_key(), "", NAMES)
        return key

    def free_credentials(self, key: PrivateKey) -> grpc.ChannelCredentials:
        pem = certificates_to_pem((self.authority.sign_zone("", key.public_key()),))
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


def test_free_key_is_whatever_zone_it_was_invited_as(secured: Secured) -> None:
    credentials = secured.free_credentials(secured.let_in_free())
    for zone in NAMES:
        secured.join(zone, zone, credentials)
        assert secured.hub.lost() == {}


def test_free_key_comes_as_no_zone_that_it_was_not_invited_as(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = secured.free_credentials(secured.let_in_free())
    invitations = secured.hub.open(NAMES, 1, 1)
    for token in (invitations["a"].token, bytes(32), b""):
        caplog.clear()
        exchange = RemoteExchange("b", credentials, connect_s=5.0)
        with pytest.raises(ExchangeError, match="refused: not invited"):
            exchange.join(Invitation(secured.hub.address, token), 1, 1, NAMES)
        secured.hub._next_note_s = 0.0  # the log is told at most once a second
        assert "'b' has no token of this attempt" in caplog.text
    assert secured.hub.lost() == {}
    exchange = RemoteExchange("b", secured.credentials("b"), connect_s=5.0)
    exchange.join(invitations["b"], 1, 1, NAMES)
    exchange.leave()


def test_token_of_an_earlier_attempt_is_of_no_use_to_a_free_key(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = secured.free_credentials(secured.let_in_free())
    old = secured.hub.open(NAMES, 1, 1)["b"]
    secured.hub.open(NAMES, 1, 2)
    with pytest.raises(ExchangeError, match="refused: not invited"):
        RemoteExchange("b", credentials, connect_s=5.0).join(old, 1, 2, NAMES)
    assert "'b' has no token of this attempt" in caplog.text


def test_revoked_free_key_is_refused_with_the_token_of_its_zone(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    key = secured.let_in_free()
    secured.keys.revoke(ZoneKey("", key.public_key(), None).label)
    with pytest.raises(ExchangeError, match="refused: not invited"):
        secured.join("a", "a", secured.free_credentials(key))
    assert "was revoked" in caplog.text


def test_name_in_the_certificate_of_a_key_that_never_came_in_makes_it_free_for_nobody(
    secured: Secured,
) -> None:
    with pytest.raises(ExchangeError, match="refused: not invited"):
        secured.join("a", "a", secured.free_credentials(new_key()))


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
