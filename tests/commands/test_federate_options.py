"""`marl-sched federate`: which options go together."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny import tiny

from federation.programs import DeploymentSettings, Ports, Programs, join_address
from marl_sched.cli import run
from marl_sched.config import dump_config

Capture = pytest.CaptureFixture[str]


def refused(tmp_path: Path, capsys: Capture, *options: str) -> str:
    config = tmp_path / "tiny.yaml"
    config.write_text(dump_config(tiny()))
    folder = tmp_path / "run"
    assert run(["federate", str(config), "--out", str(folder), *options]) == 2
    assert not folder.exists()
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("option", ["--certificates", "--join-folder"])
def test_what_is_for_secured_runs_is_refused_in_plain_text(
    option: str, tmp_path: Path, capsys: Capture
) -> None:
    line = refused(tmp_path, capsys, option, str(tmp_path / "x"))
    assert f"{option} goes with --secure, or with another --host" in line
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("number", ["0", "65"])
def test_number_of_join_tokens_is_bounded(number: str, tmp_path: Path, capsys: Capture) -> None:
    assert "--join-tokens" in refused(tmp_path, capsys, "--join-tokens", number)


def test_zones_elsewhere_are_told_the_join_folder_or_a_token_for_their_zone(tmp_path: Path) -> None:
    settings = DeploymentSettings(tiny(), tmp_path, host="fd00::7").secured(tmp_path / "pki")
    ports = Ports(1, 2, 3, 4)
    command = Programs(settings, ports).elsewhere("a")
    assert command == "marl-sched zone --enrol [fd00::7]:3 --zone a --join-token TOKEN"
    shared = replace(settings, join_folder=Path("/join"))
    command = Programs(shared, ports).elsewhere("a")
    assert command == "marl-sched zone --enrol [fd00::7]:3 --join-folder /join"


@pytest.mark.parametrize(
    ("host", "address"), [("fd00::7", "[fd00::7]:9"), ("10.0.0.1", "10.0.0.1:9"), ("x", "x:9")]
)
def test_address_has_brackets_where_they_are_needed(host: str, address: str) -> None:
    assert join_address(host, 9) == address
