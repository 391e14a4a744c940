"""A trace's published figures, and the generator's parameters that were fitted to them.

The file is JSON; `python -m marl_sched.workload.generation.fit` makes it. `Calibration.load` takes
the name of one that ships with the package or a path. Z normal scores, D critical path (tasks), C
columns of a task.
"""

from importlib.resources import files
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError, model_validator

from marl_sched.errors import TraceError
from marl_sched.workload.generation.arrivals import ArrivalModel
from marl_sched.workload.generation.margins import Margin
from marl_sched.workload.table import Float

SHAPE, DURATION, SPREAD, TAIL, MIDDLE = "shape", "duration_s", "spread", "tail", "middle"
"""Columns of a task: row of `shapes`; mean; maximum over mean; (p95 - mean) / (maximum - mean);
p50 over mean. The last three are absent where tasks have one instance."""
USE, PEAK = "use:", "peak:"
"""Prefixes of a resource: mean real use of the task's instances; maximum over mean."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DagModel(_Part):
    """Jobs' tasks and the edges between them.

    A task's level is the critical path less the longest way from it to a leaf: the last level holds
    all leaves, and every other task has a child in the level after its own.
    """

    n_tasks: Margin
    critical_path: tuple[Margin, ...]
    """Of jobs with 2, 3, ... tasks; the last stands for all larger jobs."""
    extra_level: tuple[tuple[float, ...], ...]
    """Shares of the levels 1 .. D among the tasks beyond the first of each level, for D = 2, 3,
    ...; levels of longer critical paths are equally likely."""
    n_children: tuple[tuple[float, ...], ...]
    """Shares of 1, 2, ... children of a task with 1, 2, ... levels below it; the last row stands
    for all with more."""


class TaskClass(_Part):
    """Tasks that are drawn alike: of similar size, or of one kind.

    Its columns do not depend on the number of instances within the class, so their distribution
    over its instances is that over its tasks.
    """

    name: str
    upper_score: float
    """Tasks whose size score is at or below, and above that of the class before, belong to it."""
    margins: dict[str, Margin]
    """In the order of the columns of `mixing`."""
    mixing: tuple[tuple[float, ...], ...]
    """(C, C) lower triangular; times independent normals, it gives the columns' scores."""

    @model_validator(mode="after")
    def _check(self) -> "TaskClass":
        shape = np.shape(self.mixing) if self.mixing else (0, 0)
        if shape != (len(self.margins),) * 2:
            raise ValueError(f"mixing of shape {shape}, expected {(len(self.margins),) * 2}")
        return self


class Published(_Part):
    """A quantity as published: its quantiles."""

    unit: str
    step: float
    """Measuring step: values are multiples of it."""
    shares: tuple[float, ...]
    quantiles: tuple[float, ...]


class Calibration(_Part):
    """Everything the generator needs to know of a trace."""

    name: str
    source: str
    """Origin of the published figures."""
    method: str
    """How the parameters were made of them."""
    resolution_us: PositiveInt = 1_000_000
    reference: dict[str, PositiveInt]
    """The trace's largest machine; its keys are the resources, cpu and memory first."""
    arrivals: ArrivalModel
    dag: DagModel
    n_instances: Margin
    classes: tuple[TaskClass, ...]
    alike_size: float
    """Share of the variance of the size score that tasks of one job have in common."""
    alike: dict[str, float]
    """Likewise for each of the independent normals behind the columns."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Requests of each shape and, last, its priority; empty where requests are columns."""
    published: dict[str, Published]
    dispersion: dict[int, float]
    """Index of dispersion of the trace's counts, by seconds."""
    correlations: dict[str, float]
    """Spearman's, over the trace's tasks; keys are two quantities, `a ~ b`."""
    stragglers: dict[str, float]
    """Quantiles of longest over mean instance of a task of the trace, by share."""

    @model_validator(mode="after")
    def _check(self) -> "Calibration":
        uppers = [part.upper_score for part in self.classes]
        if not uppers or uppers != sorted(uppers):
            raise ValueError(f"upper_score of the classes = {uppers}, expected them ascending")
        for part in self.classes:
            names = set(part.margins)
            requests = {SHAPE} if SHAPE in names else set(self.reference)
            spread = {SPREAD, TAIL, MIDDLE}
            missing = (requests | {DURATION} | (spread if names & spread else set())) - names
            missing |= names - set(self.alike)
            if missing:
                raise ValueError(
                    f"class {part.name}: {sorted(missing)} missing in margins or alike"
                )
            if SHAPE in names and max(part.margins[SHAPE].values) >= len(self.shapes):
                raise ValueError(f"class {part.name}: a shape beyond the {len(self.shapes)} shapes")
        if any(len(shape) != len(self.reference) + 1 for shape in self.shapes):
            raise ValueError("a shape without one number a resource, and a priority")
        return self

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources."""
        return tuple(self.reference)

    @classmethod
    def load(cls, name: str | Path) -> "Calibration":
        """Read a calibration: the name of one of `shipped()`, or a path.

        Raises:
            TraceError: There is no such calibration, or it is not valid; names file and value.
        """
        path = _folder() / f"generator-{name}.json" if name in shipped() else Path(name)
        if not path.is_file():
            raise TraceError(
                f"{name}: no such calibration, expected a file or one of {list(shipped())}"
            )
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise TraceError(f"{path}: {where}: {problem['msg']}") from None


def shipped() -> tuple[str, ...]:
    """Return the names of the calibrations that come with the package."""
    names = (file.stem.removeprefix("generator-") for file in _folder().glob("generator-*.json"))
    return tuple(sorted(names))


def mixing(task_class: TaskClass) -> Float:
    """Return (C, C) a class's mixing matrix."""
    return np.array(task_class.mixing)


def _folder() -> Path:
    return Path(str(files("marl_sched"))) / "data"
