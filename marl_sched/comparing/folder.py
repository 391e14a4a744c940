"""The folder of a comparison, told from that of a run."""

from pathlib import Path

from marl_sched.errors import RunError

STUDY_FILE = "study.yaml"
"""Written before the first job: from then on a folder is that of a comparison."""
RUNS_FOLDER = "runs"
"""Trainings, below the folder of their comparison."""


def is_comparison(folder: Path) -> bool:
    """Return whether a folder is that of a comparison, be it finished or not."""
    return (folder / STUDY_FILE).is_file()


def refuse_comparison(folder: Path) -> None:
    """Check that what is to be a run is not a whole comparison.

    Raises:
        RunError: It is one; the message names its runs.
    """
    if not is_comparison(folder):
        return
    runs = folder / RUNS_FOLDER
    found = sorted(path.parent.name for path in runs.glob("*/config.yaml"))
    shown = ", ".join(found[:6]) + (", ..." if len(found) > 6 else "")
    raise RunError(
        f"{folder}: a comparison of many runs (see {folder / 'report.md'}), expected one of those "
        f"in {runs}: {shown or 'none has begun yet'}"
    )
