"""The PettingZoo surface: conformance for every configuration, and that it can be learned on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, seed_test
from pettingzoo.utils import parallel_to_aec
from tiny import machines, tiny, zone

from marl_sched.cluster.exchange import LocalExchange
from marl_sched.config import load_config
from marl_sched.envs import check
from marl_sched.envs.check import EnvCheckError, check_env
from marl_sched.envs.cluster_env import AgentObservation, ClusterEnv
from marl_sched.errors import ConfigError, PlacementError
from marl_sched.observation import Layout

CONFIGS = [
    # 4,034 machines: every reset draws millions of instances.
    pytest.param(path, marks=pytest.mark.slow if path.stem == "alibaba-20-zones" else ())
    for path in sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
]

# PettingZoo warns of observations that are dictionaries: ours are meant to be.
is_dict = pytest.mark.filterwarnings(
    "ignore:Observation is not a NumPy array:UserWarning",
    "ignore:Observation space for each agent probably should be:UserWarning",
)


def test_there_are_configurations() -> None:
    assert len(CONFIGS) >= 6


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_passes_our_check(path: Path) -> None:
    env = ClusterEnv(load_config(path))
    check_env(env, n_steps=60)
    assert env.agents  # it did not end early: the steps were played


def test_alibabas_whole_cluster_takes_a_step() -> None:
    env = ClusterEnv(load_config(Path(__file__).parents[2] / "configs/alibaba-20-zones.yaml"))
    observations, _ = env.reset(seed=1)
    assert sum(len(seen["machines"]) for seen in observations.values()) == 4034
    choices = {name: int(seen["action_mask"].argmax()) for name, seen in observations.items()}
    observations, *_ = env.step(choices)
    assert all(np.isfinite(seen["machines"]).all() for seen in observations.values())


@is_dict
@pytest.mark.filterwarnings("ignore:We recommend agents to be named:UserWarning")  # three-az
@pytest.mark.filterwarnings("ignore:Agents have different .* space sizes:UserWarning")  # 20 zones
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_passes_pettingzoos_tests(path: Path) -> None:
    config = load_config(path)
    api_test(parallel_to_aec(ClusterEnv(config)), num_cycles=30)
    seed_test(lambda: parallel_to_aec(ClusterEnv(config)), num_cycles=15)


def _toy(**changes: Any) -> ClusterEnv:
    return ClusterEnv(tiny(zone("a", machines(2)), zone("b", machines(cpu=6000)), **changes))


@is_dict
def test_parallel_api() -> None:
    parallel_api_test(_toy(), num_cycles=50)


@pytest.mark.parametrize("zones", [1, 2])
def test_a_whole_small_episode_passes_our_check(zones: int) -> None:
    both = (zone("a", machines(2), failures={"mean_up_s": 30.0, "mean_down_s": 5.0}), zone("b"))
    env = ClusterEnv(tiny(*both[:zones]))
    check_env(env, n_steps=10_000)
    assert not env.agents


def _play(env: ClusterEnv, choose: Any, **reset: Any) -> list[Any]:
    observations, infos = env.reset(**reset)
    steps = [(observations, {}, {}, infos)]
    while env.agents:
        actions = {name: choose(observations[name]) for name in env.agents}
        observations, rewards, _, truncations, infos = env.step(actions)
        steps.append((observations, rewards, truncations, infos))
    return steps


def _first(observation: AgentObservation) -> int:
    return int(np.argmax(observation["action_mask"]))


def test_all_agents_live_to_the_end_which_is_a_truncation() -> None:
    steps = _play(_toy(), _first)
    assert all(set(truncations.values()) == {False} for _, _, truncations, _ in steps[1:-1])
    assert steps[-1][2] == {"a": True, "b": True}


def test_rewards_are_the_sums_of_the_settlements() -> None:
    steps = _play(_toy(), _first)
    for _, rewards, _, infos in steps[1:]:
        for name, reward in rewards.items():
            assert reward == sum(amount for _, amount in infos[name]["settlements"])
    decided = {info["a"]["decision"] for *_, info in steps} - {-1}
    settled = {number for *_, info in steps for number, _ in info["a"]["settlements"]}
    assert settled == decided == set(range(len(decided)))


def test_an_agent_without_a_decision_can_only_idle() -> None:
    seen = 0
    for observations, *_, infos in _play(_toy(), _first)[:-1]:
        for name, observation in observations.items():
            if infos[name]["decision"] == -1:
                seen += 1
                assert observation["action_mask"].tolist() == [0] * (
                    len(observation["action_mask"]) - 1
                ) + [1]
                assert not observation["machines"].any()
                assert not observation["zone"].any()
    assert seen > 0


def test_a_seed_replays_and_episodes_without_one_differ() -> None:
    env = _toy()

    def rewards(**reset: Any) -> list[dict[str, float]]:
        return [step[1] for step in _play(env, _first, **reset)]

    first = rewards(seed=3)
    second = rewards()
    assert rewards(seed=3) == first
    assert rewards() == second
    assert first != second
    assert rewards(seed=3, options={"episode": 1}) == second
    assert rewards(options={"episode": 0, "split": "test"}) != first


def test_metrics_of_a_finished_episode() -> None:
    env = _toy()
    _play(env, _first)
    metrics = env.metrics()
    assert metrics["objective"] > 0
    assert metrics["unfinished_rate"] < 0.5


def _masked(env: ClusterEnv, observations: dict[str, AgentObservation]) -> dict[str, int]:
    """Return actions of which the last agent's is masked."""
    actions = {name: _first(observations[name]) for name in env.agents}
    last = env.agents[-1]
    actions[last] = int(np.flatnonzero(observations[last]["action_mask"] == 0)[0])
    return actions


