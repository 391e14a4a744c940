from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from marl_sched.agents.storage import write_arrays
from marl_sched.cluster.exchange import LocalExchange, Outbox
from marl_sched.config import Experiment, load_config
from marl_sched.errors import CheckpointError, ExchangeAborted
from zones.records import NetworkPair, RoundOrder, RoundReport
from zones.state import policy_path, save_state, state_path
from zones.worker import ZoneWorker

ROOT = Path(__file__).parents[2]
ZONE = (
    "zones=[{name: alone, load: 1.5, machines: [{count: 3, "
    "capacity: {cpu_milli: 64000, memory_mib: 131072}}]}]"
)


def experiment_of(*overrides: str) -> Experiment:
    """One zone of three machines, episodes of a minute, a small network."""
    settings = (
        ZONE,
        "episode={horizon_s: 60.0, drain_s: 60.0}",
        "training={replicas: 2, rounds: 4, validation_episodes: 5}",
        "agent={hidden: [8], n_quantiles: 4, warmup_decisions: 10, batch_size: 16, "
        "decisions_per_update: 2, n_step: 3, replay_mib: 1}",
    )
    return load_config(ROOT / "configs" / "base.yaml", (*settings, *overrides))


class BreakingExchange(LocalExchange):
    """Aborts once, at a given exchange."""

    def __init__(self, breaks_at: int | None = None) -> None:
        super().__init__(["alone"])
        self.breaks_at = breaks_at

    def post(self, outbox: Outbox) -> None:
        if outbox.step == self.breaks_at:
            self.breaks_at = None
            raise ExchangeAborted("a zone left")
        super().post(outbox)


def worker_of(
    experiment: Experiment, exchange: LocalExchange | None = None, folder: Path | None = None
) -> ZoneWorker:
    return ZoneWorker(experiment, "alone", exchange or LocalExchange(["alone"]), folder)


def order_of(round_number: int, **more: int) -> RoundOrder:
    return RoundOrder(round_number, 1, ("alone",), **more)


def rounds(worker: ZoneWorker, *numbers: int) -> Iterator[RoundReport]:
    """Train rounds one after the other, each from what the one before returned."""
    first = worker.initial_weights()
    pair = NetworkPair(first, first)
    for number in numbers:
        report = worker.train_round(pair, order_of(number))
        assert report.weights is not None
        pair = report.weights
        yield report


def assert_equal(one: RoundReport, other: RoundReport) -> None:
    assert one.weights is not None
    assert other.weights is not None
    assert one.n_decisions == other.n_decisions
    assert one.metrics == other.metrics
    for name, tensor in one.weights.online.items():
        np.testing.assert_array_equal(tensor, other.weights.online[name])
    for name, tensor in one.weights.ema.items():
        np.testing.assert_array_equal(tensor, other.weights.ema[name])


def test_round_trains_and_reports() -> None:
    worker = worker_of(experiment_of())
    first = worker.initial_weights()
    report = next(rounds(worker, 1))
    assert report.weights is not None
    assert report.n_decisions > 0
    assert report.metrics["updates"] > 0
    assert report.validation is None
    assert not np.array_equal(report.weights.online["head.weight"], first["head.weight"])


def test_rounds_play_different_episodes() -> None:
    one, other = rounds(worker_of(experiment_of()), 1, 2)
    assert one.n_decisions != other.n_decisions


def test_round_that_was_aborted_and_ordered_again_gives_the_same() -> None:
    experiment = experiment_of()
    exchange = BreakingExchange()
    worker = worker_of(experiment, exchange)
    whole = list(rounds(worker_of(experiment), 1, 2))
    (first,) = rounds(worker, 1)
    assert first.weights is not None
    exchange.breaks_at = 15
    with pytest.raises(ExchangeAborted):
        worker.train_round(first.weights, order_of(2))
    exchange.restart(["alone"])
    assert_equal(worker.train_round(first.weights, order_of(2)), whole[1])


ADAPTIVE = "reward.resource_weighting=adaptive"


