"""A worker's learner between rounds: what it keeps, and the way back to the start of a round.

A round begins from the state that the learner was in when the round was first ordered, however
often it is ordered again: replay, optimizer, target and generator go back when an attempt was
lost, and so do the running resource weights of the zones it learns from.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from marl_sched.agents.learner import Learner
from marl_sched.envs.resource_weighting import ResourceWeighting
from marl_sched.errors import CheckpointError
from zones import state
from zones.records import RoundOrder

_WEIGHTING = "weighting."
"""Prefix of the arrays of the resource weights: weighting.ZONE.NAME."""

Weightings = Mapping[str, ResourceWeighting]
"""Resource weights by zone."""


class LearnerStates:
    """The learner and its states. With a folder for them they are saved, and are in memory once.

    Attributes:
        zone: Whose states they are.
        folder: Where they are saved, or None.
        learner: The learner, in the state of the order that `begin` was given last.
    """

    def __init__(
        self,
        zone: str,
        make: Callable[[], Learner],
        weightings: Weightings,
        folder: Path | None,
    ) -> None:
        """Begin with a new learner.

        Args:
            zone: Whose states they are.
            make: Makes a learner that has seen nothing.
            weightings: What the rewards of its zones are weighed by.
            folder: Where states are saved; None: nothing is written.
        """
        self.zone = zone
        self._make = make
        self._weightings = weightings
        self.folder = folder
        self.learner = make()
        self._round: int | None = None
        """The last round the learner's state is the outcome of; None in the middle of one, and
        before anything was loaded."""
        self._start: dict[str, NDArray[Any]] = {}
        self._start_round = 0
        """Where nothing is saved: the state that the last order began with, and its round."""

    def begin(self, order: RoundOrder) -> None:
        """Bring the learner to the state before the ordered round."""
        before = order.round_number - 1
        if self._round is None or self._round > before:
            self._go_back(before)
        kept = before if self._round is None else self._round
        if self.folder is None:
            if self._start_round != kept or not self._start:
                self._start, self._start_round = self._copied(), kept
        else:
            state.prune(self.folder, min(before - 1, kept), {order.best_round, before})
        self._round = None

    def end(self, round_number: int) -> None:
        """Note that the learner's state is the outcome of a round."""
        self._round = round_number

    def save_round(self, round_number: int) -> None:
        """Save the state after a round, if there is a folder."""
        if self.folder is not None:
            self.save(state.state_path(self.folder, round_number))

    def save(self, path: Path) -> None:
        """Write all that the next round goes on from, atomically."""
        state.save_state(path, self.zone, self._round or 0, self._views())

    def load(self, path: Path) -> None:
        """Go on from what `save` wrote.

        Raises:
            CheckpointError: The file is not a whole state of this zone and experiment.
        """
        round_number, arrays = state.load_state(path, self.zone)
        try:
            self._load(arrays)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from None
        self._round = round_number

    def _go_back(self, round_number: int) -> None:
        """Return to the newest state up to a round; without one, as a spare: an empty replay."""
        if self.folder is None:
            if self._start and self._start_round <= round_number:
                self._load(self._start)
                self._round = self._start_round
                return
        else:
            rounds = [n for n in state.saved_rounds(self.folder) if n <= round_number]
            if rounds:
                self.load(state.state_path(self.folder, rounds[-1]))
                return
        self.learner = self._make()
        for weighting in self._weightings.values():
            weighting.reset()
        self._round = 0

    def _views(self) -> dict[str, NDArray[Any]]:
        return self.learner.views() | {
            f"{_WEIGHTING}{zone}.{name}": array
            for zone, weighting in self._weightings.items()
            for name, array in weighting.state().items()
        }

    def _copied(self) -> dict[str, NDArray[Any]]:
        return {name: array.copy() for name, array in self._views().items()}

    def _load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.learner.load_state({k: a for k, a in arrays.items() if not k.startswith(_WEIGHTING)})
        for zone, weighting in self._weightings.items():
            prefix = f"{_WEIGHTING}{zone}."
            weighting.load_state(
                {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
            )
