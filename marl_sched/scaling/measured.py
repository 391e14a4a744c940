"""The figures of one run of a study."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

SPLIT = ("training", "waiting", "transport", "aggregation", "saving")
"""What a round's seconds are split in."""
SERVER = "serverapp"
COORDINATOR = (SERVER, "superlink", "superexec")
"""Processes of the coordinator; the exchange hub is part of the ServerApp."""


@dataclass(frozen=True)
class CurvePoint:
    """One validation.

    Attributes:
        round_number: The round whose weights were scored.
        n_decisions: Training decisions up to then, all zones.
        seconds: Seconds of the rounds up to then, scoring taken out.
        objective: The validation objective.
    """

    round_number: int
    n_decisions: int
    seconds: float
    objective: float


@dataclass(frozen=True)
class Measured:
    """What one run has cost and reached; all figures but the curve are means over timed rounds.

    Attributes:
        name: The run.
        n_zones: Zones it ran.
        n_machines: Machines of all zones.
        n_steps: Exchanges of a round.
        n_timed: Rounds that were timed.
        n_decisions: Decisions of a round, all zones.
        seconds: Wall seconds of a round.
        split_s: The same by SPLIT.
        zone_cpu_s: CPU seconds of a round, all zones.
        coordinator_cpu_s: CPU seconds of a round by COORDINATOR.
        network_bytes: Bytes of both networks as they travel to one zone.
        weight_bytes: Bytes of weights a round, both ways, by the SuperLink's record; 0: not known.
        exchange_bytes: Bytes of the exchange a round, both ways, before gRPC's framing.
        zone_mib: Largest memory of a zone's process, mean over zones.
        coordinator_mib: The same by COORDINATOR.
        load_average: Of the machine over the last minute, mean over rounds; all else included.
        probe_s: CPU seconds that a fixed piece of work took beside it: how fast the machine was.
            None: not known.
        curve: Validations.
        baseline: Objective of kube-default on the same validation episodes.
        n_lost: Zones that were lost in a round.
        notes: What to know of its configuration.
    """

    name: str
    n_zones: int
    n_machines: int
    n_steps: int
    n_timed: int
    n_decisions: float
    seconds: float
    split_s: Mapping[str, float]
    zone_cpu_s: float
    coordinator_cpu_s: Mapping[str, float]
    network_bytes: float
    weight_bytes: float
    exchange_bytes: float
    zone_mib: float
    coordinator_mib: Mapping[str, float]
    load_average: float
    probe_s: float | None = None
    curve: Sequence[CurvePoint] = ()
    baseline: float | None = None
    n_lost: int = 0
    notes: Sequence[str] = field(default=())

    @property
    def cpu_s(self) -> float:
        """CPU seconds of a round, all processes."""
        return self.zone_cpu_s + sum(self.coordinator_cpu_s.values())

    @property
    def decisions_per_s(self) -> float:
        """Decisions a wall second, all zones."""
        return self.n_decisions / self.seconds

    def cpu_per_1000(self, cpu_s: float) -> float:
        """Return CPU seconds of a round as CPU seconds per 1,000 decisions."""
        return 1000 * cpu_s / self.n_decisions

    def at_speed(self, probe_s: float) -> "Measured":
        """Return the run with the CPU seconds of a machine that does the fixed work in so long."""
        if self.probe_s is None:
            return self
        factor = probe_s / self.probe_s
        coordinator = {name: s * factor for name, s in self.coordinator_cpu_s.items()}
        return replace(
            self,
            zone_cpu_s=self.zone_cpu_s * factor,
            coordinator_cpu_s=coordinator,
            probe_s=probe_s,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the fields, and what follows from them."""
        coordinator = sum(self.coordinator_cpu_s.values())
        return asdict(self) | {
            "decisions_per_s": self.decisions_per_s,
            "decisions_per_s_per_zone": self.decisions_per_s / self.n_zones,
            "cpu_s_per_1000_decisions": {
                "zones": self.cpu_per_1000(self.zone_cpu_s),
                "coordinator": self.cpu_per_1000(coordinator),
                "all": self.cpu_per_1000(self.cpu_s),
            },
        }

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> "Measured":
        """Return what `as_json` was given.

        Raises:
            KeyError, TypeError: It is not that.
        """
        values = {key: content[key] for key in cls.__dataclass_fields__}
        values["curve"] = [CurvePoint(**point) for point in values["curve"]]
        return cls(**values)
