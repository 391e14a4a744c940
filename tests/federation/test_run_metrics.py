"""What is counted of a run's events."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from federation.run_metrics import RunMetrics


def test_events_of_a_run_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = RunMetrics(registry, "base", 30)
    done = {"kind": "round", "round_number": 1, "seconds": 2.0}
    for event in (
        {"kind": "joined", "zone": "a", "epoch": 1},
        {"kind": "joined", "zone": "b", "epoch": 1},
        {**done, "n_decisions": 500, "objective": None},
        {"kind": "lost", "round": 2, "zone": "b", "reason": "its stream broke"},
        {"kind": "died", "process": "zone-b", "how": "killed"},
        {"kind": "again", "reason": "the ServerApp died"},
        {"kind": "refused", "node": "5", "reason": "no"},
        {**done, "round_number": 2, "n_decisions": 300, "objective": 1.25},
        {**done, "round_number": 2, "n_decisions": 0, "objective": 1.5},
        {"kind": "left", "zone": "a"},
        {"kind": "something new"},
    ):
        metrics.note(event)
    found = {
        (sample.name.removeprefix("marl_sched_run_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }
    assert found["rounds_planned", "base"] == 30
    assert (found["round",], found["rounds_total",]) == (2, 2)
    assert found["decisions_total",] == 800
    assert found["validation_objective",] == 1.5
    assert (found["zone_up", "a"], found["zone_up", "b"]) == (0, 0)
    assert found["zone_losses_total", "b"] == 1
    assert found["process_deaths_total", "zone-b"] == 1
    assert (found["server_app_restarts_total",], found["refused_nodes_total",]) == (1, 1)
    assert (found["round_seconds_count",], found["round_seconds_sum",]) == (2, 4.0)
