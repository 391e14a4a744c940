"""Runs jobs side by side, each in a process, until all are done or have failed."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from marl_sched.comparing.jobs import Job, tail

_POLL_S = 0.1
_SHARE_PERIOD_S = 2.0


class Process(Protocol):
    """What the runner needs of a process."""

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""

    @property
    def exit_code(self) -> int | None:
        """How it has ended; None while it runs."""

    def start(self) -> None:
        """Start it."""

    def describe_end(self) -> str:
        """Say how it has ended, in a line."""

    def sweep(self) -> None:
        """Kill whatever is left of it."""


@dataclass(frozen=True)
class Failure:
    """A job that failed, or was left out because the one it needs did.

    Attributes:
        job: Its name.
        reason: How it ended.
        lines: The last lines of its log.
    """

    job: str
    reason: str
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class State:
    """How far the jobs are.

    Attributes:
        n_done: Jobs that are done.
        n_jobs: Jobs in all.
        done_s: Work that is done, in estimated CPU seconds.
        running: Names of the running jobs.
    """

    n_done: int
    n_jobs: int
    done_s: float
    running: tuple[str, ...]


MakeProcess = Callable[[Job], Process]
EndAll = Callable[[Sequence[Process]], None]
Tell = Callable[[State], None]


class Runner:
    """Runs what is left of some jobs, `n_slots` at once, in their order."""

    def __init__(self, jobs: Sequence[Job], n_slots: int, make: MakeProcess, end: EndAll) -> None:
        """Get ready.

        Args:
            jobs: In the order of their importance; a job may need an earlier one.
            n_slots: How many run at once.
            make: Makes the process of a job.
            end: Ends processes, all at once.
        """
        self._jobs = list(jobs)
        self._n_slots = n_slots
        self._make = make
        self._end = end
        self._done = {job.name for job in jobs if job.is_done()}
        self._running: dict[str, tuple[Job, Process]] = {}
        self._failures: dict[str, Failure] = {}

    @property
    def left(self) -> list[Job]:
        """Jobs that are not done."""
        return [job for job in self._jobs if job.name not in self._done]

    def run(self, tell: Tell) -> list[Failure]:
        """Run all that is left; return what failed.

        Args:
            tell: Told every two seconds, and whenever a job has ended, how far it is.

        Raises:
            KeyboardInterrupt: Ctrl-C, after all processes have ended.
        """
        for job in self._jobs:
            if job.name in self._done:
                job.tidy()  # what was stopped between its end and this did not come to it
        with self._ended_at_last():
            next_s = 0.0
            while self._start_some() or self._running:
                has_changed = self._collect()
                if has_changed or time.monotonic() >= next_s:
                    tell(self.state())
                    next_s = time.monotonic() + _SHARE_PERIOD_S
                time.sleep(_POLL_S)
        return list(self._failures.values())

    def state(self) -> State:
        """Return how far the jobs are."""
        done_s = sum(job.cost_s for job in self._jobs if job.name in self._done)
        done_s += sum(job.cost_s * job.share() for job, _ in self._running.values())
        return State(len(self._done), len(self._jobs), done_s, tuple(self._running))

    def _start_some(self) -> bool:
        """Start jobs that may run while there are slots; return whether one was started."""
        was_started = False
        for job in self._waiting():
            if len(self._running) >= self._n_slots:
                break
            if failed := [name for name in job.needs if name in self._failures]:
                reason = f"left out: {', '.join(failed)} failed"
                self._failures[job.name] = Failure(job.name, reason)
                continue
            job.log.parent.mkdir(parents=True, exist_ok=True)
            process = self._make(job)
            process.start()
            self._running[job.name] = (job, process)
            was_started = True
        return was_started

    def _waiting(self) -> Iterator[Job]:
        """Yield jobs that wait for nothing but a slot, or for what has failed."""
        left = {job.name for job in self._jobs} - self._done
        for job in self._jobs:
            is_settled = job.name in self._done or job.name in self._failures
            if is_settled or job.name in self._running:
                continue
            has_failed = any(name in self._failures for name in job.needs)
            if has_failed or not left.intersection(job.needs):
                yield job

    def _collect(self) -> bool:
        """Take note of the processes that have ended; return whether there were any."""
        ended = [name for name, (_, process) in self._running.items() if not process.is_running]
        for name in ended:
            job, process = self._running.pop(name)
            process.sweep()
            if process.exit_code == 0 and job.is_done():
                self._done.add(name)
                job.tidy()
                continue
            reason = process.describe_end()
            self._failures[name] = Failure(name, reason, tail(job.log))
        return bool(ended)

    @contextmanager
    def _ended_at_last(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._end([process for _, process in self._running.values()])
