"""One run of a study: a federation of real processes, watched from outside.

    DIR/NAME/run/               its run folder, as `federate` writes it
    DIR/NAME/processes.jsonl    what was seen of its processes at every round
    DIR/NAME/measured.json      the figures, once it has ended

What is there is not run again; what was interrupted goes on from its last whole round.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from federation.deployment import Deployment, supervised
from federation.events import Event
from federation.exchange_plan import Plan
from federation.programs import DeploymentSettings
from federation.scaling.machine_speed import SpeedProbe
from federation.scaling.processes import usage_by_name
from marl_sched.agents.heuristics import rule_factory
from marl_sched.config import Experiment
from marl_sched.errors import RunError
from marl_sched.files import alone_in, write_atomically
from marl_sched.observation import Layout
from marl_sched.report import validation_baselines
from marl_sched.run_folder import RunFolder
from marl_sched.scaling.cases import Case
from marl_sched.scaling.measured import Measured
from marl_sched.scaling.measurement import Line, Lines, Subject, measure
from marl_sched.scaling.shared_load import Scaled
from marl_sched.statistics import KUBE_DEFAULT

MEASURED_FILE = "measured.json"
_PROCESSES_FILE = "processes.jsonl"
_RUN = "run"

Tell = Callable[[Event], None]


@dataclass(frozen=True)
class CaseRun:
    """A run of a study and its folder.

    Attributes:
        case: Which it is.
        scaled: Its configuration.
        folder: Where it is written.
    """

    case: Case
    scaled: Scaled
    folder: Path

    @property
    def experiment(self) -> Experiment:
        """The configuration."""
        return self.scaled.experiment

    def done(self) -> Measured | None:
        """Return its figures, if it has ended.

        Raises:
            RunError: They cannot be read, or belong to another configuration.
        """
        path = self.folder / MEASURED_FILE
        if not path.exists():
            return None
        if not RunFolder(self.folder / _RUN).is_of(self.experiment):
            raise RunError(
                f"{self.folder}: was measured with another configuration or length, expected the "
                "same; give another folder: --out DIR"
            )
        try:
            return Measured.of_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: not a file written by `scaleout`: {error!r}") from None

    def run(self, tell: Tell) -> Measured:
        """Run it, or what is left of it, and write its figures.

        Args:
            tell: Told every event of the run.

        Raises:
            RunError: It failed, belongs to another configuration, or no round could be timed.
            KeyboardInterrupt: Ctrl-C, after all processes have ended.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with alone_in(self.folder):
            if not self._is_finished():
                self._carry_out(tell)
            measured = self._measured()
            text = json.dumps(measured.as_json(), indent=1, allow_nan=False) + "\n"
            write_atomically(self.folder / MEASURED_FILE, lambda file: file.write(text.encode()))
        return measured

    def _is_finished(self) -> bool:
        """Create the run's folder, or open it; return whether there is nothing left to do."""
        path = self.folder / _RUN
        if not (path / "config.yaml").exists():
            RunFolder.create(path, self.experiment)
            return False
        committed = RunFolder.resume(path, self.experiment).committed
        return committed is not None and committed.is_finished

    def _carry_out(self, tell: Tell) -> None:
        settings = DeploymentSettings(experiment=self.experiment, folder=self.folder / _RUN)
        with _Watch(self.folder / _PROCESSES_FILE, tell) as watch:
            with supervised(settings, watch.take) as deployment:
                watch.deployment = deployment
                state = deployment.run()
            if state is not None:
                watch.write({"kind": "end", "bytes": state.bytes_sent + state.bytes_received})

    def _measured(self) -> Measured:
        run = self.folder / _RUN
        lines = Lines(
            timing=_lines(run / "timing.jsonl"),
            metrics=_lines(run / "metrics.jsonl"),
            processes=_lines(self.folder / _PROCESSES_FILE),
        )
        experiment = self.experiment
        subject = Subject(
            name=self.case.name,
            zone_names=experiment.zone_names,
            n_machines=sum(zone.n_machines for zone in experiment.zones),
            n_steps=n_exchanges(experiment),
        )
        found = measure(subject, lines)
        return replace(found, baseline=_baseline(experiment), notes=list(self.scaled.notes))


class _Watch:
    """Notes what a run's processes have used whenever a round is committed."""

    def __init__(self, path: Path, tell: Tell) -> None:
        self._path = path
        self._tell = tell
        self._probe = SpeedProbe()
        self.deployment: Deployment | None = None

    def __enter__(self) -> "_Watch":
        self._file = self._path.open("a", encoding="utf-8")
        self._probe.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._probe.__exit__()
        self._file.close()

    def take(self, event: Event) -> None:
        if event["kind"] == "start":
            self.write({"kind": "start"})
        if event["kind"] == "round" and event["n_decisions"] and self.deployment is not None:
            used = usage_by_name(self.deployment.pids)
            self.write(
                {
                    "kind": "round",
                    "round": event["round_number"],
                    "time": event["time"],
                    "load_average": round(os.getloadavg()[0], 2),
                    "probe_s": self._probe.take(),
                    "cpu_s": {name: usage.cpu_s for name, usage in used.items()},
                    "peak_mib": {name: round(usage.peak_mib, 1) for name, usage in used.items()},
                }
            )
        self._tell(event)

    def write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def n_exchanges(experiment: Experiment) -> int:
    """Return the exchanges of a round that only trains."""
    return Plan(experiment, 1).n_exchanges


def _baseline(experiment: Experiment) -> float | None:
    """Return the objective of kube-default on the validation episodes."""
    if not experiment.training.validation_episodes:
        return None
    layout = Layout(tuple(experiment.resources))
    rule = rule_factory(KUBE_DEFAULT, layout, experiment)
    return validation_baselines(experiment, {KUBE_DEFAULT: rule})[KUBE_DEFAULT]


def _lines(path: Path) -> list[Line]:
    """Return the whole lines of a file; none if it is not there.

    Raises:
        RunError: It cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
