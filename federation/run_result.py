"""What a run has left behind, for those who start one."""

from dataclasses import dataclass
from pathlib import Path

from marl_sched.run_folder import Checkpoint


@dataclass(frozen=True)
class RunResult:
    """What a run left behind.

    Attributes:
        folder: The run's folder.
        rounds: Rounds committed.
        is_finished: Whether all rounds and the last validation are done; else resume it.
        best_round: Round of the published policy; 0 before the first validation.
        objective: Its validation objective; None if nothing was scored.
    """

    folder: Path
    rounds: int
    is_finished: bool
    best_round: int
    objective: float | None


def result_of(path: Path, committed: Checkpoint | None) -> RunResult:
    """Return what a run has left in a folder, given its last checkpoint."""
    if committed is None:
        return RunResult(path, 0, False, 0, None)
    best = committed.best
    return RunResult(
        folder=path,
        rounds=committed.round_number,
        is_finished=committed.is_finished,
        best_round=int(best.get("round", 0)),
        objective=best.get("objective"),
    )


def describe(result: RunResult) -> str:
    """Say what a run has reached, in a line."""
    rounds = "1 round" if result.rounds == 1 else f"{result.rounds} rounds"
    if result.objective is None:
        return f"{rounds}, none validated"
    return (
        f"{rounds}, best round {result.best_round} with a validation objective of "
        f"{result.objective:.4f}"
    )
