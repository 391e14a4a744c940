"""A zone without simulator and learner: arithmetic that can be followed by hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import Context, RecordDict
from numpy.typing import NDArray

from federation.client_app import make_client_app
from federation.local_grid import LocalGrid
from federation.local_run import LocalExchangeControl
from federation.round_driver import Limits
from federation.server_app import make_server_app
from federation.session import RoundDone, Session
from marl_sched.agents.storage import write_arrays
from marl_sched.cluster.exchange import LocalExchange, Outbox
from marl_sched.config import Experiment, load_config
from marl_sched.run_folder import Checkpoint, RunFolder
from zones.records import NetworkPair, RoundOrder, RoundReport

ROOT = Path(__file__).parents[2]
ZONES = ("zone_0", "zone_1", "zone_2")
FIRST = {
    "first.weight": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    "head.bias": np.array([0.5], dtype=np.float32),
}
LIMITS = Limits(quorum=1, deadline_s=20.0, grace_s=20.0, abort_s=20.0, poll_s=0.001)

Fault = Callable[[RoundReport], RoundReport]
"""Raises, or returns another report."""


def experiment_of(*overrides: str) -> Experiment:
    """The base experiment with four rounds, validated every second one."""
    settings = ("training.rounds=4", "training.validate_every=2", "training.validation_episodes=2")
    return load_config(ROOT / "configs" / "base.yaml", (*settings, *overrides))


class ZoneDouble:
    """Adds its number and a hundredth of the round to every weight; meets the others once."""

    def __init__(
        self, zone: str, exchange: LocalExchange, faults: Mapping[tuple[str, int], Fault]
    ) -> None:
        self.zone_name = zone
        self.attempts: list[tuple[int, int]] = []
        self._number = ZONES.index(zone) + 1
        self._exchange = exchange
        self._faults = faults

    def train_round(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        self.attempts.append((order.round_number, order.attempt))
        step = np.float32(0.1 * self._number + 0.01 * order.round_number)
        report = RoundReport(
            weights=NetworkPair(_moved(weights.online, step), _moved(weights.ema, step / 2)),
            n_decisions=10 * self._number,
            metrics={"loss": float(step)},
            validation=self._validation(weights) if order.validates else None,
            timing={"zone_s": 0.0},
        )
        fault = self._faults.get((self.zone_name, order.round_number))
        if fault is not None:
            report = fault(report)
        self._meet()
        return report

    def validate(self, weights: NetworkPair, order: RoundOrder) -> RoundReport:
        fault = self._faults.get((self.zone_name, order.round_number))
        report = RoundReport(None, 0, {}, self._validation(weights), {})
        self._meet()
        return report if fault is None else fault(report)

    def _validation(self, weights: NetworkPair) -> dict[str, NDArray[np.float64]]:
        mean = float(weights.ema["first.weight"].mean())
        return {"sums": np.full((2, 3), self._number * mean)}

    def _meet(self) -> None:
        nothing = np.zeros((0, 0))
        self._exchange.post(Outbox(self.zone_name, 0, nothing, nothing, nothing, None, nothing))
        self._exchange.collect(self.zone_name, 0)


class Killed(BaseException):
    """Stands for kill -9: nothing may catch it."""


def run_doubles(
    path: Path,
    experiment: Experiment,
    *,
    faults: Mapping[tuple[str, int], Fault] | None = None,
    limits: Limits = LIMITS,
    resume: bool = False,
    progress: Callable[[RoundDone], None] | None = None,
    order: Sequence[str] = ZONES,
    change: Callable[[Session], Session] = lambda session: session,
) -> list[RoundDone]:
    """Run the server over doubles as `train` does over real zones; return its events."""
    folder = (RunFolder.resume if resume else RunFolder.create)(path, experiment)
    exchange = LocalExchange(ZONES, timeout_s=20.0)
    events: list[RoundDone] = []

    def note(event: RoundDone) -> None:
        events.append(event)
        if progress is not None:
            progress(event)

    session = Session(
        experiment=experiment,
        folder=folder,
        checkpoint=folder.committed or Checkpoint(0, FIRST, FIRST),
        exchange=LocalExchangeControl(exchange),
        publish=lambda file, ema: write_arrays(file, "double", {}, dict(ema)),
        score=lambda sums: {"objective": float(sum(s["sums"].mean() for s in sums.values()))},
        limits=replace(limits, quorum=experiment.federation.quorum),
        progress=note,
    )
    doubles = [ZoneDouble(zone, exchange, faults or {}) for zone in order]
    apps = {10 + number: make_client_app(double) for number, double in enumerate(doubles)}
    with LocalGrid(apps) as grid:
        make_server_app(change(session))(grid, Context(1, 1, {}, RecordDict(), {}))
    return events


def written(path: Path) -> dict[str, bytes]:
    """Return what a run must write alike every time: metrics and checkpoints."""
    files = [path / "metrics.jsonl", *sorted((path / "checkpoints").glob("*.npz"))]
    return {file.name: file.read_bytes() for file in files}


def _moved(
    weights: Mapping[str, NDArray[np.float32]], step: float
) -> dict[str, NDArray[np.float32]]:
    return {name: tensor + np.float32(step) for name, tensor in weights.items()}
