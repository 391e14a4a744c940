import json
from pathlib import Path
from typing import Any

import pytest

from dashboard.following import FileWatch, LineFollower, finite, parse_object, text, whole


class Told:
    """What a follower has told so far."""

    def __init__(self, path: Path) -> None:
        self.lines: list[dict[str, Any]] = []
        self.n_resets = 0
        self.follower = LineFollower(path, self.lines.append, self.reset)

    def reset(self) -> None:
        self.lines.clear()
        self.n_resets += 1

    @property
    def numbers(self) -> list[int]:
        return [line["n"] for line in self.lines]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.jsonl"


@pytest.fixture
def told(path: Path) -> Told:
    return Told(path)


def add(path: Path, *numbers: int, rest: str = "") -> None:
    with path.open("a") as file:
        file.write("".join(f'{{"n": {n}}}\n' for n in numbers) + rest)


def test_a_missing_file_is_no_line(told: Told) -> None:
    assert not told.follower.poll()
    assert told.lines == []


def test_only_what_is_new_is_told(path: Path, told: Told) -> None:
    add(path, 1, 2)
    assert told.follower.poll()
    add(path, 3)
    assert told.follower.poll()
    assert not told.follower.poll()
    assert told.numbers == [1, 2, 3]


def test_a_half_written_line_waits_for_its_rest(path: Path, told: Told) -> None:
    add(path, 1, rest='{"n": ')
    told.follower.poll()
    assert told.numbers == [1]
    add(path, rest="2}\n")
    told.follower.poll()
    assert told.numbers == [1, 2]
    assert told.follower.n_broken == 0


@pytest.mark.parametrize("n_kept", [1, 2])
def test_a_file_that_was_cut_and_goes_on_is_told_anew(path: Path, told: Told, n_kept: int) -> None:
    """As a resumed run does: shorter at first, then perhaps longer than before."""
    add(path, 1, 2, 3)
    told.follower.poll()
    kept = path.read_text().splitlines(keepends=True)[:n_kept]
    path.unlink()
    path.write_text("".join(kept))
    add(path, 7, 8, 9, 10)
    told.follower.poll()
    assert told.n_resets == 1
    assert told.numbers == [*[1, 2, 3][:n_kept], 7, 8, 9, 10]


def test_a_file_that_is_gone_is_forgotten(path: Path, told: Told) -> None:
    add(path, 1)
    told.follower.poll()
    path.unlink()
    assert told.follower.poll()
    assert told.lines == []
    add(path, 2)
    told.follower.poll()
    assert told.numbers == [2]


def test_broken_lines_are_counted_and_passed_over(path: Path, told: Told) -> None:
    path.write_bytes(b'{"n": 1}\n{"n"\n[1]\n\xff\xfe\n' + b"[" * 100_000 + b'\n\n{"n": 2}\n')
    told.follower.poll()
    assert told.numbers == [1, 2]
    assert told.follower.n_broken == 4


@pytest.mark.parametrize("n_bytes", [2 << 20, 9 << 20])
def test_a_line_without_end_is_passed_over(path: Path, told: Told, n_bytes: int) -> None:
    add(path, 1)
    with path.open("a") as file:
        file.write("x" * n_bytes)
    told.follower.poll()
    add(path, rest="x\n")
    add(path, 2)
    told.follower.poll()
    assert told.numbers == [1, 2]
    assert told.follower.n_broken == 1


def test_a_large_file_is_told_whole(path: Path, told: Told) -> None:
    line = json.dumps({"n": 5, "more": "y" * 1000})
    path.write_text(f"{line}\n" * 9000)
    told.follower.poll()
    assert told.numbers == [5] * 9000


@pytest.mark.parametrize(
    "written", ["NaN", "1e999", "-Infinity", "true", '"1"', "null", "[1]", "1" + "0" * 400]
)
def test_what_is_no_finite_number_is_none(written: str) -> None:
    assert finite(json.loads(written)) is None


@pytest.mark.parametrize("written", ["1.0", "true", "null", "9007199254740993"])
def test_what_is_no_safe_integer_is_none(written: str) -> None:
    assert whole(json.loads(written)) is None


def test_texts_are_bounded_and_can_be_encoded() -> None:
    assert text("a" * 500, 10) == "a" * 10 + "…"
    assert text("\ud800b").encode() == b"?b"
    assert text(7) == ""


def test_a_number_too_long_to_read_is_no_object() -> None:
    assert parse_object(b'{"n": ' + b"1" * 5000 + b"}") is None


def test_a_replaced_file_is_read_again(path: Path) -> None:
    watch = FileWatch(path, 10)
    assert not watch.poll()
    path.write_text("one")
    assert watch.poll()
    assert not watch.poll()
    replacement = path.with_suffix(".new")
    replacement.write_text("two")
    replacement.replace(path)
    assert watch.poll()
    assert watch.content == b"two"
    path.unlink()
    assert watch.poll()
    assert watch.content is None


def test_a_file_that_is_too_large_is_refused_once(path: Path) -> None:
    watch = FileWatch(path, 10)
    path.write_text("x" * 11)
    with pytest.raises(OSError, match="at most 10 bytes"):
        watch.poll()
    assert not watch.poll()
