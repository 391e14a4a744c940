"""`docker compose up` with a real engine: one stack from its first start to nothing left.

The tests are the chapters of one story, in this order: a stack takes half a minute to start.
"""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from compose_stack import IMAGE, Stack, docker, engine_problem, health, leftovers

pytestmark = [pytest.mark.docker, pytest.mark.network]

MAX_IMAGE_BYTES = 1.8e9
MAX_IDLE_BYTES = 2.4e9
FIRST_ROUND_S = 90.0

Before = dict[str, set[str]]


def zone(name: str) -> dict[str, object]:
    return {
        "name": name,
        "machines": [{"count": 4, "capacity": {"cpu_milli": 16000, "memory_mib": 32768}}],
    }


def config(*zones: str, rounds: int) -> str:
    """A small cluster whose rounds take seconds."""
    return yaml.safe_dump(
        {
            "version": 1,
            "name": "stack-test",
            "zones": [zone(name) for name in zones],
            "episode": {"horizon_s": 120.0, "drain_s": 60.0},
            "workload": {
                "kind": "synthetic",
                "load": 0.7,
                "task_types": [
                    {
                        "name": "web",
                        "request": {"cpu_milli": 1000, "memory_mib": 1024},
                        "mean_s": 20.0,
                        "sigma": 0.4,
                        "use": {
                            "cpu_milli": {"mean": 0.7, "sd": 0.2},
                            "memory_mib": {"mean": 0.8, "sd": 0.1},
                        },
                        "finish_slack": 2.2,
                    }
                ],
                "streams": [{"name": "batch", "arrivals": {"kind": "modulated-poisson"}}],
            },
            "training": {
                "replicas": 2,
                "rounds": rounds,
                "validation_episodes": 2,
                "validate_every": 100,
            },
            # A zone that is killed right before its answer holds the round up for so long.
            "federation": {"grace_s": 20.0},
            "evaluation": {"episodes": 2, "policies": ["kube-default", "learned"]},
        }
    )


@pytest.fixture(scope="module")
def before() -> Before:
    problem = engine_problem()
    if problem and os.environ.get("MARL_SCHED_REQUIRE_DOCKER") == "1":
        pytest.fail(f"MARL_SCHED_REQUIRE_DOCKER=1, but: {problem}")
    if problem:
        pytest.skip(f"no Docker engine: {problem}")
    return leftovers()


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def stack(before: Before, port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("stack") / "configs", "marl-sched-test", port)
    stack.config.parent.chmod(0o755)
    yield stack
    stack.down()


def test_a_taken_port_is_named(stack: Stack) -> None:
    stack.config.write_text("version: 1\nname: broken\nzones: many\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", stack.port))
        taken.listen()
        done = stack.up(3, check=False)
    assert done.returncode != 0
    assert str(stack.port) in done.stderr


def test_a_configuration_that_does_not_parse_is_said_once_and_nothing_restarts(
    stack: Stack,
) -> None:
    stack.up(3)
    stack.wait("a word on the configuration", lambda: "error: " in stack.log("superlink"), 60.0)
    started = stack.containers()
    stack.config.write_text("version: 1\nname: broken\nzones: few\n")
    stack.wait("the next one", lambda: "zones = few" in stack.log("superlink"), 30.0)
    said = stack.log("superlink")
    assert said.count("error: ") == 2
    assert said.count("zones = many, expected a list") == 1
    assert stack.containers() == started
    assert {name: one.n_restarts for name, one in started.items()} == dict.fromkeys(
        ["superlink-1", "zone-1", "zone-2", "zone-3", "dashboard-1"], 0
    )


def test_it_runs_once_the_configuration_is_put_right(stack: Stack) -> None:
    stack.config.write_text(config("a", "b", "c", rounds=10_000))
    stack.wait_for_rounds("a", "b", "c", within_s=FIRST_ROUND_S)


def test_the_page_is_reached_from_this_host_alone(stack: Stack) -> None:
    assert b"<html" in stack.page("/").lower()
    ports = json.loads(docker("inspect", f"{stack.project}-dashboard-1"))[0]["NetworkSettings"]
    assert [bound["HostIp"] for bound in ports["Ports"]["8080/tcp"]] == ["127.0.0.1"]


def test_the_networks_lead_nowhere(stack: Stack) -> None:
    networks = json.loads(
        docker("network", "inspect", f"{stack.project}_fleet", f"{stack.project}_page")
    )
    assert networks[0]["Internal"] is True
    assert networks[1]["Options"]["com.docker.network.bridge.enable_ip_masquerade"] == "false"
    address = {
        name: next(iter(one["NetworkSettings"]["Networks"].values()))["IPAddress"]
        for name in ("superlink", "dashboard")
        for one in json.loads(docker("inspect", f"{stack.project}-{name}-1"))
    }
    connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"

    def reaches(service: str, host: str, port: int) -> bool:
        words = ("python", "-c", connect, address[host], str(port))
        return stack.run_in(service, *words, check=False).returncode == 0

    assert reaches("zone", "superlink", 9092)
    assert not reaches("zone", "superlink", 8000)
    assert not reaches("zone", "dashboard", 8080)
    assert not reaches("dashboard", "superlink", 9092)


