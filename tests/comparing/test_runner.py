"""The runner with jobs and processes of paper."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from marl_sched.comparing import runner
from marl_sched.comparing.runner import Runner, State


@dataclass
class PaperJob:
    name: str
    log: Path
    needs: tuple[str, ...] = ()
    fails: bool = False
    cost_s: float = 1.0
    ran: list[str] = field(default_factory=list)
    done: bool = False

    def is_done(self) -> bool:
        return self.done

    def share(self) -> float:
        return 0.5

    def command(self) -> list[str]:
        return [self.name]

    def tidy(self) -> None:
        assert self.done


class PaperProcess:
    """Runs for two looks."""

    def __init__(self, job: PaperJob, journal: list[str]) -> None:
        self._job, self._journal, self._looks = job, journal, 0
        self.exit_code: int | None = None
        self.was_ended = False

    @property
    def is_running(self) -> bool:
        self._looks += 1
        if self._looks > 2 and self.exit_code is None:
            self.exit_code = 1 if self._job.fails else 0
            self._job.done = not self._job.fails
            self._journal.append(f"end {self._job.name}")
        return self.exit_code is None

    def start(self) -> None:
        self._journal.append(f"start {self._job.name}")
        self._job.log.write_text("first\n\nlast word\n")

    def describe_end(self) -> str:
        return f"exit code {self.exit_code}"

    def sweep(self) -> None:
        pass


class Bench:
    """A runner on paper."""

    def __init__(self, jobs: list[PaperJob], slots: int) -> None:
        self.journal: list[str] = []
        self.ended: list[PaperProcess] = []
        self.runner = Runner(
            jobs, slots, lambda job: PaperProcess(job, self.journal), self.ended.extend
        )


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_POLL_S", 0.0)


def nothing(_: State) -> None:
    pass


def test_job_starts_after_the_one_it_needs(tmp_path: Path) -> None:
    jobs = [PaperJob("play", tmp_path / "p", needs=("train",)), PaperJob("train", tmp_path / "t")]
    bench = Bench(jobs, 2)
    assert bench.runner.run(nothing) == []
    assert bench.journal == ["start train", "end train", "start play", "end play"]


def test_no_more_jobs_run_at_once_than_there_are_slots(tmp_path: Path) -> None:
    bench = Bench([PaperJob(f"j{n}", tmp_path / f"{n}") for n in range(5)], 2)
    most = 0

    def note(state: State) -> None:
        nonlocal most
        most = max(most, len(state.running))

    bench.runner.run(note)
    running = levels = 0
    for line in bench.journal:
        running += 1 if line.startswith("start") else -1
        levels = max(levels, running)
    assert levels == 2
    assert most <= 2


def test_failed_job_is_named_with_its_last_lines_and_the_others_go_on(tmp_path: Path) -> None:
    jobs = [
        PaperJob("train", tmp_path / "t", fails=True),
        PaperJob("play", tmp_path / "p", needs=("train",)),
        PaperJob("other", tmp_path / "o"),
    ]
    bench = Bench(jobs, 1)
    failures = {failure.job: failure for failure in bench.runner.run(nothing)}
    assert failures["train"].reason == "exit code 1"
    assert failures["train"].lines == ["first", "last word"]
    assert failures["play"].reason == "left out: train failed"
    assert "end other" in bench.journal
    assert "start play" not in bench.journal


def test_what_is_done_is_not_run_again(tmp_path: Path) -> None:
    bench = Bench([PaperJob("a", tmp_path / "a", done=True), PaperJob("b", tmp_path / "b")], 1)
    bench.runner.run(nothing)
    assert bench.journal == ["start b", "end b"]


def test_interrupt_ends_the_processes_that_run(tmp_path: Path) -> None:
    bench = Bench([PaperJob("a", tmp_path / "a"), PaperJob("b", tmp_path / "b")], 2)

    def interrupt(_: State) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.runner.run(interrupt)
    assert len(bench.ended) == 2


def test_state_counts_the_share_of_running_jobs(tmp_path: Path) -> None:
    done = PaperJob("a", tmp_path / "a", done=True, cost_s=10.0)
    bench = Bench([done, PaperJob("b", tmp_path / "b", cost_s=4.0)], 1)
    states: list[State] = []
    bench.runner.run(states.append)
    assert states[0] == State(1, 2, 12.0, ("b",))
