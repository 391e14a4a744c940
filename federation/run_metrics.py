"""What a run's coordinator counts, for Prometheus: from the events of the run alone."""

import math
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


class RunMetrics:
    """Counters and gauges of one run."""

    def __init__(self, registry: CollectorRegistry, run: str, n_rounds: int) -> None:
        """Add them to a registry.

        Args:
            registry: What is served.
            run: Name of the run.
            n_rounds: Rounds that it is to have.
        """

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"marl_sched_{name}", text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"marl_sched_{name}", text, labels, registry=registry)

        gauge("run_rounds_planned", "Rounds that the run is to have.", "run").labels(run).set(
            n_rounds
        )
        self._round = gauge("run_round", "The last committed round.")
        self._rounds = counter("run_rounds_total", "Rounds committed by this process.")
        self._decisions = counter("run_decisions_total", "Decisions of all zones in those rounds.")
        self._objective = gauge("run_validation_objective", "Objective of the last validation.")
        self._objective.set(math.nan)  # none yet
        self._is_up = gauge("run_zone_up", "1 while the zone takes part.", "zone")
        self._losses = counter("run_zone_losses_total", "Attempts that a zone was lost in.", "zone")
        self._refused = counter("run_refused_nodes_total", "Nodes that were refused.")
        self._deaths = counter("run_process_deaths_total", "Processes that died.", "process")
        self._starts = counter("run_server_app_restarts_total", "Times the ServerApp came again.")
        self._seconds = Histogram(
            "marl_sched_run_round_seconds",
            "Wall seconds of a round.",
            registry=registry,
            buckets=_SECONDS,
        )

    def note(self, event: Mapping[str, Any]) -> None:
        """Count an event, as it stands in events.jsonl."""
        match event["kind"]:
            case "round":
                self._note_round(event)
            case "joined":
                self._is_up.labels(event["zone"]).set(1)
            case "left":
                self._is_up.labels(event["zone"]).set(0)
            case "lost":
                self._is_up.labels(event["zone"]).set(0)
                self._losses.labels(event["zone"]).inc()
            case "refused":
                self._refused.inc()
            case "died":
                self._deaths.labels(event["process"]).inc()
            case "again":
                self._starts.inc()

    def _note_round(self, event: Mapping[str, Any]) -> None:
        self._round.set(event["round_number"])
        if event["objective"] is not None:
            self._objective.set(event["objective"])
        if event["n_decisions"]:
            self._rounds.inc()
            self._decisions.inc(event["n_decisions"])
            self._seconds.observe(event["seconds"])
