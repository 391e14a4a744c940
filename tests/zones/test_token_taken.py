"""A zone takes a token of a join folder: one each, whoever else is at it, within a bound."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from federation.join_folder import JoinFolder
from federation.join_tokens import JoinTokens
from marl_sched.errors import SecurityError
from zones.enrolment_client import EnrolmentStopped
from zones.join_folder import take_token

CA = bytes(range(32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "join"


def fill(folder: Path, n_tokens: int) -> JoinFolder:
    kept = JoinFolder(folder, JoinTokens(folder.parent), CA, n_tokens)
    kept.keep()
    return kept


def take(folder: Path, wait_s: float = 0.0) -> str:
    token = take_token(folder, wait_s, threading.Event())
    assert token.ca_fingerprint == CA
    return token.secret


def test_taken_token_is_good_and_nothing_of_it_is_left(folder: Path) -> None:
    fill(folder, 2)
    first, second = take(folder), take(folder)
    assert first != second
    assert list(folder.iterdir()) == []
    tokens = JoinTokens(folder.parent)
    assert {tokens.find(secret).zone for secret in (first, second)} == {""}


def test_processes_at_the_same_moment_take_different_tokens(folder: Path) -> None:
    n_tokens = 60
    fill(folder, n_tokens)
    code = """
import sys, threading
from pathlib import Path
from marl_sched.errors import SecurityError
from zones.join_folder import take_token
print("ready", flush=True)
sys.stdin.readline()
try:
    while True:
        print(take_token(Path(sys.argv[1]), 0.0, threading.Event()).secret)
except SecurityError:
    pass
"""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    taken = [secret for worker in workers for secret in worker.communicate(timeout=60)[0].split()]
    assert len(taken) == len(set(taken)) == n_tokens


@pytest.mark.parametrize(
    ("is_there", "message"), [(True, "no join token in it"), (False, "no such folder")]
)
def test_none_in_time_is_one_line_that_says_what_is_lacking(
    is_there: bool, message: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if is_there:
        folder.mkdir(0o700)
    with pytest.raises(SecurityError, match=rf"join: {message} within 0\.5 s, expected the folder"):
        take(folder, 0.5)
    assert f"join: {message} yet, waiting for up to 0.5 s" in caplog.text
    assert len(caplog.records) == 1


def test_token_that_comes_while_it_is_waited_for_is_taken(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        # The first look finds no folder; the coordinator fills it before the second.
        waited: list[float | None] = []

        def wait(self: threading.Event, timeout: float | None = None) -> bool:
            waited.append(timeout)
            fill(folder, 1)
            return False

        patched.setattr(threading.Event, "wait", wait)
        assert len(take(folder, 60.0)) == 32
    assert len(waited) == 1


def test_wait_ends_when_the_process_is_to_stop(folder: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(EnrolmentStopped):
        take_token(folder, 600.0, stop)


def test_files_that_are_no_tokens_are_not_taken(folder: Path) -> None:
    folder.mkdir(0o700)
    names = ("x.token", f"{'0' * 64}.token.tmp", f"{'0' * 64}.token.taken-{'0' * 16}")
    for name in names:
        (folder / name).write_text("x")
    with pytest.raises(SecurityError, match="no join token in it"):
        take(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


def test_broken_token_is_told_without_its_text_and_is_gone(folder: Path) -> None:
    fill(folder, 1)
    (path,) = folder.iterdir()
    path.write_text("half-a-token")
    with pytest.raises(SecurityError, match="join token of 12 characters: not one of") as raised:
        take(folder)
    assert "half-a-token" not in str(raised.value)
    assert list(folder.iterdir()) == []


def test_token_that_others_can_read_is_refused_by_its_name(folder: Path) -> None:
    fill(folder, 1)
    (path,) = folder.iterdir()
    path.chmod(0o644)
    with pytest.raises(SecurityError, match=rf"{path}: mode 0644, others than its owner") as raised:
        take(folder)
    assert "taken" not in str(raised.value)


def test_folder_that_others_may_write_to_is_not_trusted(folder: Path) -> None:
    fill(folder, 1)
    folder.chmod(0o777)
    with pytest.raises(SecurityError, match="join: mode 0777, others may write to it"):
        take(folder)
    folder.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_is_read_only_is_named(folder: Path) -> None:
    fill(folder, 1)
    folder.chmod(0o500)
    with pytest.raises(OSError, match="Permission denied"):
        take(folder)
    folder.chmod(0o700)
