import numpy as np

from marl_sched.statistics import Bootstrap, summarize_ratio


def test_seeds_of_two_learned_policies_are_resampled_apart() -> None:
    """Were they drawn together, equal lists of seeds would have a ratio without spread."""
    seeds = np.array([1.0, 1.2, 0.8, 1.4, 0.6])[:, None] * np.ones((1, 30))
    ratio = summarize_ratio(("a", "b", "objective"), seeds, seeds.copy(), Bootstrap(1, 2000, 30))
    assert ratio.ratio == 1.0
    assert ratio.ci95_low < 0.75
    assert ratio.ci95_high > 1.33
    assert ratio.log_ci95_low < -0.25 < 0.25 < ratio.log_ci95_high
