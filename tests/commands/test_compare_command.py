"""`marl-sched compare` end to end on a tiny experiment: real processes, killed and gone on with."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny import machines, tiny, zone

from marl_sched.cli import run
from marl_sched.comparing.curves import read_curve
from marl_sched.comparing.playing import read_played
from marl_sched.comparing.record import load
from marl_sched.config import dump_config, load_config
from marl_sched.results import results_page

Capture = pytest.CaptureFixture[str]
STUDY = """
policies:
  - name: fedavg
  - {name: local-only, set: [federation.strategy=none], evaluate: [agent.cvar_alpha=0.5]}
  - {name: refined, of: [fedavg], refine: 5}
rules: [round-robin, random, kube-default]
settings:
  - name: own
  - {name: swapped, set: ["zones[0].load=0.7", "zones[1].load=1.1"]}
"""
POLICIES = ("fedavg", "local-only", "refined")
RESULTS = ("evaluation.json", "evaluation_episodes.npz", "swapped/evaluation.json")
pytestmark = pytest.mark.processes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    experiment = tiny(
        zone("a", machines(2), load=1.1),
        zone("b", machines(2)),
        agent={
            "hidden": [8],
            "n_quantiles": 4,
            "warmup_decisions": 10,
            "batch_size": 8,
            "decisions_per_update": 8,
            "replay_mib": 1,
        },
        training={"replicas": 2, "rounds": 6, "validation_episodes": 2, "validate_every": 2},
        tuning={"episodes": 2},
        evaluation={"episodes": 6, "replicas": 4, "bootstrap_samples": 50},
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(dump_config(experiment))
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "tuned").mkdir()
    weights = {"machine.speed": 1.0, "peer.is_peer": -2.0}
    (tmp_path / "tuned/tiny.json").write_text(json.dumps({"weights": weights}))
    return tmp_path


def arguments(out: str, *more: str) -> list[str]:
    given = ["compare", "tiny.yaml", "--training-seeds", "2", "--study", "study.yaml"]
    return [*given, "--jobs", "2", "--out", out, *more]


def killed(out: Path) -> None:
    """Start a comparison and kill -9 it in the middle of a training."""
    code = "from marl_sched.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments(out.name)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 90
    while not list(out.glob("runs/*/checkpoints/round-*.npz")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()


def test_killed_and_gone_on_with_gives_equal_results(folder: Path, capsys: Capture) -> None:
    assert run(arguments("whole", "--record", "docs/1-tiny")) == 0
    killed(folder / "broken")
    assert not (folder / "broken/evaluation.json").exists()
    assert run(arguments("broken")) == 0
    for name in RESULTS:
        assert (folder / "broken" / name).read_bytes() == (folder / "whole" / name).read_bytes()

    compared, _ = load(folder / "whole")
    own = compared.evaluations["own"]
    assert own.metrics["fedavg"]["objective"].shape == (2, 6)
    assert own.origin["seed"] == 1
    assert own.origin["training_seeds"] == {name: [1, 2] for name in POLICIES}
    pairs = {(ratio.policy, ratio.baseline) for ratio in own.ratios}
    assert {("fedavg", "local-only"), ("fedavg", "random"), ("fedavg", "best-fixed")} <= pairs
    curve = compared.curves.runs["fedavg"][1]
    assert [point.round for point in curve] == [2, 4, 6]
    assert curve == read_curve(folder / "whole/runs/fedavg-2")

    page = results_page(folder / "docs")
    assert page.count("```\nmarl-sched") == 1  # the command that made it
    assert "fedavg and its rivals (swapped)" in page
    assert "(results/1-tiny/convergence.png)" in page
    for name in ("report.md", "convergence.png", "speed.png"):
        assert (folder / "whole" / name).stat().st_size > 1000

    # Of a finished training stays what it has learned, not what further rounds would need.
    zones = folder / "whole/runs/local-only-1/checkpoints/zones"
    names = load_config(folder / "tiny.yaml").zone_names
    assert {path.parent.name for path in zones.glob("*/policy-*.npz")} == set(names)
    assert not list(folder.glob("*/runs/*/checkpoints/zones/*/state-*.npz"))

    # What is done is not done again, and more episodes go on from those that were played.
    values = folder / "whole/values/test-own/fedavg-1.npz"
    six, written_ns = read_played(values), values.stat().st_mtime_ns
    assert run(arguments("whole")) == 0
    assert values.stat().st_mtime_ns == written_ns
    assert run(arguments("whole", "--episodes", "9", "--only", "fedavg,random")) == 0
    nine = read_played(values)
    assert six is not None
    assert nine is not None
    assert nine.n_episodes == 9
    assert (nine.metrics["objective"][:4] == six.metrics["objective"][:4]).all()
    capsys.readouterr()

    assert run(arguments("whole", "--set", "agent.discount=0.4")) == 1
    assert "trained with another configuration" in capsys.readouterr().err


def test_failing_job_is_named_and_the_others_go_on(folder: Path, capsys: Capture) -> None:
    (folder / "study.yaml").write_text(
        "policies: [{name: fine}, {name: broken}]\nrules: [random, kube-default]\n"
    )
    blocked = folder / "out/runs/broken-1"
    blocked.mkdir(parents=True)
    (blocked / "somebody-elses").write_text("file")
    given = [*arguments("out"), "--training-seeds", "1"]
    assert run(given) == 1
    said = capsys.readouterr().err
    assert "failed: train broken-1: exit code 1" in said
    assert "  | error: out/runs/broken-1: exists already" in said
    assert "failed: evaluate broken-1 in own: left out: train broken-1 failed" in said
    report = (folder / "out/report.md").read_text()
    assert "**Not complete.** train broken-1" in report
    rows = json.loads((folder / "out/evaluation.json").read_text())["rows"]
    assert {row["policy"] for row in rows} == {"fine", "random", "kube-default"}

    (blocked / "somebody-elses").unlink()
    assert run(given) == 0
    rows = json.loads((folder / "out/evaluation.json").read_text())["rows"]
    assert {row["policy"] for row in rows} == {"fine", "broken", "random", "kube-default"}


LEARNS_ON = """
policies: [{name: fedavg, set: [agent.prior=none]}]
rules: [kube-default]
settings:
  - name: own
  - {name: new, config: three.yaml, takes: {c: a}, counts: [c]}
  - {name: new-on, config: three.yaml, takes: {c: a}, counts: [c], adapt: {zones: [c], set: SET}}
  - name: new-scratch
    config: three.yaml
    counts: [c]
    adapt: {zones: [c], fresh: [c], set: SET}
  - {name: choice, split: validation}
