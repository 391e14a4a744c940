import os
import stat
from pathlib import Path
from typing import IO

import pytest

from marl_sched.errors import RunError
from marl_sched.files import alone_in, create_once, naming, require_space, write_atomically


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "best.npz"
    path.write_bytes(b"old")

    def fail(file: IO[bytes]) -> None:
        file.write(b"ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: .*best\.npz'$"):
        write_atomically(path, fail)
    assert [p.name for p in tmp_path.iterdir()] == ["best.npz"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("is_lasting", [True, False])
def test_remains_of_a_killed_write_are_taken_over(tmp_path: Path, is_lasting: bool) -> None:
    (tmp_path / "x.json.tmp").write_bytes(b"half")
    write_atomically(tmp_path / "x.json", lambda file: file.write(b"whole"), is_lasting=is_lasting)
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_bytes() == b"whole"


def test_mode_holds_from_the_first_byte_on_and_not_that_of_remains(tmp_path: Path) -> None:
    remains = tmp_path / "key.tmp"
    remains.write_bytes(b"half")
    remains.chmod(0o666)
    seen: list[int] = []

    def write(file: IO[bytes]) -> None:
        seen.append(stat.S_IMODE(os.fstat(file.fileno()).st_mode))

    before = os.umask(0)
    try:
        write_atomically(tmp_path / "key", write, 0o600)
    finally:
        os.umask(before)
    assert seen == [0o600]
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_file_is_created_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "used"
    assert create_once(path, b"first", 0o600)
    assert not create_once(path, b"second", 0o600)
    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["used"]


def test_file_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        create_once(tmp_path / "none" / "used", b"x")
    assert raised.value.filename == str(tmp_path / "none" / "used")


def test_error_of_the_system_names_the_file_and_keeps_its_kind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised, naming(tmp_path / "mine"):
        (tmp_path / "other").read_bytes()
    assert raised.value.filename == str(tmp_path / "mine")


def test_folder_lets_in_one_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(RunError, match="another process is at work there")
    with alone_in(tmp_path), refused, alone_in(tmp_path):
        pass
    with alone_in(tmp_path):
        assert not list(tmp_path.iterdir())


def test_folder_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    refused = pytest.raises(RunError, match="none: cannot be opened: No such file")
    with refused, alone_in(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()


def test_disk_with_space_is_fine_and_nothing_is_left(tmp_path: Path) -> None:
    require_space(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_an_error_that_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=rf"{tmp_path}: No space left on device"):
        require_space(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_other_faults_of_a_disk_are_not_taken_for_a_full_one(tmp_path: Path) -> None:
    require_space(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
