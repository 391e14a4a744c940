"""`federate` against `train`: real processes, the same bytes; and what goes wrong at the start."""

import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from federate_process import COMMAND, experiment_of, federate

from federation.local_run import train
from marl_sched.run_folder import RunFolder
from zones.view import parse_view

pytestmark = [pytest.mark.network, pytest.mark.processes]
ROUNDS = 5


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run in one process."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(experiment_of(ROUNDS), folder)
    return folder


def require_equal(folder: Path, trained: Path) -> None:
    assert (folder / "metrics.jsonl").read_text() == (trained / "metrics.jsonl").read_text()
    got, expected = RunFolder(folder).last_checkpoint(), RunFolder(trained).last_checkpoint()
    assert got is not None
    assert expected is not None
    assert (got.round_number, got.is_finished) == (expected.round_number, True)
    for kind in ("online", "ema"):
        for name, tensor in getattr(expected, kind).items():
            np.testing.assert_array_equal(getattr(got, kind)[name], tensor)
    best, best_of_train = RunFolder(folder).best_path, RunFolder(trained).best_path
    assert best.read_bytes() == best_of_train.read_bytes()


def test_federate_writes_what_train_writes_and_leaves_nothing(
    tmp_path: Path, trained: Path
) -> None:
    with federate(tmp_path / "run", experiment_of(ROUNDS)) as run:
        assert run.wait() == 0, run.output
        assert run.nothing_is_left()
        require_equal(run.folder, trained)
        assert sum(float(str(line["offload_rate"])) for line in run.lines("train")) > 0
        assert f"wrote {run.folder}: {ROUNDS} rounds, best round" in run.output
        assert f"--run {run.folder}" in run.output
        for zone in ("a", "b", "c"):
            data = (run.folder / "live" / f"{zone}.json").read_bytes()
            assert parse_view(data, zone).n_decisions > 0
        assert (run.folder / "federation").stat().st_mode & 0o777 == 0o700


def test_zones_in_another_order_and_one_slowed_write_the_same(
    tmp_path: Path, trained: Path
) -> None:
    port = free_port()
    options = ("--zones-elsewhere", "--fleet-port", str(port))
    with federate(tmp_path / "run", experiment_of(ROUNDS), *options) as run:
        with ZonesOf(tmp_path, port, ("c", "b", "a")) as zones:
            while run.process.poll() is None:
                assert time.monotonic() < run._deadline, run.output
                zones[0].send_signal(signal.SIGSTOP)
                time.sleep(0.1)
                zones[0].send_signal(signal.SIGCONT)
                time.sleep(0.1)
        assert run.wait() == 0, run.output
        require_equal(run.folder, trained)


def test_secured_run_writes_the_same(tmp_path: Path, trained: Path) -> None:
    with federate(tmp_path / "run", experiment_of(ROUNDS), "--secure") as run:
        assert run.wait() == 0, run.output
        require_equal(run.folder, trained)


def test_interrupted_run_leaves_nothing_and_goes_on_to_the_same_bytes(
    tmp_path: Path, trained: Path
) -> None:
    with federate(tmp_path / "run", experiment_of(ROUNDS)) as run:
        run.wait_for_round(1)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
        assert run.nothing_is_left()
        assert "go on with the same command and --resume" in run.output
        run.resume()
        assert run.wait() == 0, run.output
        require_equal(run.folder, trained)


def test_killed_supervisor_takes_everything_with_it_and_can_be_resumed(
    tmp_path: Path, trained: Path
) -> None:
    with federate(tmp_path / "run", experiment_of(ROUNDS)) as run:
        run.wait_for_round(1)
        run.process.kill()
        run.wait()
        assert run.nothing_is_left()
        run.resume()
        assert run.wait() == 0, run.output
        require_equal(run.folder, trained)


@pytest.mark.parametrize("option", ["--fleet-port", "--exchange-port", "--control-port"])
def test_port_in_use_is_one_line_and_nothing_is_written(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with federate(tmp_path / "run", experiment_of(1), option, str(port)) as run:
            assert run.wait() == 1
            assert len(run.output.splitlines()) == 1
            assert f"127.0.0.1:{port}: " in run.output
            assert "Address already in use" in run.output
            assert not run.folder.exists()


def test_security_cannot_be_switched_off_beyond_loopback(tmp_path: Path) -> None:
    with federate(tmp_path / "run", experiment_of(1), "--host", "0.0.0.0", "--insecure") as run:
        assert run.wait() == 2
        assert "expected it on loopback only" in run.output
        assert not run.folder.exists()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class ZonesOf:
    """Zones as processes of their own, started one after the other."""

    def __init__(self, folder: Path, port: int, names: tuple[str, ...]) -> None:
        self._folder, self._port, self._names = folder, port, names
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> list[subprocess.Popen[bytes]]:
        for name in self._names:
            log = (self._folder / f"zone-{name}.log").open("wb")
            where = ("--superlink", f"127.0.0.1:{self._port}", "--insecure")
            state = ("--zone", name, "--state", str(self._folder / "states" / name))
            self._processes.append(
                subprocess.Popen([*COMMAND, "zone", *where, *state], stdout=log, stderr=log)
            )
            log.close()
            time.sleep(0.5)
        return self._processes

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