def test_a_masked_action_raises_before_anybody_acts() -> None:
    env = _toy()
    observations, infos = env.reset(seed=0)
    while infos["a"]["decision"] < 0:
        actions = {name: _first(observations[name]) for name in env.agents}
        observations, _, _, _, infos = env.step(actions)
    with pytest.raises(PlacementError, match=r"zone b: action \d+ is masked"):
        env.step(_masked(env, observations))
    actions = {name: _first(observations[name]) for name in env.agents}
    *_, infos_after = env.step(actions)
    settled = [number for number, _ in infos_after["a"]["settlements"]]
    assert settled.count(infos["a"]["decision"]) <= 1
    assert not env.book_errors("a")


def test_masked_actions_can_be_counted_instead() -> None:
    experiment = tiny(zone("a", machines(2)))
    env = ClusterEnv(experiment, on_masked_action="idle")
    _, infos = env.reset()
    before = infos["a"]["decision"]
    idle = env.action_space("a").n - 1
    observations, _, _, _, infos = env.step({"a": idle})
    assert infos["a"]["decision"] == before
    assert infos["a"]["masked_actions"] == env.masked_actions == 1
    env.step({"a": 99})
    assert env.masked_actions == 2
    _, _, _, _, infos = env.step({"a": _first(observations["a"])})
    assert infos["a"]["masked_actions"] == 2


def test_zones_hosted_elsewhere_need_an_exchange() -> None:
    experiment = tiny(zone("a"), zone("b"))
    with pytest.raises(ConfigError, match=r"zones = \['a'\]: the other zones need an exchange"):
        ClusterEnv(experiment, ["a"])
    with pytest.raises(ConfigError, match="zone nowhere: expected one of a, b"):
        ClusterEnv(experiment, ["nowhere"], LocalExchange(["a", "b"]))
    with pytest.raises(ConfigError, match="on_masked_action = ignore"):
        ClusterEnv(experiment, on_masked_action="ignore")


