"""A run goes on with the weights of the rule that it began with, though it was tuned again."""

import json
from pathlib import Path

import pytest
from tiny import machines, tiny, zone

from marl_sched.cli import run
from marl_sched.commands import training
from marl_sched.config import dump_config, load_config
from marl_sched.errors import RunError
from marl_sched.training_config import load_of_run

Capture = pytest.CaptureFixture[str]
FIRST, LATER = {"machine.speed": 1.5}, {"machine.speed": -2.5}


def tune(weights: dict[str, float]) -> None:
    Path("tuned").mkdir(exist_ok=True)
    Path("tuned/tiny.json").write_text(json.dumps({"weights": weights}))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    experiment = tiny(
        zone("a", machines(2)),
        agent={"hidden": [8], "n_quantiles": 2, "warmup_decisions": 10, "batch_size": 8}
        | {"decisions_per_update": 8, "replay_mib": 1},
        training={"replicas": 2, "rounds": 2, "validation_episodes": 1, "validate_every": 1},
    )
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(dump_config(experiment))
    return Path("tiny.yaml")


def trained_for_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train, and be interrupted once a round is committed."""

    def interrupt(self: object, steps: int = 1, note: str = "") -> None:
        if steps:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training.Progress, "advance", interrupt)
        assert run(["train", "tiny.yaml", "--out", "run"]) == 130


@pytest.mark.parametrize("is_tuned_first", [True, False])
def test_run_resumes_with_the_weights_it_began_with(
    is_tuned_first: bool, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_tuned_first:
        tune(FIRST)
    trained_for_a_round(monkeypatch)
    tune(LATER)
    assert run(["train", "tiny.yaml", "--resume", "--out", "run"]) == 0
    weights = load_config("run/config.yaml").agent.prior_weights
    assert weights == (FIRST if is_tuned_first else None)
    lines = Path("run/metrics.jsonl").read_text().splitlines()
    assert max(json.loads(line)["round"] for line in lines) == 2


def test_new_run_takes_the_weights_of_today(config: Path) -> None:
    tune(LATER)
    for resume in (False, True):
        found = load_of_run(config, (), Path("nowhere"), resume)
        assert found.agent.prior_weights == LATER


def test_weights_that_the_configuration_names_itself_must_be_those_of_the_run(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    tune(FIRST)
    trained_for_a_round(monkeypatch)
    given = ["train", "tiny.yaml", "--resume", "--out", "run"]
    assert run([*given, "--set", "agent.prior_weights={machine.speed: -2.5}"]) == 1
    assert "agent.prior_weights.machine.speed = 1.5, but the run to resume is given" in (
        capsys.readouterr().err
    )


def test_broken_configuration_of_a_run_is_named(config: Path) -> None:
    Path("run").mkdir()
    Path("run/config.yaml").write_text("- no mapping\n")
    assert run(["train", "tiny.yaml", "--resume", "--out", "run"]) == 1


def test_comparison_is_no_run_to_go_on_with(config: Path) -> None:
    Path("out").mkdir()
    Path("out/study.yaml").write_text("policies: [{name: a}]\n")
    with pytest.raises(RunError, match="out: a comparison of many runs"):
        load_of_run(config, (), Path("out"), resume=True)
