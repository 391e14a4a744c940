"""Which node was which zone, and what is known of a node."""

from dataclasses import dataclass

from marl_sched.run_folder import Checkpoint
from zones.records import Assignment


@dataclass(frozen=True)
class Seat:
    """A row of the zone table.

    Attributes:
        node_id: The node that was the zone last.
        epoch: Counts how often the zone was given to a node.
        last_round: The last committed round that the zone took part in; 0: none.
    """

    node_id: int
    epoch: int
    last_round: int = 0


def zone_table(checkpoint: Checkpoint) -> dict[str, Seat]:
    """Return the zone table of a checkpoint; of one without, what its members tell."""
    rows = checkpoint.zones
    table = {zone: Seat(0, 0, checkpoint.round_number) for zone in checkpoint.members}
    return table | {z: Seat(r["node_id"], r["epoch"], r["last_round"]) for z, r in rows.items()}


@dataclass
class Node:
    """What is known of a node."""

    node_id: int
    name: str | None = None
    """The zone it was started for, empty for any; None: it has not said since it was asked anew."""
    started_for: str = ""
    """The same as it was said last."""
    claim: Assignment | None = None
    """What it is to be, or is."""
    is_seated: bool = False
    joined: Assignment | None = None
    """What was last told of it to whoever watches."""
    was: Assignment | None = None
    """What it says that it is."""
    problem: str = ""
    """Why it cannot be what it was told to be, as it has said last."""
    query: str | None = None
    """The question that it has not answered."""
    ask_at: float = 0.0
    n_unanswered: int = 0
    """Questions in a row that were given up."""
    is_challenged: bool = False
    """Whether another node has claimed its zone, so that it was asked whether it is alive."""
    is_alive: bool = False
    """Whether it has answered since."""
    is_told_spare: bool = False
    barred: str = ""
    """Why it is not wanted any more."""
    n_losses: int = 0
    n_good: int = 0

    def release(self) -> None:
        """Let it be no zone, and be asked anew."""
        self.claim, self.is_seated = None, False
        self.is_told_spare = self.is_challenged = False
        self.ask_again()

    def ask_again(self) -> None:
        """Forget what it was asked last; an answer to that counts no more."""
        self.query, self.ask_at = None, 0.0

    def is_for(self, zone: str) -> bool:
        """Return whether it is, or is to be, or was started for a zone."""
        return self.started_for == zone or (self.claim is not None and self.claim.zone == zone)

    def why_not_ready(self) -> str:
        """Return why a node that is there is not the zone that it is for, in a line."""
        if self.barred:
            return f"its process is refused: {self.barred}"
        if self.problem:
            return f"its process is there but not ready: {self.problem}"
        if self.claim is not None and self.was == self.claim:
            return "its process is there but not ready: it still prepares"
        return "its process is there but has not answered yet"
