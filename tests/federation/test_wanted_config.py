"""What of an edited configuration reaches a run that goes on, and what is said of the rest."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import tiny, zone

from federation.events import EVENTS, EventReader
from federation.wanted_config import ConfigSource, ConfigWatch, Handover, Wanted
from marl_sched.config import Experiment, dump_config
from marl_sched.errors import ConfigError, MarlSchedError, RunError

A, B, C = zone("a"), zone("b"), zone("c")


class Watched:
    """A watch over a file, with a clock of its own."""

    def __init__(self, path: Path, *overrides: str) -> None:
        self.path = path
        self._seconds = 0.0
        self._n_writes = 0
        self.write(tiny(A, B))
        self.watch = ConfigWatch(
            ConfigSource(path, overrides), tiny(A, B), now=lambda: self._seconds
        )

    def write(self, experiment: Experiment, change: Callable[[str], str] = str) -> None:
        self.write_text(change(dump_config(experiment)))

    def write_text(self, text: str) -> None:
        self._n_writes += 1
        self.path.write_text(text)
        os.utime(self.path, ns=(self._n_writes, self._n_writes))

    def looks(self, n: int = 3) -> list[Experiment]:
        """Look each second; return what was found."""
        found = []
        for _ in range(n):
            self._seconds += 1.0
            experiment = self.watch.look()
            if experiment is not None:
                found.append(experiment)
        return found

    def problem(self) -> MarlSchedError:
        """Look until something is wrong; later looks must not say it again."""
        with pytest.raises(MarlSchedError) as raised:
            self.looks()
        assert self.looks() == []
        return raised.value


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "my.yaml")


def test_file_as_it_was_read_is_no_change(watched: Watched) -> None:
    assert watched.looks() == []
    watched.write(tiny(A, B), lambda text: f"# a comment\n{text}")
    assert watched.looks() == []


def test_added_zone_is_found_once(watched: Watched) -> None:
    watched.looks()
    watched.write(tiny(A, B, C))
    assert watched.looks() == [tiny(A, B, C)]
    assert watched.looks() == []


def test_removed_zone_is_found_and_so_is_its_return(watched: Watched) -> None:
    watched.write(tiny(B))
    assert watched.looks() == [tiny(B)]
    watched.write(tiny(A, B))
    assert watched.looks() == [tiny(A, B)]


def test_file_that_is_being_written_is_not_read(watched: Watched) -> None:
    watched.looks()
    for text in ("zones: [", "zones: [{name: "):  # would be an error
        watched.write_text(text)
        assert watched.looks(1) == []
    watched.write(tiny(A, B, C))
    assert watched.looks() == [tiny(A, B, C)]


def test_file_is_looked_at_once_a_second(watched: Watched) -> None:
    watched.write(tiny(A, B, C))
    assert all(watched.watch.look() is None for _ in range(10))


def test_overrides_hold_for_the_new_content_too(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "my.yaml", "seed=1")
    watched.write(tiny(A, B, C), lambda text: text.replace("seed: 1\n", "seed: 7\n"))
    assert watched.looks() == [tiny(A, B, C)]


def test_file_that_does_not_parse_is_told_once_and_the_next_one_is_taken(watched: Watched) -> None:
    watched.write_text("zones: [")
    error = watched.problem()
    assert isinstance(error, ConfigError)
    assert "my.yaml: not valid YAML" in str(error)
    watched.write(tiny(A, B, C))
    assert watched.looks() == [tiny(A, B, C)]


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("seed: 1\n", "seed: 2\n", "seed = 2, but the run has 1"),
        ("  quorum: 1\n", "  quorum: 2\n", "federation.quorum = 2, but the run has 1"),
        ("speed_jitter: 0.0\n", "speed_jitter: 0.5\n", "zones[0].speed_jitter = 0.5, but the run"),
    ],
)
def test_other_change_names_the_key_and_has_no_effect(
    watched: Watched, old: str, new: str, key: str
) -> None:
    watched.write(tiny(A, B, C), lambda text: text.replace(old, new, 1))
    error = watched.problem()
    assert isinstance(error, RunError)
    assert f"my.yaml: {key}" in str(error)
    assert "zones can be added and removed, and nothing else" in str(error)
    watched.write(tiny(A, B, C))
    assert watched.looks() == [tiny(A, B, C)]


def test_too_few_zones_for_the_quorum_are_told(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "my.yaml")
    watched.write(tiny(A), lambda text: text.replace("  quorum: 1\n", "  quorum: 2\n"))
    assert "federation.quorum = 2, expected at most the number of zones, 1" in str(
        watched.problem()
    )


def test_file_that_is_gone_is_no_change(watched: Watched) -> None:
    watched.looks()
    watched.path.unlink()
    assert watched.looks() == []


def test_named_pipe_in_the_place_of_the_file_is_told_and_not_waited_for(watched: Watched) -> None:
    watched.looks()
    watched.path.unlink()
    os.mkfifo(watched.path)
    told: list[str] = []
    looking = threading.Thread(target=lambda: told.append(str(watched.problem())), daemon=True)
    looking.start()
    looking.join(20.0)
    assert ["my.yaml: not a regular file" in line for line in told] == [True]
    watched.path.unlink()
    watched.write(tiny(A, B, C))
    assert watched.looks() == [tiny(A, B, C)]


def test_what_is_handed_over_is_taken_once(tmp_path: Path) -> None:
    supervisor, server_app = Wanted(tmp_path), Wanted(tmp_path)
    assert server_app.take() is None
    supervisor.write(tiny(A, B))
    assert server_app.take() == tiny(A, B)
    assert server_app.take() is None
    supervisor.write(tiny(A, B, C))
    assert server_app.take() == tiny(A, B, C)


def test_supervisor_hands_over_what_the_file_has_and_tells_what_it_cannot(tmp_path: Path) -> None:
    path, seconds = tmp_path / "my.yaml", iter(range(1, 100))
    path.write_text(dump_config(tiny(A, B)))
    handover = Handover(tmp_path, tiny(A, B), ConfigSource(path), now=lambda: 10.0 * next(seconds))
    handover.begin()
    assert Wanted(tmp_path).take() == tiny(A, B)
    path.write_text(dump_config(tiny(A, B, C)))
    assert [names for _ in range(3) if (names := handover.look())] == [["a", "b", "c"]]
    assert Wanted(tmp_path).take() == tiny(A, B, C)
    reader = EventReader(tmp_path / EVENTS)
    path.write_text("seed: [")
    assert [handover.look() for _ in range(4)] == [[]] * 4
    (event,) = reader.new()
    assert event["kind"] == "config"
    assert event["problem"].startswith(f"{path}: not valid YAML")
    assert Wanted(tmp_path).take() == tiny(A, B, C)


def test_run_without_a_file_to_watch_never_changes(tmp_path: Path) -> None:
    handover = Handover(tmp_path, tiny(A, B), None)
    handover.begin()
    assert handover.look() == []
