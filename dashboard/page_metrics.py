"""What the dashboard counts of itself, for Prometheus."""

import time

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class PageMetrics:
    """Counters and gauges of one dashboard."""

    def __init__(self) -> None:
        """Start at nothing."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._watchers = self._gauge("watchers", "Pages that are open.")
        self._age = self._gauge("run_age_seconds", "Since the run's files last changed.")
        self._looks = self._counter("looks_total", "Times that the run's folder was read.")
        self._failures = self._counter("failed_looks_total", "Of them those that broke.")
        self._refused = self._counter("refused_total", "Pages refused for want of room.")
        self._last_change: float | None = None

    def watchers(self, n_watching: int) -> None:
        """Note how many watch."""
        self._watchers.set(n_watching)

    def look(self, last_change: float | None, is_broken: bool = False) -> None:
        """Note a look at the folder, and when its files last changed."""
        self._looks.inc()
        self._failures.inc(is_broken)
        self._last_change = last_change

    def refuse(self) -> None:
        """Note a page that found no room."""
        self._refused.inc()

    def text(self) -> bytes:
        """Return all of it as Prometheus reads it."""
        age = float("nan") if self._last_change is None else time.time() - self._last_change
        self._age.set(age)
        return generate_latest(self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"marl_sched_dashboard_{name}", text, registry=self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"marl_sched_dashboard_{name}", text, registry=self._registry)
