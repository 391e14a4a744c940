import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from marl_sched.agents.architecture import Architecture, initial_weights
from marl_sched.agents.learned import LearnedPolicy, load_policy, save_policy
from marl_sched.agents.storage import read_arrays, write_arrays
from marl_sched.config import Agent
from marl_sched.errors import CheckpointError
from marl_sched.observation import Layout, Observation

LAYOUT = Layout(("cpu_milli", "memory_mib"))
AGENT = Agent(prior="none", hidden=[8, 6], n_quantiles=3)
CORRECTING = Agent(hidden=[8, 6], n_quantiles=3, prior_weights={"machine.speed": 1.0})


def _policy(agent: Agent = AGENT) -> LearnedPolicy:
    weights = initial_weights(Architecture.of(LAYOUT, agent), np.random.default_rng(1))
    if agent.has_prior:
        rng = np.random.default_rng(3)  # a head of zeros would be the prior alone
        weights["head.weight"] = rng.standard_normal((6, 3)).astype(np.float32)
    return LearnedPolicy.of(LAYOUT, agent, weights)


def _change(agent: Agent, **changes: object) -> Agent:
    return Agent.model_validate(agent.model_dump() | changes)


def _observe(n_candidates: int) -> Observation:
    rng = np.random.default_rng(2)
    shape = (30, n_candidates)
    mask = rng.random(shape) < 0.3
    mask[:, 0] = True
    return Observation(
        replica=np.arange(30),
        decision=np.zeros(30, np.int64),
        instance=rng.standard_normal((30, len(LAYOUT.instance))).astype(np.float32),
        candidates=rng.standard_normal((*shape, len(LAYOUT.candidate))).astype(np.float32),
        zone=rng.standard_normal((30, len(LAYOUT.zone))).astype(np.float32),
        mask=mask,
        n_machines=n_candidates - 2,
    )


@pytest.mark.parametrize("cvar_alpha", [0.4, 1.0])
@pytest.mark.parametrize("agent", [AGENT, CORRECTING])
def test_loaded_policy_acts_as_the_saved_one(
    tmp_path: Path, cvar_alpha: float, agent: Agent
) -> None:
    policy = _policy(_change(agent, cvar_alpha=cvar_alpha, gate_margin=0.3))
    policy.reset(30, np.random.default_rng(1))
    save_policy(tmp_path / "policy.npz", policy)
    loaded = load_policy(tmp_path / "policy.npz", LAYOUT)
    assert loaded.cvar_alpha == cvar_alpha
    for n_candidates in (5, 40):
        observation = _observe(n_candidates)
        actions = loaded.act(observation)
        np.testing.assert_array_equal(actions, policy.act(observation))
        assert observation.mask[np.arange(30), actions].all()
        assert actions.dtype == np.int64


def test_file_of_a_correction_holds_its_prior(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    agent = _change(CORRECTING, prior_scale=0.25, gate_margin=0.7, value_hidden=5)
    save_policy(path, _policy(agent))
    loaded = load_policy(path, LAYOUT)
    assert loaded.prior is not None
    assert loaded.prior.weights == {"machine.speed": 1.0}
    assert (loaded.gate_margin, loaded.architecture.prior_scale) == (0.7, 0.25)
    other = load_policy(path, LAYOUT, _change(agent, gate_margin=0.1))
    assert other.gate_margin == 0.1
    for key, value in (("prior_scale", 0.5), ("value_hidden", 6), ("prior", "none")):
        with pytest.raises(CheckpointError, match=r"prior_|value_hidden"):
            load_policy(path, LAYOUT, _change(agent, **{key: value}))


@pytest.mark.parametrize("changes", [{"prior_weights": {"x": 1.0}}, {"gate_margin": -1.0}])
def test_bad_prior_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "policy.npz"
    save_policy(path, _policy(CORRECTING))
    metadata, arrays = read_arrays(path, "policy")
    write_arrays(path, "policy", metadata | changes, arrays)
    with pytest.raises(CheckpointError, match=next(iter(changes))):
        load_policy(path, LAYOUT)


def test_equal_policies_make_equal_files(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        save_policy(tmp_path / name, _policy())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


@pytest.mark.parametrize(
    ("layout", "agent", "message"),
    [
        (Layout(("cpu_milli", "memory_mib", "network_mbps")), None, "resources = "),
        (LAYOUT, _change(AGENT, hidden=[8, 8]), r"hidden = \[8, 6\], expected \[8, 8\]"),
        (LAYOUT, _change(AGENT, n_quantiles=32), "n_quantiles = 3, expected 32"),
        (LAYOUT, CORRECTING, r"prior_weights = None, expected \{'machine.speed': 1.0\}"),
    ],
)
def test_policy_of_another_architecture_is_refused(
    tmp_path: Path, layout: Layout, agent: Agent | None, message: str
) -> None:
    path = tmp_path / "policy.npz"
    save_policy(path, _policy())
    with pytest.raises(CheckpointError, match=message) as caught:
        load_policy(path, layout, agent)
    assert str(caught.value).startswith(str(path))


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    save_policy(path, _policy())
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="half-written or not a file of marl-sched"):
            load_policy(path, LAYOUT)


def test_flipped_weight_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    save_policy(path, _policy())
    content = bytearray(path.read_bytes())
    start = content.find(_policy().weights()["first.weight"].tobytes()[:64])
    content[start + 10] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="half-written or not"):
        load_policy(path, LAYOUT)


