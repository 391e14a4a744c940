"""What a zone keeps between rounds, on disk: learner states and, if it has its own, policies.

    state-00004.npz    replay, optimizer, networks, generator, counters after round 4
    policy-00004.npz   the zone's own averaged network, where not all of it is shared

No simulator state is kept: no episode crosses a round. Files are replaced in one step and hold no
pickles.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from marl_sched.agents.storage import read_arrays, write_arrays
from marl_sched.errors import CheckpointError

_KIND = "zone state"

Arrays = Mapping[str, NDArray[Any]]


def save_state(path: Path, zone: str, round_number: int, arrays: Arrays) -> None:
    """Write the state of a zone after a round, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(path, _KIND, {"zone": zone, "round": round_number}, arrays)


def load_state(path: Path, zone: str) -> tuple[int, dict[str, NDArray[Any]]]:
    """Read the state of a zone: the round it was saved after, and the learner's arrays.

    Raises:
        CheckpointError: The file is missing, half-written, not ours or another zone's.
    """
    metadata, arrays = read_arrays(path, _KIND)
    if metadata.get("zone") != zone:
        raise CheckpointError(f"{path}: zone = {metadata.get('zone')!r}, expected {zone!r}")
    round_number = metadata.get("round")
    if not isinstance(round_number, int):
        raise CheckpointError(f"{path}: round = {round_number!r}, expected an integer")
    return round_number, arrays


def require_state(folder: Path, round_number: int) -> None:
    """Check that a zone's state after a round is there.

    Raises:
        CheckpointError: It is not.
    """
    path = state_path(folder, round_number)
    if not path.exists():
        raise CheckpointError(f"{path}: no such file, expected the zone's state of the checkpoint")


def state_path(folder: Path, round_number: int) -> Path:
    """Return the file of a zone's state after a round."""
    return folder / f"state-{round_number:05d}.npz"


def saved_rounds(folder: Path) -> list[int]:
    """Return the rounds after which a state is saved, ascending."""
    numbers = (path.stem.removeprefix("state-") for path in folder.glob("state-*.npz"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def discard_after(folder: Path, round_number: int) -> None:
    """Delete the states of rounds that came to nothing: those after a round."""
    for number in saved_rounds(folder):
        if number > round_number:
            state_path(folder, number).unlink(missing_ok=True)


def policy_path(folder: Path, round_number: int) -> Path:
    """Return the file of a zone's own policy after a round."""
    return folder / f"policy-{round_number:05d}.npz"


def prune(folder: Path, first_state: int, policies: set[int]) -> None:
    """Delete states of rounds before `first_state`, and policies of all but the given rounds."""
    kept = {policy_path(folder, number).name for number in policies}
    oldest = state_path(folder, first_state).name
    for path in folder.glob("state-*.npz"):
        if path.name < oldest:
            path.unlink()
    for path in folder.glob("policy-*.npz"):
        if path.name not in kept:
            path.unlink()
