from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from marl_sched.errors import RunError
from marl_sched.search import Found, Scorer, SearchLog, SearchSpace, Weights, search

OPTIMUM = {"a": 1.3, "b": -0.7, "c": 0.2, "d": 2.0}
SPACE = SearchSpace(dict.fromkeys(OPTIMUM, (0.0, 1.0)), 200, 60, seed=3)
IDENTITY = {"experiment": "toy"}


def distance(weights: Weights) -> float:
    return sum((weights[name] - best) ** 2 for name, best in OPTIMUM.items())


def score(candidates: Sequence[Weights]) -> Iterable[float]:
    return map(distance, candidates)


def run(path: Path, space: SearchSpace = SPACE, scorer: Scorer = score) -> Found:
    return search(space, scorer, SearchLog(path, IDENTITY))


def test_finds_the_optimum_of_a_toy_objective(tmp_path: Path) -> None:
    found = run(tmp_path / "log")
    assert found.start_objective == pytest.approx(distance(dict.fromkeys(OPTIMUM, 0.0)))
    assert found.objective < 0.02 * found.start_objective
    assert found.objective == pytest.approx(distance(found.weights))
    assert found.n_evaluations == 200


def test_local_steps_are_better_than_random_search_alone(tmp_path: Path) -> None:
    random_only = SearchSpace(SPACE.priors, 200, 200, seed=3)
    assert run(tmp_path / "a").objective < 0.5 * run(tmp_path / "b", random_only).objective


@pytest.mark.parametrize("n_before", [1, 17, 103])
def test_interrupted_search_goes_on_to_the_same_result(tmp_path: Path, n_before: int) -> None:
    whole = run(tmp_path / "whole")
    n_scored = 0

    def interrupted(candidates: Sequence[Weights]) -> Iterator[float]:
        nonlocal n_scored
        for weights in candidates:
            if n_scored == n_before:
                raise KeyboardInterrupt
            n_scored += 1
            yield distance(weights)

    path = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt):
        run(path, scorer=interrupted)
    with path.open("a") as file:
        file.write('{"evaluation": 9')  # killed in the middle of a line

    def counted(candidates: Sequence[Weights]) -> Iterator[float]:
        nonlocal n_scored
        n_scored += len(candidates)
        yield from score(candidates)

    assert run(path, scorer=counted) == whole
    assert n_scored == 200
    assert path.read_bytes() == (tmp_path / "whole").read_bytes()


def test_finished_search_scores_nothing_again(tmp_path: Path) -> None:
    first = run(tmp_path / "log")

    def refuse(candidates: Sequence[Weights]) -> Iterable[float]:
        raise AssertionError(candidates)

    assert run(tmp_path / "log", scorer=refuse) == first


def test_log_of_another_configuration_is_refused_and_kept(tmp_path: Path) -> None:
    run(tmp_path / "log")
    before = (tmp_path / "log").read_bytes()
    with pytest.raises(RunError, match=r"another configuration .* delete the file"):
        SearchLog(tmp_path / "log", {"experiment": "other"})
    assert (tmp_path / "log").read_bytes() == before


def test_log_of_another_search_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "log")
    with pytest.raises(RunError, match="evaluation 1 has other weights"):
        run(tmp_path / "log", SearchSpace(SPACE.priors, 200, 60, seed=4))


def test_progress_counts_evaluations_and_never_gets_worse(tmp_path: Path) -> None:
    calls: list[tuple[int, int, float]] = []
    search(SPACE, score, SearchLog(tmp_path / "log", IDENTITY), lambda *call: calls.append(call))
    assert [call[0] for call in calls] == list(range(1, 201))
    best = [call[2] for call in calls]
    assert best == sorted(best, reverse=True)


@pytest.mark.parametrize("line", ["xx", "[1]", '{"evaluation": 1}', "\udcff"])
def test_line_that_is_no_evaluation_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log"
    run(path, SearchSpace(SPACE.priors, 4, 4, seed=3))
    lines = path.read_text().splitlines()
    lines[2] = line
    before = "\n".join([*lines, ""]).encode(errors="surrogateescape")
    path.write_bytes(before)
    with pytest.raises(RunError, match="line 3 is no evaluation"):
        SearchLog(path, IDENTITY)
    assert path.read_bytes() == before
