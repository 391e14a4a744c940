"""The coordinator's side of a join folder: always filled, with tokens that are good."""

import datetime as dt
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.join_folder import JoinFolder
from federation.join_tokens import JoinTokens, Refused, digest_of
from marl_sched.errors import RunError, SecurityError
from zones.chains import utc_now
from zones.join_token import parse_join_token

N = 3
CA = bytes(range(32))
NOW = utc_now()
KEY = bytes([1] * 32)


@pytest.fixture
def tokens(tmp_path: Path) -> JoinTokens:
    return JoinTokens(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "join"


@pytest.fixture
def kept(folder: Path, tokens: JoinTokens) -> Iterator[JoinFolder]:
    held = JoinFolder(folder, tokens, CA, N)
    held.keep(NOW)
    yield held
    held.close()


def secrets_in(folder: Path) -> list[str]:
    """Return the secret of every file there, all of which are whole tokens."""
    return [parse_join_token(path.read_text()).secret for path in sorted(folder.iterdir())]


def known(tokens: JoinTokens, secret: str, now: dt.datetime = NOW) -> bool:
    try:
        return tokens.find(secret, now).zone == ""
    except Refused:
        return False


@pytest.mark.usefixtures("kept")
def test_folder_is_filled_with_private_files_of_good_tokens_for_any_zone(
    folder: Path, tokens: JoinTokens
) -> None:
    secrets = secrets_in(folder)
    assert len(set(secrets)) == N
    assert all(known(tokens, secret) for secret in secrets)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {parse_join_token(p.read_text()).ca_fingerprint for p in folder.iterdir()} == {CA}
    assert not any(secret in path.name for secret in secrets for path in folder.iterdir())


def test_folder_that_is_named_like_a_token_is_left_alone(folder: Path, tokens: JoinTokens) -> None:
    mine = folder / f"{'a' * 64}.token"
    mine.mkdir(parents=True)
    folder.chmod(0o700)
    kept = JoinFolder(folder, tokens, CA, N)
    kept.keep(NOW)
    assert len([path for path in folder.iterdir() if path.is_file()]) == N
    kept.close()
    assert list(folder.iterdir()) == [mine]


def test_folder_that_was_deleted_is_made_and_filled_again(kept: JoinFolder, folder: Path) -> None:
    shutil.rmtree(folder)
    kept.keep(NOW)
    assert len(secrets_in(folder)) == N
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_was_taken_is_made_up_for_and_stays_good(
    kept: JoinFolder, folder: Path, tokens: JoinTokens
) -> None:
    taken = secrets_in(folder)[:2]
    for secret in taken:
        (folder / f"{digest_of(secret)}.token").unlink()
    kept.keep(NOW)
    assert len(secrets_in(folder)) == N
    assert not set(taken) & set(secrets_in(folder))
    assert all(known(tokens, secret) for secret in taken)


def test_nothing_changes_while_nothing_is_taken(kept: JoinFolder, folder: Path) -> None:
    before = secrets_in(folder)
    kept.keep(NOW + dt.timedelta(minutes=29))
    assert secrets_in(folder) == before


def test_token_is_replaced_before_it_expires_and_the_old_one_is_void(
    kept: JoinFolder, folder: Path, tokens: JoinTokens
) -> None:
    before = secrets_in(folder)
    later = NOW + dt.timedelta(minutes=31)
    kept.keep(later)
    after = secrets_in(folder)
    assert len(after) == N
    assert not set(before) & set(after)
    assert not any(known(tokens, secret, later) for secret in before)
    assert all(known(tokens, secret, later + dt.timedelta(minutes=59)) for secret in after)


def test_token_that_was_used_by_hand_is_taken_away(
    kept: JoinFolder, folder: Path, tokens: JoinTokens
) -> None:
    secret = secrets_in(folder)[0]
    tokens.use(tokens.find(secret), KEY)
    kept.keep(NOW)
    assert secret not in secrets_in(folder)
    assert len(secrets_in(folder)) == N
    assert known(tokens, secret)  # for the key that has used it, whose enrolment may go on


def test_end_makes_void_what_lies_there(folder: Path, tokens: JoinTokens) -> None:
    held = JoinFolder(folder, tokens, CA, N)
    held.keep(NOW)
    secrets = secrets_in(folder)
    held.close()
    assert list(folder.iterdir()) == []
    assert not any(known(tokens, secret) for secret in secrets)


def test_restart_after_a_kill_clears_the_folder_and_fills_it_anew(
    folder: Path, tokens: JoinTokens
) -> None:
    killed = JoinFolder(folder, tokens, CA, N)
    killed.keep(NOW)
    old = secrets_in(folder)
    used = tokens.find(old[0])
    tokens.use(used, KEY)
    by_hand = tokens.create("", 60, NOW)
    killed._held.close()  # all that is left of a process is what is on the disk
    (folder / f"{'0' * 64}.token.taken-{'0' * 16}").write_text("x")
    (folder / f"{'0' * 64}.token.tmp").write_text("x")
    tokens.void_shared()
    held = JoinFolder(folder, tokens, CA, N)
    assert list(folder.iterdir()) == []
    held.keep(NOW)
    assert not set(old) & set(secrets_in(folder))
    assert [known(tokens, secret) for secret in old] == [True, False, False]
    assert known(tokens, by_hand)
    held.close()


def test_tokens_that_another_made_void_are_replaced(
    kept: JoinFolder, folder: Path, tokens: JoinTokens
) -> None:
    tokens.void_shared()
    kept.keep(NOW)
    assert all(known(tokens, secret) for secret in secrets_in(folder))
    assert len(secrets_in(folder)) == N


def test_what_a_killed_zone_left_half_taken_is_deleted_after_a_while(
    kept: JoinFolder, folder: Path
) -> None:
    path = next(folder.iterdir())
    taken = path.with_name(f"{path.name}.taken-{'a' * 16}")
    path.rename(taken)
    kept.keep(NOW)
    assert taken.exists()
    past = time.time() - 100.0
    os.utime(taken, (past, past))
    kept.keep(NOW)
    assert not taken.exists()
    assert len(secrets_in(folder)) == N


def test_files_of_others_are_left_alone(folder: Path, tokens: JoinTokens) -> None:
    folder.mkdir(0o700)
    for name in ("notes.txt", "x.token", f"{'0' * 63}.token"):
        (folder / name).write_text("mine")
    held = JoinFolder(folder, tokens, CA, N)
    held.keep(NOW)
    assert len(list(folder.iterdir())) == 3 + N
    held.close()
    assert {path.read_text() for path in folder.iterdir()} == {"mine"}


@pytest.mark.usefixtures("kept")
def test_second_supervisor_is_refused(folder: Path, tokens: JoinTokens) -> None:
    with pytest.raises(RunError, match="join: another process is at work there"):
        JoinFolder(folder, tokens, CA, N)


def test_folder_that_others_may_write_to_is_not_filled(folder: Path, tokens: JoinTokens) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SecurityError, match="join: mode 0777, others may write to it"):
        JoinFolder(folder, tokens, CA, N)


def test_token_whose_file_cannot_be_written_is_void(
    folder: Path, tokens: JoinTokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = JoinFolder(folder, tokens, CA, N)

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("federation.join_folder.write_private", full)
    with pytest.raises(OSError, match="No space left"):
        held.keep(NOW)
    assert list((tmp_path / "tokens").glob("*.json")) == []
    monkeypatch.undo()
    held.keep(NOW)
    assert len(secrets_in(folder)) == N
    held.close()
