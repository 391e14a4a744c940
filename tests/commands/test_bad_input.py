"""Bad input on the command line: one line, an exit code, nothing harmed."""

import contextlib
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tiny import tiny

from marl_sched import kernel_cache
from marl_sched.cli import run
from marl_sched.commands.options import command_line
from marl_sched.commands.table import print_table
from marl_sched.config import Experiment, dump_config
from marl_sched.config.hashing import config_hash
from marl_sched.errors import RunError
from marl_sched.evaluation import compare, open_folder
from marl_sched.run_folder import Checkpoint, RunFolder

METRICS = (
    "objective",
    "late_start_rate",
    "finish_violation_rate",
    "mean_slowdown",
    "zone_imbalance_cpu",
    "zone_imbalance_memory",
    "cost",
    "creation_success_rate",
    "mean_completion_s",
)
Capture = pytest.CaptureFixture[str]
SMALL = {
    "evaluation": {"episodes": 1, "replicas": 1, "bootstrap_samples": 20},
    "training": {"replicas": 2, "rounds": 3, "validation_episodes": 1, "validate_every": 1},
    "agent": {"hidden": [8], "n_quantiles": 4, "warmup_decisions": 10, "batch_size": 8},
    "tuning": {"episodes": 1, "evaluations": 4},
}


@pytest.fixture
def experiment() -> Experiment:
    return tiny(**SMALL)


@pytest.fixture
def config(experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A configuration below a working folder that is not that of the configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own configs").mkdir()
    path = tmp_path / "own configs" / "tiny.yaml"
    path.write_text(dump_config(experiment))
    return str(path)


def refused(arguments: list[str], exit_code: int, capsys: Capture) -> str:
    """Return the one line that a command must end with."""
    assert run(arguments) == exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in err
    return err.splitlines()[-1]


def wait_for(process: subprocess.Popen[str], path: Path) -> None:
    """Wait until a process has written a file, a minute at most."""
    for _ in range(3000):
        if path.exists():
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            pytest.fail(f"the process ended before it wrote {path}")
    pytest.fail(f"no {path} after a minute")


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (["--policies", "nope"], 2, "--policies: 'nope', expected `rules` or names out of random"),
        (["--policies", ""], 2, "--policies: '', expected `rules` or names"),
        (["--policies", "random,,tetris"], 2, "--policies: '', expected"),
        (["--set", "evaluation.policies=[x]"], 2, "tiny.yaml: evaluation.policies: 'x', expected"),
        (["--policies", "tuned"], 2, "tuned/tiny.json: there are no tuned weights yet"),
        (["--policies", "random", "--out", ""], 2, "an empty name, expected a folder"),
        (["--run", "none"], 1, "none: no such run; make it: marl-sched train"),
        (["--policies", "random", "--out", "file/below"], 1, "file/below: cannot be written to"),
        (["--policies", "random", "--out", "file"], 1, "file: cannot be written to: File exists"),
    ],
)
def test_evaluate_refuses_before_it_plays(
    config: str, options: list[str], exit_code: int, message: str, capsys: Capture
) -> None:
    Path("file").write_text("precious")
    assert message in refused(["evaluate", config, *options], exit_code, capsys)
    assert Path("file").read_text() == "precious"
    assert not Path("runs").exists()


def test_run_given_twice_is_refused(config: str, capsys: Capture) -> None:
    Path("a").mkdir()
    line = refused(["evaluate", config, "--run", "a", "--run", "./a/../a"], 2, capsys)
    assert "is given twice, expected every run once" in line


def test_evaluation_of_another_configuration_is_not_overwritten(
    experiment: Experiment, tmp_path: Path
) -> None:
    metrics = {"random": {"objective": np.ones((1, 1))}}
    compare(experiment, metrics).save(tmp_path)
    open_folder(tmp_path, experiment)
    other = experiment.model_copy(update={"seed": 5})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RunError, match=f"holds the evaluation.*{config_hash(other)}.*--out"):
        open_folder(tmp_path, other)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_demo_deletes_no_run_but_a_finished_demo(config: str, capsys: Capture) -> None:
    RunFolder.create(Path("mine"), tiny(**SMALL))
    Path("mine/evaluation.json").write_text("{}")
    assert "mine: exists already" in refused(["demo", "--out", "mine"], 1, capsys)
    assert sorted(path.name for path in Path("mine").iterdir()) == [
        "config.yaml",
        "evaluation.json",
    ]


def test_folder_that_exists_is_refused_before_kernels_are_compiled(
    config: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache, "is_cold", lambda: pytest.fail("too early"))
    Path("out").mkdir()
    Path("out/mine.txt").write_text("precious")
    assert "out: exists already" in refused(["train", config, "--out", "out"], 1, capsys)


def test_broken_policy_is_named(config: str, experiment: Experiment, capsys: Capture) -> None:
    folder = RunFolder.create(Path("run"), experiment)
    folder.save_checkpoint(Checkpoint(1, {}, {}))
    folder.best_path.write_bytes(b"PK\x03\x04")
    line = refused(["evaluate", config, "--run", "run"], 1, capsys)
    assert "run/checkpoints/best.npz: half-written or not a file of marl-sched" in line


def test_weights_are_tuned_beside_the_configuration_and_found_there(
    config: str, capsys: Capture
) -> None:
    """Tunes and evaluates from a folder that is not the configuration's."""
    assert run(["tune", config]) == 0
    out = capsys.readouterr().out
    assert json.loads(Path("own configs/tuned/tiny.json").read_text())["experiment"] == "tiny"
    assert f"next: marl-sched evaluate '{config}' --policies kube-default,tuned\n" in out
    assert run(["evaluate", config, "--policies", "tuned, random,tuned", "--out", "new/out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines[1:3]} == {"tuned", "random"}
    assert lines[0].split("  ")[-1].strip() == "mean completion s"  # whole, as this is no terminal
    assert Path("new/out/report.md").exists()


def test_next_command_carries_the_overrides() -> None:
    assert command_line("evaluate", Path("a b.yaml"), overrides=["zones[0].load=0.9"]) == (
        "marl-sched evaluate 'a b.yaml' --set 'zones[0].load=0.9'"
    )


@pytest.mark.parametrize("width", [30, 80, 130])
def test_table_fits_the_terminal_and_says_what_it_leaves_out(
    experiment: Experiment, width: int, capsys: Capture
) -> None:
    values = {name: np.full((1, 3), 0.123456) for name in METRICS}
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    print_table(compare(experiment, {"kube-default": values, "learned": values}), console)
    rows = text.getvalue().splitlines()
    assert max(map(len, rows)) <= width
    assert "kube-default" in text.getvalue()
    assert ("mean completion s" in capsys.readouterr().out) == (width < 130)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_run_says_how_to_go_on(config: str, number: signal.Signals) -> None:
    program = Path(sys.executable).with_name("marl-sched")
    command = [str(program), "train", config, "--out", "run", "--set", "training.rounds=500"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(process, Path("run/checkpoints/round-00002.npz"))
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    watch, line = err.splitlines()
    assert (out, watch) == ("", "watch: marl-sched dashboard run")
    assert line.startswith("error: stopped; the last whole round is in run; go on with the same")
