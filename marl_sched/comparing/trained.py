"""Trained policies, found in runs and in comparisons."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from marl_sched.comparing.folder import RUNS_FOLDER, STUDY_FILE, is_comparison
from marl_sched.comparing.study import load_study
from marl_sched.errors import CheckpointError, ConfigError, RunError
from marl_sched.run_folder import RunFolder

LEARNED = "learned"
"""What a policy is called that a run alone does not name."""


@dataclass(frozen=True)
class Trained:
    """A learned policy.

    Attributes:
        name: What tables call it.
        runs: Training seed -> folder of its run.
        agent: Overrides of `agent` that it decides with.
    """

    name: str
    runs: dict[int, Path]
    agent: tuple[str, ...] = ()


def trained_policies(paths: Sequence[Path]) -> list[Trained]:
    """Return the policies of runs, which are training seeds of one, and those of comparisons.

    Raises:
        ConfigError: A run or comparison is given twice, or two policies have one name.
        RunError: No such run, or a comparison without a trained policy.
    """
    for number, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:number]]:
            raise ConfigError(f"--run {path} is given twice, expected every run once")
        if not path.is_dir():
            raise RunError(f"{path}: no such run; make it: marl-sched train")
    runs = [path for path in paths if not is_comparison(path)]
    found = [Trained(LEARNED, dict(enumerate(runs, start=1)))] if runs else []
    for path in paths:
        if is_comparison(path):
            found += _compared(path)
    names = [one.name for one in found]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ConfigError(f"--run: two policies are called {name}, expected every name once")
    return found


def _compared(folder: Path) -> list[Trained]:
    """Return the policies of a comparison of which a run has published one."""
    found = [
        Trained(policy.name, runs, tuple(policy.evaluate))
        for policy in load_study(folder / STUDY_FILE).policies
        if (runs := dict(sorted(_seeds(folder / RUNS_FOLDER, policy.name))))
    ]
    if not found:
        raise RunError(f"{folder}: a comparison without a trained policy yet")
    return found


def _seeds(runs: Path, policy: str) -> Iterator[tuple[int, Path]]:
    for path in runs.glob(f"{policy}-*"):
        seed = path.name.removeprefix(f"{policy}-")
        if not (path.is_dir() and seed.isdigit()):
            continue
        try:
            RunFolder(path).policy_paths([])
        except CheckpointError:
            continue  # has published none yet
        yield int(seed), path
