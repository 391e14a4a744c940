import numpy as np
import pytest

from marl_sched.config import MICROSECONDS
from marl_sched.errors import ConfigError
from marl_sched.workload.generation.arrivals import (
    ArrivalModel,
    DayCurve,
    Modulation,
    draw_arrivals,
    relative_variance,
)
from marl_sched.workload.generation.calibration import Calibration
from marl_sched.workload.generation.comparison import dispersion
from marl_sched.workload.generation.fit_arrivals import fit_arrivals, modes
from marl_sched.workload.generation.jobs import GeneratorOptions, generate
from marl_sched.workload.table import Int

FLAT = DayCurve()
LENGTH_S = 400_000


@pytest.fixture(scope="module")
def model() -> ArrivalModel:
    return Calibration.load("alibaba-v2018").arrivals


@pytest.fixture(scope="module")
def seconds(model: ArrivalModel) -> Int:
    return draw_arrivals(model, model.rate_per_s, LENGTH_S, FLAT, np.random.default_rng(1))


@pytest.mark.parametrize(("span_s", "published"), [(1, 4.4), (10, 21.6), (60, 74.0), (300, 112.0)])
def test_dispersion_is_that_of_the_hour(seconds: Int, span_s: int, published: float) -> None:
    assert dispersion(seconds, span_s, LENGTH_S) == pytest.approx(published, rel=0.25)


def test_gaps_are_those_of_the_eight_days(seconds: Int) -> None:
    gaps = np.diff(seconds)
    assert np.quantile(gaps, (0.5, 0.9, 0.99), method="inverted_cdf").tolist() == [0, 1, 2]
    assert (gaps == 0).mean() == pytest.approx(0.81, abs=0.02)


def test_arrivals_ascend_within_the_horizon_at_the_mean_rate(
    model: ArrivalModel, seconds: Int
) -> None:
    assert (np.diff(seconds) >= 0).all()
    assert seconds[0] >= 0
    assert seconds[-1] < LENGTH_S
    assert len(seconds) / LENGTH_S == pytest.approx(model.rate_per_s, rel=0.03)


@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_modes_follow_the_formula_of_dispersion(model: ArrivalModel, mode: str) -> None:
    rate = model.rate_per_s * model.modes[mode]
    drawn = draw_arrivals(model, rate, LENGTH_S, FLAT, np.random.default_rng(2))
    assert len(drawn) / LENGTH_S == pytest.approx(rate, rel=0.03)
    for span_s in (1, 10, 60):
        expected = model.dispersion(span_s, rate)
        assert dispersion(drawn, span_s, LENGTH_S) == pytest.approx(expected, rel=0.1)


def test_dense_counts_are_wilder_than_sparse_ones(model: ArrivalModel) -> None:
    sparse, dense = (model.rate_per_s * model.modes[mode] for mode in ("sparse", "dense"))
    assert model.dispersion(60, sparse) < model.dispersion(60) < model.dispersion(60, dense)
    assert model.modes["sparse"] < 1.0 < model.modes["dense"]


def test_relative_variance_is_the_sum_it_stands_for() -> None:
    parts = (Modulation(variance=0.4, scale_s=3.0), Modulation(variance=0.2, scale_s=11.0))
    span_s = 7
    expected = 0.0
    for lag in range(-span_s + 1, span_s):
        product = np.prod([1.0 + p.variance * np.exp(-abs(lag) / p.scale_s) for p in parts])
        expected += (1.0 - abs(lag) / span_s) * (product - 1.0)
    assert relative_variance(parts, span_s) == pytest.approx(expected)


@pytest.mark.parametrize("factors", ["lognormal", "gamma"])
def test_batches_and_factors_have_the_formula_s_dispersion(factors: str) -> None:
    model = ArrivalModel.model_validate(
        {
            "rate_per_s": 0.5,
            "batch_jobs": 3.0,
            "modulations": [{"variance": 0.5, "scale_s": 20.0}],
            "factors": factors,
            "modes": {"own": 1.0},
        }
    )
    drawn = draw_arrivals(model, 0.5, LENGTH_S, FLAT, np.random.default_rng(3))
    for span_s in (1, 10, 100):
        expected = model.dispersion(span_s)
        assert dispersion(drawn, span_s, LENGTH_S) == pytest.approx(expected, rel=0.1)


def test_the_day_curve_swings_and_keeps_the_mean() -> None:
    day = DayCurve(swing=9.0, peak_s=3600.0)
    rate = day.at(np.arange(86_400, dtype=np.float64))
    assert rate.max() / rate.min() == pytest.approx(9.0, rel=1e-3)
    assert rate.mean() == pytest.approx(1.0)
    assert rate.argmax() == pytest.approx(3600, abs=1)


def test_generated_days_swing_ninefold() -> None:
    calibration = Calibration.load("alibaba-v2018")
    n_days = 30
    options = GeneratorOptions(rate_per_s=0.02, day=DayCurve(swing=9.0, peak_s=43_200.0))
    table = generate(calibration, n_days * 86_400, np.random.default_rng(4), options)
    hour = table.job_arrival_us // (3600 * MICROSECONDS) % 24
    counts = np.bincount(hour, minlength=24)
    # hours are means over the cosine: a little less than its extremes
    assert counts[[11, 12]].sum() / counts[[23, 0]].sum() == pytest.approx(9.0, rel=0.1)
    assert counts.sum() / (n_days * 86_400) == pytest.approx(0.02, rel=0.03)


@pytest.mark.parametrize("swing", [0.5, float("nan"), float("inf")])
def test_a_swing_below_one_is_refused(swing: float) -> None:
    with pytest.raises(ConfigError, match="swing"):
        DayCurve(swing=swing).at(np.zeros(1))


def test_a_fit_finds_a_model_with_the_dispersion_and_gaps_of_a_draw() -> None:
    true = ArrivalModel.model_validate(
        {
            "rate_per_s": 1.0,
            "batch_jobs": 1.3,
            "modulations": [{"variance": 0.3, "scale_s": 5.0}, {"variance": 0.3, "scale_s": 30.0}],
            "modes": {"own": 1.0},
        }
    )
    seconds = draw_arrivals(true, 1.0, 100_000, FLAT, np.random.default_rng(0))
    targets = {span: true.dispersion(span) for span in (1, 10, 60)}
    start = true.model_copy(update={"batch_jobs": 1.0, "modulations": ()})
    fitted = fit_arrivals(start, targets, np.diff(seconds))
    for span, wanted in targets.items():
        assert fitted.dispersion(span) == pytest.approx(wanted, rel=0.1)
    drawn = np.diff(draw_arrivals(fitted, 1.0, 100_000, FLAT, np.random.default_rng(1)))
    assert (drawn == 0).mean() == pytest.approx((np.diff(seconds) == 0).mean(), abs=0.03)


def test_modes_are_the_quietest_and_busiest_sixtieth() -> None:
    seconds = np.repeat(np.arange(60), [1, 11, *[4] * 58])  # 4 on average
    assert modes(seconds, 60) == {"own": 1.0, "sparse": 0.246, "dense": 2.7}
