"""Which node is which zone, and who takes part in a round."""

from collections.abc import Mapping

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from federation.round_driver import RoundDriver
from marl_sched.config import Experiment
from marl_sched.errors import RunError


class Roster:
    """The zones of a run. They join between rounds only, and leave for good.

    A node that was lost is not asked again: nobody knows what state it is in.
    """

    def __init__(self, grid: Grid, driver: RoundDriver, experiment: Experiment) -> None:
        """Start with no zone."""
        self._grid = grid
        self._driver = driver
        self._experiment = experiment
        self._gone: set[int] = set()
        self.nodes: dict[str, int] = {}
        """Node id by zone, in the order of zone names."""

    def refresh(self) -> None:
        """Ask every node which zone it is.

        Raises:
            RunError: A zone is not of this experiment, or two nodes claim one.
        """
        asked = [
            Message(RecordDict(), node_id, MessageType.QUERY)
            for node_id in sorted(self._grid.get_node_ids())
            if node_id not in self._gone
        ]
        nodes: dict[str, int] = {}
        known = self._experiment.zone_names
        for reply in self._driver.ask_zones(asked):
            zone = str(reply.content.config_records["zone"]["name"])
            if zone not in known:
                raise RunError(f"a node says that it is zone {zone!r}, expected one of {known}")
            if zone in nodes:
                raise RunError(f"two nodes say that they are {zone}, expected one node a zone")
            nodes[zone] = reply.metadata.src_node_id
        self.nodes = dict(sorted(nodes.items()))

    def remove(self, lost: Mapping[str, str]) -> None:
        """Strike out zones, given with the reasons.

        Raises:
            RunError: Fewer zones than the quorum are left.
        """
        for zone in lost:
            self._gone.add(self.nodes.pop(zone))
        self.require_quorum(lost)

    def require_quorum(self, lost: Mapping[str, str]) -> None:
        """Check that enough zones are left.

        Raises:
            RunError: Fewer than the quorum; the message names the zones lost and why.
        """
        quorum = self._experiment.federation.quorum
        if len(self.nodes) < quorum:
            reasons = "; ".join(f"{zone}: {reason}" for zone, reason in sorted(lost.items()))
            raise RunError(
                f"{len(self.nodes)} zones are left, expected at least federation.quorum = {quorum}"
                + (f" ({reasons})" if reasons else "")
            )
