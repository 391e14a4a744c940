"""Shipped calibrations, and one large draw of each that many tests look at."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from marl_sched.workload.generation.calibration import Calibration
from marl_sched.workload.generation.comparison import Sample, samples
from marl_sched.workload.generation.jobs import generate
from marl_sched.workload.traces.tasks import TaskTable


@dataclass(frozen=True)
class Drawn:
    """A calibration, jobs drawn from it, and what they hold of each quantity."""

    calibration: Calibration
    table: TaskTable
    found: dict[str, Sample]
    horizon_s: int


def _draw(name: str, horizon_s: int) -> Drawn:
    calibration = Calibration.load(name)
    generator = np.random.default_rng(20)
    table = generate(calibration, horizon_s, generator)
    return Drawn(calibration, table, samples(table, generator, most_instances=24), horizon_s)


@pytest.fixture(scope="session")
def alibaba() -> Drawn:
    """15 hours at the trace's own rate: 0.9 million tasks."""
    return _draw("alibaba-v2018", 54_000)


@pytest.fixture(scope="session")
def openb() -> Drawn:
    """200 days at the trace's own rate: 50 thousand pods."""
    return _draw("openb", 200 * 86_400)


@pytest.fixture(scope="session")
def public_traces() -> Path:
    """Return the folder of the public traces' files; skip where it is absent."""
    default = Path(__file__).parents[4] / "shared" / "traces"
    folder = Path(os.environ.get("MARL_SCHED_TRACES", default))
    if not folder.is_dir():
        pytest.skip(f"no public traces in {folder}: name their folder in MARL_SCHED_TRACES")
    return folder
