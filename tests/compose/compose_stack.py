"""A real `docker compose up`, with a bound on every wait."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
IMAGE = "marl-sched:local"
COMMAND_S = 120.0
_LOOK_S = 0.5


@dataclass(frozen=True)
class Container:
    """What does not change unless a container is made or started anew."""

    id: str
    started: str
    n_restarts: int


def health(ids: Iterable[str]) -> set[str]:
    """Return what the engine thinks of containers: healthy, unhealthy, starting."""
    return set(docker("inspect", "-f", "{{.State.Health.Status}}", *ids).split())


class Stack:
    """The repository's compose file as a project of its own."""

    def __init__(self, configs: Path, project: str, port: int) -> None:
        configs.mkdir(exist_ok=True)
        self.config = configs / "test.yaml"
        self.project = project
        self.port = port
        self._env = {
            **os.environ,
            "MARL_SCHED_CONFIGS": str(configs),
            "MARL_SCHED_CONFIG": self.config.name,
            "MARL_SCHED_PORT": str(port),
        }

    def compose(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run `docker compose` on the project."""
        done = subprocess.run(
            ["docker", "compose", "--ansi=never", "-p", self.project, *words],
            cwd=ROOT,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{words}: {done.stdout}{done.stderr}"
        return done

    def up(self, n_zones: int, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Start what is not there, and end what is too much."""
        return self.compose("up", "-d", "--scale", f"zone={n_zones}", check=check)

    def log(self, service: str) -> str:
        """Return what the containers of a service have said."""
        return self.compose("logs", "--no-color", "--no-log-prefix", service).stdout

    def run_in(
        self, service: str, *words: str, index: int = 1, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program in a container."""
        return self.compose("exec", "-T", "--index", str(index), service, *words, check=check)

    def containers(self) -> dict[str, Container]:
        """Return the running containers by name, without the project's."""
        names = self.compose("ps", "-q").stdout.split()
        text = docker("inspect", *names) if names else "[]"
        return {
            one["Name"].removeprefix(f"/{self.project}-"): Container(
                one["Id"], one["State"]["StartedAt"], one["RestartCount"]
            )
            for one in json.loads(text)
        }

    def page(self, path: str = "/state.json") -> bytes:
        """Fetch something from the published port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            content: bytes = answer.read()
        return content

    def rounds(self) -> dict[str, int]:
        """Return the last round of every zone, as the page has it."""
        try:
            zones = json.loads(self.page())["sections"]["zones"]
        except (OSError, KeyError):
            return {}
        return {zone["name"]: int((zone.get("figures") or {}).get("round") or 0) for zone in zones}

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of a kind."""
        text = self.run_in("superlink", "cat", "/srv/run/federation/events.jsonl").stdout
        events = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        return [event for event in events if event["kind"] == kind]

    def wait(self, what: str, condition: Callable[[], object], within_s: float) -> None:
        """Wait until a condition holds.

        Raises:
            AssertionError: It did not in time; says what everybody has said.
        """
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within_s:g} s: {what}\n{self._said()}")
            time.sleep(_LOOK_S)

    def _said(self) -> str:
        logs = ["/srv/run/federation/serverapp.log", "/srv/run/federation/logs/superlink.log"]
        return "\n".join(
            [
                self.log("superlink")[-4000:],
                self.compose("logs", "--no-color", "--tail", "15", "zone").stdout,
                self.run_in("superlink", "tail", "-n", "20", *logs, check=False).stdout,
            ]
        )

    def wait_for_rounds(self, *zones: str, more: int = 1, within_s: float = 90.0) -> None:
        """Wait until each of the zones has taken part in `more` rounds beyond the present one."""
        goal = max(self.rounds().values(), default=0) + more
        self.wait(
            f"round {goal} of {', '.join(zones)}",
            lambda: all(self.rounds().get(zone, 0) >= goal for zone in zones),
            within_s,
        )

    def down(self) -> None:
        """End and delete everything."""
        self.compose("down", "-v", "--timeout", "20")


def docker(*words: str) -> str:
    """Run `docker` and return what it prints."""
    return subprocess.run(
        ["docker", *words], capture_output=True, text=True, timeout=COMMAND_S, check=True
    ).stdout


def leftovers() -> dict[str, set[str]]:
    """Return all containers, volumes and networks of the engine by kind."""
    return {
        "containers": set(docker("ps", "-aq", "--no-trunc").split()),
        "volumes": set(docker("volume", "ls", "-q").split()),
        "networks": set(docker("network", "ls", "-q").split()),
    }


def engine_problem() -> str:
    """Return why there is no engine to test with; empty: there is one."""
    try:
        docker("info")
        docker("compose", "version")
    except FileNotFoundError:
        return "no `docker` command"
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip().splitlines()
        return said[-1] if said else "no Docker engine"
    return ""
