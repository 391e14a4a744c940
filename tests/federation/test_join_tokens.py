"""Join tokens: used once, by one key, in time; only hashes are kept."""

import datetime as dt
import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from federation.join_tokens import JoinTokens, Refused
from marl_sched.errors import SecurityError
from zones.chains import utc_now
from zones.join_token import JoinToken, new_secret, parse_join_token

NOW = utc_now()
KEY, OTHER = bytes(32), bytes([1] * 32)


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "tokens").iterdir())


def test_secret_is_kept_nowhere(tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path)
    secret = tokens.create("zone_a", 60)
    tokens.use(tokens.find(secret), KEY)
    for path in files(tmp_path):
        assert secret not in path.name
        assert secret.encode() not in path.read_bytes()


def test_files_are_private(tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path)
    tokens.use(tokens.find(tokens.create("", 60)), KEY)
    assert [stat.S_IMODE(p.stat().st_mode) for p in files(tmp_path)] == [0o600, 0o600]
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o700


def test_token_is_found_with_its_zone_until_it_expires(tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path)
    secret = tokens.create("zone_b", 5, NOW)
    assert tokens.find(secret, NOW + dt.timedelta(minutes=4, seconds=58)).zone == "zone_b"
    with pytest.raises(Refused, match="expired at"):
        tokens.find(secret, NOW + dt.timedelta(minutes=5))


def test_unknown_token_is_refused(tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path)
    with pytest.raises(Refused, match="unknown token"):
        tokens.find(new_secret())
    tokens.create("", 60)
    for secret in (new_secret(), "", "../../etc/passwd", "ü"):
        with pytest.raises(Refused, match="unknown token"):
            tokens.find(secret)


def test_token_is_for_one_key_which_may_come_again(tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path)
    token = tokens.find(tokens.create("", 60))
    tokens.use(token, KEY)
    tokens.use(token, KEY)
    with pytest.raises(Refused, match="has been used by another key"):
        tokens.use(token, OTHER)


def test_two_processes_at_the_same_moment_use_a_token_once(tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path)
    secrets = [tokens.create("", 60) for _ in range(40)]
    code = """
import sys
from pathlib import Path
from federation.join_tokens import JoinTokens, Refused
tokens = JoinTokens(Path(sys.argv[1]))
found = [tokens.find(secret) for secret in sys.argv[3:]]
print("ready", flush=True)
sys.stdin.readline()
for token in found:
    try:
        tokens.use(token, bytes([int(sys.argv[2])] * 32))
        print(token.digest)
    except Refused:
        pass
"""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(number), *secrets],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    won = [digest for worker in workers for digest in worker.communicate(timeout=60)[0].split()]
    assert sorted(won) == sorted(tokens.find(secret).digest for secret in secrets)


def test_expired_tokens_are_deleted_with_their_traces(tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path)
    old = tokens.create("", 5, NOW)
    tokens.use(tokens.find(old, NOW), KEY)
    tokens.create("", 5, NOW + dt.timedelta(minutes=6))
    assert len(files(tmp_path)) == 1


def test_tokens_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federation.join_tokens._MAX_TOKENS", 3)
    tokens = JoinTokens(tmp_path)
    for _ in range(3):
        tokens.create("", 60)
    with pytest.raises(SecurityError, match="tokens: 3 tokens, expected fewer"):
        tokens.create("", 60)


BROKEN: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "list": lambda path: path.write_text("[]"),
    "other format": lambda path: path.write_text(
        json.dumps({**json.loads(path.read_text()), "format": 2})
    ),
    "time without end": lambda path: path.write_text('{"format": 1, "expires": 1e300, "zone": ""}'),
    "readable": lambda path: path.chmod(0o644),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_token_lets_nobody_in(name: str, tmp_path: Path) -> None:
    tokens = JoinTokens(tmp_path)
    secret = tokens.create("", 60)
    BROKEN[name](files(tmp_path)[0])
    with pytest.raises(Refused, match=r"\.json: "):
        tokens.find(secret)


def test_token_survives_being_handed_over() -> None:
    token = JoinToken(new_secret(), bytes(range(32)))
    assert parse_join_token(f"  {token.text()}\n") == token
    assert len(token.text()) == 85


def test_secret_has_at_least_128_bits_and_is_not_repeated() -> None:
    drawn = {new_secret() for _ in range(100)}
    assert len(drawn) == 100
    assert {len(secret) * 5 for secret in drawn} == {160}


@pytest.mark.parametrize(
    "text", ["", "hello", "a" * 32, "a" * 85, f"{'a' * 32}-{'b' * 51}", f"{'A' * 32}-{'b' * 52}"]
)
def test_text_that_is_no_token_is_one_line_that_does_not_repeat_it(text: str) -> None:
    with pytest.raises(SecurityError, match="not one of ours, expected the 85 char") as raised:
        parse_join_token(text)
    assert not text or text not in str(raised.value)


def test_secret_is_not_printed() -> None:
    token = JoinToken(new_secret(), bytes(32))
    assert token.secret not in repr(token)
