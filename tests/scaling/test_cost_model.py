"""The cost model on costs that follow it exactly, and on those that do not."""

from dataclasses import replace

import pytest

from marl_sched.scaling.cost_model import fit, held_out, hub_limit, least_squares, predict
from marl_sched.scaling.measured import SPLIT, Measured

MANY_CORES = 10_000


def run_of(n_zones: int, decisions: float | None = None) -> Measured:
    """Return a run whose costs follow the model: a = 0.2, c = 0.01, d = 0.05, e = 0.02.

    1,000 exchanges a round and 5,000 decisions a zone; latency 1.5 s.
    """
    decisions = 5000.0 * n_zones if decisions is None else decisions
    zone_cpu_s = 0.2 * decisions / 1000 + 0.01 * n_zones**2
    hub_s = 0.05 * n_zones + 0.02 * n_zones**2
    return Measured(
        name=f"weak-{n_zones}",
        n_zones=n_zones,
        n_machines=10 * n_zones,
        n_steps=1000,
        n_timed=3,
        n_decisions=decisions,
        seconds=zone_cpu_s / n_zones + hub_s + 1.5,
        split_s=dict.fromkeys(SPLIT, 0.0),
        zone_cpu_s=zone_cpu_s,
        coordinator_cpu_s={"serverapp": hub_s, "superlink": 0.0, "superexec": 0.0},
        network_bytes=2e6,
        weight_bytes=0.0,
        exchange_bytes=3e6 * n_zones + 1e6 * n_zones**2,
        zone_mib=300.0,
        coordinator_mib={"serverapp": 100.0 + 5.0 * n_zones, "superlink": 180.0, "superexec": 0.0},
        load_average=1.0,
    )


RUNS = [run_of(n) for n in (1, 2, 4, 8)]


def test_exact_costs_give_the_coefficients_back() -> None:
    model = fit(RUNS, "weak", MANY_CORES)
    assert model.zones == pytest.approx({"decisions": 0.2, "deliveries": 0.01})
    assert model.server == pytest.approx({"posts": 0.05, "deliveries": 0.02})
    assert model.link == {}
    assert model.exchange_mb == pytest.approx({"posts": 3.0, "deliveries": 1.0})
    assert model.memory == pytest.approx({"constant": 280.0, "zones": 5.0})
    assert model.latency_s == pytest.approx(1.5)


def test_prediction_is_the_sum_of_its_terms() -> None:
    said = predict(fit(RUNS, "weak", MANY_CORES), 16)
    assert said.n_decisions == pytest.approx(80_000)
    assert said.zone_cpu_s == pytest.approx(0.2 * 80 + 0.01 * 256)
    assert said.coordinator_cpu_s == pytest.approx(0.05 * 16 + 0.02 * 256)
    assert said.seconds == pytest.approx((16 + 2.56) / 16 + 5.92 + 1.5)
    assert said.cpu_per_1000 == pytest.approx((18.56 + 5.92) / 80)
    assert said.exchange_bytes == pytest.approx(3e6 * 16 + 1e6 * 256)


def test_few_cores_take_at_least_all_work_over_the_cores() -> None:
    said = predict(fit(RUNS, "weak", MANY_CORES), 16, n_cores=2)
    assert said.seconds == pytest.approx((18.56 + 5.92) / 2 + 1.5)


def test_held_out_size_is_not_fitted_to() -> None:
    found = held_out(RUNS, "weak", MANY_CORES)
    assert found is not None
    assert (found.n_zones, found.sizes) == (8, (1, 2, 4))
    assert found.errors == pytest.approx(dict.fromkeys(found.errors, 0.0), abs=1e-9)
    dearer = [*RUNS[:3], replace(RUNS[3], zone_cpu_s=2 * RUNS[3].zone_cpu_s)]
    wrong = held_out(dearer, "weak", MANY_CORES)
    assert wrong is not None
    assert wrong.errors["zone_cpu_s"] == pytest.approx(-0.5)


