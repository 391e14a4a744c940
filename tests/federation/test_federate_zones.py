"""Zones that are added to and removed from the configuration while a real run goes on."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from federate_process import COMMAND, Federate, experiment_of, federate

from marl_sched.config import Experiment, dump_config, load_config

pytestmark = [pytest.mark.network, pytest.mark.processes]


def with_zones(experiment: Experiment, *names: str) -> Experiment:
    """The experiment with some of its zones, and new ones for the other names."""
    known = {each.name: each for each in experiment.zones}
    added = experiment_of(1).zones[1]
    zones = [known.get(name, added.model_copy(update={"name": name})) for name in names]
    return experiment.model_copy(update={"zones": zones})


def rewrite(run: Federate, text: str) -> None:
    """Replace the configuration that the run was started with, as an editor does."""
    path = run.folder.with_name(f"{run.folder.name}.yaml")
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def members(run: Federate) -> list[str]:
    """Zones of the last round that is whole in metrics.jsonl."""
    number = run.last_round
    return [str(line["zone"]) for line in run.lines("train") if line["round"] == number]


def zone_pids(run: Federate) -> dict[str, int]:
    """Process of every zone on this host."""
    found = {}
    for pid, command in run.started().items():
        words = command.split()
        if "zone" in words and "--zone" in words and "guarded.py" not in command:
            found[words[words.index("--zone") + 1]] = pid
    return found


def test_zone_is_added_and_another_removed_and_the_rest_keep_their_processes(
    tmp_path: Path,
) -> None:
    experiment = experiment_of(rounds=100_000, episodes_per_round=1)
    with federate(tmp_path / "run", experiment) as run:
        run.wait_for_round(2)
        before = zone_pids(run)
        assert sorted(before) == ["a", "b", "c"]
        rewrite(run, dump_config(with_zones(experiment, "a", "b", "c", "d")))
        run.wait_for(lambda: bool(run.events("zones")), "a change")
        run.wait_for(lambda: members(run) == ["a", "b", "c", "d"], "round with d")
        with_d = zone_pids(run)
        assert {name: with_d[name] for name in before} == before

        rewrite(run, dump_config(with_zones(experiment, "a", "b", "d")))
        run.wait_for(lambda: members(run) == ["a", "b", "d"], "round without c")
        run.wait_for(lambda: "c" not in zone_pids(run), "end of c")
        assert zone_pids(run) == {name: with_d[name] for name in ("a", "b", "d")}

        text = dump_config(with_zones(experiment, "a", "b", "d"))
        rewrite(run, text.replace("rounds: 100000\n", "rounds: 9\n"))
        run.wait_for(lambda: bool(run.events("config")), "a refusal")
        run.wait_for_round(run.last_round + 2)
        assert run.lines("lost") == []

        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130, run.output
        assert run.nothing_is_left()
        changes = [(line["added"], line["removed"]) for line in run.lines("zones")]
        assert changes == [(["d"], []), ([], ["c"])]
        config = load_config(run.folder / "config.yaml")
        assert config == with_zones(experiment, "a", "b", "d")
        said = [line for line in run.output.splitlines() if "training.rounds = 9" in line]
        assert len(said) == 1
        assert "but the run has 100000" in said[0]
        assert said[0].endswith("; the run goes on as it was")
        assert " died: " not in run.output

        # Gone on with, the zones are those of the file again; the rest must be what it was.
        rewrite(run, dump_config(with_zones(experiment, "a", "b")))
        last_round = run.last_round
        run.resume()
        run.wait_for(lambda: run.last_round > last_round and members(run) == ["a", "b"], "round")
        assert run.lines("zones")[-1]["removed"] == ["d"]
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130, run.output
        assert run.nothing_is_left()


def test_free_processes_take_added_zones_and_are_spares_after_removed_ones(
    tmp_path: Path,
) -> None:
    experiment = with_zones(experiment_of(rounds=100_000, episodes_per_round=1), "a", "b")
    with ExitStack() as stack:
        run = stack.enter_context(federate(tmp_path / "run", experiment, "--zones-elsewhere"))
        run.wait_for(lambda: "--superlink " in run.output, "an address")
        address = run.output.split("--superlink ")[1].split()[0]
        processes = stack.enter_context(free_zones(tmp_path, address, 3))
        run.wait_for_round(1)
        rewrite(run, dump_config(with_zones(experiment, "a", "b", "d")))
        run.wait_for(lambda: members(run) == ["a", "b", "d"], "round with d")
        rewrite(run, dump_config(with_zones(experiment, "b", "d")))
        run.wait_for(lambda: members(run) == ["b", "d"], "round without a")
        # The process of a is free again: it is the next zone that is added.
        rewrite(run, dump_config(with_zones(experiment, "b", "d", "e")))
        run.wait_for(lambda: members(run) == ["b", "d", "e"], "round with e")
        assert [process.poll() for process in processes] == [None] * 3
        # For one more there is nobody.
        rewrite(run, dump_config(with_zones(experiment, "b", "d", "e", "f")))
        run.wait_for(lambda: bool(run.events("missing")), "that f has no process")
        run.wait_for(lambda: "to start it: " in run.output, "how to start it")
        assert run.events("missing")[-1]["why"] == {"f": "no process of it is there"}
        assert f"marl-sched zone --superlink {address} --zone f --insecure" in run.output
        run.wait_for_round(run.last_round + 1)
        assert members(run) == ["b", "d", "e"]
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130, run.output


@contextmanager
def free_zones(
    folder: Path, address: str, n_zones: int
) -> Iterator["list[subprocess.Popen[bytes]]"]:
    """Processes that are for no zone in particular."""
    processes = []
    for number in range(n_zones):
        with (folder / f"free-{number}.log").open("wb") as log:
            state = str(folder / f"free-{number}")
            command = [*COMMAND, "zone", "--superlink", address, "--insecure", "--state", state]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(20.0)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
