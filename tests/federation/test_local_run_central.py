"""One learner for all zones: real runs of two zones of three machines, episodes of a minute."""

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from zone_double import ROOT, Killed, written

from federation.local_run import train
from federation.programs import DeploymentSettings
from federation.session import RoundDone
from marl_sched.cluster.exchange import LocalExchange
from marl_sched.compose_file import compose_file
from marl_sched.config import Experiment, load_config
from marl_sched.errors import ConfigError, ExchangeAborted, RunError
from zones.central_seats import CentralSeat, SharedWork
from zones.central_worker import CentralWorker, Reports, central_agent
from zones.records import NetworkPair, RoundOrder, RoundReport
from zones.worker import first_weights

MACHINES = "machines: [{count: %d, capacity: {cpu_milli: 64000, memory_mib: 131072}}]"
ZONES = f"zones=[{{name: east, {MACHINES % 3}}}, {{name: west, load: 0.9, {MACHINES % 5}}}]"


def experiment_of(*overrides: str) -> Experiment:
    settings = (
        ZONES,
        "episode={horizon_s: 60.0, drain_s: 60.0}",
        "training={replicas: 2, rounds: 2, validation_episodes: 3, validate_every: 1}",
        "agent={hidden: [8], n_quantiles: 4, warmup_decisions: 20, batch_size: 16, "
        "decisions_per_update: 8, replay_mib: 1}",
        "federation.strategy=centralised",
    )
    return load_config(ROOT / "configs" / "base.yaml", (*settings, *overrides))


