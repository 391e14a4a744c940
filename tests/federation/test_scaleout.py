"""`marl-sched scaleout` with real processes: measured, interrupted, gone on with, not run again."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from federate_process import COMMAND, LIMIT_S
from tiny import machines, tiny, zone

from marl_sched.commands.warm_up import warm_up
from marl_sched.config import dump_config
from marl_sched.scaling.measured import COORDINATOR, SPLIT

pytestmark = [pytest.mark.network, pytest.mark.processes]


class Scaleout:
    """The command on a tiny configuration, every wait bounded."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self._config = folder / "tiny.yaml"
        experiment = tiny(
            zone("a", machines(2)),
            training={"replicas": 2},
            agent={
                "hidden": [8],
                "n_quantiles": 4,
                "warmup_decisions": 20,
                "batch_size": 16,
                "decisions_per_update": 8,
                "replay_mib": 1,
            },
        )
        self._config.write_text(dump_config(experiment))
        warm_up()

    def start(self, *options: str) -> "subprocess.Popen[str]":
        length = ("--rounds", "2", "--validation-episodes", "2", "--beside", "none")
        return subprocess.Popen(
            [*COMMAND, "scaleout", str(self._config), "--out", str(self.out), *length, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *options: str) -> tuple[int, str, str]:
        process = self.start(*options)
        output, talk = process.communicate(timeout=LIMIT_S)
        return process.returncode, output, talk

    def events(self) -> str:
        return "".join(path.read_text() for path in self.out.glob("*/processes.jsonl"))


def measured(out: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / name / "measured.json").read_text())
    return content


def test_interrupted_study_goes_on_and_measures_what_the_processes_used(tmp_path: Path) -> None:
    study = Scaleout(tmp_path)
    process = study.start("--zones", "1,2")
    deadline = time.monotonic() + LIMIT_S
    while not (study.out / "weak-0001-federated" / "measured.json").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "go on with the same command" in talk
    before = (study.out / "weak-0001-federated" / "measured.json").stat().st_mtime_ns

    code, output, talk = study.run("--zones", "1,2", "--json", "--project", "16")
    assert code == 0, talk
    assert (study.out / "weak-0001-federated" / "measured.json").stat().st_mtime_ns == before
    content = json.loads(output)
    assert content == json.loads((study.out / "scaleout.json").read_text())
    assert [run["n_zones"] for run in content["runs"]] == [1, 2]
    for run in content["runs"]:
        check_figures(run)
    assert content["projection"]["sizes"][0]["n_zones"] == 16
    for name in ("scaleout.png", "projection.png"):
        assert (study.out / name).stat().st_size > 10_000

    code, output, _ = study.run("--zones", "1,2")
    assert code == 0
    assert "CPU s per 1,000 decisions" in output
    assert study.events().count('"kind": "end"') == 2


def check_figures(run: dict[str, Any]) -> None:
    """Check what must hold of any run, however long it took."""
    assert run["n_timed"] == 1
    assert run["n_decisions"] > 0
    assert run["zone_cpu_s"] > 0
    assert set(run["coordinator_cpu_s"]) == set(COORDINATOR)
    assert run["coordinator_cpu_s"]["serverapp"] > 0
    assert all(mib > 50 for mib in (run["zone_mib"], *run["coordinator_mib"].values()))
    assert sum(run["split_s"].values()) == pytest.approx(run["seconds"], abs=0.01)
    assert set(run["split_s"]) == set(SPLIT)
    # Both networks go to every zone and come back, in two rounds and the last scoring.
    assert run["weight_bytes"] > 2 * run["n_zones"] * run["network_bytes"]
    assert run["exchange_bytes"] > 0
    assert run["baseline"] > 0
    assert [point["round_number"] for point in run["curve"]] == [2]


def test_folder_of_another_length_is_refused(tmp_path: Path) -> None:
    study = Scaleout(tmp_path)
    assert study.run("--zones", "1")[0] == 0
    code, _, talk = study.run("--zones", "1", "--rounds", "3")
    assert code == 1
    assert "was measured with another configuration or length" in talk
    assert measured(study.out, "weak-0001-federated")["n_timed"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--zones", "0,2"), "--zones '0,2', expected numbers of 1 to 64"),
        (("--zones", "1,x"), "--zones '1,x', expected numbers"),
        (("--mode", "both"), "--mode 'both', expected weak or strong"),
        (("--beside", "some"), "--beside 'some', expected all or largest or none"),
        (("--zones", "2", "--project", "16"), "expected two sizes or more"),
    ],
)
def test_bad_option_is_told_before_anything_runs(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    study = Scaleout(tmp_path)
    code, output, talk = study.run(*options)
    assert code == 2
    assert words in " ".join(talk.split())
    assert output == ""
    assert not study.out.exists()
