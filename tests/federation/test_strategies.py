"""Every strategy against arithmetic by hand; and what it keeps survives a resume."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from numpy.typing import NDArray
from zone_double import Killed, experiment_of, run_doubles, written

from federation.flower_private import claim_identity, set_message_id
from federation.messages import Packed, encode_report
from federation.session import RoundDone
from federation.strategies import Aggregator
from federation.weights import WeightSpec, unpack
from marl_sched.config import Federation, load_config
from marl_sched.errors import CheckpointError, ConfigError
from marl_sched.run_folder import RunFolder
from zones.records import NetworkPair, RoundOrder, RoundReport

SPEC = WeightSpec(("body", "head"), ((2, 3), (5,)))
P = 11
SENT = Packed(SPEC, np.ones(P, np.float32), np.full(P, 2.0, np.float32))
NAMES = "abcdefgh"


def aggregator(strategy: str, **settings: float) -> Aggregator:
    return Aggregator(Federation.model_validate({"strategy": strategy, **settings}), {})


def replies_of(
    updates: Mapping[str, tuple[NDArray[np.float64], int]], seed: int = 1
) -> dict[str, Message]:
    """Replies of zones by name, from (P,) online weights and decisions; ema is half of it."""
    claim_identity(1, 1)
    replies = {}
    for number, (zone, (values, n_decisions)) in enumerate(updates.items()):
        online = unpack(values.astype(np.float32), SPEC)
        ema = unpack((values / 2).astype(np.float32), SPEC)
        report = RoundReport(NetworkPair(online, ema), n_decisions, {"loss": 0.5})
        order = Message(RecordDict(), 10 + number, "train")
        set_message_id(order, f"order-{seed}-{number}")
        content = encode_report(zone, report, RoundOrder(3, 1, tuple(updates)), SPEC)
        replies[zone] = Message(content, reply_to=order)
    return replies


def spread(n_zones: int, seed: int = 7) -> dict[str, tuple[NDArray[np.float64], int]]:
    """Updates close to what was sent, with unequal decisions."""
    generator = np.random.default_rng(seed)
    return {
        zone: (1 + 0.1 * generator.standard_normal(P), 3 + 2 * number)
        for number, zone in enumerate(NAMES[:n_zones])
    }


def stacked(updates: Mapping[str, tuple[NDArray[np.float64], int]]) -> NDArray[np.float64]:
    return np.stack([values.astype(np.float32) for values, _ in updates.values()]).astype(float)


def weighted(updates: Mapping[str, tuple[NDArray[np.float64], int]]) -> NDArray[np.float64]:
    decisions = [n for _, n in updates.values()]
    return np.average(stacked(updates), axis=0, weights=decisions)


@pytest.mark.parametrize("strategy", ["fedavg", "fedprox", "none"])
def test_mean_is_weighted_by_decisions(strategy: str) -> None:
    updates = spread(3)
    averaged = aggregator(strategy).aggregate(3, replies_of(updates), SENT)
    np.testing.assert_allclose(averaged.online, weighted(updates), rtol=1e-5)
    np.testing.assert_allclose(averaged.ema, weighted(updates) / 2, rtol=1e-5)


def test_median_is_taken_value_by_value() -> None:
    updates = spread(5)
    averaged = aggregator("fedmedian").aggregate(3, replies_of(updates), SENT)
    np.testing.assert_allclose(averaged.online, np.median(stacked(updates), axis=0), rtol=1e-6)


def test_trimmed_mean_leaves_out_the_ends() -> None:
    updates = spread(5)
    averaged = aggregator("fedtrimmedavg", trim_share=0.2).aggregate(3, replies_of(updates), SENT)
    kept = np.sort(stacked(updates), axis=0)[1:-1]
    np.testing.assert_allclose(averaged.online, kept.mean(axis=0), rtol=1e-5)


def test_momentum_goes_on_along_earlier_steps() -> None:
    first, second = spread(3, seed=1), spread(3, seed=2)
    strategy = aggregator("fedavgm", server_momentum=0.5)
    one = strategy.aggregate(1, replies_of(first), SENT)
    two = strategy.aggregate(2, replies_of(second, 2), one)
    velocity = SENT.online - weighted(first)
    np.testing.assert_allclose(one.online, SENT.online - velocity, rtol=1e-5)
    velocity = 0.5 * velocity + (one.online - weighted(second))
    np.testing.assert_allclose(two.online, one.online - velocity, rtol=1e-4)


def test_adam_moves_every_value_by_about_its_step() -> None:
    updates = {zone: (np.full(P, 3.0), 5) for zone in "abc"}
    strategy = aggregator("fedadam", server_learning_rate=0.1, server_momentum=0.9)
    moved = strategy.aggregate(1, replies_of(updates), SENT)
    delta = 2.0
    m, v = 0.1 * delta, 0.01 * delta**2
    step = 0.1 * np.sqrt(1 - 0.99**2) / (1 - 0.9**2) * m / (np.sqrt(v) + 1e-3)
    np.testing.assert_allclose(moved.online, SENT.online + step, rtol=1e-5)
    assert moved.online.dtype == moved.ema.dtype == np.float32


@pytest.mark.parametrize(
    ("strategy", "n_zones"),
    [("fedmedian", 3), ("fedtrimmedavg", 3), ("krum", 5), ("multikrum", 5), ("bulyan", 7)],
)
def test_one_hostile_zone_within_the_norm_bound_moves_little(strategy: str, n_zones: int) -> None:
    updates = spread(n_zones)
    honest = np.delete(stacked(updates), 1, axis=0)
    updates["b"] = (np.full(P, -50.0), 10_000)
    averaged = aggregator(strategy).aggregate(3, replies_of(updates), SENT)
    assert (averaged.online >= honest.min(axis=0) - 1e-5).all()
    assert (averaged.online <= honest.max(axis=0) + 1e-5).all()


def test_krum_takes_the_zone_with_the_closest_neighbours() -> None:
    updates = {zone: (np.full(P, 1 + 0.1 * n * n), 5) for n, zone in enumerate("abcde")}
    averaged = aggregator("krum").aggregate(3, replies_of(updates), SENT)
    # n - f - 2 = 2 neighbours: b is .1 and .3 away from a and c; a .1 and .4, c .3 and .4.
    np.testing.assert_allclose(averaged.online, np.full(P, 1.1), rtol=1e-6)


@pytest.mark.parametrize("strategy", ["krum", "multikrum", "bulyan", "fedtrimmedavg"])
def test_with_too_few_zones_left_the_median_is_taken(strategy: str) -> None:
    updates = spread(2)
    averaged = aggregator(strategy).aggregate(3, replies_of(updates), SENT)
    np.testing.assert_allclose(averaged.online, stacked(updates).mean(axis=0), rtol=1e-5)


ALL = [
    "fedavg",
    "fedavgm",
    "fedprox",
    "fedadam",
    "fedmedian",
    "fedtrimmedavg",
    "krum",
    "multikrum",
    "bulyan",
]


@pytest.mark.parametrize("strategy", ALL)
def test_result_does_not_depend_on_the_order_of_replies(strategy: str) -> None:
    updates = spread(8)
    forward = aggregator(strategy).aggregate(3, replies_of(updates), SENT)
    backward = aggregator(strategy).aggregate(
        3, replies_of(dict(reversed(updates.items())), 2), SENT
    )
    assert forward.online.tobytes() == backward.online.tobytes()
    assert forward.ema.tobytes() == backward.ema.tobytes()


@pytest.mark.parametrize("strategy", ALL)
def test_zone_without_decisions_does_not_count(strategy: str) -> None:
    updates = spread(8)
    with_idle = {**updates, "z": (np.full(P, 40.0), 0)}
    got = aggregator(strategy).aggregate(3, replies_of(with_idle), SENT)
    expected = aggregator(strategy).aggregate(3, replies_of(updates, 2), SENT)
    assert got.online.tobytes() == expected.online.tobytes()


@pytest.mark.parametrize("strategy", ALL)
def test_weights_stay_when_no_zone_decided_anything(strategy: str) -> None:
    averaged = aggregator(strategy).aggregate(3, replies_of({"a": (np.zeros(P), 0)}), SENT)
    np.testing.assert_array_equal(averaged.online, SENT.online)


def test_state_of_another_shape_is_refused() -> None:
    settings = Federation(strategy="fedavgm")
    state = {"momentum/online": np.zeros(3), "momentum/ema": np.zeros(3)}
    with pytest.raises(CheckpointError, match=r"momentum/online.*another shape"):
        Aggregator(settings, state).aggregate(3, replies_of(spread(3)), SENT)


def after(round_number: int) -> Callable[[RoundDone], None]:
    def progress(event: RoundDone) -> None:
        if event.round_number == round_number:
            raise Killed

    return progress


@pytest.mark.parametrize("strategy", ["fedavgm", "fedadam"])
def test_killed_run_resumed_keeps_its_momentum(tmp_path: Path, strategy: str) -> None:
    experiment = experiment_of(f"federation.strategy={strategy}")
    run_doubles(tmp_path / "whole", experiment)
    with pytest.raises(Killed):
        run_doubles(tmp_path / "killed", experiment, progress=after(2))
    run_doubles(tmp_path / "killed", experiment, resume=True)
    assert written(tmp_path / "killed") == written(tmp_path / "whole")
    committed = RunFolder.resume(tmp_path / "whole", experiment).committed
    assert committed is not None
    assert any(np.abs(array).max() > 0 for array in committed.strategy_state.values())


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("federation.strategy=krum",),
            r"krum, expected at least 5 zones .*hostile_zones = 1",
        ),
        (("federation.strategy=bulyan",), r"bulyan, expected at least 7 zones .*there are 3"),
        (
            ("federation.strategy=fedtrimmedavg", "federation.trim_share=0.2"),
            r"fedtrimmedavg, expected at least 5 zones .*trim_share = 0\.2",
        ),
        (("federation.strategy=fedprox", "agent.personal_head=true"), r"fedprox, expected another"),
    ],
)
def test_config_says_when_a_strategy_cannot_work(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(ROOT / "configs" / "base.yaml", overrides)


def test_strategy_that_has_zones_enough_loads() -> None:
    settings = ("federation.strategy=krum", "federation.hostile_zones=0")
    experiment = load_config(ROOT / "configs" / "base.yaml", settings)
    assert experiment.federation.strategy == "krum"
