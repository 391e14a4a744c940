import numpy as np
import pytest
from numpy.typing import NDArray

from marl_sched.config.streams import named_stream
from marl_sched.workload.traces.expansion import expand_durations, expand_use, second_moment

# mean, p50, p95, max
STATISTICS = np.array(
    [
        [10.0, 9.0, 15.0, 20.0],
        [5.0, 5.0, 5.0, 5.0],
        [30.0, 4.0, 100.0, 600.0],
        [6.0, 6.0, 7.0, 8.0],
    ]
)


def split(values: NDArray[np.float64], counts: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    return np.split(values, np.cumsum(counts)[:-1])


def test_every_task_keeps_its_mean() -> None:
    counts = np.array([41, 7, 300, 2])
    durations = expand_durations(STATISTICS, counts, named_stream(1, "a"))
    means = [part.mean() for part in split(durations, counts)]
    assert means == pytest.approx(STATISTICS[:, 0])


def test_quantiles_are_met_where_the_mean_allows() -> None:
    counts = np.array([41])
    durations = expand_durations(STATISTICS[:1], counts, named_stream(1, "a"))
    assert np.percentile(durations, [50, 95, 100]) == pytest.approx([9.0, 15.0, 20.0])


def test_a_single_instance_has_the_mean() -> None:
    durations = expand_durations(STATISTICS, np.ones(4, np.int64), named_stream(1, "a"))
    assert durations.tolist() == STATISTICS[:, 0].tolist()


def test_durations_stay_positive_for_a_skewed_task() -> None:
    durations = expand_durations(STATISTICS[2:3], np.array([500]), named_stream(1, "a"))
    assert durations.min() > 0
    assert durations.max() > 10 * np.median(durations)


def test_order_within_a_task_says_nothing_of_the_length() -> None:
    counts = np.array([400, 400])
    durations = expand_durations(STATISTICS[[0, 2]], counts, named_stream(1, "a"))
    for part in split(durations, counts):
        assert abs(np.corrcoef(np.arange(400), part)[0, 1]) < 0.15


def test_no_tasks_give_no_instances() -> None:
    none = np.zeros(0, np.int64)
    assert len(expand_durations(np.zeros((0, 4)), none, named_stream(1, "a"))) == 0
    assert len(expand_use(np.zeros((0, 2)), none, named_stream(1, "a"))) == 0


def test_use_keeps_its_mean_and_nears_its_maximum() -> None:
    counts = np.array([200, 1, 50, 3])
    statistics = np.array([[0.5, 0.9], [0.7, 0.7], [0.0, 0.0], [0.2, 0.2]])
    parts = split(expand_use(statistics, counts, named_stream(1, "a")), counts)
    assert [part.mean() for part in parts] == pytest.approx([0.5, 0.7, 0.0, 0.2])
    assert parts[0].max() == pytest.approx(0.9, rel=0.02)
    assert parts[3].tolist() == pytest.approx([0.2, 0.2, 0.2])


def test_second_moment_is_that_of_many_instances() -> None:
    counts = np.full(4, 20_001)
    durations = expand_durations(STATISTICS, counts, named_stream(1, "a"))
    squares = [np.mean(part**2) for part in split(durations, counts)]
    assert second_moment(STATISTICS, counts) == pytest.approx(squares, rel=0.01)


def test_second_moment_of_one_instance_is_its_square() -> None:
    assert second_moment(STATISTICS[:1], np.array([1])).tolist() == [100.0]
