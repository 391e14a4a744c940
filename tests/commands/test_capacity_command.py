"""`marl-sched capacity` end to end on a tiny experiment, in real processes."""

import json
from pathlib import Path

import pytest
from tiny import machines, tiny, zone

from marl_sched.cli import run
from marl_sched.comparing.playing import read_played
from marl_sched.config import dump_config

Capture = pytest.CaptureFixture[str]
RULES = ["--policies", "random,kube-default"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    experiment = tiny(
        zone("a", machines(2), load=0.8),
        zone("b", machines(2)),
        agent={"hidden": [8], "n_quantiles": 2, "warmup_decisions": 10, "batch_size": 8}
        | {"prior": "none", "replay_mib": 1},
        training={"replicas": 2, "rounds": 1, "validation_episodes": 1},
        evaluation={"episodes": 6, "replicas": 4, "bootstrap_samples": 50},
    )
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(dump_config(experiment))
    return tmp_path


def measured(*more: str) -> int:
    return run(["capacity", "tiny.yaml", "--jobs", "2", "--out", "out", *more])


@pytest.mark.processes
def test_rules_and_trained_policies_are_measured_over_the_same_loads(folder: Path) -> None:
    for seed in (1, 2):
        assert run(["train", "tiny.yaml", "--out", f"run-{seed}", "--set", f"seed={seed}"]) == 0
    given = ["--run", "run-1", "--run", "run-2", "--loads", "2,0.5", "--violations", "0.3"]
    assert measured(*RULES, *given, "--record", "record") == 0
    found = json.loads(Path("out/capacity.json").read_text())
    assert found["shares"] == [0.5, 2.0]
    assert found["origin"]["bound"] == 0.3
    assert [(one["policy"], one["n_training_seeds"]) for one in found["loads"]] == [
        ("learned", 2),
        ("kube-default", 1),
        ("random", 1),
    ]
    rates = {name: [row["mean"] for row in rows] for name, rows in found["rows"].items()}
    assert all(low < high for low, high in rates.values())
    assert {one["policy"] for one in found["ratios"]} == {"learned", "random"}
    report = Path("out/report.md").read_text()
    assert "# tiny: capacity" in report
    assert "Violations by load" in report
    assert Path("out/capacity.png").stat().st_size > 1000
    assert Path("record/about.md").read_text().startswith("## tiny: capacity\n")
    assert not Path("out/config.yaml").exists()  # the page would take it for a run


@pytest.mark.processes
def test_more_loads_and_episodes_add_to_what_is_there(folder: Path, capsys: Capture) -> None:
    assert measured(*RULES, "--loads", "0.5,1.5", "--episodes", "4") == 0
    first = Path("out/values/load-1.5/random.npz")
    four, stamp = read_played(first), first.stat().st_mtime_ns
    assert measured(*RULES, "--loads", "0.5,1,1.5", "--episodes", "4") == 0
    assert first.stat().st_mtime_ns == stamp  # was not played again
    assert json.loads(Path("out/capacity.json").read_text())["shares"] == [0.5, 1.0, 1.5]
    assert measured(*RULES, "--loads", "0.5,1.5", "--episodes", "8") == 0
    eight = read_played(first)
    assert four is not None
    assert eight is not None
    assert eight.n_episodes == 8
    assert (eight.metrics["objective"][:4] == four.metrics["objective"]).all()
    capsys.readouterr()

    assert measured(*RULES, "--loads", "0.5,1.5", "--set", "cluster.interference=0.1") == 1
    assert "out: holds the capacities of another configuration" in capsys.readouterr().err


@pytest.mark.processes
def test_policy_that_lacks_a_load_is_left_out_and_named(folder: Path, capsys: Capture) -> None:
    blocked = Path("out/values/load-1.5/random.npz")
    blocked.mkdir(parents=True)  # cannot be written
    assert measured(*RULES, "--loads", "0.5,1.5") == 1
    assert "failed: evaluate random in load 1.5" in capsys.readouterr().err
    found = json.loads(Path("out/capacity.json").read_text())
    assert [one["policy"] for one in found["loads"]] == ["kube-default"]
    assert "**Not complete.** evaluate random in load 1.5" in Path("out/report.md").read_text()


def test_dry_run_prints_the_plan_and_writes_nothing(folder: Path, capsys: Capture) -> None:
    assert measured("--dry-run") == 0
    said = capsys.readouterr()
    assert "`tuned` is left out" in said.err
    assert "11 loads: 0.5, 0.6" in said.out
    assert "of 0.7, so 0.35 to 1.05" in said.out
    assert "11 jobs, 11 left" in said.out
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--loads", "1"], "--loads 1: expected at least two different shares"),
        (["--loads", "0,1"], "--loads 0,1: expected at least two different shares"),
        (["--loads", "1,11"], "above 0 and at most 10"),
        (["--loads", "1,a"], "--loads 1,a: expected"),
        (["--loads", "nan,1"], "--loads nan,1: expected"),
        (["--policies", "kube"], "--policies: 'kube', expected `rules` or names out of"),
        (["--policies", "tuned"], "there are no tuned weights yet"),
        (["--policies", "learned"], "--policies: 'learned', expected"),
        (["--set", "workload.laod=1"], "workload.laod = 1 is not a known key"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    given: list[str], said: str, folder: Path, capsys: Capture
) -> None:
    assert measured(*given) == 2
    assert said in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_load_below_background_and_waves_is_named(folder: Path, capsys: Capture) -> None:
    text = Path("tiny.yaml").read_text()
    text = text.replace("background: null", "background: {mean: {cpu_milli: 0.4}}", 1)
    Path("tiny.yaml").write_text(text)
    assert measured(*RULES, "--loads", "0.25,1") == 2
    said = capsys.readouterr().err
    assert "at 0.25 of the configured load: zone a: load = 0.2, expected more than" in said
