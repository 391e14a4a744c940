import numpy as np

from marl_sched.agents import kube


def test_least_allocated_rounds_every_resource_down_then_the_mean() -> None:
    # 4000m of 16000m and 3000 MiB of 32768 MiB are free after: 25, and 9.155 -> 9; (25 + 9) // 2.
    free = np.array([[[4000 / 16000, 3000 / 32768]]], np.float32).astype(float)
    assert kube.least_allocated(free).tolist() == [[17.0]]


def test_least_allocated_gives_nothing_for_an_overcommitted_resource() -> None:
    assert kube.least_allocated(np.array([[[-0.2, 0.6]]])).tolist() == [[30.0]]


def test_least_allocated_survives_float32() -> None:
    # Every whole percent, as float32 rounds it up or down.
    percents = np.arange(101)
    share = (percents / 100).astype(np.float32).astype(float)
    free = np.stack([share, share], axis=-1)[None]
    assert kube.least_allocated(free)[0].tolist() == percents.tolist()


def test_balanced_allocation_is_half_the_gap_of_two_resources() -> None:
    # Requested .75 and .25: std .25 -> 75. Requested 1.3 counts as 1: std (1 - .4) / 2 -> 70.
    free = np.array([[[0.25, 0.75], [-0.3, 0.6]]])
    assert kube.balanced_allocation(free).tolist() == [[75.0, 70.0]]


def test_load_variation_risk_is_the_worst_resource_rounded() -> None:
    # cpu: mu .42 + .13 = .55, sigma .2 -> risk .375; memory: mu .3 + .05, sigma 0 -> .175.
    score = kube.load_variation_risk(
        np.array([[[0.42, 0.3]]]), np.array([[[0.2, 0.0]]]), np.array([[[0.13, 0.05]]])
    )
    # 62.5 is rounded away from zero, as Go's math.Round does.
    assert score.tolist() == [[63.0]]


def test_load_variation_risk_clips_mean_plus_request_to_one() -> None:
    score = kube.load_variation_risk(
        np.array([[[0.9, 0.0]]]), np.array([[[1.7, 0.0]]]), np.array([[[0.5, 0.0]]])
    )
    assert score.tolist() == [[0.0]]
