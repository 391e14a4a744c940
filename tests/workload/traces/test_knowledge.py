from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from marl_sched.errors import TraceError
from marl_sched.workload.traces.knowledge import LEAST_TASKS, Knowledge
from marl_sched.workload.traces.knowledge import learn as learn_from
from marl_sched.workload.traces.source import TraceFile


def seconds(value: int) -> dict[str, Any]:
    return {f"duration_{name}_ms": 1000 * value for name in ("mean", "p50", "p95", "max")}


@pytest.fixture
def path(write_trace: Callable[[list[dict[str, Any]]], str]) -> str:
    """100 s of training: short small tasks and long large ones, a rare kind; then other ones."""
    rows = []
    for second in range(100):
        kind = {"request:cpu_milli": 500} | seconds(4 if second % 4 else 8)
        if second % 2 == 0:
            kind = {"request:cpu_milli": 2000, "use_mean:cpu_milli": 1800.0} | seconds(100)
        if second % 50 == 0:
            kind = {"request:cpu_milli": 500, "request:memory_mib": 31_457} | seconds(40)
        rows.append({"job": second, "arrival_s": second, "n_instances": 1} | kind)
    for second in range(100, 120):
        kind = {"request:cpu_milli": 500 if second % 2 else 7000} | seconds(1000)
        rows.append({"job": second, "arrival_s": second, "n_instances": 1} | kind)
    return write_trace(rows)


def learn(path: str, start_s: float, end_s: float, kind: str) -> Knowledge:
    return learn_from(TraceFile(path), start_s, end_s, kind)


def test_class_statistics_are_those_of_training_tasks_alike(path: str) -> None:
    known = learn(path, 0.0, 100.0, "type")
    small, large = 1, 2
    assert known.mean_s[small] == pytest.approx(4.0)
    assert known.mean_s[large] == pytest.approx(100.0)
    assert known.use_share[large, 0] == pytest.approx(0.9)
    assert known.task_class[small] != known.task_class[large]


def test_test_arrivals_teach_nothing(path: str) -> None:
    known = learn(path, 0.0, 100.0, "type")
    alike = 101  # a small task of 1000 s
    assert known.mean_s[alike] == pytest.approx(4.0)
    assert known.task_class[alike] == known.task_class[1]


def test_rare_class_gives_way_to_a_coarser_one(path: str) -> None:
    known = learn(path, 0.0, 100.0, "type")
    rare = 0  # small cpu, much memory: 2 tasks, fewer than a class needs
    assert LEAST_TASKS > 2
    assert known.mean_s[rare] == pytest.approx((50 * 4 + 2 * 40) / 52)


def test_unseen_request_gets_the_mean_of_all(path: str) -> None:
    known = learn(path, 0.0, 100.0, "type")
    everything = learn(path, 0.0, 100.0, "none")
    unseen = 100  # 7 cores
    assert known.mean_s[unseen] == everything.mean_s[0]
    assert known.task_class[unseen] == 0


def test_none_is_one_guess_with_the_spread_of_all(path: str) -> None:
    known = learn(path, 0.0, 100.0, "none")
    durations = np.array([4.0] * 50 + [100.0] * 48 + [40.0] * 2)
    assert known.mean_s == pytest.approx(np.full(120, durations.mean()))
    assert known.sigma[0] == pytest.approx(
        np.sqrt(np.log(np.mean(durations**2) / durations.mean() ** 2))
    )


def test_task_mean_is_the_tasks_own(path: str) -> None:
    known = learn(path, 0.0, 100.0, "task-mean")
    assert known.mean_s[[0, 1, 2, 100]].tolist() == [40.0, 4.0, 100.0, 1000.0]
    assert known.sigma[1] == 0.0


def test_training_range_without_tasks_is_refused(path: str) -> None:
    with pytest.raises(TraceError, match=r"train_arrivals_s = \[500.0, 900.0\).*span \[0, 119\]"):
        learn(path, 500.0, 900.0, "type")
