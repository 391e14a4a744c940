"""Which node is which zone, and who takes part in a round.

    new --who are you?--> known --you are Z, epoch e--> getting ready --is_ready--> seated
     ^                      |                                                        |
     |                      +--> spare, for when a zone becomes free                 |
     +------------- lost in a round, asked again between rounds <--------------------+

Zones join and leave between rounds only. Questions are never waited for while there are zones
enough: whoever is slow or dead takes part once it has answered.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from federation.greeting import Hello, ZoneStatus, decode_status, encode_hello
from federation.messages import STALE
from federation.round_driver import Stopped
from federation.seats import Node, Seat
from federation.session import Note, Patience
from marl_sched.config import Experiment, dump_config
from marl_sched.errors import RunError
from zones.records import Assignment

_logger = logging.getLogger(__name__)

_AGAIN_S = 0.5
"""Time before a node that is not ready, or did not understand, is asked again."""
_GOOD_ROUNDS = 10
"""Rounds in a row after which a node's losses are forgotten."""


@dataclass
class _Clock:
    now: Callable[[], float] = time.monotonic
    stop: threading.Event = field(default_factory=threading.Event)


class Roster:
    """The zones of a run, and the nodes that are or could be one."""

    def __init__(
        self,
        grid: Grid,
        experiment: Experiment,
        patience: Patience,
        table: Mapping[str, Seat],
        note: Note,
        stop: threading.Event,
    ) -> None:
        """Start with no zone.

        Args:
            grid: Where the nodes are.
            experiment: Says which zones there are.
            patience: How long to wait, and how often a node may be lost.
            table: Zone table of the checkpoint.
            note: Told who joins, leaves and is missing.
            stop: Set to end every wait.
        """
        self._grid = grid
        self._experiment = experiment
        self._config = dump_config(experiment)
        self._patience = patience
        self._note = note
        self._clock = _Clock(stop=stop)
        self._nodes: dict[int, Node] = {}
        self._past: dict[int, tuple[int, str]] = {}
        """Losses of nodes that were lost, and why they are not wanted any more."""
        self._lost: dict[str, str] = {}
        self._is_new = True
        self.table = dict(table)
        """Node, epoch and last round by zone."""

    @property
    def seats(self) -> dict[str, tuple[int, Assignment]]:
        """Node and assignment of every zone that takes part, in the order of zone names."""
        found = [(n.claim, n.node_id) for n in self._nodes.values() if n.is_seated]
        seats = {claim.zone: (node_id, claim) for claim, node_id in found if claim is not None}
        return dict(sorted(seats.items()))

    def refresh(self) -> None:
        """Let zones join and leave, between rounds.

        Waits at the start for all zones, later only if fewer than the quorum are there.

        Raises:
            RunError: There are too few, and no more came in time.
            Stopped: The run was asked to stop.
        """
        self._step()
        wanted = len(self._experiment.zones) if self._is_new else self._quorum
        if len(self.seats) < wanted:
            self._wait_for(wanted)
        self._is_new = False
        self.require_quorum()

    def remove(self, lost: Mapping[str, str]) -> None:
        """Strike out zones for the round, given with the reasons.

        Raises:
            RunError: Fewer zones than the quorum are left, and no more came in time.
            Stopped: The run was asked to stop.
        """
        seats = self.seats
        for zone, reason in lost.items():
            node = self._nodes[seats[zone][0]]
            self._release(node)
            node.name = None
            node.n_losses += 1
            node.n_good = 0
            if node.n_losses > self._patience.n_returns:
                node.barred = f"{zone} was lost {node.n_losses} times, last: {reason}"
            self._past[node.node_id] = (node.n_losses, node.barred)
        self._lost |= lost
        if len(self.seats) < self._quorum and self._patience.wait_s > 0:
            self._wait_for(self._quorum)
        self.require_quorum()

    def commit(self, round_number: int, zones: Iterable[str]) -> None:
        """Note who took part in a committed round."""
        for zone in set(zones) & set(self.table):
            self._lost.pop(zone, None)
            self.table[zone] = replace(self.table[zone], last_round=round_number)
            node = self._nodes.get(self.table[zone].node_id)
            if node is not None:
                node.n_good += 1
                if node.n_good >= _GOOD_ROUNDS:
                    node.n_losses = 0
                    self._past.pop(node.node_id, None)

    def require_quorum(self) -> None:
        """Check that enough zones are there.

        Raises:
            RunError: Fewer than the quorum; the message names the zones lost and why.
        """
        n_zones = len(self.seats)
        if n_zones < self._quorum:
            reasons = "; ".join(f"{zone}: {why}" for zone, why in sorted(self._lost.items()))
            raise RunError(
                f"{n_zones} zones are left, expected at least federation.quorum = {self._quorum}"
                + (f" ({reasons})" if reasons else "")
            )

    @property
    def _quorum(self) -> int:
        return self._experiment.federation.quorum

    def _wait_for(self, n_wanted: int) -> None:
        """Take nodes in until enough are there, or time is up."""
        start = self._clock.now()
        said: list[str] = []
        while len(self.seats) < n_wanted:
            waited_s = self._clock.now() - start
            is_pending = any(n.query is not None or n.claim for n in self._unseated())
            if waited_s >= self._patience.wait_s:
                limit_s = self._patience.wait_s + self._patience.answer_s
                enough = len(self.seats) >= self._quorum
                if not is_pending or waited_s >= limit_s or (enough and self._patience.wait_s > 0):
                    break
            missing = sorted(set(self._experiment.zone_names) - set(self.seats))
            if missing != said:
                said = missing
                self._note("waiting", {"zones": missing, "wait_s": self._patience.wait_s})
            if self._clock.stop.wait(self._patience.poll_s):
                raise Stopped("the run was asked to stop")
            self._step()
        missing = sorted(set(self._experiment.zone_names) - set(self.seats))
        if missing:
            _logger.warning("going on without %s: no process of it is there", ", ".join(missing))
            self._note("missing", {"zones": missing})

    def _unseated(self) -> list[Node]:
        return [n for n in self._nodes.values() if not n.is_seated and not n.barred]

    def _step(self) -> None:
        """Look who is there, take answers, hand out zones, ask; without waiting."""
        online = set(self._grid.get_node_ids())
        for node_id in online - set(self._nodes):
            n_losses, barred = self._past.get(node_id, (0, ""))
            self._nodes[node_id] = Node(node_id, n_losses=n_losses, barred=barred)
        for node_id in set(self._nodes) - online:
            self._forget(self._nodes[node_id])
        self._take_answers()
        self._hand_out()
        self._ask()

    def _forget(self, node: Node) -> None:
        """A node is gone; it begins anew if it comes back, but for its losses."""
        if node.is_seated and node.claim is not None:
            _logger.warning("%s: its node has left", node.claim.zone)
            self._note("left", {"zone": node.claim.zone})
        del self._nodes[node.node_id]

    def _release(self, node: Node) -> None:
        node.claim, node.is_seated = None, False
        node.is_told_spare = node.is_challenged = False
        node.query = None
        node.ask_at = 0.0

    def _take_answers(self) -> None:
        asked = {n.query: n for n in self._nodes.values() if n.query is not None}
        if not asked:
            return
        replies = list(self._grid.pull_messages(list(asked)))
        for reply in sorted(replies, key=lambda r: asked[r.metadata.reply_to_message_id].node_id):
            node = asked[reply.metadata.reply_to_message_id]
            node.query = None
            node.ask_at = self._clock.now() + _AGAIN_S
            if reply.has_error():
                # One that was passed over for a newer message: only a live node does that.
                node.is_alive |= reply.error.code == STALE
                _logger.info("node %d: no answer: %s", node.node_id, reply.error.reason)
                continue
            try:
                status = decode_status(reply.content)
            except (ValueError, KeyError) as error:
                self._bar(node, f"an answer that makes no sense: {error}")
                continue
            self._learn(node, status)

    def _learn(self, node: Node, status: ZoneStatus) -> None:
        """Take what a node says of itself."""
        node.name = status.name
        node.is_alive = True
        node.was = Assignment(status.assigned, status.epoch) if status.assigned else None
        if status.problem:
            self._note("problem", {"zone": status.name, "problem": status.problem})
            _logger.warning("node %d %s: %s", node.node_id, status.name, status.problem)
            self._release(node)
            node.ask_at = self._clock.now() + 10 * _AGAIN_S
            node.name = None
        elif status.name and status.name not in self._experiment.zone_names:
            known = ", ".join(self._experiment.zone_names)
            self._refuse(node, f"it is zone {status.name!r}, expected one of {known}")
        elif node.claim is not None and node.was == node.claim and status.is_ready:
            if not node.is_seated:
                self._note("joined", {"zone": node.claim.zone, "epoch": node.claim.epoch})
                _logger.info("%s is node %d", node.claim.zone, node.node_id)
            node.is_seated = True

    def _hand_out(self) -> None:
        """Give zones to nodes that have none: named ones first, then free ones."""
        idle = [n for n in self._unseated() if n.name is not None and n.claim is None]
        idle.sort(key=lambda n: n.node_id)
        holders = {n.claim.zone: n for n in self._nodes.values() if n.claim is not None}
        for node in (n for n in idle if n.name):
            zone = str(node.name)
            holder = holders.get(zone)
            if holder is None:
                self._give(node, zone)
                holders[zone] = node
            elif holder.name == zone:
                self._settle_claims(node, holder, zone)
        free = [zone for zone in sorted(self._experiment.zone_names) if zone not in holders]
        # Whoever waits for its own zone by name, or was it, gets it; the zone lost last comes last.
        awaited = {n.was.zone for n in idle if not n.name and n.was is not None}
        for node in (n for n in idle if not n.name):
            others = [zone for zone in free if zone not in awaited] or free
            others.sort(key=lambda z: (z in self._lost, z))
            for zone in [*self._former_zones(node, free), *others][:1]:
                self._give(node, zone)
                free.remove(zone)

    def _former_zones(self, node: Node, free: list[str]) -> list[str]:
        """Return the free zones that a free node was before, the last one first."""
        said = [node.was.zone] if node.was is not None else []
        kept = [zone for zone, seat in self.table.items() if seat.node_id == node.node_id]
        return [zone for zone in [*said, *kept] if zone in free]

    def _settle_claims(self, node: Node, holder: Node, zone: str) -> None:
        """Two nodes were started for one zone: the newer goes, if the older one still lives."""
        if holder.query is not None:
            return
        if holder.is_challenged and holder.is_alive:
            holder.is_challenged = False
            self._refuse(
                node,
                f"zone {zone} is node {holder.node_id} already, node {node.node_id} was started "
                "for it too; expected one process a zone",
            )
            return
        holder.is_challenged, holder.is_alive = True, False
        self._send(holder)

    def _give(self, node: Node, zone: str) -> None:
        """Make a node a zone, under a new epoch."""
        before = self.table.get(zone, Seat(0, 0))
        known = node.was.epoch if node.was is not None and node.was.zone == zone else 0
        epoch = max(before.epoch, known) + 1
        self.table[zone] = Seat(node.node_id, epoch, before.last_round)
        node.claim = Assignment(zone, epoch)
        node.ask_at = 0.0

    def _ask(self) -> None:
        """Ask every node that is new, not ready, or was told something else."""
        now = self._clock.now()
        for node in sorted(self._unseated(), key=lambda n: n.node_id):
            if node.query is None and node.ask_at <= now:
                is_spare = node.name is not None and node.claim is None
                if is_spare and node.is_told_spare:
                    continue
                node.is_told_spare = is_spare
                self._send(node)

    def _send(self, node: Node, refusal: str = "") -> None:
        claim = node.claim or Assignment("", 0)
        last_round = self.table[claim.zone].last_round if claim.zone else None
        hello = Hello(
            config=self._config,
            run=self._experiment.name,
            zone=claim.zone,
            epoch=claim.epoch,
            last_round=last_round,
            refusal=refusal,
        )
        ids = list(
            self._grid.push_messages(
                [Message(encode_hello(hello), node.node_id, MessageType.QUERY)]
            )
        )
        node.query = ids[0] if ids else None
        node.ask_at = self._clock.now() + _AGAIN_S

    def _refuse(self, node: Node, reason: str) -> None:
        """Tell a node that it is not wanted, and why."""
        self._bar(node, reason)
        self._send(node, refusal=reason)

    def _bar(self, node: Node, reason: str) -> None:
        _logger.warning("node %d is refused: %s", node.node_id, reason)
        self._note("refused", {"node": str(node.node_id), "reason": reason})
        self._release(node)
        node.barred = reason
