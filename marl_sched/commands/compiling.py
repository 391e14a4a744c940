"""`marl-sched compile`: every kernel is compiled once and kept."""

import tempfile
import time
from pathlib import Path

import typer

from federation.exchange_checks import load_kernels
from federation.local_run import train
from marl_sched import kernel_cache
from marl_sched.config import Experiment
from marl_sched.workload.raw.convert import Conversion, convert


def compile_kernels() -> None:
    """Compile the kernels of simulator, learner and exchange, if they are not yet.

    Examples:
        marl-sched compile
    """
    if not kernel_cache.is_cold():
        typer.echo(f"kernels are compiled already: {kernel_cache.CACHE_FOLDER}")
        return
    typer.echo("compiling kernels, once, about a minute ...", err=True)
    start = time.monotonic()
    # Whatever a training run meets is compiled, with the types it meets there.
    with tempfile.TemporaryDirectory() as folder:
        train(_tiny(), Path(folder) / "run")
        _convert_tiny(Path(folder))
    load_kernels()
    kernel_cache.mark_warm()
    typer.echo(
        f"compiled in {time.monotonic() - start:.0f} s: {kernel_cache.CACHE_FOLDER}", err=True
    )


def _convert_tiny(folder: Path) -> None:
    """Convert a trace of one job of two tasks."""
    rows = ["M1,1,j_1,1,Terminated,10,20,100,0.5", "R2_1,1,j_1,1,Terminated,20,30,100,0.5"]
    (folder / "batch_task.csv").write_text("\n".join(rows), encoding="utf-8")
    convert(
        Conversion("alibaba-v2018", (str(folder / "batch_task.csv"),), folder / "tasks.parquet")
    )


def _tiny() -> Experiment:
    """Return two zones of two machines that play half a minute and learn twice."""
    capacity = {"cpu_milli": 4000, "memory_mib": 8192}
    task_type = {
        "name": "any",
        "request": {"cpu_milli": 1000, "memory_mib": 1024},
        "mean_s": 5.0,
        "sigma": 0.5,
        "use": {name: {"mean": 0.5, "sd": 0.1} for name in capacity},
        "finish_slack": 3.0,
    }
    stream = {"name": "all", "arrivals": {"kind": "modulated-poisson"}}
    return Experiment.model_validate(
        {
            "version": 1,
            "name": "tiny",
            "zones": [
                {"name": name, "machines": [{"count": 2, "capacity": capacity}]}
                for name in ("zone_0", "zone_1")
            ],
            "workload": {
                "kind": "synthetic",
                "load": 0.9,
                "task_types": [task_type],
                "streams": [stream],
            },
            "episode": {"horizon_s": 60.0, "drain_s": 20.0},
            "agent": {"warmup_decisions": 10, "decisions_per_update": 20, "batch_size": 8},
            "training": {"replicas": 2, "rounds": 1, "validation_episodes": 1},
        }
    )
