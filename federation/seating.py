"""Who becomes which zone: the rules, without the asking.

named node   its zone. A free node that is that zone stays until the named one is ready, so that
             no round is without it
free node    the zone that it was before, else the first by name that nobody is or waits for
the rest     spares
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from federation.seats import Node, Seat
from zones.records import Assignment

Dispute = tuple[Node, Node]
"""A node that was started for a zone, and another one that was too and holds it."""

_MAX_EPOCH = 1 << 40
"""No zone is given away so often: a node that says more is not believed."""
_GOOD_ROUNDS = 10
"""Rounds in a row after which a node's losses are forgotten."""


class Seating:
    """The nodes of a run and the zones they hold."""

    def __init__(self, zone_names: Iterable[str], table: Mapping[str, Seat]) -> None:
        """Start without nodes.

        Args:
            zone_names: Zones of the experiment.
            table: Zone table of the checkpoint.
        """
        self.zone_names = tuple(sorted(zone_names))
        self.table = dict(table)
        """Node, epoch and last round by zone."""
        self.nodes: dict[int, Node] = {}
        self.lost: dict[str, str] = {}
        """Why, by zone that was lost and has not taken part since."""
        self._past: dict[int, tuple[int, str]] = {}
        """Losses of nodes that were lost, and why they are not wanted any more."""

    @property
    def seats(self) -> dict[str, tuple[int, Assignment]]:
        """Node and assignment of every zone that can take part, in the order of zone names."""
        found = [(n.claim, n.node_id) for n in self.nodes.values() if n.is_seated]
        seats = {claim.zone: (node_id, claim) for claim, node_id in found if claim is not None}
        return dict(sorted(seats.items()))

    @property
    def unseated(self) -> list[Node]:
        """Nodes that are there, and wanted, but no zone yet."""
        return [n for n in self.nodes.values() if not n.is_seated and not n.barred]

    @property
    def claimed(self) -> set[str]:
        """Zones that some node is, or is to be."""
        return {n.claim.zone for n in self.nodes.values() if n.claim is not None}

    def missing(self) -> dict[str, str]:
        """Return why, by zone that cannot take part."""
        seats = self.seats
        return {zone: self._why(zone) for zone in self.zone_names if zone not in seats}

    def update(self, online: Collection[int]) -> list[Node]:
        """Note which nodes are there; return those that have left.

        A node that comes back begins anew, but for its losses.
        """
        for node_id in set(online) - set(self.nodes):
            n_losses, barred = self._past.get(node_id, (0, ""))
            self.nodes[node_id] = Node(node_id, n_losses=n_losses, barred=barred)
        return [self.nodes.pop(node_id) for node_id in sorted(set(self.nodes) - set(online))]

    def strike(self, lost: Mapping[str, str], n_returns: int) -> None:
        """Take zones from nodes that were lost in a round; a node may return `n_returns` times."""
        seats = self.seats
        for zone, reason in lost.items():
            node = self.nodes[seats[zone][0]]
            node.release()
            node.name = None
            node.n_losses += 1
            node.n_good = 0
            if node.n_losses > n_returns:
                node.barred = f"{zone} was lost {node.n_losses} times, last: {reason}"
            self._past[node.node_id] = (node.n_losses, node.barred)
        self.lost |= lost

    def commit(self, round_number: int, zones: Iterable[str]) -> None:
        """Note who took part in a committed round."""
        seats = self.seats
        for zone in set(zones) & set(self.table):
            self.lost.pop(zone, None)
            self.table[zone] = replace(self.table[zone], last_round=round_number)
            if zone in seats:
                node = self.nodes[seats[zone][0]]
                node.n_good += 1
                if node.n_good >= _GOOD_ROUNDS:
                    node.n_losses = 0
                    self._past.pop(node.node_id, None)

    def hand_out(self, is_start: bool) -> list[Dispute]:
        """Give zones to nodes that have none: named ones first, then free ones.

        Args:
            is_start: No round has begun: a free node makes room for a named one at once.

        Returns:
            Nodes that got nothing since another one was started for their zone too.
        """
        disputes: list[Dispute] = []
        for node in [n for n in self._idle() if n.name]:
            zone = str(node.name)
            holders = [
                n for n in self.nodes.values() if n.claim is not None and n.claim.zone == zone
            ]
            rival = next((holder for holder in holders if holder.name == zone), None)
            if rival is not None:
                disputes.append((node, rival))
                continue
            for holder in holders:
                if is_start or not holder.is_seated:
                    holder.release()
            self._give(node, zone)
        self._fill()
        return disputes

    def seat(self, node: Node) -> None:
        """Let a node take part as what it claims; who was that until now is released."""
        node.is_seated = True
        zone = node.claim.zone if node.claim is not None else ""
        for other in self.nodes.values():
            if other is not node and other.claim is not None and other.claim.zone == zone:
                other.release()

    def _fill(self) -> None:
        """Give free nodes the zones that are left."""
        idle = [n for n in self._idle() if not n.name]
        claimed = self.claimed
        free = [zone for zone in self.zone_names if zone not in claimed]
        # Whoever waits for its own zone by name, or was it, gets it; the zone lost last comes last.
        awaited = {n.was.zone for n in idle if n.was is not None}
        for node in idle:
            others = [zone for zone in free if zone not in awaited] or free
            others.sort(key=lambda z: (z in self.lost, z))
            for zone in [*self._former_zones(node, free), *others][:1]:
                self._give(node, zone)
                free.remove(zone)

    def _idle(self) -> list[Node]:
        """Return the nodes that have answered and are to be nothing yet."""
        idle = [n for n in self.unseated if n.name is not None and n.claim is None]
        return sorted(idle, key=lambda n: n.node_id)

    def _former_zones(self, node: Node, free: list[str]) -> list[str]:
        """Return the free zones that a free node was before, the last one first."""
        said = [node.was.zone] if node.was is not None else []
        kept = [zone for zone, seat in self.table.items() if seat.node_id == node.node_id]
        return [zone for zone in [*said, *kept] if zone in free]

    def _give(self, node: Node, zone: str) -> None:
        """Make a node a zone, under a new epoch."""
        before = self.table.get(zone, Seat(0, 0))
        known = node.was.epoch if node.was is not None and node.was.zone == zone else 0
        known = known if known <= _MAX_EPOCH else 0  # not from us; Flower has 64 bits for it
        epoch = max(before.epoch, known) + 1
        self.table[zone] = Seat(node.node_id, epoch, before.last_round)
        node.claim = Assignment(zone, epoch)
        node.ask_at = 0.0

    def _why(self, zone: str) -> str:
        """Return why a zone cannot take part, in a line."""
        for node in self.nodes.values():
            if node.is_for(zone):
                return node.why_not_ready()
        n_silent = sum(n.name is None and not n.started_for for n in self.unseated)
        more = f" ({n_silent} have not said yet what they are)" if n_silent else ""
        since = f" since it was lost: {self.lost[zone]}" if zone in self.lost else ""
        return f"no process of it is there{more}{since}"