def test_running_resource_weights_change_the_reward_and_are_reported() -> None:
    plain = next(rounds(worker_of(experiment_of()), 1))
    one, two = rounds(worker_of(experiment_of(ADAPTIVE)), 1, 2)
    weights = [
        (r.metrics["reward_weight_cpu"], r.metrics["reward_weight_memory"]) for r in (one, two)
    ]
    assert all(cpu + memory == pytest.approx(2.0) for cpu, memory in weights)
    assert weights[0] != weights[1]
    assert weights[0][0] != 1.0
    assert "reward_weight_cpu" not in plain.metrics
    assert plain.metrics["mean_reward"] != one.metrics["mean_reward"]


def test_validation_leaves_the_running_resource_weights_alone() -> None:
    # As many episodes at once as in training, so that both are played in one environment.
    experiment = experiment_of(ADAPTIVE, "training.validation_episodes=2")
    worker = worker_of(experiment)
    pair = NetworkPair(worker.initial_weights(), worker.initial_weights())
    validated = worker.train_round(pair, order_of(1, validates=True))
    assert_equal(validated, next(rounds(worker_of(experiment), 1)))


@pytest.mark.parametrize("has_folder", [False, True])
def test_running_resource_weights_go_back_with_a_lost_attempt(
    tmp_path: Path, has_folder: bool
) -> None:
    experiment, exchange = experiment_of(ADAPTIVE), BreakingExchange()
    worker = worker_of(experiment, exchange, tmp_path if has_folder else None)
    whole = list(rounds(worker_of(experiment), 1, 2))
    (first,) = rounds(worker, 1)
    assert first.weights is not None
    exchange.breaks_at = 15
    with pytest.raises(ExchangeAborted):
        worker.train_round(first.weights, order_of(2))
    exchange.restart(["alone"])
    assert_equal(worker.train_round(first.weights, order_of(2)), whole[1])


def test_worker_that_starts_anew_goes_on_with_its_running_resource_weights(tmp_path: Path) -> None:
    experiment = experiment_of(ADAPTIVE)
    first, second = rounds(worker_of(experiment, folder=tmp_path), 1, 2)
    assert first.weights is not None
    again = worker_of(experiment, folder=tmp_path).train_round(first.weights, order_of(2))
    assert_equal(again, second)


def test_state_without_running_resource_weights_is_refused(tmp_path: Path) -> None:
    worker_of(experiment_of()).save_state(tmp_path / "state.npz")
    with pytest.raises(
        CheckpointError, match=r"state\.npz: running variance of the resources: None"
    ):
        worker_of(experiment_of(ADAPTIVE)).load_state(tmp_path / "state.npz")


def test_round_that_ended_and_is_ordered_again_gives_the_same() -> None:
    worker = worker_of(experiment_of())
    first, second = rounds(worker, 1, 2)
    assert first.weights is not None
    assert_equal(worker.train_round(first.weights, order_of(2)), second)


def test_worker_that_starts_anew_goes_on_from_its_saved_state(tmp_path: Path) -> None:
    experiment = experiment_of()
    first, second = rounds(worker_of(experiment, folder=tmp_path), 1, 2)
    assert first.weights is not None
    again = worker_of(experiment, folder=tmp_path).train_round(first.weights, order_of(2))
    assert_equal(again, second)


def test_spare_without_a_state_starts_with_an_empty_replay(tmp_path: Path) -> None:
    experiment = experiment_of()
    first, second = rounds(worker_of(experiment), 1, 2)
    assert first.weights is not None
    spare = worker_of(experiment, folder=tmp_path).train_round(first.weights, order_of(2))
    # The warmup begins anew, so that it has updated less than who has its replay.
    assert 0 < spare.metrics["updates"] < second.metrics["updates"]


def test_state_of_another_zone_is_refused(tmp_path: Path) -> None:
    save_state(tmp_path / "state.npz", "other", 1, {})
    with pytest.raises(CheckpointError, match=r"zone = 'other', expected 'alone'"):
        worker_of(experiment_of()).load_state(tmp_path / "state.npz")


def test_half_written_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    worker_of(experiment_of()).save_state(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"state\.npz: half-written"):
        worker_of(experiment_of()).load_state(path)


