"""Configurations of other sizes: what is repeated, dealt, pooled, and what stays the same."""

import pytest
from tiny import TASK_TYPES, machines, tiny, zone

from marl_sched.config import Experiment, SyntheticWorkload, TraceWorkload, Waves
from marl_sched.errors import ConfigError
from marl_sched.scaling.cases import Case, Length, cases_of, configured
from marl_sched.scaling.shared_load import zone_jobs
from marl_sched.scaling.sizes import pooled, scaled
from marl_sched.workload.offered_load import job_rates


def two_kinds(**changes: object) -> Experiment:
    """Two zones of small and large machines, 7 in all, with mixes of their own."""
    return tiny(
        zone("a", machines(3), machines(1, cpu=8000), load=0.6, mix={"small": 3, "large": 1}),
        zone("b", machines(2), machines(1, cpu=8000), load=0.9, mix={"small": 1, "large": 1}),
        **changes,
    )


def jobs_per_s(experiment: Experiment) -> float:
    workload = experiment.workload
    assert isinstance(workload, SyntheticWorkload)
    return sum(sum(job_rates(experiment, workload, zone)) for zone in experiment.zones)


def counts(experiment: Experiment) -> list[list[tuple[int, int]]]:
    """Return (cpu, machines) of every group, by zone."""
    return [[(g.capacity["cpu_milli"], g.count) for g in z.machines] for z in experiment.zones]


def test_weak_repeats_the_zones_in_turn_under_new_names() -> None:
    found = scaled(two_kinds(), 5, "weak").experiment
    assert found.zone_names == ["a", "b", "a-2", "b-2", "a-3"]
    assert [z.load for z in found.zones] == [0.6, 0.9, 0.6, 0.9, 0.6]
    assert counts(found)[4] == [(4000, 3), (8000, 1)]


def test_weak_with_fewer_zones_keeps_the_first() -> None:
    experiment = two_kinds()
    assert scaled(experiment, 1, "weak").experiment.zones == experiment.zones[:1]


def test_weak_at_the_files_own_size_is_the_file() -> None:
    experiment = two_kinds()
    assert scaled(experiment, 2, "weak").experiment == experiment


def test_copy_does_not_take_a_name_that_is_there() -> None:
    experiment = tiny(zone("a-2"), zone("a"))
    names = scaled(experiment, 6, "weak").experiment.zone_names
    assert len(set(names)) == 6


def test_weak_says_which_zones_there_are_where_they_are_not_alike() -> None:
    assert scaled(two_kinds(), 3, "weak").notes == (
        "the file's 2 zones are not alike; of them there are: a 2, b 1",
    )
    assert scaled(two_kinds(), 1, "weak").notes[0].endswith("a 1, b 0")
    assert scaled(two_kinds(), 4, "weak").notes == ()
    assert scaled(tiny(zone("a"), zone("b")), 3, "weak").notes == ()


def test_strong_deals_every_kind_like_cards() -> None:
    # Kinds in order: 5 small, 2 large; zone k gets cards k, k + 3, ...
    found = scaled(two_kinds(), 3, "strong")
    assert counts(found.experiment) == [
        [(4000, 2), (8000, 1)],
        [(4000, 2)],
        [(4000, 1), (8000, 1)],
    ]
    assert "7 machines over 3 zones: 2 or 3 each" in found.notes
    assert any("1 of 3 zones have no machine of cpu_milli 8000" in note for note in found.notes)


@pytest.mark.parametrize("n_zones", [1, 2, 3, 7])
def test_strong_offers_as_many_jobs_as_the_file(n_zones: int) -> None:
    experiment = two_kinds()
    found = scaled(experiment, n_zones, "strong").experiment
    assert sum(z.n_machines for z in found.zones) == 7
    assert jobs_per_s(found) == pytest.approx(jobs_per_s(experiment), rel=1e-3)


def test_strong_with_more_zones_than_machines_is_refused() -> None:
    with pytest.raises(ConfigError, match="8 zones, expected at most the 7 machines"):
        scaled(two_kinds(), 8, "strong")


def test_pool_holds_all_machines_and_as_many_jobs() -> None:
    experiment = two_kinds()
    found = pooled(experiment).experiment
    assert [z.n_machines for z in found.zones] == [7]
    assert jobs_per_s(found) == pytest.approx(jobs_per_s(experiment), rel=1e-3)


def test_jobs_of_zones_are_those_that_are_drawn_or_one_each() -> None:
    experiment = two_kinds()
    assert sum(zone_jobs(experiment)) == pytest.approx(jobs_per_s(experiment))
    trace = {"kind": "trace", "path": "package:alibaba-v2018-hour", "max_job_share": 0.1}
    values = tiny(zone("a"), zone("b")).model_dump() | {"workload": trace}
    values["episode"] = {"horizon_s": 300.0, "drain_s": 300.0, "measured_from": 0.0}
    assert zone_jobs(Experiment.model_validate(values)) == [1.0, 1.0]


