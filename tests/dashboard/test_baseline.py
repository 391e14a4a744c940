import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_files import RunFiles, experiment
from served import BOUND_S

from dashboard.baseline import Baseline, read_answer
from marl_sched.agents.heuristics import rule_factory
from marl_sched.config import dump_config
from marl_sched.observation import Layout
from marl_sched.report import validation_baselines


async def outcome(baseline: Baseline) -> dict[str, Any]:
    """Return its result once there is one."""
    async with asyncio.timeout(120):
        while baseline.result["state"] == "computing":
            await asyncio.sleep(0.02)
    return baseline.result


def test_kube_default_is_played_on_the_validation_episodes(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run").create()
    config = run.folder / "config.yaml"
    layout = Layout(tuple(run.experiment.resources))
    rules = {"kube-default": rule_factory("kube-default", layout, run.experiment)}
    expected = validation_baselines(run.experiment, rules)["kube-default"]

    async def play() -> dict[str, Any]:
        baseline = Baseline()
        await baseline.want(config, config.read_bytes(), 2)
        first = baseline._task
        await baseline.want(config, config.read_bytes(), 2)
        assert baseline._task is first, "it was begun anew for the same configuration"
        return await outcome(baseline)

    result = asyncio.run(play())
    assert result["state"] == "ready"
    assert result["metrics"]["objective"] == expected


def test_what_cannot_be_played_has_a_reason(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("version: 7")

    async def play() -> dict[str, Any]:
        baseline = Baseline()
        await baseline.want(config, b"version: 7", 2)
        return await outcome(baseline)

    result = asyncio.run(play())
    assert result["state"] == "unavailable"
    assert "version = 7" in result["reason"]


def test_nothing_is_played_without_validation_episodes_or_when_switched_off() -> None:
    async def results() -> list[dict[str, Any]]:
        without, off = Baseline(), Baseline(is_wanted=False)
        await without.want(Path("config.yaml"), b"", 0)
        await off.want(Path("config.yaml"), b"", 5)
        return [without.result, off.result]

    without, off = asyncio.run(results())
    assert without["state"] == "unavailable"
    assert "no validation episodes" in without["reason"]
    assert off == {"state": "off"}


def test_a_child_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run").create()

    async def play() -> dict[str, Any]:
        baseline = Baseline(longest_s=0.01)
        await baseline.want(run.folder / "config.yaml", b"", 2)
        return await outcome(baseline)

    assert asyncio.run(play())["reason"] == "it took longer than 0.01 s"


def test_the_child_ends_with_whoever_started_it(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(dump_config(experiment(training={"validation_episodes": 1_000_000})))
    command = [sys.executable, "-m", "dashboard.kube_default", str(config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdin is not None
            child.stdin.close()
            assert child.wait(BOUND_S) == 1
        finally:
            child.kill()


@pytest.mark.parametrize(
    "output", ["", "x", "[]", '{"metrics": 1}', '{"metrics": {"objective": NaN}, "reason": 3}']
)
def test_an_answer_that_makes_no_sense_is_none(output: str) -> None:
    assert read_answer(output.encode(), 0)["state"] == "unavailable"
