"""A run's metrics as TensorBoard event files, for those who have TensorBoard installed."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from marl_sched.errors import ConfigError
from marl_sched.run_folder import RunFolder

FOLDER = "tensorboard"
_PLACE = {"kind", "round", "attempt", "zone"}


class TensorBoardLog:
    """Follows RUN/metrics.jsonl and writes its numbers to RUN/tensorboard, a tag a zone and metric.

    Tags are `ZONE/METRIC` for the lines of zones and `validation/METRIC` for validations, steps are
    rounds. A resumed run begins another file with all rounds; of two, TensorBoard shows the last.
    """

    def __init__(self, run: Path) -> None:
        """Begin with what the run has written so far; nothing is written before there is a line.

        Raises:
            ConfigError: TensorBoard is not installed.
        """
        try:
            from tensorboard.summary import Writer  # an optional extra
        except ImportError:
            raise ConfigError(
                "--tensorboard: TensorBoard is not installed, expected "
                "`pip install 'marl-sched[tensorboard]'`"
            ) from None
        self._metrics = RunFolder(run).metrics_path
        self._position = 0
        self._open: Callable[[], Any] = partial(Writer, str(run / FOLDER))
        self._writer: Any = None

    def update(self) -> None:
        """Write what is new in metrics.jsonl."""
        if not self._metrics.exists():
            return
        with self._metrics.open("rb") as file:
            file.seek(self._position)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        if not whole:
            return
        self._position += len(whole)
        self._writer = self._writer or self._open()
        for text in whole.splitlines():
            self._write(json.loads(text))
        self._writer.flush()

    def close(self) -> None:
        """Write the rest and close the files."""
        self.update()
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Self:
        """Return the log."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _write(self, line: dict[str, Any]) -> None:
        where = line.get("zone", line["kind"])
        for name, value in line.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and name not in _PLACE:
                self._writer.add_scalar(f"{where}/{name}", value, step=line["round"])
