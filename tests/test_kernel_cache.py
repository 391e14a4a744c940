"""Compiled kernels never outlive their sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from marl_sched import kernel_cache
from marl_sched.kernel_cache import sources_hash

CALLEE = (
    "from pkg.kernel_cache import {decorator}\n\n@{decorator}\ndef factor():\n    return {value}\n"
)
CALLER = """
from pkg.first.kernels.callee import factor
from pkg.kernel_cache import kernel
from pkg.model import OFFSET

@kernel
def answer(x):
    return factor() * x + OFFSET
"""
PROGRAM = """
from pkg.kernel_cache import CACHE_FOLDER, is_cold, mark_warm
was_cold = is_cold()
from pkg.second.kernels.caller import answer
result = answer(10)
mark_warm()
print(result, was_cold, CACHE_FOLDER.name)
"""

DROPPING = """
from pkg.kernel_cache import drop_intermediate_code
from pkg.second.kernels.caller import answer
before = answer(10)
had = drop_intermediate_code()
print(had, drop_intermediate_code(), before == answer(10))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small package like ours: a kernel that calls one of another file and uses a constant."""
    root = tmp_path / "pkg"
    for folder in ("first/kernels", "second/kernels"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
        (root / folder).parent.joinpath("__init__.py").touch()
    (root / "__init__.py").touch()
    shutil.copy(kernel_cache.__file__, root / "kernel_cache.py")
    (root / "model.py").write_text("OFFSET = 1\n")
    (root / "first/kernels/callee.py").write_text(CALLEE.format(decorator="kernel", value=2))
    (root / "second/kernels/caller.py").write_text(CALLER)
    return root


READ_ONLY = """
import tempfile
write = tempfile.TemporaryFile
def refuse(*, dir):
    if str(dir).startswith({folder!r}):
        raise PermissionError(13, "a file system that is read-only")
    return write(dir=dir)
tempfile.TemporaryFile = refuse
"""


def _output(package: Path, program: str, cache: Path | None = None) -> tuple[list[str], str]:
    folder = package.parent / "cache" if cache is None else cache
    environment = {
        **os.environ,
        "MARL_SCHED_KERNEL_CACHE": str(folder),
        "TMPDIR": str(package.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=package.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.split(), done.stderr


def _run(package: Path, cache: Path | None = None, before: str = "") -> tuple[int, bool, str, str]:
    (answer, was_cold, name), errors = _output(package, before + PROGRAM, cache)
    return int(answer), was_cold == "True", name, errors


@pytest.mark.parametrize("decorator", ["kernel", "inner", "inlined"])
def test_a_changed_callee_in_another_file_changes_the_result(package: Path, decorator: str) -> None:
    callee = package / "first/kernels/callee.py"
    callee.write_text(CALLEE.format(decorator=decorator, value=2))
    assert _run(package)[:2] == (21, True)
    callee.write_text(CALLEE.format(decorator=decorator, value=3))
    assert _run(package)[:2] == (31, True)
    callee.write_text(CALLEE.format(decorator=decorator, value=2))
    assert _run(package)[0] == 21


def test_a_file_written_anew_is_cold_since_numba_compiles_it_again(package: Path) -> None:
    assert _run(package)[:2] == (21, True)
    caller = package / "second/kernels/caller.py"
    os.utime(caller, ns=(1, 1))
    assert _run(package)[:2] == (21, True)


def test_a_changed_constant_outside_the_kernels_changes_the_result(package: Path) -> None:
    assert _run(package)[:2] == (21, True)
    (package / "model.py").write_text("OFFSET = 5\n")
    assert _run(package)[:2] == (25, True)


def test_an_unchanged_package_runs_from_the_cache(package: Path) -> None:
    _run(package)
    compiled = {path: path.stat().st_mtime_ns for path in (package.parent / "cache").rglob("*.nb*")}
    assert compiled
    assert _run(package)[:2] == (21, False)
    after = {path: path.stat().st_mtime_ns for path in (package.parent / "cache").rglob("*.nb*")}
    assert after == compiled


def test_a_loaded_kernel_runs_without_its_intermediate_code(package: Path) -> None:
    _run(package)
    assert _output(package, DROPPING)[0] == ["1", "0", "True"]


def test_the_folders_name_depends_on_every_kernel_and_what_it_imports(package: Path) -> None:
    names = {sources_hash(package)}
    for file in ("first/kernels/callee.py", "second/kernels/caller.py", "model.py"):
        with (package / file).open("a") as source:
            source.write("# changed\n")
        names.add(sources_hash(package))
    (package / "first/kernels/another.py").write_text("x = 1\n")
    names.add(sources_hash(package))
    assert len(names) == 5


def test_what_no_kernel_imports_leaves_the_name_alone(package: Path) -> None:
    before = sources_hash(package)
    (package / "report.py").write_text("from pkg.first.kernels.callee import factor\n")
    assert sources_hash(package) == before


def test_the_constants_of_our_own_kernels_are_in_their_hash() -> None:
    root = Path(kernel_cache.__file__).parent
    assert {path.name for path in _sources(root)} >= {"model.py", "observation.py", "window.py"}


def _sources(root: Path) -> set[Path]:
    kernels = set(root.rglob("kernels/*.py"))
    return kernels | {file for path in kernels for file in kernel_cache._imported(path, root)}


def test_a_cache_that_cannot_be_written_falls_back_with_a_warning(package: Path) -> None:
    blocked = package.parent / "file"
    blocked.write_text("a file where a folder should be: nobody can write below it")
    answer, _, name, talk = _run(package, cache=blocked / "cache")
    assert answer == 21
    assert "is not writable: compiled kernels go to" in talk
    fallback = package.parent / f"marl-sched-kernels-{os.getuid()}"
    assert list((fallback / name).rglob("*.nbi"))
    assert fallback.stat().st_mode & 0o077 == 0
    assert _run(package, cache=blocked / "cache")[1] is False  # and is used again


def test_a_warm_cache_that_cannot_be_written_is_used_as_it_is(package: Path) -> None:
    _run(package)
    compiled = package.parent / "cache"
    answer, was_cold, name, talk = _run(package, before=READ_ONLY.format(folder=str(compiled)))
    assert (answer, was_cold) == (21, False)
    assert talk == ""
    fallback = package.parent / f"marl-sched-kernels-{os.getuid()}" / name
    links = [path for path in fallback.rglob("*") if not path.is_dir()]
    assert {path.relative_to(fallback) for path in links} == {
        path.relative_to(compiled / name) for path in (compiled / name).rglob("*.*")
    } | {Path("warm")}
    assert all(path.is_symlink() for path in links)


def test_a_stale_cache_that_cannot_be_written_is_not_used(package: Path) -> None:
    _run(package)
    os.utime(package / "second/kernels/caller.py", ns=(1, 1))
    blocked = READ_ONLY.format(folder=str(package.parent / "cache"))
    answer, was_cold, _, talk = _run(package, before=blocked)
    assert (answer, was_cold) == (21, True)
    assert "is not writable: compiled kernels go to" in talk