def lines_of(path: Path, kind: str) -> list[dict[str, float]]:
    text = (path / "metrics.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    path = tmp_path_factory.mktemp("central") / "run"
    train(experiment_of(), path)
    return path


def test_updates_are_those_of_all_decisions_after_all_warm_ups(whole: Path) -> None:
    lines = lines_of(whole, "train")
    assert [(line["round"], line["zone"]) for line in lines] == [
        (1, "east"),
        (1, "west"),
        (2, "east"),
        (2, "west"),
    ]
    n_decisions = sum(line["n_decisions"] for line in lines)
    n_updates = sum(line["updates"] for line in lines if line["zone"] == "east")
    assert n_updates == (n_decisions - 2 * 20) // 8
    assert all(line["n_decisions"] > 0 for line in lines)


def test_zones_report_their_own_figures_and_the_one_learners(whole: Path) -> None:
    east, west = lines_of(whole, "train")[:2]
    assert east["loss"] == west["loss"]
    assert east["mean_reward"] != west["mean_reward"]
    assert east["utilization_cpu"] != west["utilization_cpu"]


def test_all_zones_are_validated_and_one_policy_is_published(whole: Path) -> None:
    assert [line["zones"] for line in lines_of(whole, "validation")] == [["east", "west"]] * 2
    assert (whole / "checkpoints" / "best.npz").exists()
    states = {path.parent.name for path in whole.rglob("state-*.npz")}
    assert states == {"east"}


def test_weights_of_a_round_are_exactly_the_learners(whole: Path, tmp_path: Path) -> None:
    experiment = experiment_of()
    worker = CentralWorker(experiment, LocalExchange(experiment.zone_names))
    first = first_weights(experiment)
    pair = NetworkPair(first, first)
    for number in (1, 2):
        order = RoundOrder(number, 1, ("east", "west"))
        found = worker.train_round(pair, order)["west"].weights
        assert found is not None
        pair = found
    with np.load(whole / "checkpoints" / "round-00002.npz") as checkpoint:
        for name, tensor in pair.online.items():
            np.testing.assert_array_equal(checkpoint[f"online/{name}"], tensor)


def test_two_runs_of_one_seed_write_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    train(experiment_of(), tmp_path / "run")
    assert written(tmp_path / "run") == written(whole)


def test_killed_run_resumed_writes_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    def kill(event: RoundDone) -> None:
        raise Killed

    with pytest.raises(Killed):
        train(experiment_of(), tmp_path / "run", progress=kill)
    train(experiment_of(), tmp_path / "run", resume=True)
    assert written(tmp_path / "run") == written(whole)


def test_stopped_in_the_middle_of_a_round_it_goes_on(whole: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    n_ticks = 0

    def tick(share: float) -> None:
        nonlocal n_ticks
        n_ticks += 1
        if n_ticks == 40:  # in the middle of the second round
            stop.set()

    result = train(experiment_of(), tmp_path / "run", tick=tick, stop=stop)
    assert (result.rounds, result.is_finished) == (1, False)
    assert train(experiment_of(), tmp_path / "run", resume=True).is_finished
    assert written(tmp_path / "run") == written(whole)


def test_running_resource_weights_are_kept_by_zone(tmp_path: Path) -> None:
    experiment = experiment_of("reward.resource_weighting=adaptive")
    train(experiment, tmp_path / "whole")

    def kill(event: RoundDone) -> None:
        raise Killed

    with pytest.raises(Killed):
        train(experiment, tmp_path / "run", progress=kill)
    train(experiment, tmp_path / "run", resume=True)
    assert written(tmp_path / "run") == written(tmp_path / "whole")
    east, west = lines_of(tmp_path / "run", "train")[2:]
    assert east["reward_weight_cpu"] != west["reward_weight_cpu"]


@pytest.mark.parametrize("override", ["agent.target=double", "agent.algorithm=ppo"])
def test_zones_of_unequal_size_share_a_memory_of_all_candidates(
    override: str, tmp_path: Path
) -> None:
    experiment = experiment_of(override, "agent.rollout_decisions=64", "training.rounds=1")
    assert train(experiment, tmp_path / "run").is_finished
    assert lines_of(tmp_path / "run", "train")[0]["updates"] > 0


def test_failure_of_the_one_learner_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    too_fast = ("agent.learning_rate=1.0e+12", "agent.prior=none", "agent.hidden=[8, 8, 8, 8]")
    with pytest.raises(RunError, match=r"^east: .*expected finite numbers"):
        train(experiment_of(*too_fast), tmp_path / "run")


def test_budget_is_that_of_all_zones() -> None:
    agent = experiment_of().agent
    pooled = central_agent(agent, 3)
    assert (pooled.warmup_decisions, pooled.replay_mib) == (60, 3)
    assert pooled.decisions_per_update == agent.decisions_per_update


@dataclass
class Failing:
    """Fails at its first order."""

    orders: list[RoundOrder] = field(default_factory=list)

    def train_round(self, weights: NetworkPair, order: RoundOrder) -> Reports:
        self.orders.append(order)
        if len(self.orders) == 1:
            raise ExchangeAborted("called off")
        report = RoundReport(None, 1, {}, None)
        return {"east": report, "west": report}

    def validate(self, weights: NetworkPair, order: RoundOrder) -> Reports:
        raise NotImplementedError


def test_waiting_zones_hear_of_a_failure_and_of_the_next_attempt() -> None:
    worker = Failing()
    shared = SharedWork(worker, 60.0)
    east, west = CentralSeat("east", shared), CentralSeat("west", shared)
    pair = NetworkPair({}, {})
    heard: list[str] = []

    def wait_for(attempt: int) -> None:
        try:
            west.train_round(pair, RoundOrder(1, attempt, ("east", "west")))
            heard.append("report")
        except ExchangeAborted as error:
            heard.append(str(error))

    for attempt in (1, 2):
        thread = threading.Thread(target=wait_for, args=(attempt,))
        thread.start()
        order = RoundOrder(1, attempt, ("east", "west"))
        if attempt == 1:
            with pytest.raises(ExchangeAborted, match="called off"):
                east.train_round(pair, order)
        else:
            east.train_round(pair, order)
        thread.join(30.0)
    assert heard == ["east, which works for all zones, has failed", "report"]
    assert len(worker.orders) == 2


def test_processes_for_zones_are_refused(tmp_path: Path) -> None:
    said = "federation.strategy = centralised, expected another one where zones have processes"
    with pytest.raises(ConfigError, match=said):
        DeploymentSettings(experiment_of(), tmp_path)
    with pytest.raises(ConfigError, match=said):
        compose_file(experiment_of(), ROOT / "configs" / "base.yaml")


def test_head_of_its_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"centralised, expected another one with agent\.pers"):
        experiment_of("agent.personal_head=true")
