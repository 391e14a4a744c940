from pathlib import Path

import numpy as np
import pytest
from tiny import with_gpus_on_some

from marl_sched.config import Experiment, SyntheticWorkload, load_config
from marl_sched.errors import ConfigError
from marl_sched.workload.episodes import draw_workload
from marl_sched.workload.offered_load import job_rates, mixture, offered_load

CONFIGS = Path(__file__).parents[2] / "configs"
LOADS = {"base": 0.78, "sparse": 0.45, "dense": 0.95, "three-az": 0.75}


def workload_of(experiment: Experiment) -> SyntheticWorkload:
    assert isinstance(experiment.workload, SyntheticWorkload)
    return experiment.workload


@pytest.mark.parametrize("zone", range(3))
@pytest.mark.parametrize("name", LOADS)
def test_mean_load_on_the_binding_resource_is_the_configured_one(name: str, zone: int) -> None:
    experiment = load_config(CONFIGS / f"{name}.yaml")
    chosen = experiment.zones[zone]
    loads = [
        offered_load(experiment, chosen, draw_workload(experiment, chosen, "validation", episode))
        for episode in range(300)
    ]
    # 300 episodes of a standard deviation of .17 of the load: three standard errors are 3%
    assert np.mean(loads, axis=0).max() == pytest.approx(LOADS[name], rel=0.03)


def test_a_zones_own_load_overrides_the_workloads() -> None:
    experiment = load_config(CONFIGS / "base.yaml")
    workload = workload_of(experiment)
    zone = experiment.zones[0]
    twice = zone.model_copy(update={"load": 2 * workload.load})
    assert job_rates(experiment, workload, twice)[0] == pytest.approx(
        2 * job_rates(experiment, workload, zone)[0]
    )


def test_rate_of_base_is_that_of_a_hand_computation() -> None:
    experiment = load_config(CONFIGS / "base.yaml", ["zones[0].mix={web: 1}"])
    zone = experiment.zones[0]
    # web: 1 core, 1 GiB, 20 s; 1.7 tasks of 6 (1 - (5/6)^16) instances a job; cpu binds
    speed = (8 * 1.0 + 5 * 1.3 + 4 * 0.7 + 3 * 1.0) / 20
    cores = 8 * 16 + 5 * 32 + 4 * 8 + 3 * 64
    work_a_job = 1.7 * 6 * (1 - (5 / 6) ** 16) * 20
    rates = job_rates(experiment, workload_of(experiment), zone)
    assert rates == pytest.approx([0.78 * cores * speed / work_a_job])


def test_load_that_background_already_exceeds_is_refused() -> None:
    experiment = load_config(CONFIGS / "three-az.yaml", ["workload.load=0.15"])
    with pytest.raises(ConfigError, match=r"zone az_a: load = 0\.15.*memory_mib"):
        draw_workload(experiment, experiment.zones[0], "train", 0)


def test_streams_share_what_is_left_by_their_shares() -> None:
    experiment = load_config(CONFIGS / "three-az.yaml")
    workload = workload_of(experiment)
    zone = experiment.zones[0]
    wave, ai, _ = job_rates(experiment, workload, zone)
    assert wave == pytest.approx(2 * 100 / 1800)
    # (.75 - .15 background - waves of 30 s x 1 core) / 2 is the AI jobs' load
    left = 0.75 - 0.15 - wave * 30 / 160
    assert ai == pytest.approx(left / 2 * 160 / (600 * 4))


def test_a_resource_that_a_zone_does_not_have_cannot_bind() -> None:
    experiment = with_gpus_on_some()
    workload, (a, _, c) = workload_of(experiment), experiment.zones
    # 0.6 jobs of one task, 0.4 of two; half of the tasks small: 1 core, 6 s; half large: 3, 12 s
    small, large = (1 - (1 - p) ** 4 for p in (1 / 2.0, np.sqrt(3) / 2.0))
    work_a_job = 1.4 * 0.5 * (small * 2.0 * 6 * 1 + large * 2.0 / np.sqrt(3) * 12 * 3)
    assert job_rates(experiment, workload, c) == pytest.approx([0.7 * 8 / work_a_job])
    table = draw_workload(experiment, c, "train", 0)
    load = offered_load(experiment, c, table)
    assert table.request[:, 2].max() == 1
    assert (load[0] > 0, load[2]) == (True, 0.0)
    assert offered_load(experiment, a, draw_workload(experiment, a, "train", 0))[2] > 0


def test_mixture_has_the_moments_of_the_zones_instances() -> None:
    experiment = load_config(CONFIGS / "base.yaml", ["zones[0].mix={web: 1}"])
    zone = experiment.zones[0]
    assert mixture(experiment, workload_of(experiment), zone) == pytest.approx((20.0, 0.4))
