"""What a camera shows against what the environment holds, and that nothing depends on it."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tiny import Cluster, machines, tiny, zone

from marl_sched.agents.architecture import Architecture, initial_weights
from marl_sched.agents.prior import Prior
from marl_sched.agents.scoring import Scorer, context_of
from marl_sched.cluster.exchange import LocalExchange
from marl_sched.cluster.model import OFFLOADED, RUNNING, WAITING
from marl_sched.config import Experiment
from marl_sched.envs.zone_env import ZoneEnv
from marl_sched.observation import Observation
from zones.camera import SHOWN, Camera
from zones.records import NetworkPair, RoundOrder, RoundReport
from zones.view import ZoneView, parse_view
from zones.worker import ZoneWorker

Seen = list[ZoneView]


def experiment_of(**changes: Any) -> Experiment:
    """Zone a has too much work for its machines and a peer to send it to."""
    return tiny(
        zone("a", machines(2), machines(cpu=8000), load=1.4),
        zone("b", machines(2), load=0.5),
        **{"agent": {"prior": "none", "hidden": [8, 6], "n_quantiles": 4}, **changes},
    )


class Wall:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Judge:
    """Decides by fixed weights, the row of replica 0 at random if it is told so."""

    def __init__(self, env: ZoneEnv, agent: Any, explores: bool = False) -> None:
        architecture = Architecture.of(env.layout, agent)
        weights = initial_weights(architecture, np.random.default_rng(3))
        flat, prior = architecture.flatten(weights), Prior.of(env.layout, agent)
        self.scorer = Scorer(architecture, flat, agent.cvar_alpha, prior)
        self.explored = np.array([0] if explores else [], np.int64)

    def scores(self, observation: Observation) -> np.ndarray:
        seen = self.scorer.extended(observation)
        return self.scorer.scores(seen.candidates, context_of(seen), seen.mask)

    def act(self, observation: Observation) -> np.ndarray:
        scores = self.scores(observation)
        if len(self.explored):  # the worst: nobody would choose it
            scores = np.where(observation.mask, -scores, -np.inf)
        return scores.argmax(axis=1)


class Set:
    """A cluster with zone a watched, as a worker watches its zone."""

    def __init__(self, experiment: Experiment, explores: bool = False) -> None:
        self.cluster = Cluster(experiment, n_replicas=2).draw("train", [0, 1])
        self.env = self.cluster.zones["a"]
        self.seen: Seen = []
        self.wall = Wall()
        self.last: tuple[Observation, int, list[int]] | None = None
        """Of replica 0: a copy of the last decision, and what the instance asked for."""
        self.camera = Camera(experiment, "a", self.show, self.wall)
        self.judges = {
            name: Judge(env, experiment.agent, explores) for name, env in self.cluster.zones.items()
        }
        self.camera.follow(RoundOrder(3, 2, ("a", "b")))
        self.camera.start(self.env, self.judges["a"], "training", 1)

    def show(self, data: bytes) -> None:
        self.seen.append(parse_view(data, "a"))

    def act(self, name: str, observation: Observation) -> np.ndarray:
        actions = self.judges[name].act(observation)
        if name == "a":
            if observation.replica[0] == SHOWN:
                copy = {key: np.copy(value) for key, value in vars(observation).items()}
                state = self.env.simulator.state
                head = state.group[0, state.active[0, 0]["row"]]["head"]
                request = state.request[0, state.instance[0, head]["task"]].tolist()
                self.last = Observation(**copy), int(actions[0]), request
            if self.camera.is_recording:
                self.camera.record(observation, actions)
        return actions

    def window(self, share: float = 0.5) -> "Set":
        """Play one window in all zones; then the camera looks."""
        window_s = self.cluster.experiment.cluster.window_s
        self.cluster.play(self.act, until_s=self.cluster.now_s + window_s)
        self.camera.window_over(share)
        return self

    def windows(self, n: int) -> ZoneView:
        """Play windows, each long after the one before; return the last view."""
        for _ in range(n):
            self.wall.now_s += 1000.0
            self.window()
        return self.seen[-1]


@pytest.fixture(scope="module")
def played() -> Set:
    """Eight windows: machines are full, instances wait, some were sent to the peer."""
    stage = Set(experiment_of())
    stage.windows(8)
    return stage


def test_view_counts_what_the_state_holds(played: Set) -> None:
    view = played.seen[-1]
    rows = played.cluster.rows("a")
    assert view.n_running == np.sum(rows["status"] == RUNNING) > 0
    assert view.n_waiting == np.sum(rows["status"] == WAITING) > 0
    assert view.offloads == {"b": np.sum(rows["status"] == OFFLOADED)}
    assert view.offloads["b"] > 0
    assert view.simulated_s == played.cluster.now_s == 40.0
    state = played.env.simulator.state
    assert view.n_decisions == state.zone["decisions"][0] + state.zone["decisions"][1]
    assert (view.phase, view.round, view.attempt, view.episode) == ("training", 3, 2, 1)


def test_shares_of_every_machine_are_its_own(played: Set) -> None:
    view, state = played.seen[-1], played.env.simulator.state
    rows = played.cluster.rows("a")
    assert (view.machines.n, view.machines.per_cell) == (3, 1)
    for machine, capacity in enumerate([(4000, 8192), (4000, 8192), (8000, 8192)]):
        here = np.flatnonzero((rows["status"] == RUNNING) & (rows["machine"] == machine))
        for r in range(2):
            used = sum(state.instance_use[0, row, r] for row in here)
            asked = sum(state.request[0, rows[row]["task"], r] for row in here)
            assert view.machines.utilization[machine][r] == pytest.approx(
                min(used / capacity[r], 1.0), abs=1e-4
            )
            assert view.machines.allocation[machine][r] == pytest.approx(
                asked / capacity[r], abs=1e-4
            )


@pytest.mark.parametrize("explores", [False, True])
@pytest.mark.parametrize("cvar_alpha", [1.0, 0.3])
def test_decision_is_the_replicas_last_with_what_the_network_says(
    explores: bool, cvar_alpha: float
) -> None:
    agent = {"prior": "none", "hidden": [8, 6], "n_quantiles": 4, "cvar_alpha": cvar_alpha}
    stage = Set(experiment_of(agent=agent), explores)
    decision = stage.windows(2).decision
    assert decision is not None
    assert stage.last is not None
    observation, action, request = stage.last
    names = {0: "0", 1: "1", 2: "2", 3: "b"}
    chosen = decision.candidates[0]
    assert (chosen.is_chosen, chosen.name) == (True, names[action])
    assert chosen.kind == ("peer" if action == 3 else "machine")
    assert list(decision.request.values()) == request
    assert decision.is_exploring == explores
    assert decision.taus == [0.125, 0.375, 0.625, 0.875]
    shown = [3 if one.kind == "peer" else one.index for one in decision.candidates]
    assert sorted(shown) == np.flatnonzero(observation.mask[0]).tolist()
    scores = stage.judges["a"].scores(observation)[0]
    others = [scores[index] for index in shown[1:]]
    assert others == sorted(others, reverse=True)
    assert not explores or all(scores[shown[0]] <= other for other in others)
    for one, index in zip(decision.candidates, shown, strict=True):
        worst = np.sort(one.quantiles)[: int(np.ceil(4 * cvar_alpha))]
        share = np.full(len(worst), 1.0)
        share[-1] = 4 * cvar_alpha - len(worst) + 1
        assert worst @ share / share.sum() == pytest.approx(scores[index], abs=2e-4)
        assert one.mean == pytest.approx(np.mean(one.quantiles), abs=1e-4)
        columns = stage.env.layout.candidate_indices("utilization")
        seen = np.clip(observation.candidates[0, index, columns], 0, 1)
        assert one.utilization == pytest.approx(seen.tolist(), abs=1e-4)


def test_values_shown_of_a_correction_hold_the_prior_and_the_value_of_the_context() -> None:
    stage = Set(experiment_of(agent={"hidden": [8, 6], "n_quantiles": 4}))
    decision = stage.windows(4).decision
    assert decision is not None
    assert stage.last is not None
    scores = stage.judges["a"].scores(stage.last[0])[0]
    shown = [3 if one.kind == "peer" else one.index for one in decision.candidates]
    values = np.array([one.mean for one in decision.candidates]) - scores[shown]
    np.testing.assert_allclose(values, values[0], atol=2e-4)  # of the context: equal for all
    assert abs(values[0]) > 1e-3


def test_at_most_eight_candidates_are_shown_and_they_are_the_best() -> None:
    experiment = tiny(zone("a", machines(24), load=0.3), zone("b"))
    stage = Set(experiment)
    decision = stage.windows(4).decision
    assert decision is not None
    assert stage.last is not None
    observation, _, _ = stage.last
    assert observation.mask[0].sum() > 8
    scores = stage.judges["a"].scores(observation)[0]
    shown = [24 if one.kind == "peer" else one.index for one in decision.candidates]
    assert shown == np.argsort(-scores, kind="stable")[:8].tolist()


def test_view_is_shown_of_the_window_after_it_is_due() -> None:
    stage = Set(experiment_of())
    shown = []
    for now_s in (0.0, 0.1, 0.2, 100.0, 100.1, 100.2, 200.0, 200.1):
        stage.wall.now_s = now_s
        stage.window()
        shown.append(len(stage.seen))
    assert shown == [0, 1, 1, 1, 2, 2, 2, 3]


def test_period_is_the_settings() -> None:
    stage = Set(experiment_of(live={"period_s": 600.0}))
    for now_s in (0.0, 0.1, 600.0, 600.2, 600.3):
        stage.wall.now_s = now_s
        stage.window()
    assert len(stage.seen) == 2


def test_machines_only_are_shown_without_a_decision() -> None:
    view = Set(experiment_of(live={"views": "machines"})).windows(3)
    assert view.decision is None
    assert view.n_running > 0


def test_nothing_is_shown_where_views_are_off() -> None:
    stage = Set(experiment_of(live={"views": "none"}))
    for _ in range(4):
        stage.wall.now_s += 1000.0
        stage.window()
    assert stage.seen == []
    assert not stage.camera.is_recording


def test_decision_of_an_episode_is_not_shown_in_the_next() -> None:
    stage = Set(experiment_of())
    assert stage.windows(2).decision is not None
    stage.camera.start(stage.env, stage.judges["a"], "validation", 4)
    stage.wall.now_s += 1000.0
    stage.camera.window_over(0.1)  # due
    stage.camera.window_over(0.2)  # and shown, though nothing was decided
    view = stage.seen[-1]
    assert view.decision is None
    assert (view.phase, view.round, view.episode, view.share) == ("validation", 2, 4, 0.2)


def test_network_that_is_broken_is_shown_without_its_values() -> None:
    stage = Set(experiment_of())
    stage.window()
    stage.cluster.play(stage.act, until_s=stage.cluster.now_s + 5.0)
    assert stage.last is not None
    stage.judges["a"].scorer._flat[:] = np.nan
    stage.camera.window_over(0.5)
    assert [view.decision for view in stage.seen] == [None]


def test_rows_of_a_large_zone_are_means_of_machines() -> None:
    experiment = tiny(zone("a", machines(1030), load=0.002), zone("b"))
    stage = Set(experiment)
    view = stage.windows(4)
    assert (view.machines.n, view.machines.per_cell) == (1030, 2)
    assert len(view.machines.utilization) == len(view.machines.allocation) == 515
    state = stage.env.simulator.state
    for cell in range(515):
        pair = slice(2 * cell, 2 * cell + 2)
        used = (state.use[0, pair] / state.capacity[pair]).mean(axis=0)
        assert view.machines.utilization[cell] == pytest.approx(used.tolist(), abs=1e-4)
    assert sum(map(sum, view.machines.allocation)) > 0
    assert len(view.encoded()) < 32_000


def test_last_row_of_a_large_zone_may_be_of_fewer_machines() -> None:
    experiment = tiny(zone("a", machines(1024), machines(1, cpu=2000), load=0.002), zone("b"))
    stage = Set(experiment)
    stage.window()
    stage.env.simulator.state.use[0, 1024] = (1000.0, 9000.0)
    stage.camera.window_over(0.5)
    view = stage.seen[-1]
    assert (view.machines.n, len(view.machines.utilization)) == (1025, 513)
    assert view.machines.utilization[-1] == [0.5, 1.0]


def worker_of(show: Callable[[bytes], None] | None, **changes: Any) -> ZoneWorker:
    experiment = tiny(
        zone("alone", machines(2), load=1.4),
        training={"replicas": 2, "rounds": 2, "validation_episodes": 3},
        agent={
            "hidden": [8],
            "n_quantiles": 4,
            "warmup_decisions": 10,
            "batch_size": 16,
            "decisions_per_update": 2,
            "replay_mib": 1,
        },
        **changes,
    )
    worker = ZoneWorker(experiment, "alone", LocalExchange(["alone"]), show=show)
    if show is not None:
        worker._camera = Camera(experiment, "alone", show, leaps().__next__)
    return worker


def leaps() -> Iterator[float]:
    """Yield times so far apart that a view is always due."""
    now_s = 0.0
    while True:
        yield now_s
        now_s += 1e6


def two_rounds(worker: ZoneWorker) -> list[RoundReport]:
    first = worker.initial_weights()
    one = worker.train_round(NetworkPair(first, first), RoundOrder(1, 1, ("alone",)))
    assert one.weights is not None
    two = worker.train_round(one.weights, RoundOrder(2, 1, ("alone",), validates=True))
    return [one, two]


def test_training_is_the_same_to_the_last_byte_with_and_without_views() -> None:
    seen: list[bytes] = []
    watched, alone = worker_of(seen.append), worker_of(None)
    for one, other in zip(two_rounds(watched), two_rounds(alone), strict=True):
        assert one.metrics == other.metrics
        assert one.metrics["updates"] > 0
        assert one.weights is not None
        assert other.weights is not None
        for kind in ("online", "ema"):
            tensors = getattr(other.weights, kind)
            for name, tensor in getattr(one.weights, kind).items():
                assert tensor.tobytes() == tensors[name].tobytes()
        if one.validation is not None:
            assert other.validation is not None
            for key, sums in one.validation.items():
                assert sums.tobytes() == other.validation[key].tobytes()
    state, expected = watched._learner.state(), alone._learner.state()
    assert {k: v.tobytes() for k, v in state.items()} == {
        k: v.tobytes() for k, v in expected.items()
    }
    views = [json.loads(data) for data in seen]
    assert len(views) > 30
    assert sum(view["decision"] is not None for view in views) > 20
    assert {True, False} == {v["decision"]["is_exploring"] for v in views if v["decision"]}


def test_rounds_and_phases_are_told_apart() -> None:
    seen: list[bytes] = []
    two_rounds(worker_of(seen.append))
    views = [parse_view(data, "alone") for data in seen]
    stages = [(view.phase, view.round, view.episode) for view in views]
    # Two validation episodes at once, then the third; they score the weights of round 1.
    assert list(dict.fromkeys(stages)) == [
        ("training", 1, 0),
        ("validation", 1, 0),
        ("validation", 1, 2),
        ("training", 2, 0),
    ]
    for stage in set(stages):
        shares = [v.share for v, s in zip(views, stages, strict=True) if s == stage]
        assert shares == sorted(shares)
    assert max(view.share for view in views) <= 1.0


def test_viewer_that_fails_is_named_once_and_the_round_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(data: bytes) -> None:
        raise ZeroDivisionError("by zero")

    with caplog.at_level(logging.WARNING):
        reports = two_rounds(worker_of(fail))
    assert reports[1].n_decisions > 0
    assert caplog.messages == ["alone: not shown: by zero"]
