from statistics import NormalDist

import numpy as np
import pytest

from marl_sched.workload.generation.fit_margins import (
    Histogram,
    alike_factors,
    latent_correlation,
    match_curve,
    rake,
    within_jobs,
)
from marl_sched.workload.generation.margins import (
    SCORES,
    Margin,
    curve_margin,
    integers_margin,
    normal_cdf,
    normal_score,
    rank_correlation,
    steps_margin,
    weighted_quantiles,
)
from marl_sched.workload.table import Float


def normals(n: int, seed: int = 0) -> Float:
    return np.random.default_rng(seed).standard_normal(n)


def test_scores_are_those_of_the_normal_distribution() -> None:
    shares = np.array([1e-4, 0.025, 0.5, 0.9, 0.999])
    expected = [NormalDist().inv_cdf(share) for share in shares.tolist()]
    assert normal_score(shares) == pytest.approx(expected, abs=1e-4)
    assert normal_cdf(np.array(expected)) == pytest.approx(shares, abs=1e-6)


def test_steps_have_their_shares() -> None:
    margin = steps_margin(np.array([50.0, 100.0, 800.0]), np.array([2.0, 7.0, 1.0]))
    drawn = margin.at(normals(100_000))
    shares = [(drawn == value).mean() for value in (50.0, 100.0, 800.0)]
    assert shares == pytest.approx([0.2, 0.7, 0.1], abs=0.006)


def test_integers_keep_their_own_shares_and_fill_the_gaps_of_the_tail() -> None:
    values = np.array([1.0, 2.0, 5.0, 1000.0])
    margin = integers_margin(values, np.array([5.0, 2.0, 2.0, 1.0]), (100,))
    drawn = margin.at(normals(200_000))
    assert np.array_equal(drawn, np.round(drawn))
    assert [(drawn == value).mean() for value in (1.0, 2.0, 5.0)] == pytest.approx(
        [0.5, 0.2, 0.2], abs=0.01
    )
    assert drawn.max() <= 1000.0
    assert margin.at(np.array([-9.0, 9.0])).tolist() == [1.0, 1000.0]


@pytest.mark.parametrize("kind", ["linear", "log"])
def test_a_curve_goes_through_the_quantiles(kind: str) -> None:
    sample = np.exp(normals(50_000, 1))
    margin = Margin.model_validate(
        curve_margin(
            "log" if kind == "log" else "linear", sample, np.ones(len(sample))
        ).model_dump()
    )
    drawn = margin.at(normals(50_000, 2))
    for share in (0.01, 0.5, 0.99):
        assert np.quantile(drawn, share) == pytest.approx(np.quantile(sample, share), rel=0.06)


def test_weighted_quantiles_are_those_of_the_repeated_values() -> None:
    values, weights = np.array([7.0, 1.0, 3.0]), np.array([2.0, 1.0, 5.0])
    shares = np.array([0.01, 0.125, 0.2, 0.75, 0.76, 1.0])
    repeated = np.repeat(values, weights.astype(int))
    expected = np.quantile(repeated, shares, method="inverted_cdf")
    assert weighted_quantiles(values, weights, shares).tolist() == expected.tolist()


def test_raked_classes_have_both_margins_and_the_odds_of_the_hour() -> None:
    generator = np.random.default_rng(0)
    task_class = generator.integers(0, 2, 20_000)
    values = np.minimum(generator.poisson(np.where(task_class == 1, 6.0, 3.0)), 9).astype(float)
    published = Histogram(np.arange(10.0), np.array([5, 9, 12, 14, 15, 15, 12, 9, 6, 3.0]))
    share = np.array([0.2, 0.8])
    rows = rake(published, values, task_class, share)
    assert rows.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert share @ rows == pytest.approx(published.shares(), abs=1e-9)
    means = rows @ published.values
    assert means[0] < means[1] - 1.0


def test_discrete_columns_get_the_rank_correlation_of_the_sample() -> None:
    scores = normals(60_000).reshape(-1, 3)
    scores[:, 1] = 0.6 * scores[:, 0] + 0.8 * scores[:, 1]
    scores[:, 2] = -0.5 * scores[:, 0] + np.sqrt(0.75) * scores[:, 2]
    columns = np.column_stack([scores[:, 0] > 0.3, np.exp(scores[:, 1]), np.floor(scores[:, 2])])
    margins = [
        steps_margin(*np.unique(columns[:, 0], return_counts=True)),
        curve_margin("log", columns[:, 1], np.ones(len(columns))),
        steps_margin(*np.unique(columns[:, 2], return_counts=True)),
    ]
    latent = latent_correlation(columns, margins)
    drawn = normals(60_000, 5).reshape(-1, 3) @ np.linalg.cholesky(latent).T
    sampled = np.column_stack([m.at(z) for m, z in zip(margins, drawn.T, strict=True)])
    assert rank_correlation(sampled) == pytest.approx(rank_correlation(columns), abs=0.03)
    assert latent[0, 1] == pytest.approx(0.6, abs=0.04)


def test_a_matched_curve_undoes_the_spread_within_tasks() -> None:
    z = normal_score((np.arange(10_000) + 0.5) / 10_000)
    spread = np.exp(0.5 * normal_score((np.arange(25) + 0.5) / 25))

    def expand(curve: Margin) -> Float:
        return (curve.at(z)[:, None] * spread).ravel()

    true = expand(Margin(kind="log", values=tuple(np.exp(0.8 * SCORES).tolist())))
    start = Margin(kind="log", values=(1.0,) * len(SCORES))
    curve, error = match_curve(start, Histogram(true, np.ones(len(true))), expand, 1e-6)
    shares = np.array([0.1, 0.5, 0.9, 0.99])
    found = np.quantile(expand(curve), shares)
    assert found == pytest.approx(np.quantile(true, shares), rel=0.05)
    assert error < 0.02
    assert curve.at(np.array([1.0]))[0] < np.quantile(
        true, 0.8413
    )  # the spread is not counted twice


def test_likeness_within_jobs_is_measured_and_made() -> None:
    generator = np.random.default_rng(0)
    job = np.repeat(np.arange(8000), 3)
    common = generator.standard_normal(8000)[job]
    column = np.sqrt(0.4) * common + np.sqrt(0.6) * generator.standard_normal(len(job))
    assert within_jobs(column, job) == pytest.approx(0.385, abs=0.02)  # Spearman's of 0.4
    mixing = np.linalg.cholesky(np.array([[1.0, 0.7], [0.7, 1.0]]))
    share = alike_factors([mixing], np.ones(1), np.array([0.9, 0.5]))
    made = mixing**2 @ share
    assert made == pytest.approx([0.9, 0.5])
