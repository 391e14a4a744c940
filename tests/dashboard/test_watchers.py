import asyncio
import json
import threading
from pathlib import Path

from run_files import RunFiles
from served import BOUND_S

from dashboard.baseline import Baseline
from dashboard.run_reader import RunReader
from dashboard.watchers import Watchers


class SlowReader(RunReader):
    """A reader that is held up until it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()
        self.n_at_once = 0
        self.most_at_once = 0

    def poll(self) -> dict[str, bytes | None]:
        self.n_at_once += 1
        self.most_at_once = max(self.most_at_once, self.n_at_once)
        self.has_begun.set()
        assert self.may_go_on.wait(BOUND_S)
        try:
            return super().poll()
        finally:
            self.n_at_once -= 1


def test_what_was_read_for_one_who_has_left_is_told_to_the_next(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run").create()
    run.show("zone_1", n_waiting=12)
    reader = SlowReader(run.folder)

    async def leave_and_come_back() -> bytes:
        watchers = Watchers(reader, Baseline(is_wanted=False))
        leaving = asyncio.create_task(watchers.refresh())
        await asyncio.to_thread(reader.has_begun.wait, BOUND_S)
        leaving.cancel()
        coming = asyncio.create_task(watchers.refresh())
        await asyncio.sleep(0)
        reader.may_go_on.set()
        await coming
        return watchers.board.message(since=0)

    found = json.loads(asyncio.run(leave_and_come_back()))
    assert found["sections"]["zone:zone_1"]["n_waiting"] == 12
    assert reader.most_at_once == 1