def _write_text(path: Path) -> None:
    path.write_text("hello")


def _write_bare_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def _write_foreign_archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, weights=np.zeros(3))


def _write_pickle(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, header=np.array([{"project": "marl-sched"}], dtype=object))


def _write_zip_of_text(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", json.dumps({}))


def _write_list_header(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, header=np.array("[1, 2]"))


@pytest.mark.parametrize(
    "write",
    [
        _write_text,
        _write_bare_array,
        _write_foreign_archive,
        _write_pickle,
        _write_zip_of_text,
        _write_list_header,
    ],
)
def test_foreign_file_is_refused(tmp_path: Path, write) -> None:
    path = tmp_path / "policy.npz"
    write(path)
    with pytest.raises(CheckpointError, match="not a file of marl-sched, expected a policy file"):
        load_policy(path, LAYOUT)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        load_policy(tmp_path / "none.npz", LAYOUT)
    with pytest.raises(CheckpointError, match="cannot be read: Is a directory"):
        load_policy(tmp_path, LAYOUT)


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    write_arrays(path, "zone state", {"round": 3}, {"x": np.arange(4)})
    with pytest.raises(CheckpointError, match="kind = 'zone state', expected 'policy'"):
        load_policy(path, LAYOUT)
    metadata, arrays = read_arrays(path, "zone state")
    assert metadata == {"round": 3}
    np.testing.assert_array_equal(arrays["x"], np.arange(4))


@pytest.mark.parametrize("changes", [{"cvar_alpha": 2.0}, {"hidden": [0]}, {"n_quantiles": "x"}])
def test_bad_metadata_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "policy.npz"
    save_policy(path, _policy())
    metadata, arrays = read_arrays(path, "policy")
    write_arrays(path, "policy", metadata | changes, arrays)
    with pytest.raises(CheckpointError, match=f"{next(iter(changes))}"):
        load_policy(path, LAYOUT)


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    save_policy(path, _policy())
    before = path.read_bytes()
    with pytest.raises(ValueError, match="x: an array of objects"):
        write_arrays(path, "policy", {}, {"x": np.array([{}], dtype=object)})
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.npz"]


def test_agent_that_leaves_weights_and_number_to_be_found_takes_those_of_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.npz"
    save_policy(path, _policy(CORRECTING))
    open_agent = Agent.model_validate(
        {"hidden": [8, 6], "n_quantiles": "auto", "cvar_alpha": 0.25, "gate_margin": 0.2}
    )
    loaded = load_policy(path, LAYOUT, open_agent)
    assert loaded.prior is not None
    assert loaded.prior.weights == {"machine.speed": 1.0}
    assert (loaded.architecture.n_quantiles, loaded.cvar_alpha) == (3, 0.25)
    other = _change(open_agent, prior_weights={"machine.speed": 2.0})
    with pytest.raises(CheckpointError, match="prior_weights"):
        load_policy(path, LAYOUT, other)