def test_costs_that_begin_with_the_first_peer_are_told_from_those_of_a_decision() -> None:
    # 0.06 CPU s per 1,000 decisions, and 0.03 more for all but the own 1/N.
    runs = [
        replace(run, zone_cpu_s=run.n_decisions / 1000 * (0.06 + 0.03 * (1 - 1 / run.n_zones)))
        for run in RUNS
    ]
    model = fit(runs, "weak", MANY_CORES)
    assert model.zones == pytest.approx({"decisions": 0.06, "shared": 0.03})
    assert predict(model, 16).zone_cpu_s == pytest.approx(80 * (0.06 + 0.03 * 15 / 16))


def test_decisions_follow_the_jobs_of_the_zones_that_there_are() -> None:
    # Zones in turn have 3 and 1 jobs a second: 1, 2, 4 zones 3, 4, 8 of them; 5 zones 11.
    jobs = {1: 3.0, 2: 4.0, 4: 8.0}
    runs = [run_of(n, decisions=1000.0 * jobs[n]) for n in jobs]
    model = fit(runs, "weak", MANY_CORES, zone_jobs=(3.0, 1.0))
    assert predict(model, 5).n_decisions == pytest.approx(11_000)


def test_two_sizes_leave_nothing_to_hold_out() -> None:
    assert held_out(RUNS[:2], "weak", MANY_CORES) is None


def test_decisions_of_strong_scaling_are_those_of_all_zones() -> None:
    runs = [run_of(n, decisions=40_000.0) for n in (1, 2, 4)]
    said = predict(fit(runs, "strong", MANY_CORES), 8)
    assert said.n_decisions == pytest.approx(40_000)


def test_polling_costs_follow_the_seconds_of_a_round() -> None:
    runs = [
        replace(run, coordinator_cpu_s={**run.coordinator_cpu_s, "superlink": 0.1 * run.seconds})
        for run in RUNS
    ]
    model = fit(runs, "weak", MANY_CORES)
    assert model.link == pytest.approx({"seconds": 0.1})
    said = predict(model, 16)
    assert said.coordinator_cpu_s == pytest.approx(5.92 + 0.1 * said.seconds)
    assert said.hub_s == pytest.approx(5.92)  # nobody waits for the polling


def test_hub_outweighs_a_zone_from_where_its_work_is_more() -> None:
    # A zone: 1 + 0.01 N; the hub: 0.05 N + 0.02 N^2. At 6 zones 1.06 against 1.02, at 7 more.
    assert hub_limit(fit(RUNS, "weak", MANY_CORES), 64) == 7
    assert hub_limit(fit(RUNS, "weak", MANY_CORES), 6) is None


def test_coefficients_are_never_negative_and_few() -> None:
    rows = [{"x": float(n), "y": float(n**2), "z": 1.0} for n in (1, 2, 3, 4)]
    falling = [4.0, 3.0, 2.0, 1.0]
    found = least_squares(rows, falling, ("x", "y", "z"))
    assert set(found) == {"z"}
    mixed = least_squares(rows, [1.0 + n + n**2 for n in (1, 2, 3, 4)], ("x", "y", "z"))
    assert len(mixed) == 2
    assert min(mixed.values()) >= 0


def test_a_term_that_must_be_there_is() -> None:
    rows = [{"x": 1.0, "y": float(n)} for n in (1, 2, 3)]
    assert least_squares(rows, [2.0, 4.0, 6.0], ("x", "y")) == pytest.approx({"y": 2.0})
    found = least_squares(rows, [2.0, 4.0, 6.0], ("x", "y"), always="x")
    assert found == pytest.approx({"x": 0.0, "y": 2.0}, abs=1e-9)


def test_one_value_is_fitted_by_one_term() -> None:
    assert least_squares([{"x": 2.0, "y": 1.0}], [6.0], ("x", "y")) == pytest.approx({"x": 3.0})


def test_values_of_zero_say_nothing() -> None:
    assert least_squares([{"x": 1.0}], [0.0], ("x",)) == {}
