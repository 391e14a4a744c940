"""Writes the files of a run as a run writes them: made up, and true to their formats."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tiny import machines, tiny, zone

from marl_sched.config import Experiment, dump_config
from marl_sched.files import write_atomically
from zones.view import CandidateView, DecisionView, MachinesView, ZoneView

RESOURCES = ["cpu_milli", "memory_mib"]
TAUS = [(i + 0.5) / 16 for i in range(16)]
START = 1_796_000_000.0


def experiment(n_zones: int = 3, n_machines: int = 8, **changes: Any) -> Experiment:
    """Return an experiment of equal zones zone_0, zone_1, ..."""
    zones = [zone(f"zone_{z}", machines(n_machines)) for z in range(n_zones)]
    training = {"rounds": 4, "validation_episodes": 2, "validate_every": 1, "replicas": 2}
    changes["training"] = training | changes.get("training", {})
    return tiny(*zones, **{"name": "made-up", **changes})


@dataclass
class RunFiles:
    """A run's folder that grows as it is told to."""

    folder: Path
    experiment: Experiment = field(default_factory=experiment)
    seed: int = 0

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)
        self.time = START

    @property
    def zones(self) -> list[str]:
        return self.experiment.zone_names

    def create(self) -> "RunFiles":
        """Write config.yaml."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.yaml").write_text(dump_config(self.experiment))
        return self

    def append(self, name: str, *lines: dict[str, Any]) -> None:
        """Add whole lines to a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("".join(f"{json.dumps(line)}\n" for line in lines))

    def view(self, zone_name: str, **changes: Any) -> ZoneView:
        """Return a view of a zone; machines, candidates and counts are drawn."""
        n = next(z.n_machines for z in self.experiment.zones if z.name == zone_name)
        shares = np.round(self.generator.beta(2, 3, (2, n, 2)), 3)
        peers = [name for name in self.zones if name != zone_name]
        values: dict[str, Any] = {
            "format": 1,
            "zone": zone_name,
            "time": self.time,
            "phase": "training",
            "round": 1,
            "attempt": 1,
            "episode": 0,
            "share": 0.4,
            "simulated_s": 51.2,
            "n_waiting": int(self.generator.integers(0, 60)),
            "n_running": int(self.generator.integers(n, 9 * n)),
            "n_decisions": 1000,
            "resources": RESOURCES,
            "machines": MachinesView(
                n=n, per_cell=1, utilization=shares[0].tolist(), allocation=shares[1].tolist()
            ),
            "offloads": {name: int(self.generator.integers(0, 40)) for name in peers},
            "decision": self.decision(n, peers),
        }
        return ZoneView(**{**values, **changes})

    def decision(self, n_machines: int, peers: list[str]) -> DecisionView:
        """Return a decision of six machines and one peer, best first."""
        means = -np.sort(self.generator.gamma(2.0, 0.2, min(n_machines, 6) + bool(peers)))
        means = np.sort(means)[::-1]
        candidates = []
        for place, mean in enumerate(means):
            is_peer = bool(peers) and place == 2
            index = int(self.generator.integers(0, n_machines))
            spread = float(self.generator.uniform(0.05, 0.3))
            quantiles = mean + spread * np.log(np.array(TAUS) / (1 - np.array(TAUS)))
            candidates.append(
                CandidateView(
                    kind="peer" if is_peer else "machine",
                    index=0 if is_peer else index,
                    name=peers[0] if is_peer else str(index),
                    utilization=[0.25, 0.5],
                    is_chosen=place == 0,
                    mean=float(quantiles.mean()),
                    quantiles=quantiles.tolist(),
                )
            )
        request = {"cpu_milli": 1000, "memory_mib": 1536}
        return DecisionView(
            simulated_s=50.4, request=request, is_exploring=False, taus=TAUS, candidates=candidates
        )

    def show(self, zone_name: str, **changes: Any) -> ZoneView:
        """Write a view of a zone as the run does: the file is replaced."""
        view = self.view(zone_name, **changes)
        live = self.folder / "live"
        live.mkdir(parents=True, exist_ok=True)
        data = view.encoded()
        write_atomically(live / f"{zone_name}.json", lambda file: file.write(data))
        return view

    def round(
        self, number: int, zones: list[str] | None = None, attempt: int = 1, reward: float = -1.5
    ) -> None:
        """Write the lines of a committed round."""
        members = self.zones if zones is None else zones
        place = {"round": number, "attempt": attempt}
        for name in members:
            figures = {
                "n_decisions": 1200,
                "mean_reward": reward,
                "objective": 0.9,
                "epsilon": 0.1,
                "utilization_cpu": 0.41,
                "utilization_memory": 0.32,
                "offload_rate": 0.05,
            }
            self.append("metrics.jsonl", {"kind": "train", **place, "zone": name, **figures})
            measured = {"round_s": 4.0, "bytes_down": 80_000, "bytes_up": 80_000, "cpu_s": 1.5}
            self.append("timing.jsonl", {**place, "zone": name, **measured})

    def validation(self, number: int, objective: float, is_best: bool = True) -> None:
        """Write the line of a validation."""
        metrics = {
            "objective": objective,
            "late_start_rate": 0.04,
            "finish_violation_rate": 0.05,
            "mean_slowdown": 1.6,
            "mean_completion_s": 20.0,
            "imbalance_cpu": 0.2,
            "imbalance_memory": 0.15,
            "cost_per_hour": 12.0,
        }
        line = {"kind": "validation", "round": number, "zones": sorted(self.zones)}
        self.append("metrics.jsonl", {**line, "is_best": is_best, **metrics})

    def lose(self, number: int, zone_name: str, reason: str) -> None:
        """Write that a zone was lost in a round."""
        line = {"round": number, "zone": zone_name, "reason": reason}
        self.append("metrics.jsonl", {"kind": "lost", **line})
        self.event("lost", **line)

    def event(self, kind: str, **what: Any) -> None:
        """Write an event of a federation."""
        self.append("federation/events.jsonl", {"time": self.time, "kind": kind, **what})

    def evaluate(self, ratio: float = 0.951) -> None:
        """Write evaluation.json with learned, kube-default and the paired ratios."""
        metrics = ("objective", "late_start_rate", "finish_violation_rate", "mean_completion_s")
        rows = [
            {
                "policy": policy,
                "metric": metric,
                "mean": mean,
                "ci95_low": mean - 0.05,
                "ci95_high": mean + 0.05,
                "n_episodes": 20,
                "n_training_seeds": 1,
            }
            for policy, mean in (("learned", 0.96), ("kube-default", 1.01))
            for metric in metrics
        ]
        ratios = [
            {
                "policy": "learned",
                "baseline": "kube-default",
                "metric": metric,
                "ratio": ratio + 0.03 * place,
                "ci95_low": ratio + 0.03 * place - 0.02,
                "ci95_high": ratio + 0.03 * place + 0.02,
                "mean_log_ratio": None,
                "log_ci95_low": None,
                "log_ci95_high": None,
            }
            for place, metric in enumerate(metrics)
        ]
        text = json.dumps({"rows": rows, "ratios": ratios})
        (self.folder / "evaluation.json").write_text(text)