class _Broken(ClusterEnv):
    """An environment with one fault."""

    fault = ""

    def step(self, actions: dict[str, int]) -> Any:
        if self.fault == "accepts":
            self._raises = False
        observations, rewards, terminations, truncations, infos = super().step(actions)
        name = self.possible_agents[0]
        if self.fault == "bounds" and name in observations:
            observations[name]["zone"][0] = 11.0
        if self.fault == "idle" and name in observations:
            observations[name]["action_mask"][-1] = 1 - observations[name]["action_mask"][-1]
        if self.fault == "terminates":
            terminations[name] = True
        if self.fault == "random":
            self.calls = getattr(self, "calls", 0) + 1
            rewards[name] = float(self.calls)
        if self.fault == "books":
            self._zones[name].simulator.state.free[0, 0, 0] += 1
        return observations, rewards, terminations, truncations, infos


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("accepts", "did not raise"),
        ("bounds", "not in the observation space"),
        ("idle", "idle must be unmasked exactly when nothing else is"),
        ("terminates", "expected no termination"),
        ("random", "did not play alike"),
        ("books", "the books do not balance"),
    ],
)
def test_check_env_finds(fault: str, message: str) -> None:
    env = _Broken(tiny(zone("a", machines(2)), zone("b")))
    env.fault = fault
    with pytest.raises(EnvCheckError, match=message):
        check_env(env, n_steps=20)
    assert issubclass(EnvCheckError, check.MarlSchedError)


TOY = tiny(
    zone("a", machines(2, speed=1.5), machines(2, speed=0.5, price_per_hour=3.0)),
    zone("b", machines(2, speed=1.5), machines(2, speed=0.5, price_per_hour=3.0)),
    cluster={"interference": 1.2},
    workload={"load": 0.6},
)
SPEED = Layout(("cpu_milli", "memory_mib")).candidate_index("expected_duration")


class _Learner:
    """A linear bandit on the machines' features, fed by nothing but infos: ridge regression."""

    def __init__(self, n_features: int, generator: np.random.Generator) -> None:
        self.generator = generator
        self.gram, self.moment = np.eye(n_features), np.zeros(n_features)
        self.taken: dict[tuple[str, int], np.ndarray] = {}

    def choose(self, observation: AgentObservation, epsilon: float) -> tuple[int, np.ndarray]:
        mask = observation["action_mask"].astype(bool)
        if mask[-1]:
            return len(mask) - 1, np.zeros(0)
        candidates = np.concatenate([observation["machines"], observation["peers"]])
        scores = np.where(mask[:-1], candidates @ np.linalg.solve(self.gram, self.moment), -np.inf)
        action = int(np.argmax(scores))
        if self.generator.random() < epsilon:
            action = int(self.generator.choice(np.flatnonzero(mask[:-1])))
        return action, candidates[action].astype(np.float64)

    def learn(self, name: str, settlements: list[tuple[int, float]]) -> None:
        for decision, reward in settlements:
            features = self.taken.pop((name, decision), None)
            if features is not None:
                self.gram += np.outer(features, features)
                self.moment += reward * features


def _objective(learner: _Learner, env: ClusterEnv, epsilon: float, options: Any) -> float:
    """Play an episode with the PettingZoo loop alone and return its objective."""
    observations, infos = env.reset(options=options)
    learner.taken.clear()
    while env.agents:
        actions = {}
        for name in env.agents:
            actions[name], features = learner.choose(observations[name], epsilon)
            if len(features):
                learner.taken[name, infos[name]["decision"]] = features
        observations, _, _, _, infos = env.step(actions)
        if epsilon > 0:
            for name, info in infos.items():
                learner.learn(name, info["settlements"])
    return env.metrics()["objective"]


def test_a_plain_loop_learns_to_beat_random() -> None:
    env = ClusterEnv(TOY)
    n_features = env.observation_space("a")["machines"].shape[1]
    learner = _Learner(n_features, np.random.default_rng(0))
    rival = _Learner(n_features, np.random.default_rng(1))
    for episode in range(12):
        _objective(learner, env, 0.3, {"episode": episode})
    gains = [
        _objective(rival, env, 1.0, {"episode": episode, "split": "test"})
        - _objective(learner, env, 0.0, {"episode": episode, "split": "test"})
        for episode in range(20)
    ]
    half_width = 2.093 * np.std(gains, ddof=1) / np.sqrt(len(gains))  # Student's t, 19 degrees
    assert np.mean(gains) - half_width > 0
