"""With what a ServerApp that is started again opens the run's folder."""

from pathlib import Path

import pytest
from tiny import tiny, zone

from federation.deployed import open_folder
from federation.events import EventLog, EventReader
from marl_sched.errors import MarlSchedError
from marl_sched.run_folder import RunFolder

RAN = tiny(zone("a"), zone("b"))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    RunFolder.create(tmp_path / "run", RAN)
    return tmp_path / "run"


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path / "events.jsonl")


def test_other_zones_are_taken_as_they_were_handed_over(run_dir: Path, log: EventLog) -> None:
    wanted = tiny(zone("a"), zone("c"))
    folder, experiment = open_folder(run_dir, wanted, log)
    assert experiment == wanted
    assert folder.zone_change(experiment).added == ("c",)


def test_zone_that_came_back_as_another_does_not_end_the_run(
    run_dir: Path, log: EventLog, tmp_path: Path
) -> None:
    reader = EventReader(tmp_path / "events.jsonl")
    folder, experiment = open_folder(run_dir, tiny(zone("a"), zone("b", load=0.3)), log)
    assert experiment == RAN
    assert not folder.zone_change(experiment)
    (event,) = reader.new()
    assert event["kind"] == "config"
    assert "zones[1].load = " in event["problem"]


def test_folder_without_a_run_is_an_error(tmp_path: Path, log: EventLog) -> None:
    with pytest.raises(MarlSchedError, match=r"config\.yaml: cannot be read"):
        open_folder(tmp_path / "none", RAN, log)
