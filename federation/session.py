"""What a run is given, and what it tells whoever watches."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from federation.key_claims import Objection, no_objection
from federation.round_driver import ExchangeControl, Limits
from marl_sched.config import Experiment
from marl_sched.run_folder import Checkpoint, RunFolder
from zones.records import Weights

ZoneSums = Mapping[str, Mapping[str, NDArray[np.float64]]]
"""Validation sums by zone and key, (V, anything) each."""


@dataclass(frozen=True)
class RoundDone:
    """An event of the run: a round was committed, or the last validation was.

    Attributes:
        round_number: The last committed round.
        n_rounds: Rounds of the run.
        seconds: Wall time of the round, or of the last validation.
        n_decisions: Decisions of all zones; 0 in the last event, which only validates.
        objective: Validation objective, if weights were scored: those of the round before, in the
            last event those of the last round.
        is_best: Whether they are the best so far.
        lost: Why, by zone that left the run.
    """

    round_number: int
    n_rounds: int
    seconds: float
    n_decisions: int
    objective: float | None = None
    is_best: bool = False
    lost: Mapping[str, str] = field(default_factory=dict)


Progress = Callable[[RoundDone], None]
Note = Callable[[str, Mapping[str, Any]], None]
"""Told what happens to zones: a kind (joined, left, lost, ...) and what belongs to it."""


def _say_nothing(event: RoundDone) -> None:
    """Nobody watches."""


def _note_nothing(kind: str, what: Mapping[str, Any]) -> None:
    """Nobody watches."""


def _go_on(session: "Session") -> None:
    """Zones stay what they are."""


@dataclass(frozen=True)
class Patience:
    """How long zones are waited for, and how often one may be lost.

    Attributes:
        wait_s: Longest wait for zones that are not there: at the start for all, later for a quorum.
            0: who is not there never will be.
        answer_s: How much longer those are waited for that are there and have not answered.
        poll_s: Time between two looks.
        n_returns: How often a node may take part again after it was lost.
    """

    wait_s: float = 0.0
    answer_s: float = 60.0
    poll_s: float = 0.001
    n_returns: int = 0


@dataclass(frozen=True)
class Session:
    """What the composition root gives a run.

    Attributes:
        experiment: What to run.
        folder: Where to write.
        checkpoint: What to go on from; round 0 with the first weights for a new run. Its tensors
            are those that are shared.
        exchange: The exchange between the zones.
        publish: Writes the policy of a network to a file; None if zones hold tensors of their own:
            then every zone saves its whole policy itself.
        score: Cluster metrics, `objective` among them, from the zones' validation sums.
        limits: Bounds of every wait.
        stop: Set to end the run after calling off the attempt under way.
        progress: Called at every event.
        patience: With zones that are not there.
        note: Told what happens to zones.
        keeps_zones: Zones have processes of their own: which node is which zone belongs to the
            checkpoint.
        renew: Asked between two rounds: returns the session with other zones, or None.
        objection: Says which nodes may not have the zone that they name.
    """

    experiment: Experiment
    folder: RunFolder
    checkpoint: Checkpoint
    exchange: ExchangeControl
    publish: Callable[[Path, Weights], object] | None
    score: Callable[[ZoneSums], Mapping[str, float]]
    limits: Limits
    stop: threading.Event = field(default_factory=threading.Event)
    progress: Progress = _say_nothing
    patience: Patience = Patience()
    note: Note = _note_nothing
    keeps_zones: bool = False
    renew: Callable[["Session"], "Session | None"] = _go_on
    objection: Objection = no_objection
