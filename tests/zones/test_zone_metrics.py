"""A zone's metrics as Prometheus reads them."""

import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from marl_sched.errors import RunError
from zones.metrics_server import MetricsServer, process_registry
from zones.records import Assignment, RoundOrder, RoundReport
from zones.zone_metrics import ZoneMetrics

pytestmark = pytest.mark.network


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def scrape(port: int) -> dict[tuple[str, tuple[str, ...]], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_reports_are_counted_by_zone() -> None:
    registry = process_registry()
    metrics = ZoneMetrics(registry)
    order = RoundOrder(7, 2, ("a", "b"), assignment=Assignment("a", 3))
    report = RoundReport(None, 40, {"offload_rate": 0.25}, timing={"cpu_s": 1.5, "zone_s": 2.0})
    port = free_port()
    with MetricsServer(f"127.0.0.1:{port}", registry):
        metrics.note_link(True)
        for _ in range(2):
            metrics.note_report("a", order, report)
        metrics.note_failure("a")
        found = scrape(port)
    assert found["marl_sched_zone_link_up", ()] == 1
    assert found["marl_sched_zone_rounds_total", ("a",)] == 2
    assert found["marl_sched_zone_failed_orders_total", ("a",)] == 1
    assert found["marl_sched_zone_decisions_total", ("a",)] == 80
    assert found["marl_sched_zone_order_cpu_seconds_total", ("a",)] == 3.0
    assert found["marl_sched_zone_round", ("a",)] == 7
    assert found["marl_sched_zone_epoch", ("a",)] == 3
    assert found["marl_sched_zone_training_metric", ("offload_rate", "a")] == 0.25
    assert found["marl_sched_zone_order_seconds_sum", ("a",)] == 4.0
    assert found["process_resident_memory_bytes", ()] > 0


def test_port_is_free_once_closed_and_named_while_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(RunError, match=f"--metrics {address}: Address already in use"):
            MetricsServer(address, process_registry())
    MetricsServer(address, process_registry()).close()
    MetricsServer(address, process_registry()).close()