""".replace("SET", "[federation.strategy=none, training.rounds=2]")


def test_policy_learns_on_in_a_setting_before_it_is_evaluated_there(
    folder: Path, capsys: Capture
) -> None:
    experiment = load_config(folder / "tiny.yaml")
    third = experiment.zones[0].model_copy(update={"name": "c"})
    larger = experiment.model_copy(update={"name": "three", "zones": [*experiment.zones, third]})
    (folder / "three.yaml").write_text(dump_config(larger))
    (folder / "study.yaml").write_text(LEARNS_ON)
    assert run(arguments("out")) == 0
    settings = load(folder / "out")[0].evaluations
    objectives = {name: one.metrics["fedavg"]["objective"] for name, one in settings.items()}
    assert not np.array_equal(objectives["new"], objectives["new-on"])
    assert not np.array_equal(objectives["new-on"], objectives["new-scratch"])
    rule = [settings[n].metrics["kube-default"]["objective"] for n in ("new", "new-on")]
    np.testing.assert_array_equal(*rule)
    report = (folder / "out/report.md").read_text()
    assert "of c alone over 6 held-out episodes" in report
    assert "over 6 validation episodes" in report
    adapted = folder / "out/runs/adapted"
    kept = "checkpoints/zones/c/start.npz"
    policy = folder / "out/runs/fedavg-2/checkpoints/best.npz"
    assert (adapted / "new-on/fedavg-2" / kept).read_bytes() == policy.read_bytes()
    assert not (adapted / "new-scratch/fedavg-2" / kept).exists()
    config = load_config(adapted / "new-on/fedavg-2/config.yaml")
    assert (config.seed, config.federation.strategy) == (2, "none")

    # A training in a setting that was lost comes again, to the same end; nothing else does.
    before = (folder / "out/new-on/evaluation.json").read_bytes()
    shutil.rmtree(adapted / "new-on/fedavg-1")
    capsys.readouterr()
    assert run(arguments("out", "--dry-run")) == 0
    assert "2 left" in capsys.readouterr().out
    assert run(arguments("out")) == 0
    assert (folder / "out/new-on/evaluation.json").read_bytes() == before


def test_zone_that_a_setting_does_not_have_is_named(folder: Path, capsys: Capture) -> None:
    (folder / "study.yaml").write_text(
        "policies: [{name: x}]\nsettings: [{name: own, adapt: {zones: [d]}}]\n"
    )
    assert run(arguments("out")) == 2
    assert "adapt.zones names d, expected names out of a, b" in capsys.readouterr().err


def test_interrupt_leaves_no_process_behind(folder: Path) -> None:
    # What a shell starts in the background ignores Ctrl-C, and so does all that it starts.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from marl_sched.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments("out"), "--set", "training.rounds=5000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    run_folder = folder / "out/runs/fedavg-1"
    deadline = time.monotonic() + 90
    while not list(run_folder.glob("checkpoints/round-*.npz")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.splitlines()[-1].endswith("go on with the same command")
    lines = (run_folder / "timing.jsonl").read_bytes()
    time.sleep(0.5)
    assert (run_folder / "timing.jsonl").read_bytes() == lines


def test_dry_run_prints_the_plan_and_writes_nothing(folder: Path, capsys: Capture) -> None:
    assert run(arguments("out", "--dry-run")) == 0
    said = capsys.readouterr().out
    assert "3 policies x 2 training seeds" in said
    assert "refined: fedavg, refined in 5 evaluations" in said
    assert "local-only: federation.strategy=none (evaluated with agent.cvar_alpha=0.5)" in said
    assert "26 jobs, 26 left" in said
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (
            "policies: [{name: a, set: [agent.hiden=3]}]",
            "study.yaml: policies a, set: tiny.yaml with --set agent.hiden=3: agent.hiden = 3 is "
            "not a known key, expected one of",
        ),
        (
            "policies: [{name: a}, {name: b, evaluate: [agent.cvar_alpha=2]}]",
            "study.yaml: policies b, evaluate: tiny.yaml with --set agent.cvar_alpha=2",
        ),
        (
            "policies: [{name: a}]\nsettings: [{name: own}, {name: s, set: [workload.laod=1]}]",
            "study.yaml: settings s: tiny.yaml with --set workload.laod=1",
        ),
        (
            "policies: [{name: a}]\nsettings: [{name: s, config: other.yaml}]",
            "study.yaml: settings s: other.yaml: ",
        ),
        (
            "policies: [{name: a}]\nsettings: [{name: s, takes: {zone_9: a}}]",
            "study.yaml: settings s: takes names zone_9, expected names out of a, b",
        ),
    ],
)
def test_bad_override_of_a_study_is_named_before_anything_runs(
    study: str, said: str, folder: Path, capsys: Capture
) -> None:
    (folder / "study.yaml").write_text(study)
    assert run(arguments("out")) == 2
    assert f"error: {said}" in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_error_of_the_configuration_itself_is_not_the_studys(folder: Path, capsys: Capture) -> None:
    assert run(arguments("out", "--set", "agent.hiden=3")) == 2
    assert "error: tiny.yaml with --set agent.hiden=3: " in capsys.readouterr().err
