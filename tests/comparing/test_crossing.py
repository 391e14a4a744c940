import numpy as np
import pytest

from marl_sched.comparing.crossing import (
    ABOVE,
    BELOW,
    largest_load,
    largest_loads,
    ratio_of_loads,
)

LOADS = np.array([0.5, 0.8, 1.0, 1.2])


def slow(loads: np.ndarray, rates: np.ndarray, bound: float) -> tuple[float, int]:
    """Walk up the loads, one by one."""
    if rates[0] > bound:
        return loads[0], -1
    for i in range(1, len(loads)):
        if rates[i] > bound:
            slope = (rates[i] - rates[i - 1]) / (loads[i] - loads[i - 1])
            return loads[i - 1] + (bound - rates[i - 1]) / slope, 0
    return loads[-1], 1


@pytest.mark.parametrize(
    ("rates", "load", "side"),
    [
        ([0.00, 0.02, 0.08, 0.3], 0.9, 0),  # half-way between .02 and .08
        ([0.00, 0.05, 0.05, 0.10], 1.0, 0),  # the bound itself keeps it
        ([0.00, 0.07, 0.01, 0.01], 0.5 + 0.3 * 5 / 7, 0),  # falls again: does not count
        ([0.06, 0.00, 0.00, 0.00], 0.5, -1),
        ([0.00, 0.01, 0.02, 0.05], 1.2, 1),
    ],
)
def test_largest_load_is_where_the_bound_is_first_broken(
    rates: list[float], load: float, side: int
) -> None:
    found, sides = largest_loads(LOADS, np.array([rates]), 0.05)
    assert found[0] == pytest.approx(load)
    assert sides[0] == side


def test_many_curves_are_what_a_walk_along_each_finds() -> None:
    rates = np.random.default_rng(1).uniform(0.0, 0.1, (200, 4))
    found, sides = largest_loads(LOADS, rates, 0.05)
    expected = [slow(LOADS, curve, 0.05) for curve in rates]
    np.testing.assert_allclose(found, [load for load, _ in expected])
    assert sides.tolist() == [side for _, side in expected]
    assert {-1, 0, 1} == set(sides.tolist())


def test_interval_is_that_of_the_resampled_curves() -> None:
    shifts = np.linspace(-0.01, 0.01, 101)
    rates = np.array([0.0, 0.02, 0.08, 0.3])
    found = largest_load(LOADS, rates, rates + shifts[:, None], 0.05)
    assert found.value == pytest.approx(0.9)
    # A rate higher by s breaks the bound s / .06 * .2 earlier.
    assert found.ci95_low == pytest.approx(0.9 - 0.0095 / 0.06 * 0.2)
    assert found.ci95_high == pytest.approx(0.9 + 0.0095 / 0.06 * 0.2)
    assert (found.outside, found.share_outside) == ("", 0.0)


def test_load_outside_the_grid_is_told() -> None:
    low, high = np.full(4, 0.2), np.full(4, 0.01)
    samples = np.stack([low, high, high, high])
    below = largest_load(LOADS, low, samples, 0.05)
    above = largest_load(LOADS, high, samples, 0.05)
    assert (below.value, below.outside, below.share_outside) == (0.5, BELOW, 1.0)
    assert (above.value, above.outside) == (1.2, ABOVE)


def test_ratio_is_paired_over_the_resamples() -> None:
    """Both move together: the ratio has a narrower interval than the loads."""
    shifts = np.random.default_rng(2).uniform(-0.015, 0.015, 300)
    theirs = np.array([0.0, 0.04, 0.06, 0.3])  # .9
    ours = np.array([0.0, 0.0, 0.04, 0.06])  # 1.1
    resampled = (ours + shifts[:, None], theirs + shifts[:, None])
    ratio = ratio_of_loads(LOADS, (ours, theirs), resampled, 0.05)
    alone = largest_load(LOADS, ours, resampled[0], 0.05)
    assert ratio.value == pytest.approx(1.1 / 0.9)
    assert ratio.ci95_low is not None
    assert ratio.ci95_high is not None
    assert alone.ci95_low is not None
    assert alone.ci95_high is not None
    assert ratio.ci95_low < ratio.value < ratio.ci95_high
    assert (ratio.ci95_high - ratio.ci95_low) / ratio.value < 0.6 * (
        (alone.ci95_high - alone.ci95_low) / 1.1
    )
    assert ratio.share_outside > 0  # shifted by more than .01 both leave the grid


def test_ratio_to_a_load_outside_the_grid_is_not_defined() -> None:
    inside, high, low = np.array([0.0, 0.0, 0.04, 0.06]), np.full(4, 0.01), np.full(4, 0.2)

    def ratio(ours: np.ndarray, theirs: np.ndarray) -> tuple[float | None, str]:
        found = ratio_of_loads(LOADS, (ours, theirs), (ours[None], theirs[None]), 0.05)
        return found.value, found.outside

    assert ratio(inside, high) == ratio(inside, low) == ratio(low, inside) == (None, "")
    assert ratio(high, inside) == (pytest.approx(1.2 / 1.1), ABOVE)  # only a lower limit