def test_no_container_can_do_more_than_it_needs(stack: Stack) -> None:
    for service in ("superlink", "zone", "dashboard"):
        assert stack.run_in(service, "id", "-u").stdout.strip() == "10001"
        assert stack.run_in(service, "touch", "/etc/here", check=False).returncode != 0
        status = stack.run_in(service, "cat", "/proc/self/status").stdout
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
    assert stack.run_in("superlink", "touch", "/here", check=False).returncode != 0
    for program in ("gcc", "cc", "pip", "uv"):
        found = stack.run_in("superlink", "sh", "-c", f"command -v {program}", check=False)
        assert found.returncode != 0, program


def test_the_kernels_came_with_the_image(stack: Stack) -> None:
    for service in ("superlink", "zone"):
        done = stack.run_in(service, "marl-sched", "compile")
        assert "kernels are compiled already" in done.stdout
        assert done.stderr == ""
    assert int(docker("image", "inspect", "-f", "{{.Size}}", IMAGE)) <= MAX_IMAGE_BYTES


def test_a_zone_that_is_added_takes_part_and_nothing_restarts(stack: Stack) -> None:
    started = stack.containers()
    stack.config.write_text(config("a", "b", "c", "d", rounds=10_000))
    stack.wait("a word on d", lambda: "scale zone=4" in stack.log("superlink"), 60.0)
    stack.up(4)
    stack.wait_for_rounds("a", "b", "c", "d")
    now = stack.containers()
    assert {name: now[name] for name in started} == started
    assert sorted(set(now) - set(started)) == ["zone-4"]


def test_a_zone_that_is_killed_comes_back(stack: Stack) -> None:
    kill = (
        "import json, os, signal; "
        "os.kill(json.load(open('/srv/zone/ready'))['pid'], signal.SIGKILL)"
    )
    zone_name = json.loads(stack.run_in("zone", "cat", "/srv/zone/ready", index=2).stdout)["zone"]
    stack.run_in("zone", "python", "-c", kill, index=2, check=False)
    stack.wait("a restart", lambda: stack.containers()["zone-2"].n_restarts == 1, 60.0)
    stack.wait_for_rounds("a", "b", "c", "d", more=2)
    again = json.loads(stack.run_in("zone", "cat", "/srv/zone/ready", index=2).stdout)["zone"]
    assert again == zone_name


def test_a_coordinator_that_is_restarted_goes_on(stack: Stack) -> None:
    reached = max(stack.rounds().values())
    stack.compose("restart", "superlink")
    stack.wait_for_rounds("a", "b", "c", "d", more=2)
    lines = stack.run_in("superlink", "cat", "/srv/run/metrics.jsonl").stdout.splitlines()
    rounds = [json.loads(line)["round"] for line in lines]
    assert rounds == sorted(rounds)
    assert max(rounds) > reached


def test_a_zone_that_is_taken_out_leaves(stack: Stack) -> None:
    stack.config.write_text(config("a", "b", "c", rounds=10_000))
    stack.wait("the change", lambda: any("d" in e["removed"] for e in stack.events("zones")), 60.0)
    stack.up(3)
    stack.wait_for_rounds("a", "b", "c", more=2)
    assert "zone-4" not in stack.containers()


def test_nothing_is_left_of_a_stack_that_is_taken_down(stack: Stack, before: Before) -> None:
    stack.down()
    assert leftovers() == before


def test_a_run_ends_with_its_report_and_the_stack_stays_up(stack: Stack) -> None:
    stack.config.write_text(config("a", "b", "c", rounds=2))
    stack.up(3)
    stack.wait("the report", lambda: "done: the report" in stack.log("superlink"), 180.0)
    assert stack.run_in("superlink", "cat", "/srv/run/report.md").stdout.startswith("#")
    stack.compose("restart", "superlink")
    stack.wait(
        "the report again", lambda: stack.log("superlink").count("done: the report") == 2, 60.0
    )
    assert stack.log("superlink").count("next: read /srv/run/report.md") == 1  # compared once
    ids = [one.id for one in stack.containers().values()]
    stack.wait("health", lambda: health(ids) == {"healthy"}, 60.0)
    used = docker("stats", "--no-stream", "--format", "{{.MemUsage}}", *ids)
    assert sum(bytes_of(line.split(" / ")[0]) for line in used.splitlines()) <= MAX_IDLE_BYTES


def test_too_little_memory_is_said_with_what_is_needed(stack: Stack, before: Before) -> None:
    stack.down()
    stack.config.write_text(config(*[f"z{i}" for i in range(4000)], rounds=2))
    stack.up(1)
    stack.wait("the need", lambda: "GiB of memory, expected" in stack.log("superlink"), 60.0)
    assert "4000 zones: this machine has" in stack.log("superlink")
    stack.down()
    assert leftovers() == before


def bytes_of(text: str) -> float:
    for unit, factor in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(text)


def test_the_configs_folder_that_is_named_must_exist(stack: Stack, tmp_path: Path) -> None:
    missing = Stack(tmp_path / "configs", stack.project, stack.port)
    missing.config.parent.rmdir()
    done = missing.up(1, check=False)
    missing.down()
    assert done.returncode != 0
    assert "bind source path does not exist" in done.stderr