def test_states_of_the_last_rounds_are_kept(tmp_path: Path) -> None:
    list(rounds(worker_of(experiment_of(), folder=tmp_path), 1, 2, 3, 4))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"state-0000{number}.npz" for number in (2, 3, 4)
    ]


def test_validation_scores_the_given_weights_and_trains_nothing() -> None:
    experiment = experiment_of()
    worker = worker_of(experiment)
    first = worker.initial_weights()
    pair = NetworkPair(first, first)
    report = worker.validate(pair, order_of(1, validates=True))
    assert report.weights is None
    assert report.validation is not None
    assert report.validation["sums"].shape[0] == 5
    validated_first = worker.train_round(pair, order_of(1, validates=True))
    np.testing.assert_array_equal(
        validated_first.validation["sums"],  # type: ignore[index]  # it was asked for
        report.validation["sums"],
    )
    assert_equal(validated_first, next(rounds(worker_of(experiment), 1)))


def test_validation_episodes_do_not_depend_on_how_many_are_played_at_once() -> None:
    few = worker_of(experiment_of("training.replicas=2"))
    many = worker_of(experiment_of("training.replicas=3"))
    first = few.initial_weights()
    pair, order = NetworkPair(first, first), order_of(1, validates=True)
    one, other = few.validate(pair, order).validation, many.validate(pair, order).validation
    assert one is not None
    assert other is not None
    for key in ("sums", "cluster_imbalance"):
        np.testing.assert_allclose(one[key], other[key])


def test_tensors_that_are_not_sent_stay_the_zones_own(tmp_path: Path) -> None:
    worker = worker_of(experiment_of("agent.personal_head=true"), folder=tmp_path)
    first = next(rounds(worker, 1)).weights
    assert first is not None
    body = {name: tensor for name, tensor in first.online.items() if "head" not in name}
    worker.validate(NetworkPair(body, body), order_of(2, validates=True))
    with np.load(policy_path(tmp_path, 1)) as policy:
        np.testing.assert_array_equal(policy["head.weight"], first.ema["head.weight"])
        np.testing.assert_array_equal(policy["first.weight"], body["first.weight"])
    assert state_path(tmp_path, 1).exists()


def test_state_of_another_architecture_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    worker_of(experiment_of()).save_state(path)
    other = worker_of(experiment_of("agent={hidden: [9], n_quantiles: 4, replay_mib: 1}"))
    with pytest.raises(CheckpointError, match=r"state\.npz: learner state: .* expected"):
        other.load_state(path)


def test_state_without_a_round_is_refused(tmp_path: Path) -> None:
    write_arrays(tmp_path / "state.npz", "zone state", {"zone": "alone"}, {})
    with pytest.raises(CheckpointError, match=r"state\.npz: round = None, expected an integer"):
        worker_of(experiment_of()).load_state(tmp_path / "state.npz")


@pytest.mark.parametrize(("target", "is_warm"), [("sarsa", True), ("double", False)])
def test_worker_goes_on_from_its_state_when_zones_were_added(
    tmp_path: Path, target: str, is_warm: bool
) -> None:
    alone = experiment_of(f"agent.target={target}")
    peer = alone.zones[0].model_copy(update={"name": "peer"})
    (first,) = rounds(worker_of(alone, folder=tmp_path), 1)
    assert first.weights is not None
    later = worker_of(alone.model_copy(update={"zones": [*alone.zones, peer]}), folder=tmp_path)
    later.load_state(state_path(tmp_path, 1))
    second = later.train_round(first.weights, order_of(2))
    assert second.metrics["updates"] > 0
    # With all candidates in the replay it begins empty, and the warm-up anew.
    n_due = second.n_decisions // alone.agent.decisions_per_update
    assert (second.metrics["updates"] >= n_due) is is_warm


def test_worker_at_rest_holds_no_episode() -> None:
    worker = worker_of(experiment_of())
    first = worker.initial_weights()
    worker.train_round(NetworkPair(first, first), order_of(1, validates=True))
    assert worker._envs.keys() == {1, 2}
    for env in worker._envs.values():
        assert not hasattr(env.simulator, "state")
