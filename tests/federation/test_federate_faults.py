"""kill -9 of every kind of process in the middle of a run: it ends with all its rounds."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from federate_process import ZONES, Federate, experiment_of, federate

from federation.local_run import train

pytestmark = [pytest.mark.network, pytest.mark.processes]


def rounds_of(run: Federate) -> list[int]:
    return sorted({int(str(line["round"])) for line in run.lines("train")})


@pytest.mark.parametrize("number", [1, 3])
def test_zone_killed_in_mid_round_is_left_out_and_the_run_ends(tmp_path: Path, number: int) -> None:
    with federate(tmp_path / "run", experiment_of(rounds=5, episodes_per_round=8)) as run:
        run.wait_for_round(number)
        os.kill(run.wait_until_working("b"), signal.SIGKILL)
        assert run.wait() == 0, run.output
        assert rounds_of(run) == [1, 2, 3, 4, 5]
        lost = run.lines("lost")
        assert [line["zone"] for line in lost] == ["b"]
        again = [line for line in run.lines("train") if line["round"] == lost[0]["round"]]
        assert [(line["zone"], line["attempt"]) for line in again] == [("a", 2), ("c", 2)]
        assert f"lost zone b in round {lost[0]['round']}: " in run.output
        assert "zone-b died: killed by SIGKILL" in run.output


def test_killed_zone_comes_back_with_its_state(tmp_path: Path) -> None:
    with federate(tmp_path / "run", experiment_of(rounds=200, episodes_per_round=4)) as run:
        run.wait_for_round(2)
        os.kill(run.wait_until_working("b"), signal.SIGKILL)
        run.wait_for(lambda: len(run.events("joined")) > len(ZONES), "return")
        joined = run.events("joined")[-1]
        assert (joined["zone"], joined["epoch"]) == ("b", 2)
        run.wait_for_round(run.last_round + 1)
        last = [line for line in run.lines("train") if line["round"] == run.last_round]
        assert [line["zone"] for line in last] == ["a", "b", "c"]
        # Its learner went on from what it had saved: a new one would explore from the start.
        saved = sorted((run.folder / "checkpoints" / "zones" / "b").glob("state-*.npz"))
        assert saved
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
        assert run.nothing_is_left()


def test_killed_server_app_is_submitted_again_and_changes_no_byte(tmp_path: Path) -> None:
    experiment = experiment_of(rounds=6)
    train(experiment, tmp_path / "trained")
    with federate(tmp_path / "run", experiment) as run:
        run.wait_for_round(2)
        run.wait_until_working("a")
        os.kill(int(str(run.events("start")[-1]["pid"])), signal.SIGKILL)
        assert run.wait() == 0, run.output
        assert "the ServerApp is started again from the last checkpoint" in run.output
        assert len(run.events("start")) == 2
        expected = (tmp_path / "trained" / "metrics.jsonl").read_text()
        assert (run.folder / "metrics.jsonl").read_text() == expected


@pytest.mark.slow  # for a minute the SuperLink waits to hear of it
def test_server_app_that_hangs_is_killed_and_the_run_goes_on(tmp_path: Path) -> None:
    with federate(tmp_path / "run", experiment_of(rounds=6)) as run:
        run.wait_for_round(2)
        os.kill(int(str(run.events("start")[-1]["pid"])), signal.SIGSTOP)
        assert run.wait() == 0, run.output
        assert len(run.events("start")) == 2
        assert rounds_of(run) == [1, 2, 3, 4, 5, 6]
        assert run.nothing_is_left()


def test_killed_superlink_is_started_again_and_the_run_goes_on(tmp_path: Path) -> None:
    experiment = experiment_of(rounds=6)
    with federate(tmp_path / "run", experiment) as run:
        run.wait_for_round(2)
        run.wait_until_working("a")
        os.kill(run.pid_of("flower-superlink"), signal.SIGKILL)
        assert run.wait() == 0, run.output
        assert rounds_of(run) == list(range(1, 7))
        assert "superlink died: killed by SIGKILL" in run.output


LOSE_ONE_ORDER = """
CREATE TABLE orders_lost (message_id TEXT);
CREATE TRIGGER lose AFTER INSERT ON message_ins
WHEN NEW.message_type = 'train' AND NOT EXISTS (SELECT * FROM orders_lost)
BEGIN
    INSERT INTO orders_lost VALUES (NEW.message_id);
    UPDATE message_ins SET delivered_at = '2026-01-01T00:00:00+00:00'
    WHERE message_id = NEW.message_id;
END;
"""
"""In the SuperLink's database: the next order counts as delivered before its node has it."""


def test_order_that_is_lost_on_its_way_costs_its_zone_a_round(tmp_path: Path) -> None:
    experiment = experiment_of(rounds=12)
    federation = experiment.federation.model_copy(update={"grace_s": 5.0})
    experiment = experiment.model_copy(update={"federation": federation})
    with federate(tmp_path / "run", experiment) as run:
        run.wait_for_round(2)
        with closing(sqlite3.connect(run.folder / "federation" / "superlink.db")) as database:
            database.executescript(LOSE_ONE_ORDER)
        assert run.wait() == 0, run.output
        assert rounds_of(run) == list(range(1, 13))
        (lost,) = run.lines("lost")
        assert lost["reason"] == "no word of it for 5 s at step 0"
        again = [line for line in run.lines("train") if line["round"] == lost["round"]]
        others = [zone for zone in ZONES if zone != lost["zone"]]
        assert [(line["zone"], line["attempt"]) for line in again] == [(z, 2) for z in others]
        last = [line["zone"] for line in run.lines("train") if line["round"] == 12]
        assert last == list(ZONES)
