"""Statistics of instances are those of numpy, in memory and by way of the disk."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marl_sched.workload.raw import instance_statistics
from marl_sched.workload.raw.instance_statistics import InstanceStatistics, TaskStatistics

CODES = (0, 5, 2**63, 2**64 - 1)
"""Tasks: the least code, the largest, and some between."""
Row = tuple[int, int, int | None]
BLOCKS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(CODES),
            st.integers(0, 40_000),
            st.one_of(st.none(), st.integers(0, 2**33)),
        ),
        max_size=30,
    ),
    max_size=4,
)


def collected(blocks: list[list[Row]], folder: Path) -> list[TaskStatistics]:
    statistics = InstanceStatistics(folder)
    for block in blocks:
        use = pl.Series([row[2] for row in block], dtype=pl.Int64)
        statistics.add(
            pl.DataFrame(
                {
                    "task": pl.Series([row[0] for row in block], dtype=pl.UInt64),
                    "duration_ms": pl.Series([row[1] for row in block], dtype=pl.Int64),
                    "cpu": use,
                    "memory": use * 2,
                }
            )
        )
    return list(statistics.parts())


def check(blocks: list[list[Row]], parts: list[TaskStatistics]) -> None:
    """Compare with numpy's statistics of each task."""
    rows = [row for block in blocks for row in block]
    tasks = np.concatenate([part.task for part in parts]) if parts else np.zeros(0)
    assert tasks.tolist() == sorted({row[0] for row in rows})
    for part in parts:
        first, last = part.codes
        for i, task in enumerate(part.task.tolist()):
            assert first <= task <= last
            duration = np.array([ms for code, ms, _ in rows if code == task])
            use = [use for code, _, use in rows if code == task and use is not None]
            assert part.n[i] == len(duration)
            assert part.n_with_use[i] == len(use)
            expected = [duration.mean(), *np.percentile(duration, (50, 95)), duration.max()]
            np.testing.assert_allclose(part.duration_ms[i], expected, atol=0.500001)
            if use:
                np.testing.assert_allclose(part.cpu[i], [np.mean(use), max(use)], rtol=1e-12)
                np.testing.assert_allclose(part.memory[i], part.cpu[i] * 2, rtol=1e-12)


@given(blocks=BLOCKS)
@settings(max_examples=100, deadline=None)
def test_statistics_are_numpys(blocks: list[list[Row]]) -> None:
    with TemporaryDirectory() as folder:
        check(blocks, collected(blocks, Path(folder)))


@given(blocks=BLOCKS, limit=st.integers(2, 70))
@settings(max_examples=60, deadline=None)
def test_what_memory_does_not_hold_goes_by_way_of_the_disk(
    blocks: list[list[Row]], limit: int
) -> None:
    patch = pytest.MonkeyPatch()
    with TemporaryDirectory() as folder, patch.context() as context:
        context.setattr(instance_statistics, "_MOST_ROWS", limit)
        context.setattr(instance_statistics, "_ROW_GROUP", 2)
        check(blocks, collected(blocks, Path(folder)))
        assert not list(Path(folder).iterdir())


def test_scratch_is_used_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_statistics, "_MOST_ROWS", 4)
    statistics = InstanceStatistics(tmp_path)
    frame = pl.DataFrame(
        {
            "task": pl.Series(range(5), dtype=pl.UInt64),
            "duration_ms": [1] * 5,
            "cpu": [1] * 5,
            "memory": [1] * 5,
        }
    )
    statistics.add(frame)
    assert [path.name for path in tmp_path.iterdir()] == ["instances-0.parquet"]
    assert sum(len(part.task) for part in statistics.parts()) == 5
