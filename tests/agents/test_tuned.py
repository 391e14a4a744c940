import json
from pathlib import Path

import numpy as np
import pytest

from marl_sched.agents.heuristics import make_policy
from marl_sched.agents.tuned import TunedRule, default_weights, load_tuned, tuned_path
from marl_sched.config import Experiment, load_config
from marl_sched.config.hashing import environment_hash
from marl_sched.errors import ConfigError
from marl_sched.observation import Layout, Observation

CONFIGS = Path(__file__).parents[2] / "configs"
LAYOUT = Layout(("cpu_milli", "memory_mib"))
N_MACHINES = 3


@pytest.fixture(scope="module")
def base() -> Experiment:
    return load_config(CONFIGS / "base.yaml")


@pytest.fixture
def observation() -> Observation:
    generator = np.random.default_rng(5)
    candidates = generator.normal(size=(4, N_MACHINES + 2, len(LAYOUT.candidate)))
    candidates[:, :, LAYOUT.fit_columns] = abs(candidates[:, :, LAYOUT.fit_columns])
    return Observation(
        replica=np.arange(4),
        decision=np.zeros(4, np.int64),
        instance=np.zeros((4, len(LAYOUT.instance)), np.float32),
        candidates=candidates.astype(np.float32),
        zone=np.zeros((4, len(LAYOUT.zone)), np.float32),
        mask=np.ones((4, N_MACHINES + 2), bool),
        n_machines=N_MACHINES,
    )


def test_score_is_the_weighted_sum_of_the_kind(observation: Observation) -> None:
    weights = {
        "machine.cost": -2.0,
        "machine.free_share:memory_mib": 0.5,
        "peer.free_share:memory_mib": 3.0,
    }
    scores = TunedRule(LAYOUT, weights).scores(observation)
    cost = LAYOUT.candidate_index("cost")
    free = LAYOUT.candidate_index("free_share:memory_mib")
    for row in range(4):
        for column in range(N_MACHINES + 2):
            features = observation.candidates[row, column].astype(float)
            if column < N_MACHINES:
                expected = -2.0 * features[cost] + 0.5 * features[free]
            else:
                expected = 3.0 * features[free]
            assert scores[row, column] == pytest.approx(expected, abs=1e-6)


def test_machines_that_lack_what_is_requested_come_after_all_others(
    observation: Observation,
) -> None:
    rule = TunedRule(LAYOUT, {"machine.speed": 1.0})
    speed = LAYOUT.candidate_index("speed")
    (before, _), (after, other_after) = LAYOUT.fit_columns
    observation.candidates[:, :, speed] = 0.0
    observation.candidates[:, 1, speed] = 4.0
    assert rule.act(observation).tolist() == [1, 1, 1, 1]
    observation.candidates[0, 1, after] = -0.1  # lacks cpu
    observation.candidates[1, 1, other_after] = -0.1  # lacks memory
    observation.candidates[2, 1, [before, after]] = -0.1  # lacks cpu, of which nothing is asked for
    observation.candidates[3, 1, after] = -1e-8  # by rounding
    assert rule.act(observation).tolist() == [0, 0, 1, 1]
    observation.candidates[:, :N_MACHINES, before] = 0.0
    observation.candidates[:, :N_MACHINES, after] = -0.1
    assert rule.act(observation).tolist() == [N_MACHINES] * 4
    observation.mask[:, N_MACHINES:] = False
    assert rule.act(observation).tolist() == [1, 1, 1, 1]


def test_may_offload_while_machines_are_free(observation: Observation) -> None:
    rule = TunedRule(LAYOUT, {"peer.is_peer": 9.0})
    observation.candidates[:, N_MACHINES:, LAYOUT.candidate_index("is_peer")] = 1.0
    assert (rule.act(observation) == N_MACHINES).all()


def test_equal_candidates_tie_to_the_first_whatever_the_batch(observation: Observation) -> None:
    observation.candidates[:] = observation.candidates[:1, :1]
    rule = TunedRule(LAYOUT, default_weights(LAYOUT))
    observation.mask[:, N_MACHINES:] = False
    assert rule.act(observation).tolist() == [0, 0, 0, 0]


def test_default_weights_cover_three_resources() -> None:
    layout = Layout(("cpu_milli", "memory_mib", "network"))
    names = default_weights(layout)
    assert "machine.imbalance_change:network" in names
    assert TunedRule(layout, names).scores is not None


def test_unknown_feature_is_named() -> None:
    with pytest.raises(ConfigError, match=r"weight machine\.luck = 1\.0, expected a name"):
        TunedRule(LAYOUT, {"machine.luck": 1.0})


def test_missing_weights_name_the_command(base: Experiment, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"base\.json: .* marl-sched tune CONFIG"):
        make_policy("tuned", LAYOUT, base, tuned_folder=tmp_path)


def test_tuned_file_is_loaded_by_name(
    base: Experiment, tmp_path: Path, observation: Observation
) -> None:
    path = tuned_path(base, tmp_path)
    content = {"environment_hash": environment_hash(base), "weights": {"machine.speed": 1.0}}
    path.write_text(json.dumps(content))
    rule = make_policy("tuned", LAYOUT, base, tuned_folder=tmp_path)
    observation.mask[:, N_MACHINES:] = False
    speed = observation.candidates[:, :N_MACHINES, LAYOUT.candidate_index("speed")]
    assert rule.act(observation).tolist() == speed.argmax(axis=1).tolist()


def test_weights_of_another_environment_are_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "base.json"
    path.write_text('{"environment_hash": "a", "weights": {"machine.speed": 1}}')
    assert load_tuned(path, LAYOUT, "b") == {"machine.speed": 1.0}
    assert "tuned in environment a, used in b" in caplog.text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not a file of tuned weights"),
        ("[]", "has no mapping `weights`"),
        ('{"weights": {"machine.luck": 1}}', r"weights\.machine\.luck = 1"),
        ('{"weights": {"machine.speed": NaN}}', r"weights\.machine\.speed = nan"),
        ('{"weights": {"machine.speed": "a"}}', r"weights\.machine\.speed = 'a'"),
    ],
)
def test_broken_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_tuned(path, LAYOUT, "")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("tuned/*.json")), ids=lambda path: path.stem)
def test_shipped_weights_were_tuned_in_the_shipped_configuration(path: Path) -> None:
    experiment = load_config(CONFIGS / f"{path.stem}.yaml")
    assert json.loads(path.read_text())["environment_hash"] == environment_hash(experiment)