def test_mix_of_the_pool_is_that_of_all_jobs() -> None:
    experiment = two_kinds()
    workload = experiment.workload
    assert isinstance(workload, SyntheticWorkload)
    a, b = (sum(job_rates(experiment, workload, z)) for z in experiment.zones)
    mix = pooled(experiment).experiment.zones[0].mix
    assert mix is not None
    assert mix["small"] == pytest.approx((a * 0.75 + b * 0.5) / (a + b))
    assert mix["small"] + mix["large"] == pytest.approx(1.0)


def test_events_follow_their_machines() -> None:
    events = [{"at_s": 20.0, "machine": 1, "kind": "fail"}]
    experiment = tiny(zone("a", machines(2)), zone("b", machines(2), machine_events=events))
    assert pooled(experiment).experiment.zones[0].machine_events[0].machine == 3
    parts = scaled(experiment, 2, "strong").experiment.zones  # machines 0 and 2, 1 and 3
    assert [[e.machine for e in z.machine_events] for z in parts] == [[], [1]]


def test_waves_grow_with_the_zone() -> None:
    stream = {
        "name": "wave",
        "arrivals": {"kind": "waves", "period_s": 30.0, "min_tasks": 2, "max_tasks": 5},
        "stage_probabilities": [1.0],
        "mean_instances": 1.0,
        "max_instances": 1,
    }
    experiment = tiny(
        zone("a", machines(2)), zone("b", machines(2)), workload={"streams": [stream]}
    )

    def tasks(found: Experiment) -> tuple[int, int]:
        workload = found.workload
        assert isinstance(workload, SyntheticWorkload)
        arrivals = workload.streams[0].arrivals
        assert isinstance(arrivals, Waves)
        return arrivals.min_tasks, arrivals.max_tasks

    assert tasks(pooled(experiment).experiment) == (4, 10)
    assert tasks(scaled(experiment, 4, "strong").experiment) == (1, 2)
    assert tasks(scaled(experiment, 4, "weak").experiment) == (2, 5)


def test_largest_job_of_a_trace_stays_as_large() -> None:
    trace = {"kind": "trace", "path": "package:alibaba-v2018-hour", "max_job_share": 0.1}
    values = tiny(zone("a"), zone("b")).model_dump() | {"workload": trace}
    values["episode"] = {"horizon_s": 300.0, "drain_s": 300.0, "measured_from": 0.0}
    experiment = Experiment.model_validate(values)
    found = pooled(experiment).experiment.workload
    assert isinstance(found, TraceWorkload)
    assert found.max_job_share == pytest.approx(0.05)


@pytest.mark.parametrize("mode", ["strong", "pool"])
def test_zones_that_fail_differently_cannot_be_dealt_or_pooled(mode: str) -> None:
    failures = {"mean_up_s": 40.0, "mean_down_s": 6.0}
    experiment = tiny(zone("a"), zone("b", failures=failures))
    with pytest.raises(ConfigError, match=r"zones\[1\]\.failures differs"):
        pooled(experiment) if mode == "pool" else scaled(experiment, 2, "strong")


def test_strategy_that_needs_more_zones_names_size_and_number() -> None:
    experiment = tiny(zone("a"), zone("b"), zone("c"), federation={"strategy": "fedmedian"})
    with pytest.raises(ConfigError, match=r"with 2 zones: federation\.strategy = fedmedian"):
        scaled(experiment, 2, "weak")


def test_one_zone_runs_once_and_others_beside_two_rivals() -> None:
    found = [(c.n_zones, c.variant) for c in cases_of([4, 1, 2], "weak", "all")]
    assert found == [
        (1, "federated"),
        *[(n, v) for n in (2, 4) for v in ("federated", "alone", "central")],
    ]
    largest = [(c.n_zones, c.variant) for c in cases_of([1, 2, 4], "weak", "largest")]
    assert largest[-3:] == [(4, "federated"), (4, "alone"), (4, "central")]
    assert len(largest) == 5
    assert [c.variant for c in cases_of([1, 2], "weak", "none")] == ["federated"] * 2


def test_variants_differ_from_the_federation_only_where_they_must() -> None:
    experiment = tiny(zone("a"), zone("b"))
    length = Length(rounds=4, validation_episodes=3)
    runs = {
        v: configured(experiment, Case("weak", 2, v), length).experiment
        for v in ("federated", "alone", "central")
    }
    plain, alone, central = runs["federated"], runs["alone"], runs["central"]
    assert (plain.training.rounds, plain.training.validate_every) == (4, 2)
    assert plain.training.validation_episodes == 3
    assert alone.federation.strategy == "none"
    restored = alone.model_copy(update={"federation": plain.federation, "name": plain.name})
    assert restored == plain
    assert len(central.zones) == 1
    assert central.zones[0].n_machines == 2
    assert central.agent == plain.agent


def test_task_types_are_those_of_the_file() -> None:
    found = scaled(two_kinds(), 3, "strong").experiment.workload
    assert isinstance(found, SyntheticWorkload)
    assert [t.name for t in found.task_types] == [t["name"] for t in TASK_TYPES]
