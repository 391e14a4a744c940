"""One trajectory, whoever hosts the zones, in whatever order, beside whatever replicas."""

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tiny import Act, at_random, first_open, machines, tiny, zone

from marl_sched.cluster.exchange import LocalExchange
from marl_sched.cluster.metrics import ZoneSums
from marl_sched.config import Experiment
from marl_sched.envs.cluster_env import ClusterEnv
from marl_sched.envs.vector import VectorEnv
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.errors import ExchangeAborted, ExchangeError, PlacementError
from marl_sched.observation import Observation
from marl_sched.workload.episodes import draw_workload

FAILING = {"mean_up_s": 30.0, "mean_down_s": 6.0}
ZONES = (
    zone("a", machines(2, price_per_hour=2.0), load=1.2, failures=FAILING),
    zone("b", machines(), machines(cpu=8000, speed=1.5)),
    zone("c", machines(), background={"mean": {"cpu_milli": 0.2}, "sd": 0.1, "step_s": 10.0}),
)


def _experiment(*zones: dict[str, Any]) -> Experiment:
    return tiny(*(zones or ZONES), cluster={"peer_queue_allowance": 0.5}, seed=7)


class Trace:
    """What one zone saw, did and was told, as bytes."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.settled: list[tuple[int, int, float]] = []
        self.sums: bytes = b""

    def see(self, observation: Observation, actions: np.ndarray) -> None:
        arrays = (
            observation.replica,
            observation.decision,
            observation.instance,
            observation.candidates,
            observation.zone,
            observation.mask,
            actions,
        )
        self.seen.append(b"".join(array.tobytes() for array in arrays))

    def hear(self, env: ZoneEnv) -> None:
        got = env.settlements()
        columns = (got.replica.tolist(), got.decision.tolist(), got.reward.tolist())
        self.settled += zip(*columns, strict=True)

    def finish(self, sums: ZoneSums) -> None:
        arrays = (sums.sums, sums.histogram, sums.cluster_imbalance)
        self.sums = b"".join(array.tobytes() for array in arrays)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Trace)
        return vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def _play_alone(env: ZoneEnv, act: Act, episodes: list[int]) -> Trace:
    """The loop of a zone on its own thread."""
    trace = Trace()
    env.reset("train", episodes)
    while not env.done:
        while (seen := env.observe()) is not None:
            actions = act(env.name, seen)
            trace.see(seen, actions)
            env.step(actions)
        env.end_window()
        trace.hear(env)
    trace.finish(env.finish())
    return trace


def _play_apart(experiment: Experiment, episodes: list[int]) -> dict[str, Trace]:
    exchange = LocalExchange(experiment.zone_names, timeout_s=30.0)
    traces: dict[str, Trace] = {}

    def run(name: str) -> None:
        env = ZoneEnv(experiment, name, exchange, len(episodes))
        traces[name] = _play_alone(env, at_random(1), episodes)

    threads = [threading.Thread(target=run, args=(name,)) for name in experiment.zone_names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60.0)
    return traces


def _play_together(experiment: Experiment, episodes: list[int]) -> dict[str, Trace]:
    env = VectorEnv(experiment, len(episodes))
    traces = {name: Trace() for name in env.zones}
    act = at_random(1)
    env.reset("train", episodes)
    while not env.done:
        for name, one in env.zones.items():
            while (seen := one.observe()) is not None:
                actions = act(name, seen)
                traces[name].see(seen, actions)
                one.step(actions)
        env.end_window()
        for name, one in env.zones.items():
            traces[name].hear(one)
    for name, one in env.zones.items():
        traces[name].finish(one.finish())
    return traces


def test_together_and_apart_in_threads_are_the_same_trajectory() -> None:
    together = _play_together(_experiment(), [0, 1])
    assert sum(len(trace.seen) for trace in together.values()) > 100
    assert _play_apart(_experiment(), [0, 1]) == together


def test_the_order_of_the_zones_in_the_file_changes_nothing() -> None:
    expected = _play_together(_experiment(), [0, 1])
    assert _play_together(_experiment(*reversed(ZONES)), [0, 1]) == expected


def test_an_episode_played_twice_is_the_same() -> None:
    assert _play_together(_experiment(), [3]) == _play_together(_experiment(), [3])


def test_an_episode_after_others_is_the_same_as_a_first_one() -> None:
    experiment = _experiment()
    exchange = LocalExchange(["a"])
    alone = tiny(ZONES[0], seed=7)
    env = ZoneEnv(alone, "a", exchange, 1)
    _play_alone(env, first_open, [0])
    again = _play_alone(env, first_open, [5])
    fresh = _play_alone(ZoneEnv(alone, "a", LocalExchange(["a"]), 1), first_open, [5])
    assert again == fresh
    assert experiment.seed == alone.seed


def test_adding_a_zone_leaves_the_others_workloads_unchanged() -> None:
    before, after = _experiment(*ZONES[:2]), _experiment(*ZONES, zone("aa"))
    for config in before.zones:
        old = draw_workload(before, config, "train", 4)
        new = draw_workload(after, config, "train", 4)
        for name, array in vars(old).items():
            assert np.array_equal(array, getattr(new, name)), name


def test_vector_env_and_cluster_env_agree_decision_by_decision() -> None:
    experiment = _experiment()
    single = ClusterEnv(experiment)
    vector = VectorEnv(experiment, 1)
    vector.reset("train", [0])
    observations, infos = single.reset(options={"split": "train", "episode": 0})
    settled: dict[str, list[tuple[int, float]]] = {name: [] for name in vector.zones}
    heard: dict[str, list[tuple[int, float]]] = {name: [] for name in vector.zones}
    generator = np.random.default_rng(0)
    n_decisions = 0
    while single.agents:
        due = {name: env.observe() for name, env in vector.zones.items()}
        if all(seen is None for seen in due.values()):
            vector.end_window()
            continue
        actions = {}
        for name, seen in due.items():
            given = observations[name]
            if seen is None:
                assert not given["action_mask"][:-1].any()
                actions[name] = len(given["action_mask"]) - 1
                continue
            m = seen.n_machines
            n_decisions += 1
            assert infos[name]["decision"] == seen.decision[0]
            assert given["instance"].tobytes() == seen.instance[0].tobytes()
            assert given["machines"].tobytes() == seen.candidates[0, :m].tobytes()
            assert given["peers"].tobytes() == seen.candidates[0, m:].tobytes()
            assert given["zone"].tobytes() == seen.zone[0].tobytes()
            assert given["action_mask"].tolist() == [*seen.mask[0].astype(int).tolist(), 0]
            actions[name] = int(generator.choice(np.flatnonzero(seen.mask[0])))
            vector.zones[name].step(np.array([actions[name]]))
        observations, rewards, _, _, infos = single.step(actions)
        for name in rewards:
            heard[name] += infos[name]["settlements"]
            assert rewards[name] == sum(reward for _, reward in infos[name]["settlements"])
    while not vector.done:
        vector.end_window()
    for name, env in vector.zones.items():
        got = env.settlements()
        settled[name] = list(zip(got.decision.tolist(), got.reward.tolist(), strict=True))
        assert sorted(settled[name]) == sorted(heard[name])
    assert n_decisions > 50
    expected = [env.finish() for env in vector.zones.values()]
    for name, env in single._zones.items():
        sums = expected[sorted(vector.zones).index(name)]
        assert env.finish().sums.tobytes() == sums.sums.tobytes()


def test_a_replica_does_not_depend_on_those_beside_it() -> None:
    experiment = _experiment()

    def metrics(episodes: list[int]) -> dict[str, np.ndarray]:
        env = VectorEnv(experiment, len(episodes))
        policy = {name: _FirstOpen() for name in env.zones}
        return env.run(policy, "test", episodes)

    alone, among = metrics([4]), metrics([2, 4, 9])
    for name, values in alone.items():
        if name != "decision_latency_us":
            assert values[0] == among[name][1], name


class _FirstOpen:
    def reset(self, n_replicas: int, generator: np.random.Generator) -> None:
        pass

    def act(self, observation: Observation) -> np.ndarray:
        return np.argmax(observation.mask, axis=1)


def test_cluster_env_hosts_zones_apart_over_one_exchange() -> None:
    experiment = _experiment()
    exchange = LocalExchange(experiment.zone_names, timeout_s=30.0)
    found: dict[str, list[float]] = {}

    def run(zones: list[str], exchange: LocalExchange | None) -> None:
        env = ClusterEnv(experiment, zones, exchange)
        observations, _ = env.reset()
        totals = dict.fromkeys(zones, 0.0)
        while env.agents:
            actions = {n: int(np.argmax(observations[n]["action_mask"])) for n in env.agents}
            observations, rewards, *_ = env.step(actions)
            for name, reward in rewards.items():
                totals[name] += reward
        for name, total in totals.items():
            found.setdefault(name, []).append(total)

    run(["a", "b", "c"], None)
    threads = [threading.Thread(target=run, args=(zs, exchange)) for zs in (["a", "c"], ["b"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60.0)
    for name, (together, apart) in found.items():
        assert together == pytest.approx(apart, rel=1e-12), name
    assert len(found) == 3


def test_an_abort_frees_the_zones_that_wait() -> None:
    experiment = _experiment()
    exchange = LocalExchange(experiment.zone_names, timeout_s=30.0)
    errors: list[ExchangeError] = []

    def run(name: str) -> None:
        try:
            _play_alone(ZoneEnv(experiment, name, exchange, 1), first_open, [0])
        except ExchangeAborted as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    exchange.abort("zone c has left")
    for thread in threads:
        thread.join(timeout=20.0)
    assert [str(error) for error in errors] == ["zone c has left"] * 2


def test_a_zone_starts_over_after_an_abort() -> None:
    experiment = _experiment(*ZONES[:2])
    exchange = LocalExchange(["a", "b"])
    a = ZoneEnv(experiment, "a", exchange, 1)
    a.begin("train", [0])
    exchange.abort("zone b has left")
    with pytest.raises(ExchangeAborted):
        a.receive()
    exchange.restart(["a", "b"])
    b = ZoneEnv(experiment, "b", exchange, 1)
    for env in (a, b):
        env.begin("train", [0])
    for env in (a, b):
        env.receive()
    assert a.window == b.window == 0


@pytest.mark.parametrize("part", ["offloads", "notices", "settlements", "digests", "moments"])
def test_a_message_of_another_shape_is_refused(part: str) -> None:
    experiment = _experiment(*ZONES[:2])
    exchange = LocalExchange(["a", "b"])
    env = ZoneEnv(experiment, "a", exchange, 1)
    env.begin("train", [0])
    right = ZoneEnv(experiment, "b", LocalExchange(["b"]), 1)
    right.begin("train", [0])
    (outbox,) = right.exchange.collect("b", 0)
    exchange.post(replace(outbox, **{part: np.zeros((2, 3))}))
    with pytest.raises(ExchangeError, match=rf"zone b, step 0: {part} of shape \(2, 3\), expected"):
        env.receive()


def test_a_window_cannot_end_while_decisions_are_due() -> None:
    env = VectorEnv(_experiment(), 1)
    env.reset("train", [0])
    while all(one.observe() is None for one in env.zones.values()):
        env.end_window()
    with pytest.raises(ExchangeError, match="the window cannot end now"):
        env.end_window()


def test_episodes_must_match_the_replicas() -> None:
    env = VectorEnv(_experiment(), 2)
    with pytest.raises(ValueError, match="1 episodes for 2 replicas"):
        env.reset("train", [0])


def test_a_cloned_replica_plays_on_alike_and_touches_no_other() -> None:
    experiment = _experiment()
    env = VectorEnv(experiment, 3)
    env.reset("train", [0, 1, 2])
    plain = VectorEnv(experiment, 3)
    plain.reset("train", [0, 1, 2])

    def play(target: VectorEnv, n_windows: int) -> dict[str, list[Any]]:
        heard: dict[str, list[Any]] = {name: [] for name in target.zones}
        for _ in range(n_windows):
            for one in target.zones.values():
                while (seen := one.observe()) is not None:
                    actions = np.argmax(seen.mask, axis=1)
                    # The choice depends on what is seen only: the copy sees the same.
                    best = np.where(seen.mask, seen.candidates[:, :, 0], -1.0)
                    actions = np.where(seen.zone[:, 0] > 1.0, np.argmax(best, axis=1), actions)
                    one.step(actions)
            if target.done:
                break
            target.end_window()
            for name, one in target.zones.items():
                got = one.settlements()
                columns = (got.replica.tolist(), got.decision.tolist(), got.reward.tolist())
                heard[name] += zip(*columns, strict=True)
        return heard

    play(env, 7)
    play(plain, 7)
    env.copy_replica(0, 2)
    ours, theirs = play(env, 60), play(plain, 60)
    assert env.done
    assert plain.done
    for name, one in env.zones.items():
        sums, other = one.finish(), plain.zones[name].finish()
        assert sums.sums[0].tobytes() == sums.sums[2].tobytes()
        assert sums.cluster_imbalance[0].tobytes() == sums.cluster_imbalance[2].tobytes()
        of = {e: [row[1:] for row in ours[name] if row[0] == e] for e in range(3)}
        assert sorted(of[0]) == sorted(of[2])
        assert len(of[0]) > 10
        for replica in (0, 1):
            assert sums.sums[replica].tobytes() == other.sums[replica].tobytes()
            kept = [row[1:] for row in theirs[name] if row[0] == replica]
            assert sorted(of[replica]) == sorted(kept)


def test_a_clone_in_the_middle_of_a_window_has_its_due_decision_and_pending_credit() -> None:
    experiment = tiny(zone("a", machines(3)), workload={"load": 1.0})
    env = VectorEnv(experiment, 2)
    env.reset("train", [0, 1])
    one = env.zones["a"]
    while (seen := one.observe()) is None or 0 not in seen.replica or seen.decision[0] < 1:
        if seen is None:
            env.end_window()
        else:
            one.step(np.argmax(seen.mask, axis=1))
    one.settlements()
    one.step(np.argmax(seen.mask, axis=1))
    env.copy_replica(0, 1)
    after = one.observe()
    replicas = [] if after is None else after.replica.tolist()
    assert replicas in ([], [0, 1])
    if after is not None:
        assert after.candidates[0].tobytes() == after.candidates[1].tobytes()
    got = one.settlements()
    assert got.reward[got.replica == 0].tolist() == got.reward[got.replica == 1].tolist()
    assert (got.replica == 0).sum() == 1


def test_a_masked_action_names_zone_and_replica() -> None:
    experiment = tiny(zone("a", machines(2)))
    env = VectorEnv(experiment, 2)
    env.reset("train", [0, 1])
    one = env.zones["a"]
    while (seen := one.observe()) is None:
        env.end_window()
    with pytest.raises(PlacementError, match=rf"zone a, replica {seen.replica[0]}: action 99"):
        one.step(np.full(len(seen), 99))
