"""A cost model of the federation, fitted to measured sizes, and what it says of larger ones.

With N zones, D decisions and S exchanges a round, all in thousands but N:

    zones, CPU s a round              a D  +  b D (1 - 1/N)  +  c N S  +  d N^2 S
    ServerApp and hub, CPU s a round  e N S  +  f N^2 S  +  g N B
    Flower's link, CPU s a round      h T  +  i N T

a: environment, network and learner, a decision; b: what a decision costs more among peers, who take
and send offloads; c, e: one post of one zone; d, f: one zone's post as another one gets it; g:
averaging, a megabyte of networks B; h, i: SuperLink and SuperExec, which are asked again and again
while the round of T seconds lasts. Coefficients are at least 0 and few: of the terms of a line at
most two, and fewer than sizes, those that leave the least squared relative error; a D is one of
them. So at few sizes the choice of terms is the model's weak side: what its error on a size it has
not seen is there to tell.

A round on as many cores as processes takes

    T = zones / N  +  e N S  +  f N^2 S  +  latency

since zones run side by side but meet in the hub at every exchange, and the hub is one process; at
most that, as the hub works on posts that come early while other zones are still at work;
latency is what the weights' way and saving were measured to take. On C cores it takes at least all
CPU seconds / C; the measured rounds say by how much more, on a machine with others at work.
Nothing is said of networks between hosts, of zones that are unequally slow, or of memory and caches
that many processes on one host share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from marl_sched.scaling.least_squares import Coefficients, least_squares
from marl_sched.scaling.measured import SERVER, Measured
from marl_sched.scaling.sizes import Mode

ZONE_TERMS = ("decisions", "shared", "posts", "deliveries")
SERVER_TERMS = ("posts", "deliveries", "network_mb")
LINK_TERMS = ("seconds", "zone_seconds")
_HUB_TERMS = ("posts", "deliveries")
"""Terms of the ServerApp that zones wait for."""
_SIZE_TERMS = ("constant", "zones")
_EXCHANGE_TERMS = ("shared", "posts", "deliveries")
_STEPS = 50
"""Of the equation for T, which stands on both sides."""


@dataclass(frozen=True)
class CostModel:
    """A fitted model.

    Attributes:
        mode: How sizes were scaled.
        sizes: Numbers of zones it was fitted to.
        zones: Coefficients of the zones' CPU seconds.
        server: Coefficients of the ServerApp's, the exchange hub being part of it.
        link: Coefficients of those of SuperLink and SuperExec.
        exchange_mb: Coefficients of the exchange's megabytes a round.
        memory: Coefficients of the coordinator's memory in MiB.
        zone_mib: Memory of a zone's process.
        decisions: Thousands of decisions a round, over the jobs a second that arrive.
        zone_jobs: Jobs a second in each zone of the file; 1 each where they are not known before.
        steps: Exchanges of a round, in thousands.
        network_mb: Megabytes of both networks.
        latency_s: What weights and saving take, and the strategy.
        slowdown: Of the machine that was measured: seconds a second of work, others' work included.
    """

    mode: Mode
    sizes: tuple[int, ...]
    zones: Coefficients
    server: Coefficients
    link: Coefficients
    exchange_mb: Coefficients
    memory: Coefficients
    zone_mib: float
    decisions: float
    zone_jobs: tuple[float, ...]
    steps: float
    network_mb: float
    latency_s: float
    slowdown: float

    def as_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


@dataclass(frozen=True)
class Predicted:
    """What the model says of a size.

    Attributes:
        n_zones: Zones.
        n_decisions: Decisions of a round, all zones.
        zone_cpu_s: CPU seconds of a round, all zones.
        coordinator_cpu_s: CPU seconds of a round, coordinator.
        seconds: Wall seconds of a round on the cores that were asked for.
        exchange_bytes: Bytes of the exchange a round.
        coordinator_mib: Memory of the coordinator's processes.
        hub_s: Seconds of a round in which zones wait for the hub's work.
    """

    n_zones: int
    n_decisions: float
    zone_cpu_s: float
    coordinator_cpu_s: float
    seconds: float
    exchange_bytes: float
    coordinator_mib: float
    hub_s: float

    @property
    def cpu_s(self) -> float:
        """CPU seconds of a round, all processes."""
        return self.zone_cpu_s + self.coordinator_cpu_s

    @property
    def cpu_per_1000(self) -> float:
        """CPU seconds per 1,000 decisions."""
        return 1000 * self.cpu_s / self.n_decisions

    @property
    def decisions_per_s(self) -> float:
        """Decisions a wall second, all zones."""
        return self.n_decisions / self.seconds

    def as_json(self) -> dict[str, Any]:
        """Return the fields, and what follows from them."""
        return asdict(self) | {
            "cpu_s": self.cpu_s,
            "cpu_s_per_1000_decisions": self.cpu_per_1000,
            "decisions_per_s": self.decisions_per_s,
        }


def fit(
    measured: Sequence[Measured], mode: Mode, n_cores: int, zone_jobs: Sequence[float] = (1.0,)
) -> CostModel:
    """Fit the model to measured sizes.

    Args:
        measured: Federated runs of different sizes, at least two.
        mode: How they were scaled.
        n_cores: Cores they ran on.
        zone_jobs: Jobs a second in each zone of the file, or 1 each.
    """
    rows = sorted(measured, key=lambda run: run.n_zones)
    steps = _mean([run.n_steps / 1000 for run in rows])
    network_mb = rows[0].network_bytes / 1e6
    per_job = [run.n_decisions / _jobs(run.n_zones, mode, zone_jobs) for run in rows]
    terms = [
        _terms(run.n_zones, run.n_decisions / 1000, steps, network_mb, run.seconds) for run in rows
    ]
    zones = least_squares(terms, [run.zone_cpu_s for run in rows], ZONE_TERMS, always="decisions")
    server = least_squares(terms, [run.coordinator_cpu_s[SERVER] for run in rows], SERVER_TERMS)
    sizes = [{"constant": 1.0, "zones": float(run.n_zones)} for run in rows]
    wall = _wall(rows, terms, server, n_cores)
    memory = [sum(run.coordinator_mib.values()) for run in rows]
    return CostModel(
        mode=mode,
        sizes=tuple(run.n_zones for run in rows),
        zones=zones,
        server=server,
        link=least_squares(terms, [_link_s(run) for run in rows], LINK_TERMS),
        exchange_mb=least_squares(terms, [r.exchange_bytes / 1e6 for r in rows], _EXCHANGE_TERMS),
        memory=least_squares(sizes, memory, _SIZE_TERMS),
        zone_mib=_mean([run.zone_mib for run in rows]),
        decisions=_mean(per_job) / 1000,
        zone_jobs=tuple(zone_jobs),
        steps=steps,
        network_mb=network_mb,
        latency_s=wall.get("constant", 0.0),
        slowdown=wall.get("work", 1.0),
    )


def _wall(
    rows: Sequence[Measured],
    terms: Sequence[Coefficients],
    server: Coefficients,
    n_cores: int,
) -> dict[str, float]:
    """Return how the measured seconds follow from the work, and what is left of them."""
    parts = []
    for run, values in zip(rows, terms, strict=True):
        path_s = run.zone_cpu_s / run.n_zones + _hub(server, values)
        parts.append({"work": max(path_s, run.cpu_s / n_cores), "constant": 1.0})
    return least_squares(parts, [run.seconds for run in rows], ("work", "constant"))


def predict(model: CostModel, n_zones: int, n_cores: int | None = None) -> Predicted:
    """Return what the model says of a size.

    Args:
        model: The model.
        n_zones: Zones.
        n_cores: Cores of the machine that was measured; None: as many as processes, and nobody
            else at work.
    """
    decisions = model.decisions * _jobs(n_zones, model.mode, model.zone_jobs)
    terms = _terms(n_zones, decisions, model.steps, model.network_mb, 0.0)
    zones = _value(model.zones, terms)
    server = _value(model.server, terms)
    hub_s = _hub(model.server, terms)
    path_s = zones / n_zones + hub_s
    seconds = path_s + model.latency_s
    coordinator = server
    for _ in range(_STEPS):
        terms = _terms(n_zones, decisions, model.steps, model.network_mb, seconds)
        coordinator = server + _value(model.link, terms)
        if n_cores is not None:
            work_s = max(path_s, (zones + coordinator) / n_cores)
            seconds = model.slowdown * work_s + model.latency_s
    return Predicted(
        n_zones=n_zones,
        n_decisions=1000 * decisions,
        zone_cpu_s=zones,
        coordinator_cpu_s=coordinator,
        seconds=seconds,
        exchange_bytes=1e6 * _value(model.exchange_mb, terms),
        coordinator_mib=_value(model.memory, {"constant": 1.0, "zones": float(n_zones)}),
        hub_s=hub_s,
    )


@dataclass(frozen=True)
class HeldOut:
    """The model's error on the largest size, which it was not fitted to.

    Attributes:
        n_zones: That size.
        sizes: Sizes that the model was fitted to.
        errors: Predicted over measured, less 1, by figure.
    """

    n_zones: int
    sizes: tuple[int, ...]
    errors: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def held_out(
    measured: Sequence[Measured], mode: Mode, n_cores: int, zone_jobs: Sequence[float] = (1.0,)
) -> HeldOut | None:
    """Fit to all sizes but the largest and compare; None: there are fewer than three."""
    rows = sorted(measured, key=lambda run: run.n_zones)
    if len(rows) < 3:
        return None
    *known, last = rows
    model = fit(known, mode, n_cores, zone_jobs)
    said = predict(model, last.n_zones, n_cores)
    coordinator = sum(last.coordinator_cpu_s.values())
    pairs = {
        "cpu_s_per_1000_decisions": (said.cpu_per_1000, last.cpu_per_1000(last.cpu_s)),
        "cpu_s": (said.cpu_s, last.cpu_s),
        "zone_cpu_s": (said.zone_cpu_s, last.zone_cpu_s),
        "coordinator_cpu_s": (said.coordinator_cpu_s, coordinator),
        "seconds": (said.seconds, last.seconds),
        "exchange_bytes": (said.exchange_bytes, last.exchange_bytes),
    }
    errors = {name: a / b - 1 if b else 0.0 for name, (a, b) in pairs.items()}
    return HeldOut(last.n_zones, model.sizes, errors)


def hub_limit(model: CostModel, largest: int) -> int | None:
    """Return from how many zones on the hub's work is more than a zone's own; None: none such."""
    sizes = [n for n in range(1, largest + 1) if _hub_outweighs(model, n)]
    return sizes[0] if sizes else None


def _hub_outweighs(model: CostModel, n_zones: int) -> bool:
    said = predict(model, n_zones)
    return said.hub_s > said.zone_cpu_s / n_zones


def _jobs(n_zones: int, mode: Mode, zone_jobs: Sequence[float]) -> float:
    """Return the jobs a second of a size: weak scaling takes the file's zones in turn."""
    if mode == "strong":
        return sum(zone_jobs)
    rounds, rest = divmod(n_zones, len(zone_jobs))
    return rounds * sum(zone_jobs) + sum(zone_jobs[:rest])


def _terms(
    n_zones: int, decisions: float, steps: float, network_mb: float, seconds: float
) -> dict[str, float]:
    return {
        "decisions": decisions,
        "shared": decisions * (1 - 1 / n_zones),
        "posts": n_zones * steps,
        "deliveries": n_zones**2 * steps,
        "seconds": seconds,
        "zone_seconds": n_zones * seconds,
        "network_mb": n_zones * network_mb,
    }


def _value(coefficients: Coefficients, terms: Coefficients) -> float:
    return sum(coefficient * terms[name] for name, coefficient in coefficients.items())


def _hub(server: Coefficients, terms: Coefficients) -> float:
    return _value({k: v for k, v in server.items() if k in _HUB_TERMS}, terms)


def _link_s(run: Measured) -> float:
    return sum(seconds for name, seconds in run.coordinator_cpu_s.items() if name != SERVER)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
