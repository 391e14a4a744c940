"""Means and paired ratios over episodes and training seeds, with bootstrapped 95% intervals.

Shapes: S training seeds (1 for a rule), E episodes, K resamples. All policies play the same
episodes, so seeds and episodes are crossed: a resample draws S seeds and, apart from them, E
episodes, the same ones for both policies of a pair (Owen 2007, "The pigeonhole bootstrap"). With
one seed the interval covers the episodes only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from marl_sched.config.streams import named_stream

Values = NDArray[np.float64]

PolicyMetrics = Mapping[str, Values]
"""Metric name -> (S, E) values."""

KUBE_DEFAULT, BEST_FIXED, TUNED = "kube-default", "best-fixed", "tuned"
"""What every policy is compared with."""

_INTERVAL = (0.025, 0.975)


@dataclass(frozen=True)
class Row:
    """Mean of a metric; None where it is not defined."""

    policy: str
    metric: str
    mean: float | None
    ci95_low: float | None
    ci95_high: float | None
    n_episodes: int
    n_training_seeds: int


@dataclass(frozen=True)
class Ratio:
    """A policy's metric over a baseline's: ratio of the means, and mean of the log ratios.

    None where it is not defined: a mean (or for the logarithm, an episode) of 0.
    """

    policy: str
    baseline: str
    metric: str
    ratio: float | None
    ci95_low: float | None
    ci95_high: float | None
    mean_log_ratio: float | None
    log_ci95_low: float | None
    log_ci95_high: float | None


class Bootstrap:
    """The same resamples for every policy and metric, so that all intervals are paired."""

    def __init__(self, seed: int, n_samples: int, n_episodes: int) -> None:
        """Draw the episodes of all resamples.

        Args:
            seed: The experiment's seed.
            n_samples: K.
            n_episodes: E.
        """
        self._seed = seed
        self._n_samples = n_samples
        self._episode_weights = self._draw("episodes", n_episodes)  # (K, E)
        self._seed_weights = lru_cache(maxsize=None)(self._draw)  # (K, S)

    def _draw(self, what: str, count: int) -> Values:
        generator = named_stream(self._seed, "bootstrap", what, str(count))
        picks = generator.multinomial(count, np.full(count, 1 / count), size=self._n_samples)
        return picks / count

    def means(self, values: Values, is_baseline: bool = False) -> Values:
        """Return the (K,) resampled means of (S, E) values.

        Training seeds of two learned policies have nothing to do with each other: those of a
        baseline are drawn apart.
        """
        stream = "baseline seeds" if is_baseline else "seeds"
        by_episode = self._seed_weights(stream, len(values)) @ values  # (K, E)
        means: Values = (by_episode * self._episode_weights).sum(axis=1)
        return means


def summarize_row(policy: str, metric: str, values: Values, bootstrap: Bootstrap) -> Row:
    """Return the mean of (S, E) values with its interval."""
    low, high = interval(bootstrap.means(values))
    n_seeds, n_episodes = values.shape
    return Row(policy, metric, _defined(values.mean()), low, high, n_episodes, n_seeds)


def summarize_ratio(
    names: tuple[str, str, str], values: Values, baseline: Values, bootstrap: Bootstrap
) -> Ratio:
    """Compare a policy with a baseline on the same episodes.

    Args:
        names: Policy, baseline, metric.
        values: (S, E) of the policy.
        baseline: (S', E) of the baseline.
        bootstrap: The resamples.
    """
    ratio: tuple[float | None, ...] = (None, None, None)
    baseline_means = bootstrap.means(baseline, is_baseline=True)
    if (baseline_means > 0).all():
        ratios = bootstrap.means(values) / baseline_means
        ratio = (_defined(values.mean() / baseline.mean()), *interval(ratios))
    log_ratio: tuple[float | None, ...] = (None, None, None)
    if (values > 0).all() and (baseline > 0).all():
        log_values, log_baseline = np.log(values), np.log(baseline)
        logs = bootstrap.means(log_values) - bootstrap.means(log_baseline, is_baseline=True)
        log_ratio = (_defined(log_values.mean() - log_baseline.mean()), *interval(logs))
    return Ratio(*names, *ratio, *log_ratio)


def best_fixed(metrics: Mapping[str, PolicyMetrics], fixed_rules: tuple[str, ...]) -> str | None:
    """Return the fixed rule with the lowest mean objective on these very episodes.

    Chosen with hindsight, which favors the baseline. None if fewer than two fixed rules were
    played: then there is nothing to be the best of.
    """
    played = [name for name in fixed_rules if name in metrics]
    if len(played) < 2:
        return None
    return min(played, key=lambda name: float(metrics[name]["objective"].mean()))


def summarize(
    metrics: Mapping[str, PolicyMetrics], best_fixed_rule: str | None, bootstrap: Bootstrap
) -> tuple[list[Row], list[Ratio]]:
    """Return all rows, and the ratios of every policy to every baseline that was played."""
    rows = [
        summarize_row(policy, metric, values, bootstrap)
        for policy, by_metric in metrics.items()
        for metric, values in by_metric.items()
    ]
    baselines = {KUBE_DEFAULT: KUBE_DEFAULT, BEST_FIXED: best_fixed_rule, TUNED: TUNED}
    ratios = [
        summarize_ratio((policy, baseline, metric), values, metrics[played][metric], bootstrap)
        for baseline, played in baselines.items()
        if played is not None and played in metrics
        for policy, by_metric in metrics.items()
        if policy != played
        for metric, values in by_metric.items()
        if metric in metrics[played]
    ]
    return rows, ratios


def interval(samples: Values) -> tuple[float | None, float | None]:
    """Return the ends of the 95% interval of (K,) resampled values."""
    low, high = np.quantile(samples, _INTERVAL)
    return _defined(low), _defined(high)


def _defined(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
