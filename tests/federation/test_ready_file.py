"""The health file of a zone's process: a disk that takes none is no reason to end."""

import json
import logging
import os
from pathlib import Path

import pytest

from federation.ready_file import ReadyFile


def test_file_says_what_the_zone_is_at_while_the_superlink_answers(tmp_path: Path) -> None:
    ready = ReadyFile(tmp_path / "ready", lambda: "zone_b")
    ready.tell("online", 7)
    said = json.loads((tmp_path / "ready").read_text())
    assert said == {"state": "online", "node": 7, "zone": "zone_b", "pid": os.getpid()}
    ready.tell("connecting", 7)
    assert not (tmp_path / "ready").exists()


def test_file_that_cannot_be_written_is_told_once_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    ready = ReadyFile(folder / "ready", lambda: "zone_b")
    folder.rmdir()  # nothing can be written there now, as on a full disk
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            ready.tell("online", number)
    assert len(caplog.records) == 1
    assert str(folder / "ready") in caplog.text
    assert "the zone goes on" in caplog.text
    folder.mkdir()
    ready.tell("online", 9)
    assert json.loads((folder / "ready").read_text())["node"] == 9


@pytest.mark.parametrize(
    ("left", "node"),
    [
        ('{"state": "working", "node": 7517729203972578632, "pid": 1}', 7517729203972578632),
        ('{"node": "7"}', 0),
        ('{"node": true}', 0),
        ('{"node": -7}', 0),
        ("[]", 0),
        ("", 0),
        ("\xff", 0),
    ],
)
def test_what_a_killed_process_has_left_names_its_node(
    tmp_path: Path, left: str, node: int
) -> None:
    (tmp_path / "ready").write_text(left, encoding="latin-1")
    assert ReadyFile(tmp_path / "ready", str).left_node == node
    assert not (tmp_path / "ready").exists()


def test_process_that_ended_in_good_order_leaves_no_node(tmp_path: Path) -> None:
    ready = ReadyFile(tmp_path / "ready", lambda: "zone_b")
    ready.tell("online", 7)
    ready.remove()
    assert ReadyFile(tmp_path / "ready", str).left_node == 0
