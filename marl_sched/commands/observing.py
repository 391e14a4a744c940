"""What watches a run from outside: Prometheus and TensorBoard, as the options of a command say."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from federation.run_metrics import RunMetrics
from marl_sched.config import Experiment
from marl_sched.tensorboard_log import TensorBoardLog
from zones.metrics_server import MetricsServer, process_registry

Note = Callable[[Mapping[str, Any]], None]
"""Told the events of a run, as they stand in events.jsonl."""

MetricsOption = Annotated[
    str,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve Prometheus metrics at http://HOST:PORT/metrics; default: nowhere.",
        show_default=False,
    ),
]
TensorBoardOption = Annotated[
    bool,
    typer.Option("--tensorboard", help="Write TensorBoard files to RUN/tensorboard too."),
]


@contextmanager
def observed(
    experiment: Experiment, folder: Path, metrics: str, tensorboard: bool
) -> Iterator[Note]:
    """Serve and write what was asked for while a run goes on.

    Args:
        experiment: What runs.
        folder: The run's folder; it need not exist yet.
        metrics: HOST:PORT to serve Prometheus metrics at; empty: nowhere.
        tensorboard: Whether to write TensorBoard files.

    Yields:
        What the run's events are told to.

    Raises:
        RunError: The port is taken.
        ConfigError: TensorBoard is not installed.
    """
    notes: list[Note] = []
    with ExitStack() as stack:
        if metrics:
            registry = process_registry()
            notes.append(RunMetrics(registry, experiment.name, experiment.training.rounds).note)
            stack.enter_context(MetricsServer(metrics, registry))
        if tensorboard:
            log = stack.enter_context(TensorBoardLog(folder))
            notes.append(lambda event: log.update() if event["kind"] == "round" else None)

        def note(event: Mapping[str, Any]) -> None:
            for one in notes:
                one(event)

        yield note
