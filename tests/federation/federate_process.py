"""A real `marl-sched federate` to watch, hurt and wait for, with a bound on every wait."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tiny import machines, tiny, zone

from marl_sched.commands.warm_up import warm_up
from marl_sched.config import Experiment, dump_config

COMMAND = [sys.executable, "-c", "from marl_sched.cli import main; main()"]
LIMIT_S = 110.0
ZONES = ("a", "b", "c")


def experiment_of(rounds: int, **training: int) -> Experiment:
    """Three zones of one or two machines; the first has too much work, so that it offloads."""
    return tiny(
        zone("a", machines(2), load=1.3),
        zone("b", machines(2), load=0.4),
        zone("c", machines(1, cpu=8000)),
        training={
            "replicas": 2,
            "rounds": rounds,
            "validation_episodes": 2,
            "validate_every": 2,
            **training,
        },
        # An order that is lost with a process that is killed holds a round up for so long.
        federation={"grace_s": 30.0},
        agent={
            "hidden": [8],
            "n_quantiles": 4,
            "warmup_decisions": 20,
            "batch_size": 16,
            "decisions_per_update": 8,
            "replay_mib": 1,
        },
    )


class Federate:
    """The process, its folder, and all that it has started."""

    def __init__(self, folder: Path, experiment: Experiment, *options: str) -> None:
        self.folder = folder
        config = folder.with_name(f"{folder.name}.yaml")
        config.write_text(dump_config(experiment))
        self._log = folder.with_name(f"{folder.name}.log").open("ab")
        self._options = options
        self.start(config)

    def start(self, config: Path, *options: str) -> None:
        command = [*COMMAND, "federate", str(config), "--out", str(self.folder), *self._options]
        self.process = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self.group = self.process.pid
        self._deadline = time.monotonic() + LIMIT_S

    def resume(self) -> None:
        self.start(self.folder.with_name(f"{self.folder.name}.yaml"), "--resume")

    @property
    def output(self) -> str:
        return self.folder.with_name(f"{self.folder.name}.log").read_text()

    def lines(self, kind: str) -> list[dict[str, object]]:
        path = self.folder / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        return [line for line in map(json.loads, whole.splitlines()) if line["kind"] == kind]

    def events(self, kind: str) -> list[dict[str, object]]:
        path = self.folder / "federation" / "events.jsonl"
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        return [line for line in map(json.loads, whole.splitlines()) if line["kind"] == kind]

    @property
    def last_round(self) -> int:
        return max((int(str(e["round_number"])) for e in self.events("round")), default=0)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            assert self.process.poll() is None, f"it ended before {what}: {self.output}"
            assert time.monotonic() < self._deadline, f"no {what} in time: {self.output}"
            time.sleep(0.02)

    def wait_for_round(self, number: int) -> None:
        self.wait_for(lambda: self.last_round >= number, f"round {number}")

    def wait_until_working(self, zone_name: str) -> int:
        """Wait until a zone carries out an order; return its process id."""
        ready = self.folder / "federation" / "zones" / zone_name / "ready"
        found: list[int] = []

        def is_working() -> bool:
            try:
                said = json.loads(ready.read_text())
            except (OSError, ValueError):
                return False
            if said["state"] == "working":
                found.append(int(said["pid"]))
            return bool(found)

        self.wait_for(is_working, f"work of zone {zone_name}")
        return found[0]

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        try:
            return self.process.wait(max(1.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end in time: {self.output}") from None

    def pid_of(self, program: str) -> int:
        """Return the id of the process of ours that runs a program."""
        return next(pid for pid, command in self.started().items() if program in command)

    def started(self) -> dict[int, str]:
        """Return the command of every process that works in the run's folder, but this one."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                environment = (path / "environ").read_bytes().decode(errors="replace")
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            is_of_run = f"FLWR_HOME={self.folder.resolve()}/" in environment
            if is_of_run and state != "Z":
                found[int(path.name)] = command
        return found

    def nothing_is_left(self, within_s: float = 15.0) -> bool:
        """Return whether all that it has started is gone, after a while at most."""
        deadline = time.monotonic() + within_s
        while self.started() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.started()

    def kill(self) -> None:
        """End whatever is left, for a test that has failed."""
        for pid in (self.process.pid, *self.started()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        self._log.close()


@contextmanager
def federate(folder: Path, experiment: Experiment, *options: str) -> Iterator[Federate]:
    """Start it, and see to it that nothing of it outlives the test."""
    warm_up()  # a minute that the bounds are not made for
    started = Federate(folder, experiment, *options)
    try:
        yield started
    finally:
        started.kill()
