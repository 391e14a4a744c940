"""A run in one process that is gone on with with other zones."""

import json
from pathlib import Path

import pytest
from test_local_run import EAST, MACHINES, WEST, experiment_of
from zone_double import Killed

from federation.local_run import train
from federation.session import RoundDone
from marl_sched.agents.learned import load_policy
from marl_sched.config import load_config
from marl_sched.errors import RunError
from marl_sched.observation import Layout

SOUTH = f"{{name: south, {MACHINES}}}"
ROUNDS = "training.rounds=4"


def after_two(event: RoundDone) -> None:
    if event.round_number == 2:
        raise Killed


@pytest.mark.parametrize("target", ["sarsa", "double"])
def test_run_goes_on_with_a_zone_more_and_one_less(tmp_path: Path, target: str) -> None:
    settings = (ROUNDS, f"agent.target={target}")
    with pytest.raises(Killed):
        train(experiment_of(*settings), tmp_path / "run", progress=after_two)
    other = experiment_of(*settings, zones=(WEST, SOUTH))
    result = train(other, tmp_path / "run", resume=True)
    assert result.is_finished
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    trained = [(line["round"], line["zone"]) for line in lines if line["kind"] == "train"]
    assert trained == [
        *((number, zone) for number in (1, 2) for zone in ("east", "west")),
        *((number, zone) for number in (3, 4) for zone in ("south", "west")),
    ]
    assert [line for line in lines if line["kind"] == "zones"] == [
        {"kind": "zones", "round": 3, "added": ["south"], "removed": ["east"]}
    ]
    assert load_config(tmp_path / "run" / "config.yaml") == other
    # West has learned before; south has not, and acts at random at first.
    third = [line for line in lines if line["kind"] == "train" and line["round"] == 3]
    updates = {line["zone"]: line["updates"] for line in third}
    assert updates["west"] > 0
    load_policy(tmp_path / "run" / "checkpoints" / "best.npz", Layout(tuple(other.resources)))


def test_zone_that_stays_must_be_what_it_was(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(experiment_of(ROUNDS), tmp_path / "run", progress=after_two)
    other = experiment_of(ROUNDS, zones=(EAST, WEST.replace("0.9", "0.8"), SOUTH))
    with pytest.raises(RunError, match=r"zones\[1\]\.load = 0\.9, but the run .* is given 0\.8"):
        train(other, tmp_path / "run", resume=True)
