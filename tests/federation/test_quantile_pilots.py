"""`agent.n_quantiles: auto` with real, tiny trainings."""

import json
from pathlib import Path

import pytest
from federate_process import federate
from tiny import machines, tiny, zone
from zone_double import Killed, written

from federation.deployed import create_run
from federation.local_run import train
from federation.quantile_pilots import find_quantiles
from federation.session import RoundDone
from marl_sched.cli import run
from marl_sched.config import Experiment, dump_config, load_config
from marl_sched.errors import ConfigError
from marl_sched.quantile_choice import TRIED
from marl_sched.run_folder import PILOTS_FOLDER, QUANTILES_FILE
from marl_sched.training_config import resolved_like
from zones.worker import first_weights


def auto(strategy: str = "fedavg", **agent: object) -> Experiment:
    small = {"hidden": [8], "warmup_decisions": 10, "batch_size": 8, "decisions_per_update": 8}
    return tiny(
        zone("a", machines(2), load=1.1),
        zone("b", machines(2)),
        agent={
            "n_quantiles": "auto",
            "replay_mib": 1,
            "pilot_rounds": 2,
            "pilot_seeds": 1,
            **small,
            **agent,
        },
        training={"replicas": 2, "rounds": 3, "validation_episodes": 3},
        evaluation={"replicas": 2, "bootstrap_samples": 50},
        federation={"strategy": strategy},
    )


def test_what_needs_a_number_says_that_it_is_to_be_found() -> None:
    with pytest.raises(ConfigError, match=r"agent\.n_quantiles = auto, expected an integer > 0"):
        first_weights(auto())


@pytest.mark.parametrize("strategy", ["fedavg", "none"])
def test_found_number_is_that_of_pilots_which_are_kept_as_figures_only(
    tmp_path: Path, strategy: str
) -> None:
    told = []
    found = find_quantiles(auto(strategy), tmp_path / "run", told.append)
    content = json.loads((tmp_path / "run" / QUANTILES_FILE).read_text())
    assert found.agent.n_quantiles == content["n_quantiles"] in TRIED
    assert [len(pilot["objectives"]) for pilot in content["pilots"]] == [3] * len(told)
    assert {line["n_quantiles"]: line["objective"] for line in content["tried"]} == {
        figures.n_quantiles: figures.objective for figures in told
    }
    assert not (tmp_path / "run" / PILOTS_FOLDER).exists()
    # A second look trains nothing.
    assert find_quantiles(auto(strategy), tmp_path / "run", told.append) == found
    assert len(told) == len(content["pilots"])


def test_killed_pilots_gone_on_with_write_the_same(tmp_path: Path) -> None:
    find_quantiles(auto(), tmp_path / "whole")
    n_rounds = 0

    def kill(event: RoundDone) -> None:
        nonlocal n_rounds
        n_rounds += 1
        if n_rounds == 5:  # in the second pilot: two rounds and a last validation each
            raise Killed

    with pytest.raises(Killed):
        find_quantiles(auto(), tmp_path / "broken", progress=kill)
    assert list((tmp_path / "broken" / PILOTS_FOLDER).iterdir())
    find_quantiles(auto(), tmp_path / "broken")
    texts = [(tmp_path / name / QUANTILES_FILE).read_text() for name in ("whole", "broken")]
    assert texts[0] == texts[1]


def test_train_trains_with_the_number_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "tiny.yaml"
    config.write_text(dump_config(auto()))
    assert run(["train", "tiny.yaml", "--out", "run"]) == 0
    number = load_config(tmp_path / "run" / "config.yaml").agent.n_quantiles
    assert f"agent.n_quantiles: {number}, the smallest within 1.0% of 32" in capsys.readouterr().err
    train(load_config(config, [f"agent.n_quantiles={number}"]), tmp_path / "plain")
    assert written(tmp_path / "run") == written(tmp_path / "plain")
    assert run(["train", "tiny.yaml", "--out", "run", "--resume"]) == 0
    assert run(["train", "tiny.yaml", "--out", "run"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert run(["train", "tiny.yaml", "--out", "none", "--resume"]) == 1
    assert "leave out --resume" in capsys.readouterr().err


@pytest.mark.network
@pytest.mark.processes
def test_federate_finds_the_number_that_train_finds_and_trains_the_same(tmp_path: Path) -> None:
    with federate(tmp_path / "apart", auto()) as apart:
        assert apart.wait() == 0, apart.output
    config = tmp_path / "apart.yaml"
    assert run(["train", str(config), "--out", str(tmp_path / "together")]) == 0
    for name in (QUANTILES_FILE, "config.yaml"):
        assert (tmp_path / "apart" / name).read_text() == (tmp_path / "together" / name).read_text()
    assert written(tmp_path / "apart")["metrics.jsonl"]
    assert written(tmp_path / "apart")["best.npz"] == written(tmp_path / "together")["best.npz"]


def test_number_of_a_run_is_that_of_its_changed_configuration(tmp_path: Path) -> None:
    running = find_quantiles(auto(), tmp_path)
    assert resolved_like(auto(), running) == running
    assert resolved_like(running, auto()) == running


def test_run_without_a_supervisor_finds_its_number_first(tmp_path: Path) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text(dump_config(auto()))
    create_run(tmp_path / "run", str(config))
    number = load_config(tmp_path / "run" / "config.yaml").agent.n_quantiles
    assert number == json.loads((tmp_path / "run" / QUANTILES_FILE).read_text())["n_quantiles"]
