"""The zones' processes on the supervisor's host follow the configuration."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.kept_up import KeptUp
from federation.local_zones import LocalZones
from federation.processes import Child, end_all

WAITS = [sys.executable, "-c", "import time; time.sleep(60)"]
LIMIT_S = 20.0


class Bench:
    def __init__(self, folder: Path, zones: list[str] | None) -> None:
        self.made: list[str] = []
        self.asked: list[str] = []
        self._folder = folder
        self.zones = LocalZones(zones, self._make)

    def _make(self, zone: str) -> KeptUp:
        self.made.append(zone)
        return KeptUp(Child(zone, WAITS, self._folder / f"{zone}.log", {}))

    def environment(self, zone: str) -> dict[str, str]:
        self.asked.append(zone)
        return {"TOKEN": zone}

    def change(self, added: list[str], removed: list[str]) -> None:
        self.zones.change(added, removed, self.environment)

    @property
    def pids(self) -> dict[str, int]:
        return {child.name: child.pid for child in self.zones.children if child.is_running}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, ["b", "a"])
    made.zones.start(made.environment)
    try:
        yield made
    finally:
        end_all(made.zones.children, LIMIT_S)


def test_new_zone_gets_a_process_and_the_others_keep_theirs(bench: Bench) -> None:
    before = bench.pids
    assert sorted(before) == ["a", "b"]
    bench.change(["c"], [])
    assert bench.pids == before | {"c": bench.pids["c"]}
    assert bench.zones.watched[-1].child.env == {"TOKEN": "c"}


def test_change_that_is_told_twice_is_made_once(bench: Bench) -> None:
    bench.change(["c"], [])
    after = bench.pids
    bench.change(["c"], [])
    assert bench.pids == after
    assert bench.asked == ["a", "b", "c"]


def test_process_of_a_removed_zone_ends_and_is_forgotten(bench: Bench) -> None:
    before = bench.pids
    (leaving,) = [child for child in bench.zones.children if child.name == "a"]
    bench.change([], ["a"])
    assert [watched.child.name for watched in bench.zones.watched] == ["b"]
    end_all([leaving], LIMIT_S)
    bench.zones.sweep()
    assert bench.zones.children == [bench.zones.watched[0].child]
    assert bench.pids == {"b": before["b"]}


def test_zones_that_are_started_elsewhere_are_not_started_here(tmp_path: Path) -> None:
    bench = Bench(tmp_path, None)
    bench.zones.start(bench.environment)
    bench.change(["c"], ["a"])
    assert (bench.made, bench.zones.children) == ([], [])
