"""Who watches, and what they are told: one board for all, read only while somebody looks."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dashboard.baseline import Baseline
from dashboard.board import Board
from dashboard.page_metrics import PageMetrics
from dashboard.run_reader import RunReader

_logger = logging.getLogger(__name__)


class Watchers:
    """Reads a run for a bounded number of watchers."""

    def __init__(
        self, reader: RunReader, baseline: Baseline, poll_s: float = 0.5, most: int = 32
    ) -> None:
        """Wrap what is read.

        Args:
            reader: Of the run.
            baseline: Asked for once there is a configuration.
            poll_s: Time between two looks at the folder.
            most: Watchers at a time.
        """
        self.board = Board()
        self._reader = reader
        self._baseline = baseline
        self._poll_s = poll_s
        self._most = most
        self.metrics = PageMetrics()
        self._n_watching = 0
        self._reading = asyncio.Lock()
        self._looks: set[asyncio.Task[None]] = set()
        self._somebody = asyncio.Event()
        self._next = asyncio.Event()
        self.is_closed = False

    @property
    def has_room(self) -> bool:
        """Whether one more may watch."""
        return self._n_watching < self._most and not self.is_closed

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Be a watcher; the board is up to date when it begins."""
        self._n_watching += 1
        self.metrics.watchers(self._n_watching)
        self._somebody.set()
        try:
            await self.refresh()
            yield
        finally:
            self._n_watching -= 1
            self.metrics.watchers(self._n_watching)
            if self._n_watching == 0:
                self._somebody.clear()

    async def news(self, seen: int, longest_s: float) -> bool:
        """Wait until the board is newer than `seen`; return whether it is."""
        following = self._next
        if self.board.sequence == seen and not self.is_closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(following.wait(), longest_s)
        return self.board.sequence != seen

    async def refresh(self) -> None:
        """Read what is new; if that fails, the board stays as it is.

        A look is carried out to its end though the one who asked for it has gone: the reader does
        not tell a change twice.
        """
        look = asyncio.create_task(self._look())
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)
        await asyncio.shield(look)

    async def _look(self) -> None:
        try:
            await self._refresh()
        except Exception:  # a bug; the next look may be better
            _logger.exception("the run could not be read")
            self.metrics.look(self.board.last_change, is_broken=True)
        else:
            self.metrics.look(self.board.last_change)

    async def _refresh(self) -> None:
        async with self._reading:
            self._reader.baseline = self._baseline.result
            changes = await asyncio.to_thread(self._reader.poll)
            experiment, config = self._reader.experiment, self._reader.config_text
            if experiment is not None and config is not None and not self._reader.has_evaluation:
                n_episodes = experiment.training.validation_episodes
                await self._baseline.want(self._reader.folder / "config.yaml", config, n_episodes)
        if self.board.apply(changes, self._reader.last_change):
            self._tell()

    async def run(self) -> None:
        """Keep the board up to date while somebody watches; until cancelled."""
        while True:
            await self._somebody.wait()
            await self.refresh()
            await asyncio.sleep(self._poll_s)

    def close(self) -> None:
        """Send all watchers home."""
        self.is_closed = True
        self._tell()

    def _tell(self) -> None:
        following, self._next = self._next, asyncio.Event()
        following.set()
