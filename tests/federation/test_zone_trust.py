"""How a zone comes to what it connects with: tokens of a join folder, free keys, names."""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pki import Coordinator, request_of, serve_enrolment
from superlink import free_ports

from federation.join_folder import JoinFolder
from federation.join_tokens import digest_of
from federation.zone_keys import ZoneKeys
from federation.zone_process import Trust, ZoneProcess, ZoneSettings, _means
from marl_sched.errors import SecurityError
from zones.chains import certificates_to_pem
from zones.join_token import parse_join_token
from zones.keys import key_to_openssh, load_key, new_key, write_private

pytestmark = pytest.mark.network


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with serve_enrolment(tmp_path / "pki") as running:
        yield running


@pytest.fixture
def settings(coordinator: Coordinator, tmp_path: Path) -> ZoneSettings:
    """A replica as it is started: no name, no token, a folder of tokens."""
    trust = Trust(enrolment=coordinator.address, join_folder=tmp_path / "join")
    (tmp_path / "zone").mkdir(0o700)
    return ZoneSettings("", "", tmp_path / "zone", trust, wait_s=0.5)


def fill(coordinator: Coordinator, settings: ZoneSettings, n_tokens: int) -> Path:
    folder = settings.trust.join_folder
    assert folder is not None
    fingerprint = coordinator.authority.files.load().ca_fingerprint
    JoinFolder(folder, coordinator.tokens, fingerprint, n_tokens).keep()
    return folder


def connect(settings: ZoneSettings) -> str:
    return _means(settings, threading.Event()).name


def test_replica_takes_one_token_and_needs_none_any_more(
    coordinator: Coordinator, settings: ZoneSettings
) -> None:
    folder = fill(coordinator, settings, 2)
    assert connect(settings) == ""
    assert len(list(folder.iterdir())) == 1
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert connect(settings) == ""
    (known,) = ZoneKeys(coordinator.authority.folder).all()
    assert known.zone == ""


def test_tokens_of_a_supervisor_that_was_killed_are_passed_over(
    coordinator: Coordinator, settings: ZoneSettings, caplog: pytest.LogCaptureFixture
) -> None:
    folder = fill(coordinator, settings, 3)
    for path in sorted(folder.iterdir())[:2]:  # in the order in which they are taken
        coordinator.tokens.void(digest_of(parse_join_token(path.read_text()).secret))
    assert connect(settings) == ""
    assert caplog.text.count("enrolment refused") == 2
    assert list(folder.iterdir()) == []


def test_zone_that_is_refused_again_and_again_gives_up(
    coordinator: Coordinator, settings: ZoneSettings
) -> None:
    folder = fill(coordinator, settings, 4)
    coordinator.tokens.void_shared()
    with pytest.raises(SecurityError, match="enrolment refused"):
        connect(settings)
    assert len(list(folder.iterdir())) == 1


def test_revoked_replica_does_not_use_up_tokens(
    coordinator: Coordinator, settings: ZoneSettings
) -> None:
    folder = fill(coordinator, settings, 2)
    connect(settings)
    keys = ZoneKeys(coordinator.authority.folder)
    keys.revoke(keys.all()[0].label)
    with pytest.raises(SecurityError, match=f"{settings.folder}: its key was revoked by the coord"):
        connect(settings)
    assert len(list(folder.iterdir())) == 1


def test_replica_whose_certificate_has_expired_takes_another_token(
    coordinator: Coordinator, settings: ZoneSettings
) -> None:
    folder = fill(coordinator, settings, 2)
    connect(settings)
    key = load_key(settings.folder / "node_key", is_node_key=True).public_key()
    expired = coordinator.authority.sign_zone("", key, days=0)
    write_private(settings.folder / "certificate.pem", certificates_to_pem([expired]))
    ZoneKeys(coordinator.authority.folder).note_certificate("", expired)
    assert connect(settings) == ""
    assert list(folder.iterdir()) == []


def test_free_key_may_be_started_for_a_zone_and_a_zones_key_for_no_other(
    coordinator: Coordinator, settings: ZoneSettings, tmp_path: Path
) -> None:
    fill(coordinator, settings, 1)
    connect(settings)
    assert connect(replace(settings, name="zone_b")) == "zone_b"
    assert connect(replace(settings, name="zone_c")) == "zone_c"
    assert connect(replace(settings, name="zone_c", trust=Trust())) == "zone_c"
    (tmp_path / "named").mkdir(0o700)
    trust = Trust(enrolment=coordinator.address, token=coordinator.token("zone_a"))
    named = replace(settings, folder=tmp_path / "named", trust=trust)
    assert connect(named) == "zone_a"
    for trust in (named.trust, Trust()):
        with pytest.raises(SecurityError, match="named: enrolled as zone_a, not as zone_b"):
            connect(replace(named, name="zone_b", trust=trust))


def test_key_that_was_let_in_before_it_was_told_so_goes_on_with_another_token(
    coordinator: Coordinator, settings: ZoneSettings
) -> None:
    """The answer was lost, and the token with it: a replica keeps no token."""
    key = new_key()
    write_private(settings.folder / "node_key", key_to_openssh(key))
    coordinator.call(request_of(key, coordinator.token("").secret))
    fill(coordinator, settings, 1)
    assert connect(settings) == ""
    assert len(ZoneKeys(coordinator.authority.folder).all()) == 1


@pytest.mark.parametrize("lacks", ["token", "coordinator"])
def test_zone_that_waits_to_be_let_in_ends_when_told_to(lacks: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    trust = Trust(enrolment=f"127.0.0.1:{port}", join_folder=tmp_path / "join")
    if lacks == "coordinator":
        text = f"{'a' * 32}-{'b' * 52}"
        trust = Trust(enrolment=f"127.0.0.1:{port}", token=parse_join_token(text))
    stop = threading.Event()
    process = ZoneProcess(ZoneSettings("", "", tmp_path / "zone", trust, wait_s=600.0), stop)
    thread = threading.Thread(target=process.run, daemon=True)
    thread.start()
    stop.set()
    thread.join(30.0)
    assert not thread.is_alive()


def test_none_in_time_is_one_line(settings: ZoneSettings) -> None:
    message = rf"{re.escape(str(settings.trust.join_folder))}: no such folder within 0\.5 s"
    with pytest.raises(SecurityError, match=message):
        connect(settings)
