"""`marl-sched prune` on real, tiny runs."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny import machines, tiny, zone

from federation.local_run import train
from marl_sched.agents.policies import load_policy
from marl_sched.cli import run
from marl_sched.config import Experiment
from marl_sched.evaluation import EpisodePlayer
from marl_sched.observation import Layout
from marl_sched.pruning import PRUNING_FILE
from marl_sched.run_folder import RunFolder

Capture = pytest.CaptureFixture[str]


def experiment_of(strategy: str = "fedavg", algorithm: str = "qrdqn") -> Experiment:
    return tiny(
        zone("a", machines(2), load=1.1),
        zone("b", machines(3)),
        agent={
            "algorithm": algorithm,
            "hidden": [9, 8],
            "value_hidden": 7,
            "n_quantiles": 4,
            "warmup_decisions": 10,
            "batch_size": 8,
            "decisions_per_update": 8,
            "gate_margin": 0.01,
            "replay_mib": 1,
        },
        training={"replicas": 2, "rounds": 2, "validation_episodes": 3},
        evaluation={"episodes": 2, "replicas": 2, "bootstrap_samples": 50},
        federation={"strategy": strategy},
    )


@pytest.mark.parametrize("strategy", ["fedavg", "none"])
def test_pruned_run_is_half_as_large_and_played_as_a_run(
    tmp_path: Path, strategy: str, capsys: Capture
) -> None:
    experiment = experiment_of(strategy)
    train(experiment, tmp_path / "run")
    assert run(["prune", str(tmp_path / "run"), "--keep", "0.5"]) == 0
    said = capsys.readouterr().out
    assert "hidden [9, 8] -> [5, 4], value 7 -> 4" in said

    out = tmp_path / "run-pruned"
    content = json.loads((out / PRUNING_FILE).read_text())
    layout = Layout(tuple(experiment.resources))
    files = RunFolder(out).policy_paths(experiment.zone_names)
    policies = {name: load_policy(path, layout) for name, path in files.items()}
    assert {policy.architecture.hidden for policy in policies.values()} == {(5, 4)}
    played = EpisodePlayer(experiment, 2).play(lambda zone: policies[zone], "validation", range(3))
    assert content["objective"]["after"] == np.mean(played["objective"])
    assert content["ratio"]["ci95_low"] <= content["ratio"]["ratio"]
    assert 0 <= content["changed_decisions"] <= 1
    sizes = content["sizes"]["a"]
    assert sizes["after"]["parameters"] < sizes["before"]["parameters"]

    config = str(out / "config.yaml")
    assert run(["evaluate", config, "--run", str(out), "--policies", "random"]) == 0
    assert run(["prune", str(tmp_path / "run"), "--keep", "0.5"]) == 1
    assert "exists already" in capsys.readouterr().err


def test_keep_1_changes_no_decision(tmp_path: Path) -> None:
    train(experiment_of(), tmp_path / "run")
    arguments = ["prune", str(tmp_path / "run"), "--keep", "1", "--out", str(tmp_path / "same")]
    assert run([*arguments, "--episodes", "2"]) == 0
    content = json.loads((tmp_path / "same" / PRUNING_FILE).read_text())
    assert content["changed_decisions"] == 0
    assert content["objective"]["before"] == content["objective"]["after"]
    assert content["validation_episodes"] == 2


@pytest.mark.parametrize("keep", ["0", "-0.5", "1.01", "nan"])
def test_share_that_leaves_nothing_or_more_than_all_is_refused(
    tmp_path: Path, keep: str, capsys: Capture
) -> None:
    assert run(["prune", str(tmp_path), f"--keep={keep}"]) == 2
    assert "expected a number > 0 and at most 1" in capsys.readouterr().err


def test_run_that_is_not_there_or_has_no_policy_is_named(tmp_path: Path, capsys: Capture) -> None:
    assert run(["prune", str(tmp_path / "none")]) == 1
    assert "none: no such run" in capsys.readouterr().err
    RunFolder.create(tmp_path / "new", experiment_of())
    assert run(["prune", str(tmp_path / "new")]) == 1
    assert "no round was validated yet" in capsys.readouterr().err
    assert not (tmp_path / "new-pruned").exists()


def test_policy_that_scores_no_candidates_is_refused(tmp_path: Path, capsys: Capture) -> None:
    train(experiment_of(algorithm="ppo-scorer"), tmp_path / "run")
    assert run(["prune", str(tmp_path / "run")]) == 1
    assert (
        "agent.algorithm = ppo-scorer, expected a policy whose network" in capsys.readouterr().err
    )
