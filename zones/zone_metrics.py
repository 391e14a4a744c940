"""What a zone's process counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from zones.records import RoundOrder, RoundReport

_ZONE = ("zone",)
_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


class ZoneMetrics:
    """Counters and gauges of one process; it may be one zone after another."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Add them to a registry."""

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"marl_sched_{name}", text, labels, registry=registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"marl_sched_{name}", text, _ZONE, registry=registry)

        self._is_linked = gauge("zone_link_up", "1 while the SuperLink answers.")
        self._rounds = counter("zone_rounds_total", "Orders carried out, validations included.")
        self._failures = counter("zone_failed_orders_total", "Orders that ended in an error.")
        self._decisions = counter("zone_decisions_total", "Decisions taken in training.")
        self._cpu = counter("zone_order_cpu_seconds_total", "CPU seconds of the orders' thread.")
        self._round = gauge("zone_round", "The last round that was carried out.", *_ZONE)
        self._epoch = gauge("zone_epoch", "Epoch of the zone's assignment.", *_ZONE)
        self._metric = gauge(
            "zone_training_metric", "Metrics of the last round, docs/metrics.md.", *_ZONE, "metric"
        )
        self._seconds = Histogram(
            "marl_sched_zone_order_seconds",
            "Wall seconds of an order.",
            _ZONE,
            registry=registry,
            buckets=_SECONDS,
        )

    def note_link(self, is_up: bool) -> None:
        """Note whether the SuperLink answers."""
        self._is_linked.set(is_up)

    def note_report(self, zone: str, order: RoundOrder, report: RoundReport) -> None:
        """Note an order that was carried out."""
        self._rounds.labels(zone).inc()
        self._round.labels(zone).set(order.round_number)
        if order.assignment is not None:
            self._epoch.labels(zone).set(order.assignment.epoch)
        self._decisions.labels(zone).inc(report.n_decisions)
        self._cpu.labels(zone).inc(report.timing.get("cpu_s", 0.0))
        self._seconds.labels(zone).observe(report.timing.get("zone_s", 0.0))
        for name, value in report.metrics.items():
            self._metric.labels(zone, name).set(value)

    def note_failure(self, zone: str) -> None:
        """Note an order that ended in an error, an aborted attempt included."""
        self._failures.labels(zone).inc()
