import numpy as np
import pytest

from marl_sched.statistics import (
    Bootstrap,
    best_fixed,
    summarize,
    summarize_ratio,
    summarize_row,
)

NAMES = ("learned", "kube-default", "objective")


def lognormal(seed: int, *shape: int) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(0.0, 0.5, shape))


def test_identical_policies_have_ratio_one_without_spread() -> None:
    values = lognormal(0, 1, 50)
    ratio = summarize_ratio(NAMES, values, values, Bootstrap(1, 500, 50))
    assert ratio.ratio == 1.0
    assert ratio.ci95_low == pytest.approx(1.0)
    assert ratio.ci95_high == pytest.approx(1.0)
    assert ratio.mean_log_ratio == 0.0


def test_equal_but_independent_policies_have_an_interval_around_one() -> None:
    ratio = summarize_ratio(
        NAMES, lognormal(1, 1, 200), lognormal(2, 1, 200), Bootstrap(1, 800, 200)
    )
    assert ratio.ci95_low < 1.0 < ratio.ci95_high
    assert ratio.log_ci95_low < 0.0 < ratio.log_ci95_high


def test_known_ratio_is_found_and_pairing_removes_the_noise_of_episodes() -> None:
    baseline = lognormal(3, 1, 100)
    noise = 1 + 0.02 * np.random.default_rng(4).normal(size=(1, 100))
    ratio = summarize_ratio(NAMES, 0.8 * baseline * noise, baseline, Bootstrap(1, 800, 100))
    assert ratio.ratio == pytest.approx(0.8, abs=0.01)
    assert ratio.ci95_low < 0.8 < ratio.ci95_high
    assert ratio.ci95_high - ratio.ci95_low < 0.02
    assert ratio.mean_log_ratio == pytest.approx(np.log(0.8), abs=0.01)


def test_ratio_is_of_means_not_mean_of_ratios() -> None:
    values, baseline = np.array([[1.0, 9.0]]), np.array([[2.0, 3.0]])
    ratio = summarize_ratio(NAMES, values, baseline, Bootstrap(1, 50, 2))
    assert ratio.ratio == 2.0
    assert ratio.mean_log_ratio == pytest.approx((np.log(0.5) + np.log(3.0)) / 2)


def test_interval_of_the_mean_has_the_width_of_the_standard_error() -> None:
    values = np.random.default_rng(5).normal(10.0, 2.0, (1, 400))
    row = summarize_row("a", "objective", values, Bootstrap(1, 4000, 400))
    half_width = 1.96 * values.std() / 20
    assert row.mean == values.mean()
    assert row.ci95_high - row.ci95_low == pytest.approx(2 * half_width, rel=0.08)
    assert (row.n_episodes, row.n_training_seeds) == (400, 1)


def test_interval_covers_the_spread_between_training_seeds() -> None:
    # All episodes equal: only the seeds differ. The 3-seed mean ranges from all-low to all-high.
    values = np.repeat([[1.0], [2.0], [3.0]], 30, axis=1)
    row = summarize_row("learned", "objective", values, Bootstrap(1, 4000, 30))
    assert row.ci95_low == pytest.approx(1.0, abs=0.34)
    assert row.ci95_high == pytest.approx(3.0, abs=0.34)
    assert row.n_training_seeds == 3


def test_episodes_are_shared_by_the_seeds_of_a_policy() -> None:
    # Three equal seeds are no more evidence than one.
    one = lognormal(6, 1, 60)
    bootstrap = Bootstrap(1, 1000, 60)
    row, repeated = (
        summarize_row("a", "m", values, bootstrap) for values in (one, np.repeat(one, 3, axis=0))
    )
    assert repeated.ci95_low == pytest.approx(row.ci95_low)
    assert repeated.ci95_high == pytest.approx(row.ci95_high)


def test_what_is_not_defined_is_none() -> None:
    bootstrap = Bootstrap(1, 100, 4)
    zeros, ones = np.zeros((1, 4)), np.ones((1, 4))
    assert summarize_ratio(NAMES, ones, zeros, bootstrap).ratio is None
    some = summarize_ratio(NAMES, zeros, ones, bootstrap)
    assert some.ratio == 0.0
    assert some.mean_log_ratio is None
    assert summarize_row("a", "m", np.array([[1.0, np.nan, 1.0, 1.0]]), bootstrap).mean is None


def test_resamples_are_those_of_the_seed() -> None:
    values = lognormal(7, 2, 20)
    first, same, other = (Bootstrap(seed, 100, 20).means(values) for seed in (1, 1, 2))
    assert first.tolist() == same.tolist()
    assert first.tolist() != other.tolist()


def test_best_fixed_is_the_best_on_these_episodes_and_tuned_is_not_fixed() -> None:
    metrics = {
        name: {"objective": np.full((1, 3), value)}
        for name, value in {"kube-default": 0.6, "random": 1.0, "tetris": 0.5, "tuned": 0.4}.items()
    }
    fixed = ("random", "tetris", "kube-default")
    assert best_fixed(metrics, fixed) == "tetris"
    assert best_fixed({"kube-default": metrics["kube-default"]}, fixed) is None


def test_every_policy_is_compared_with_every_baseline_but_itself() -> None:
    metrics = {
        name: {"objective": lognormal(i, 1, 5), "offload_rate": lognormal(i + 9, 1, 5)}
        for i, name in enumerate(["kube-default", "tetris", "tuned", "learned"])
    }
    rows, ratios = summarize(metrics, "tetris", Bootstrap(1, 20, 5))
    assert len(rows) == 8
    pairs = {(r.policy, r.baseline) for r in ratios if r.metric == "objective"}
    assert pairs == {
        ("tetris", "kube-default"),
        ("tuned", "kube-default"),
        ("learned", "kube-default"),
        ("kube-default", "best-fixed"),
        ("tuned", "best-fixed"),
        ("learned", "best-fixed"),
        ("kube-default", "tuned"),
        ("tetris", "tuned"),
        ("learned", "tuned"),
    }
