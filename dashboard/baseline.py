"""Has kube-default played once for a configuration, by a child process at lowest priority."""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Any

from dashboard.following import finite, parse_object, text

_LONGEST_S = 1800.0
_LAST = 19
"""It takes what others leave of the processors."""
_MAX_METRICS = 200
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"), "1")


class Baseline:
    """kube-default on the validation episodes, kept in memory.

    Attributes:
        result: `state` is waiting (for a configuration), computing, ready (with `metrics`),
            unavailable (with `reason`) or off.
    """

    def __init__(self, is_wanted: bool = True, longest_s: float = _LONGEST_S) -> None:
        """Start nothing yet.

        Args:
            is_wanted: Whether to play at all.
            longest_s: After which a child is given up.
        """
        self.result: dict[str, Any] = {"state": "waiting" if is_wanted else "off"}
        self._is_wanted = is_wanted
        self._longest_s = longest_s
        self._config: bytes | None = None
        self._task: asyncio.Task[None] | None = None

    async def want(self, path: Path, config: bytes, n_episodes: int) -> None:
        """Have it played, unless it was for this very configuration."""
        if not self._is_wanted or config == self._config:
            return
        await self.close()
        self._config = config
        if n_episodes == 0:
            reason = "the configuration has no validation episodes"
            self.result = {"state": "unavailable", "reason": reason}
            return
        self.result = {"state": "computing"}
        self._task = asyncio.create_task(self._play(path))

    async def close(self) -> None:
        """End the child, if there is one."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _play(self, path: Path) -> None:
        try:
            async with asyncio.timeout(self._longest_s):
                self.result = await _play(path)
        except TimeoutError:
            self.result = _unavailable(f"it took longer than {self._longest_s:g} s")
        except OSError as error:
            self.result = _unavailable(str(error.strerror or error))


async def _play(path: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dashboard.kube_default",
        str(path),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={**os.environ, **_ONE_THREAD},
    )
    try:
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _LAST)
        assert process.stdout is not None
        # Its stdin stays open: it ends when that is closed.
        output = await process.stdout.read()
        code = await process.wait()
    finally:
        await _end(process)
    return read_answer(output, code)


async def _end(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def read_answer(output: bytes, code: int) -> dict[str, Any]:
    """Return the result of what a child has said, and how it ended."""
    answer = parse_object(output)
    if answer is None:
        return _unavailable(f"its process ended with {code}")
    metrics = answer.get("metrics")
    if not isinstance(metrics, dict):
        return _unavailable(text(answer.get("reason")) or "no answer")
    figures = {text(name, 80): finite(value) for name, value in metrics.items()}
    kept = {name: value for name, value in figures.items() if value is not None}
    if not kept:
        return _unavailable("no answer")
    return {"state": "ready", "metrics": dict(list(kept.items())[:_MAX_METRICS])}


def _unavailable(reason: str) -> dict[str, Any]:
    return {"state": "unavailable", "reason": reason}
