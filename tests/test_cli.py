"""The command line: help, exit codes, one-line errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from marl_sched import __version__, cli
from marl_sched.cli import run
from marl_sched.commands import COMMANDS
from marl_sched.errors import RunError

ROOT = Path(__file__).parents[1]
BASE = str(ROOT / "configs" / "base.yaml")
Capture = pytest.CaptureFixture[str]


def test_command_alone_shows_help_with_examples_before_usage(capsys: Capture) -> None:
    assert run([]) == 0
    bare = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == bare
    assert 0 < bare.index("Examples:") < bare.index("Usage:") < bare.index("Commands:")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_opens_with_its_summary_and_examples(name: str, capsys: Capture) -> None:
    assert run([name, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [COMMANDS[name].summary, "", "Examples:"]
    assert lines[3].startswith(f"    marl-sched {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_command_stands_in_the_help_and_in_the_docs(name: str, capsys: Capture) -> None:
    run(["--help"])
    assert f"\n  {name} " in capsys.readouterr().out
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(f"marl-sched {name}" in page.read_text(encoding="utf-8") for page in pages)


def test_version_is_printed(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"marl-sched {__version__}\n"


def test_show_config_writes_every_default_to_stdout(capsys: Capture) -> None:
    assert run(["show-config", BASE, "--set", "seed=7"]) == 0
    out, err = capsys.readouterr()
    assert "\nseed: 7\n" in out
    assert "\n  max_restarts: 3\n" in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show-cofig", BASE], "did you mean show-config?"),
        (
            ["show-config"],
            "expected a CONFIG, or --schema alone (see marl-sched show-config --help)",
        ),
        (["show-config", BASE, "--schema"], "expected a CONFIG, or --schema alone"),
        (["show-config", "--nope"], "No such option"),
        (["show-config", BASE, BASE], "unexpected extra argument"),
        (["--log-level", "loud", "show-config", BASE], "--log-level loud, expected debug, info"),
        (["show-config", "nowhere.yaml"], "nowhere.yaml: cannot be read: No such file"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: Capture
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def make_failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail() -> None:
        raise error

    app = typer.Typer(add_completion=False)
    app.command("show-config", cls=cli._Command)(fail)
    command = typer.main.get_command(app)
    command.params.append(cli._debug_option())
    monkeypatch.setattr(cli, "_load", lambda name: command)


@pytest.mark.parametrize(
    ("error", "exit_code", "line"),
    [
        (RunError("runs/x exists\nalready"), 1, "error: runs/x exists already\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (KeyboardInterrupt("stopped after round 3"), 130, "error: stopped after round 3\n"),
        (OSError(28, "No space left on device", "runs/x"), 1, "error: runs/x: No space left on"),
        (KeyError("x"), 1, "error: internal: KeyError: 'x' (--debug shows where)\n"),
    ],
)
def test_error_is_one_line_and_its_exit_code(
    error: BaseException,
    exit_code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    make_failing(monkeypatch, error)
    assert run(["show-config"]) == exit_code
    err = capsys.readouterr().err
    assert err.startswith(line)
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--debug", "show-config"], ["show-config", "--debug"]])
def test_debug_shows_the_traceback_before_the_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    make_failing(monkeypatch, RunError("broken"))
    assert run(arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):")
    assert err.endswith("\nerror: broken\n")


def test_reader_that_has_had_enough_is_no_error() -> None:
    program = Path(sys.executable).with_name("marl-sched")
    command = [str(program), "show-config", "--schema"]
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_full_disk_is_one_line() -> None:
    program = Path(sys.executable).with_name("marl-sched")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [str(program), "show-config", BASE], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"error: No space left on device\n")
