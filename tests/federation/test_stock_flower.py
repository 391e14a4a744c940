"""`flwr run .` with Flower's own SuperLink and SuperNodes: the same bytes as `train`."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from federate_process import experiment_of
from superlink import BIN, free_ports

from federation.events import EVENTS, PRIVATE
from federation.local_run import train
from marl_sched.config import Experiment, dump_config

pytestmark = [pytest.mark.network, pytest.mark.processes]
ROOT = Path(__file__).parents[2]
ZONES = ("a", "b")
LIMIT_S = 115.0


def two_zones() -> Experiment:
    """One round, not validated: a process a zone and message takes seconds to start."""
    values = experiment_of(1, validation_episodes=0).model_dump(mode="json")
    values["zones"] = [zone for zone in values["zones"] if zone["name"] in ZONES]
    return Experiment.model_validate(values)


@contextmanager
def running(folder: Path, name: str, command: Sequence[str]) -> Iterator[None]:
    """Run a program of Flower's, with its own folder for what it keeps; end all it has started."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    env = os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
    }
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            cwd=ROOT,
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(condition: Callable[[], bool], deadline: float, folder: Path) -> None:
    while not condition():
        logs = "\n".join(path.read_text()[-1500:] for path in sorted(folder.glob("*.log")))
        assert time.monotonic() < deadline, logs
        time.sleep(0.1)


def test_run_on_stock_nodes_writes_what_train_writes(tmp_path: Path) -> None:
    experiment = two_zones()
    train(experiment, tmp_path / "trained")
    config = tmp_path / "two.yaml"
    config.write_text(dump_config(experiment))
    deadline = time.monotonic() + LIMIT_S
    control, fleet, *node_ports = free_ports(2 + len(ZONES))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        f'[superlink.test]\naddress = "127.0.0.1:{control}"\ninsecure = true\n'
    )
    run = tmp_path / "run"
    superlink = ["flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(control)]
    superlink += ["--fleet-api-address", f"127.0.0.1:{fleet}"]
    superlink += ["--disable-runtime-dependency-installation"]
    settings = f"config='{config}' run-dir='{run}' exchange-address='127.0.0.1:0'"
    events = run / PRIVATE / EVENTS
    with ExitStack() as stack:
        stack.enter_context(running(tmp_path, "superlink", superlink))
        up = "Application startup complete"
        wait_until(lambda: up in (tmp_path / "superlink.log").read_text(), deadline, tmp_path)
        for zone, port in zip(ZONES, node_ports, strict=True):
            node = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{fleet}"]
            state = tmp_path / "states" / zone
            node += ["--port", str(port), "--node-config", f'zone="{zone}" state-dir="{state}"']
            stack.enter_context(running(tmp_path, f"node-{zone}", node))
        command = ["flwr", "run", ".", "test", "--run-config", settings]
        stack.enter_context(running(tmp_path, "flwr", command))
        wait_until(
            lambda: events.exists() and '"kind": "end"' in events.read_text(), deadline, tmp_path
        )
    assert '"outcome": "finished"' in events.read_text()
    expected = (tmp_path / "trained" / "metrics.jsonl").read_text()
    assert (run / "metrics.jsonl").read_text() == expected
