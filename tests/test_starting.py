"""Runs that begin with what another one has published: real zones, episodes of a minute."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from federation.local_run import train as run_training
from federation.session import RoundDone
from marl_sched.cli import run
from marl_sched.config import Experiment, load_config
from marl_sched.errors import CheckpointError
from marl_sched.run_folder import RunFolder
from marl_sched.starting import keep_start, policy_files, start_weights
from zones.state import load_state
from zones.worker import first_weights

BASE = Path(__file__).parents[1] / "configs" / "base.yaml"
MACHINES = "machines: [{count: 3, capacity: {cpu_milli: 64000, memory_mib: 131072}}]"
EAST, WEST, NEW = (f"{{name: {name}, {MACHINES}}}" for name in ("east", "west", "new"))
TWO, THREE = f"zones=[{EAST}, {WEST}]", f"zones=[{EAST}, {WEST}, {NEW}]"
ALONE = "federation.strategy=none"
SHORT = (
    "episode={horizon_s: 60.0, drain_s: 60.0}",
    "training={replicas: 2, rounds: 1, validation_episodes: 0}",
    "agent={hidden: [8], n_quantiles: 4, warmup_decisions: 20, batch_size: 16, "
    "decisions_per_update: 8, replay_mib: 1}",
)


def experiment_of(*overrides: str) -> Experiment:
    return load_config(BASE, (*SHORT, *overrides))


def options(*overrides: str) -> list[str]:
    return [word for override in (*SHORT, *overrides) for word in ("--set", override)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two zones with one policy."""
    path = tmp_path_factory.mktemp("runs") / "shared"
    run_training(experiment_of(TWO), path)
    return path


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two zones with a policy each."""
    path = tmp_path_factory.mktemp("runs") / "apart"
    run_training(experiment_of(TWO, ALONE), path)
    return path


def published(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files if name != "header"}


def first_of(folder: Path, zone: str) -> dict[str, np.ndarray]:
    experiment = experiment_of(THREE, ALONE)
    weights = start_weights(
        RunFolder(folder).zone_path(zone), experiment, first_weights(experiment)
    )
    return dict(weights)


def test_every_zone_begins_with_the_shared_policy_and_one_with_drawn_weights(
    shared: Path, tmp_path: Path
) -> None:
    command = ["train", str(BASE), *options(THREE, ALONE), "--from", str(shared)]
    assert run([*command, "--takes", "new=", "--out", str(tmp_path / "run")]) == 0
    policy = published(shared / "checkpoints" / "best.npz")
    drawn = first_weights(experiment_of(THREE, ALONE))
    for zone, expected in {"east": policy, "west": policy, "new": drawn}.items():
        for name, tensor in first_of(tmp_path / "run", zone).items():
            np.testing.assert_array_equal(tensor, expected[name])
    # An update moves a weight by the learning rate at most: they were trained from there.
    zones = tmp_path / "run" / "checkpoints" / "zones"
    for zone, expected in {"east": policy, "new": drawn}.items():
        _, state = load_state(zones / zone / "state-00001.npz", zone)
        lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
        (updates,) = (x["updates"] for x in map(json.loads, lines) if x.get("zone") == zone)
        names = [key for key in state if key.startswith("online")]
        flat = np.concatenate([np.ravel(state[key]) for key in names])
        begun = np.concatenate([np.ravel(tensor) for tensor in expected.values()])
        assert 0 < np.abs(np.sort(flat) - np.sort(begun)).max() < 2e-3 * updates


def test_shared_weights_begin_with_the_policy(shared: Path, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", experiment_of(THREE))
    keep_start(folder, experiment_of(THREE), policy_files(shared, ["east", "west", "new"], {}))
    seen: list[RoundDone] = []
    run_training(experiment_of(THREE), folder.path, resume=True, progress=seen.append)
    assert seen[-1].round_number == 1
    from_policy = published(folder.path / "checkpoints" / "best.npz")
    run_training(experiment_of(THREE), tmp_path / "drawn")
    from_nothing = published(tmp_path / "drawn" / "checkpoints" / "best.npz")
    begun = published(shared / "checkpoints" / "best.npz")
    drawn = first_weights(experiment_of(THREE))

    def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
        return float(sum(np.abs(one[name] - other[name]).sum() for name in one))

    assert distance(from_policy, begun) < distance(from_policy, from_nothing)
    assert distance(from_nothing, dict(drawn)) < distance(from_policy, dict(drawn))


def test_zone_takes_the_policy_of_another(apart: Path) -> None:
    files = policy_files(apart, ["east", "new"], {"new": "west"})
    assert files["new"].parent.name == "west"
    assert files["east"].parent.name == "east"
    assert policy_files(apart, ["east", "new"], {"new": ""}).keys() == {"east"}


def test_zone_that_has_no_policy_is_named(apart: Path) -> None:
    with pytest.raises(CheckpointError, match=r"zone new has no policy .* --takes new=ZONE"):
        policy_files(apart, ["east", "new"], {})


def test_run_that_was_stopped_goes_on_without_the_other(shared: Path, tmp_path: Path) -> None:
    experiment, files = experiment_of(TWO), policy_files(shared, ["east", "west"], {})
    for name in ("whole", "killed"):
        keep_start(RunFolder.create(tmp_path / name, experiment), experiment, files)
    run_training(experiment, tmp_path / "whole", resume=True)
    stopped = []

    def tick(share: float) -> None:
        if share > 0.5 and not stopped:
            stopped.append(share)
            raise OSError("the disk is gone")

    with pytest.raises(Exception, match="the disk is gone"):
        run_training(experiment, tmp_path / "killed", resume=True, tick=tick)
    run_training(experiment, tmp_path / "killed", resume=True)
    for name in ("metrics.jsonl", "checkpoints/best.npz"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def said(command: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run(command)
    return code, re.sub(r"[\s│]+", " ", capsys.readouterr().err)


def test_bad_options_are_refused(
    shared: Path, apart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")]
    command = ["train", str(BASE), *options(TWO), *out]
    assert said([*command, "--takes", "east=west"], capsys)[0] == 2
    code, text = said([*command, "--from", str(shared), "--takes", "east"], capsys)
    assert (code, "--takes east, expected ZONE=ZONE" in text) == (2, True)
    code, text = said([*command, "--from", str(shared), "--takes", "north=east"], capsys)
    assert (code, "--takes north: expected a zone out of east, west" in text) == (2, True)
    code, text = said([*command, "--from", str(tmp_path / "none")], capsys)
    assert code == 2
    code, text = said([*command, "--from", str(apart)], capsys)
    assert (code, "expected none where zones begin with different policies" in text) == (2, True)


def test_start_of_another_network_is_refused(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smaller = options(TWO, "agent.hidden=[4]")
    command = ["train", str(BASE), *smaller, "--from", str(shared), "--out", str(tmp_path / "run")]
    code, text = said(command, capsys)
    assert (code, "hidden = [8], expected [4]" in text) == (1, True)


def test_other_start_is_refused_when_the_run_goes_on(
    shared: Path, apart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", str(BASE), *options(TWO, ALONE), "--out", str(tmp_path / "run")]
    assert run([*command, "--from", str(shared)]) == 0
    code, text = said([*command, "--resume", "--from", str(apart)], capsys)
    assert (code, "zone east did not begin with what --from" in text) == (1, True)
    assert run([*command, "--resume", "--from", str(shared)]) == 0


def test_prior_is_that_of_the_run(shared: Path, tmp_path: Path) -> None:
    weights = {"machine.speed": 1.5}
    config = yaml.safe_load((shared / "config.yaml").read_text())
    config["agent"]["prior_weights"] = weights
    other = tmp_path / "other"
    run_training(Experiment.model_validate(config), other)
    command = ["train", str(BASE), *options(TWO), "--from", str(other)]
    assert run([*command, "--out", str(tmp_path / "run")]) == 0
    again = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert again["agent"]["prior_weights"] == weights
