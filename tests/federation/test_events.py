"""The file of events: what a full disk does to it."""

import errno
import json
from pathlib import Path

import pytest

from federation.events import EventLog, EventReader

FULL = Path("/dev/full")


def test_reader_sees_what_was_added_since_it_began(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.write("start", {"pid": 1})
    reader = EventReader(tmp_path / "events.jsonl")
    log.write("joined", {"zone": "a", "epoch": 1})
    log.write("end", {"outcome": "finished", "error": ""})
    assert [event["kind"] for event in reader.new()] == ["joined", "end"]
    assert reader.new() == []


def test_reader_begins_anew_when_the_file_was_deleted(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.write("config", {"problem": "x" * 1000})
    reader = EventReader(tmp_path / "events.jsonl")
    (tmp_path / "events.jsonl").unlink()
    assert reader.new() == []
    log.write("end", {"outcome": "finished", "error": ""})
    assert [event["kind"] for event in reader.new()] == ["end"]


def test_event_after_a_half_written_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.write("start", {"pid": 1})
    with path.open("ab") as file:
        file.write(b'{"time": 1.0, "kind": "rou')
    reader = EventReader(path)
    log.write("end", {"outcome": "failed", "error": "full"})
    assert [event["kind"] for event in reader.new()] == ["end"]
    assert [line for line in path.read_text().splitlines() if line][-1].endswith("}")
    assert json.loads(path.read_text().splitlines()[-1])["error"] == "full"


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
def test_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to(FULL)
    with pytest.raises(OSError, match=r"events\.jsonl") as raised:
        EventLog(tmp_path / "events.jsonl").write("end", {})
    assert raised.value.errno == errno.ENOSPC
